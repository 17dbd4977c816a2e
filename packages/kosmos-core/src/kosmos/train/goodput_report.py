"""Goodput of a run over all its launches.

It is the sum of the times of the steps that are kept in the final lineage over wall time, from the first launch to
the end. A step that is taken again after a restart counts once, a skipped one not at all.

Source: "effective training time" of Llama 3 (arXiv 2407.21783, 3.3.4), with the losses split by cause.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from kosmos.train.goodput import CLASSES, LOST_WORK, PRODUCTIVE, RESTART, UNKNOWN


@dataclass(frozen=True)
class Row:
    """One line of ``goodput.jsonl``."""

    launch: str
    begin: float
    """Seconds since 1970."""
    end: float
    first_step: int
    """Steps done before it."""
    last_step: int
    """Steps done at its end."""
    seconds: dict[str, float]
    """By class; together ``end - begin``."""
    newest: int | None = None
    """Step of the newest checkpoint, as the launch knew it; rows of older versions do not say."""
    failed: int = 0
    """Checkpoints that the launch could not write since that one."""
    problem: str | None = None
    """What kept the last of these from being written."""
    ended: str | None = None
    """How the launch ended, in its last row; None where it was killed, and in rows of older versions."""
    problem_of_end: str | None = None
    """What it failed of."""


@dataclass(frozen=True)
class GoodputReport:
    """What a run's wall time went into."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By class, every class of ``CLASSES``; together ``wall_s``."""
    wall_s: float = 0.0
    """From the begin of the first launch to the end of the last."""
    launches: int = 0
    steps: int = 0
    """Steps in the final lineage."""
    lost_steps: int = 0
    """Steps that were taken and are not in it."""

    @property
    def goodput(self) -> float:
        """Share of the wall time that went into kept steps; 0 where there is none."""
        return self.seconds.get(PRODUCTIVE, 0.0) / self.wall_s if self.wall_s else 0.0


def read_rows(file: Path) -> list[Row]:
    """The rows of ``goodput.jsonl``. A line that a crash cut short is left out; its time shows as a gap."""
    rows = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            value: dict[str, Any] = json.loads(line)
            first, last = value["steps"]
            seconds = {str(what): float(s) for what, s in value["seconds"].items()}
            span, saves = (float(value["begin"]), float(value["end"])), value.get("saves", {})
            told = saves.get("newest"), saves.get("failed", 0), saves.get("problem")
            rows.append(
                Row(value["launch"], *span, first, last, seconds, *told, value.get("ended"), value.get("problem"))
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return rows


def summary(rows: Sequence[Row]) -> GoodputReport:
    """Goodput over all launches.

    Steps that a later launch took again are lost work. Where a row holds both lost and kept steps its seconds are
    divided by their numbers; none does if a row was written with each checkpoint.
    """
    if not rows:
        return GoodputReport()
    seconds = dict.fromkeys(CLASSES, 0.0)
    for before, row in pairwise(rows):  # launches on two machines may have clocks that disagree
        gap = max(0.0, row.begin - before.end)
        seconds[UNKNOWN if row.launch == before.launch else RESTART] += gap
    kept = _kept_steps(rows)
    for row, steps in zip(rows, kept, strict=True):
        taken = row.last_step - row.first_step
        for what, spent in row.seconds.items():
            share = steps / taken if what == PRODUCTIVE and taken > 0 else 1.0
            seconds[what if what in seconds else UNKNOWN] += share * spent
            seconds[LOST_WORK] += (1.0 - share) * spent
    taken = sum(max(0, row.last_step - row.first_step) for row in rows)
    launches = len({row.launch for row in rows})
    return GoodputReport(seconds, sum(seconds.values()), launches, sum(kept), taken - sum(kept))


def launches_of(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each launch, in their order."""
    return [list(own) for _, own in groupby(rows, key=lambda row: row.launch)]


def failed_saves(rows: Sequence[Row]) -> tuple[int, str | None]:
    """How many checkpoints in a row could not be written up to now, over launches, and what kept the last from it."""
    count, problem = 0, None
    for own in reversed(launches_of(rows)):
        count, problem = count + own[-1].failed, problem or own[-1].problem
        if any(row.newest not in (None, own[0].first_step) for row in own):  # one that this launch has written
            break
    return count, problem


def _kept_steps(rows: Sequence[Row]) -> list[int]:
    """Of each row, how many steps are in the lineage of the last: found by walking back from it.

    The row that led to a step is the latest that reached it. Where none did, its line was lost in a crash after
    the checkpoint had been written, and the one that came nearest stands for it.
    """
    kept = [0] * len(rows)
    need, end = rows[-1].last_step, len(rows)
    while need > 0:
        found = (i for i in range(end - 1, -1, -1) if rows[i].first_step < need <= rows[i].last_step)
        reached = next(found, None)
        if reached is None:
            short = [i for i in range(end) if rows[i].first_step < rows[i].last_step < need]
            if not short:
                break
            reached = max(short, key=lambda i: (rows[i].last_step, i))
            need = rows[reached].last_step
        kept[reached] = need - rows[reached].first_step
        need, end = rows[reached].first_step, reached
    return kept
