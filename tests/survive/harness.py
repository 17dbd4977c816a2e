"""Kill real trainings at random moments, go on with them, and hold what they come to against one without a kill.

    python -m survive.harness --kills 200 [--seed N]

Every run is the ``kosmos`` command, as one process or as two ranks under torchrun. Where a kill falls is seeded: as the
run starts, some steps later, or as soon as a checkpoint is being written; on one rank, on the launcher, or on all.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kosmos.checkpoint.folder import PARTIAL, committed, load_newest, verify
from kosmos.checkpoint.tensors import read_whole
from support import ticks
from support.command import Started, install_plugin, lines_in
from support.ledgers import documents
from support.runs import rows_of
from support.torchrun import torchrun

STEPS, EVERY, SCORES = 48, 4, 16
TARGETS = {1: ("all", "process"), 2: ("rank 0", "rank 1", "launcher", "all")}
MOMENTS = ("start", "step", "save")
START_S = 4.0
"""A kill at the start falls within so many seconds of the launch."""
END_S = 120.0
"""A run that is left to end has so long."""
SAYS_WHERE = re.compile(r"going on from step (\d+) \((.+)\)")


@dataclass
class Summary:
    """What a session has come to."""

    kills: Counter[str] = field(default_factory=Counter)
    """By moment and target."""
    runs: int = 0
    """That were killed, gone on with to the end, and found equal."""
    steps_lost: int = 0
    """Taken again after kills."""
    during_save: int = 0
    """Kills that left a checkpoint that was not committed."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kills.items()))
        return (
            f"survived {sum(self.kills.values())} kills ({kinds}) in {self.runs} runs; {self.during_save} left a "
            f"checkpoint half written, none of which was read; {self.steps_lost} steps were taken again; losses, "
            "weights, held-out scores and documents of every run are those of one without a kill"
        )


