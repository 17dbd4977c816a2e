"""What makes a run slow and is no matter of the model: told once each, by the figures of its own steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kosmos.config import DataConfig
from kosmos.runtime.contention import Contention
from kosmos.runtime.cores import usable_cores
from kosmos.train.opening import Opened

WINDOW_STEPS, WINDOW_S = 20, 15.0
"""Steps and seconds that are looked at as a whole."""
FIRST_STEPS = 3
"""Steps of a process that are not looked at: the first row is always waited for."""
WAITS, EMPTY = 0.5, 0.5
"""Shares of the time that is waited for rows, and of the rows that are empty, from which on a line is due."""
CAPS = 0.7
"""Share of the cells that rows may hold, from which on no other medium may fit."""
FEW = 16
"""Documents that are looked over for a row, below which that may be why rows are empty."""


class Waste:
    """Looks at every step."""

    def __init__(self, data: DataConfig, workers: int, device: torch.device, *, lanes: int | None = None) -> None:
        """
        Args:
            data: how rows are filled.
            workers: processes of this rank that are asked to decode.
            lanes: of this rank, where none of its documents has media: one process fills all rows of a lane then.
        """
        self._data, self._workers, self._lanes = data, workers, lanes
        self._contention = Contention(device)
        self._told = set[str]()
        self._taken = 0
        self._begin()

    def look(self, row: Mapping[str, Any], *, is_last: bool = False) -> Iterator[str | None]:
        """What to tell the user after a step; mostly None.

        Args:
            row: of metrics.
            is_last: of the run. A short one is looked at as a whole.
        """
        yield self._contention.look()
        self._taken += 1
        if self._taken <= FIRST_STEPS:
            return
        self._steps += 1
        self._seconds += row["step_s"]
        self._waited += row["data_wait_s"]
        self._fill += row["fill"]
        for stream, cells in row.get("cells_by_stream", {}).items():
            self._cells[stream] = self._cells.get(stream, 0) + cells
        if self._steps < WINDOW_STEPS or not (is_last or self._seconds >= WINDOW_S):
            return
        waits, empty = self._waited / self._seconds, 1 - self._fill / self._steps
        if waits > WAITS:
            yield self._once("waits", self._of_waiting(waits))
        if empty > EMPTY:
            yield self._once("empty", self._of_empty_rows(empty))
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._seconds = self._waited = self._fill = 0.0
        self._cells: dict[str, int] = {}

    def _once(self, what: str, line: str | None) -> str | None:
        if line is None or what in self._told:
            return None
        self._told.add(what)
        return line

    def _of_waiting(self, share: float) -> str:
        """How much it is, who decodes, and what helps."""
        wanted, lanes = self._workers, self._lanes
        workers = f"data.workers {wanted}" + ("" if wanted else ", so that this process decodes itself")
        more, else_ = "data.workers", "make the media smaller once, before training"
        if lanes is not None:
            else_ = "have what reads the data give documents faster"
            if wanted > lanes:
                workers += f", of which {lanes} work: without media one for each lane of a process"
            if wanted >= lanes:
                more = "data.lanes and data.workers"
        return (
            f"for {100 * share:.0f} % of the last {self._seconds:.0f} s this run waited for rows to be decoded "
            f"({workers}; {usable_cores()} cores): raise {more}, or {else_}"
        )

    def _of_empty_rows(self, share: float) -> str | None:
        data = self._data
        rows = self._steps * data.lanes
        used = {name: self._cells.get(name, 0) / (rows * most) for name, most in data.cells_per_pack.items()}
        if capped := [f"{name} {data.cells_per_pack[name]:,}" for name, part in used.items() if part > CAPS]:
            media = f"data.cells_per_pack ({', '.join(capped)})"
            why = f"{media} lets no more media into them: raise it, or lower data.tokens_per_pack"
        elif data.look_ahead < FEW:
            why = f"of data.look_ahead {data.look_ahead} documents too few fit together: raise it"
        else:
            return None
        return f"{100 * share:.0f} % of the last {self._steps} steps' rows was empty: {why}"


def waste_of(run: Opened) -> Waste:
    """What looks at the steps of a run, as one rank sees it."""
    lanes = None if run.feed.streams else len(run.lanes)
    return Waste(run.composition.config.data, run.workers, run.device, lanes=lanes)
