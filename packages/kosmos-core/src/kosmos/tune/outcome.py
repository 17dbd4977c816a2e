"""What a trial is asked for and what it tells: files in its folder, between two processes. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from kosmos.files import replace_text

JOB, FACTS, RESULT = "job.json", "facts.json", "result-{rank}.json"
INTERNAL = "error[internal]"
"""How the line of an error begins that is none of a user's."""


@dataclass(frozen=True)
class Job:
    """What a trial is to do."""

    settings: dict[str, Any]
    """Of the run, all that a run file can say."""
    steps: int
    """That are counted, behind the first ones; 0 takes none at all."""
    seconds: float = 0.0
    """Go on counting until these have passed too."""
    processes: int | None = None
    """To share the run; None is this one alone."""
    look: bool = False
    """Find out ``Facts`` too."""

    def write(self, folder: Path) -> None:
        folder.joinpath(JOB).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Job:
        return Job(**json.loads(folder.joinpath(JOB).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Facts:
    """What decides which settings are worth trying, of the run and this machine."""

    device: str
    """``cpu`` or ``cuda``."""
    device_name: str
    precision: str
    """Type of matrix products."""
    parameters: int
    """That are trained."""
    cores: int
    """That this process may use."""
    threads: int
    """Of PyTorch, in each process."""
    processes: int
    workers: int
    """That decode, in each process."""
    most_workers: int
    """More of them would have nothing to do."""
    at_once_refused: str | None
    """Why rows cannot be computed at once, as far as is known before a step."""
    compile_refused: str | None
    """Why ``train.compile: true`` is refused on a CPU."""
    longest: int | None = None
    """Tokens of the longest of the first documents, or pieces of texts; None where they were not looked at."""
    cells: dict[str, int] = field(default_factory=dict)
    """Stream to the most cells of one of these documents."""
    steps: int = 0
    """Of the whole run."""

    def write(self, folder: Path) -> None:
        replace_text(folder / FACTS, json.dumps(asdict(self)))

    @staticmethod
    def read(folder: Path) -> Facts | None:
        file = folder / FACTS
        return Facts(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


class Step(NamedTuple):
    """One that counts."""

    step_s: float
    wait_s: float
    """Of it, for rows."""
    tokens: int
    """Useful ones: those of documents."""


@dataclass(frozen=True)
class Outcome:
    """What a trial came to."""

    steps: Sequence[Step] = ()
    warm_up_s: float = 0.0
    """Of the steps before those, in which programs are compiled and the first rows waited for."""
    warm_up_steps: int = 0
    peak_memory_bytes: int = 0
    compilations: int | None = None
    """Programs that PyTorch has compiled; None where it compiles none."""
    is_short: bool = False
    """Memory sufficed only for fewer rows at once, or for parts of rows."""
    is_crowded: bool = False
    """Other programs had the cores."""
    error: str = ""
    """The line of what ended it."""
    status: int = 0
    out_of_memory: bool = False
    wall_s: float = 0.0
    """Of the whole process."""
    facts: Facts | None = None

    def write(self, folder: Path, rank: int) -> None:
        replace_text(folder / RESULT.format(rank=rank), json.dumps(asdict(self)))

    @staticmethod
    def read(folder: Path, rank: int) -> Outcome | None:
        file = folder / RESULT.format(rank=rank)
        if not file.exists():
            return None
        values = json.loads(file.read_text(encoding="utf-8"))
        return Outcome(**{**values, "steps": [Step(*step) for step in values["steps"]], "facts": None})

    @property
    def compile_s(self) -> float:
        """By how much its first steps took longer than as many later ones."""
        usual = median(step.step_s for step in self.steps) if self.steps else 0.0
        return max(0.0, self.warm_up_s - self.warm_up_steps * usual)


def tokens_per_s(outcomes: Sequence[Outcome]) -> float:
    """Useful tokens a second over all steps that count, 0 where there are none.

    A step is timed by the median of what it computes, which a program that comes and goes does not move, and by the
    mean of what it waits for rows, which come in bursts: a median would not see a wait in every third step.
    """
    steps = [step for outcome in outcomes for step in outcome.steps]
    if not steps:
        return 0.0
    computing = median((step.step_s - step.wait_s) / step.tokens for step in steps)
    waiting = sum(step.wait_s for step in steps) / sum(step.tokens for step in steps)
    return 1 / (computing + waiting)


def waiting(outcomes: Sequence[Outcome]) -> float:
    """Share of the steps' time in which rows were waited for."""
    steps = [step for outcome in outcomes for step in outcome.steps]
    whole = sum(step.step_s for step in steps)
    return sum(step.wait_s for step in steps) / whole if whole else 0.0