class Survivor:
    """Runs of one kind, in a folder of their own."""

    def __init__(self, folder: Path, *, nproc: int, seed: int, summary: Summary) -> None:
        """
        Args:
            nproc: ranks under torchrun; 1 is the command alone, with a data worker.
        """
        self.folder, self.nproc, self.summary = folder, nproc, summary
        self.chance = random.Random(seed)
        folder.mkdir(parents=True)
        source = Path(ticks.__file__).read_text().replace(f"{ticks.__name__}:", "acme_ticks:")
        self.site = install_plugin(folder / "site", "ticks", source)  # a copy, which nobody edits meanwhile
        self.whole = folder / "whole"
        self.said = ""
        """By the last run."""

    def survive(self, kills: int, report: Callable[[str], None] = lambda line: None) -> None:
        """Kill so many times. Fails where anything differs from the run without a kill.

        Args:
            report: told after every run.
        """
        run = self._start(self.whole)
        self._end(run)
        self._check_ledger(self.whole)
        number = 0
        while kills > 0:
            number += 1
            output = self.folder / f"killed {number}"
            kills -= self._one(output, kills)
            self._compare(output)
            self.summary.runs += 1
            report(f"{self.nproc} ranks: {sum(self.summary.kills.values())} kills, {self.summary.runs} runs equal")

    def _one(self, output: Path, kills: int) -> int:
        """A run, killed at most ``kills`` times until it has ended. Returns how often it was."""
        done = 0
        while done < kills:
            before = self._newest(output)
            run = self._start(output)
            if not self._kill(run, output):
                self._check_start(before)
                return done
            done += 1
            self._check_start(before)
            self._check_folder(output)
        before = self._newest(output)
        run = self._start(output)
        self._end(run)
        self._check_start(before)
        return done

    def _start(self, output: Path) -> Started:
        """The command, or its resumption once the folder is a run's."""
        if (output / "run.yaml").exists():
            arguments = ["train", "--resume", str(output)]
        else:
            arguments = ["train", "--output", str(output), *self._settings(output)]
        if self.nproc == 1:
            return Started(*arguments, path=[self.site])
        return torchrun(self.nproc, ["-m", "kosmos", *arguments], path=[self.site])

    def _settings(self, output: Path) -> list[str]:
        small = "width=32 layers=1 heads=2 ffn_width=48 dropout=0.1 lora=4".split()  # what is kept is linked
        ledger = output.with_name(f"{output.name}.ledger")
        return [
            "--modalities", "ticks", f"streams.ticks.encoder.ledger={ledger}",
            *(f"backbone.{setting}" for setting in small),
            "data.tokens_per_pack=128", "data.lanes=2", "data.look_ahead=16",
            f"data.workers={1 if self.nproc == 1 else 0}",
            f"train.steps={STEPS}", "train.warmup_steps=1", "train.precision=fp32", "trackers=[]",
            f"checkpoint.every_steps={EVERY}", f"evaluate.every_steps={SCORES}", "evaluate.max_documents=4",
        ]  # fmt: skip

    def _kill(self, run: Started, output: Path) -> bool:
        """At a moment and on a target by chance. False where the run ended before."""
        moment, target = self.chance.choice(MOMENTS), self.chance.choice(TARGETS[self.nproc])
        if not self._moment(run, moment, output):
            self._end(run)
            return False
        killed = self._targets(run, target)
        for process in killed:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._wait_until_gone(run, f"{moment}, {target}")
        self.said = run.process.communicate()[1]
        if run.process.returncode == 0:  # it had just ended
            return False
        self.summary.kills[f"{target} at {moment}"] += 1
        self.summary.during_save += any((output / "checkpoints").glob(f"{PARTIAL}step-*"))
        return True

    def _moment(self, run: Started, moment: str, output: Path) -> bool:
        """Wait for it; False where the run ended before it came."""
        metrics = output / "metrics.jsonl"
        if moment == "start":
            end = time.monotonic() + self.chance.uniform(0, START_S)
            return self._wait(run, lambda: time.monotonic() > end)
        base, more = lines_in(metrics), self.chance.randrange(12)
        if not self._wait(run, lambda: lines_in(metrics) not in range(base - EVERY, base + more + 1)):
            return False
        if moment == "save" and not self._wait(run, lambda: any((output / "checkpoints").glob(f"{PARTIAL}*"))):
            return False
        time.sleep(self.chance.uniform(0, 0.02))
        return True

    @staticmethod
    def _wait(run: Started, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + END_S
        while not condition():
            if run.process.poll() is not None:
                return False
            assert time.monotonic() < end, f"nothing came of the run: {run.process.args}"
            time.sleep(0.001)
        return True

    @staticmethod
    def _targets(run: Started, target: str) -> list[int]:
        every = run.processes()
        if target in ("launcher", "process"):
            return [run.process.pid]
        if target.startswith("rank "):
            number = target.split()[1]
            ranks = [p for p in every if p != run.process.pid and _variable(p, "RANK") == number]
            return ranks or every
        return every

    def _wait_until_gone(self, run: Started, what: str) -> None:
        """What was not killed has to notice by itself."""
        end = time.monotonic() + 60
        while left := run.processes():
            assert time.monotonic() < end, f"after a kill ({what}) processes {left} were left behind"
            time.sleep(0.05)

    def _end(self, run: Started) -> None:
        status, said = run.end(at_most_s=END_S)
        assert status == 0, said
        self.said = said

    def _newest(self, output: Path) -> tuple[int, str] | None:
        """Step and path of the checkpoint that a run has to go on from; None where it begins."""
        if not (output / "run.yaml").exists():
            return None
        found = load_newest(output / "checkpoints")
        assert found is None or not found.skipped, found
        return (found.state["step"], str(found.folder)) if found else (0, "no checkpoint was saved yet")

    def _check_start(self, before: tuple[int, str] | None) -> None:
        """That the run went on from the newest checkpoint, as far as it came to say so."""
        assert "damaged" not in self.said, self.said
        told = SAYS_WHERE.search(self.said)
        assert told is None or (int(told[1]), told[2]) == before, self.said

    def _check_folder(self, output: Path) -> None:
        """That whatever is visible is whole, and how many steps a kill has cost."""
        checkpoints = committed(output / "checkpoints")
        assert {c.name: verify(c) for c in checkpoints} == dict.fromkeys(c.name for c in checkpoints)
        kept = int(checkpoints[0].name.removeprefix("step-")) if checkpoints else 0
        self.summary.steps_lost += max(0, lines_in(output / "metrics.jsonl") - kept)

    def _check_ledger(self, output: Path) -> None:
        assert len(documents(output.with_name(f"{output.name}.ledger"))) == 2 * STEPS

    def _compare(self, output: Path) -> None:
        """To the bit."""
        for file, keys in (("metrics.jsonl", ("step", "loss", "grad_norm", "documents")), ("held_out.jsonl", None)):
            found, expected = (list(_rows(folder / file, keys)) for folder in (output, self.whole))
            assert found == expected, f"{output / file} differs from {self.whole / file}"
        ledgers = [documents(folder.with_name(f"{folder.name}.ledger")) for folder in (output, self.whole)]
        assert ledgers[0] == ledgers[1]
        assert (output / "quarantine.jsonl").read_text() == ""
        newest = [committed(folder / "checkpoints")[0] for folder in (output, self.whole)]
        assert newest[0].name == newest[1].name
        weights, expected = (read_whole(checkpoint / "tensors") for checkpoint in newest)
        assert weights.keys() == expected.keys()
        assert all(tensor.equal(expected[name]) for name, tensor in weights.items())


def _rows(file: Path, keys: tuple[str, ...] | None) -> Iterator[Any]:
    for row in rows_of(file):
        yield {key: row[key] for key in keys} if keys else row


def _variable(process: int, name: str) -> str | None:
    """Of the environment of a process."""
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((v.decode().partition("=")[2] for v in variables if v.startswith(f"{name}=".encode())), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    summary = Summary()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        two = given.kills * 2 // 5
        for nproc, kills in ((1, given.kills - two), (2, two)):
            survivor = Survivor(Path(folder) / str(nproc), nproc=nproc, seed=given.seed, summary=summary)
            survivor.survive(kills, report=partial(print, flush=True))
    print(f"{summary} ({time.monotonic() - begin:.0f} s, seed {given.seed})")


if __name__ == "__main__":
    sys.exit(main())
