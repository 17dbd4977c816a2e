"""One trial: the process, or the processes, of a run that takes some steps and leaves nothing but what they cost.

It is opened as training opens it, and neither scores nor saves nor tells trackers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from kosmos import collector
from kosmos.config import RunConfig
from kosmos.data.lane import Lane
from kosmos.errors import ConfigError, KosmosError, TrainingError, cause, is_out_of_memory
from kosmos.run_file import make_run
from kosmos.runtime.compiler_disk import room_for_compilers
from kosmos.runtime.contention import Contention
from kosmos.runtime.cores import usable_cores
from kosmos.runtime.launch import end_with_launcher, is_launched, launch
from kosmos.runtime.parallel import joined
from kosmos.selection import plugins_option
from kosmos.train.alike import check_same_run
from kosmos.train.compiling import check_compile
from kosmos.train.goodput import Goodput
from kosmos.train.loop import RollBack, Trainer
from kosmos.train.new_folder import new_folder
from kosmos.train.opening import Opened, open_run
from kosmos.train.run import agreed_plugins
from kosmos.train.side_by_side import check_at_once
from kosmos.train.starting import begin_with_weights, start_trainer
from kosmos.train.watch import open_watch
from kosmos.tune.outcome import INTERNAL, Facts, Job, Outcome, Step

WARM_UP_STEPS, WARM_UP_S = 2, 1.0
"""At least so many steps, and so long after the first of them, are not counted: the first rows, kernels of C++ that are
compiled meanwhile, and steps whose operations are counted."""
PACE_STEPS, PACE_S = 2, 10.0
"""Steps whose rows were made in advance are not counted, unless data workers have kept pace with so many of them, and
so long: where a step takes many seconds, a trial would take minutes longer to find that nothing is waited for."""
PATIENCE = 5
"""A trial gives up where it has begun to count more often than this again, as something new was compiled, or where more
than so many times the steps that are to count have each compiled something."""
LOOKED_AT, LOOK_S = 256, 20.0
"""Documents of each source whose lengths are looked at, and seconds for all."""
CROWDED_S = 4.0
"""Of a trial in which to see whether other programs have the cores: it lasts about twice as long."""
FIRST_TO_GO = "1000"
"""Of all processes this one goes first where the system runs out of memory (Linux)."""


def run_trial(folder: Path) -> int:
    """Do what the job in ``folder`` says and write there what it came to. Returns an exit status.

    Raises: as training does.
    """
    job = Job.read(folder)
    if job.processes is not None and not is_launched():
        end_with_launcher()
        return launch(job.processes, ["tune", "--trial", str(folder), *plugins_option()])
    collector.pause()
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO, encoding="utf-8")
    trial = _Trial(job, folder)
    try:
        trial.go()
    except Exception as error:
        if not getattr(error, "elsewhere", False):
            trial.write(**_told(error))
        raise
    return 0


def _told(error: Exception) -> dict[str, Any]:
    """Fields of ``Outcome`` that say what ended a trial."""
    behind = error.__cause__
    short = is_out_of_memory(error) or (isinstance(behind, Exception) and is_out_of_memory(behind))
    if isinstance(error, KosmosError):
        return {"error": error.line(), "status": error.exit_status, "out_of_memory": short}
    line = f"error[{TrainingError.code}]: out of memory: {cause(error)}" if short else f"{INTERNAL}: {cause(error)}"
    return {"error": line, "status": TrainingError.exit_status if short else 1, "out_of_memory": short}


class _Trial:
    """The rank of a trial that this process is."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder = job, folder
        self.rank = int(os.environ.get("RANK", "0"))
        self.outcome = Outcome()

    def write(self, **changes: Any) -> None:
        self.outcome = replace(self.outcome, **changes)
        self.outcome.write(self.folder, self.rank)

    def go(self) -> None:
        config = make_run(self.job.settings, {"output": str(self.folder / "run"), "profile": None})
        if self.job.processes is None:
            end_with_launcher()
        with joined(config.train.device) as parallel, room_for_compilers(), ExitStack() as stack:
            check_same_run(config, parallel, resumed=False)
            registry = agreed_plugins(config, parallel)
            opened = open_run(config, None, registry, parallel)
            facts = _facts(opened) if self.job.look else None
            if facts is not None and parallel.is_main:
                facts.write(self.folder)
            made = opened.composition
            folder = new_folder(made, registry, parallel)
            stack.callback(folder.release)
            watch = open_watch(opened.parallel, hang_s=config.train.hang_s, clock=Goodput())
            stack.push(watch.ended_by)
            trainer = start_trainer(stack, opened, folder, order=opened.order, watch=watch, report=lambda line: None)
            begin_with_weights(trainer, folder, opened.sources)
            self._take_steps(trainer)
            if opened.parallel.is_main:
                self.write()
                if facts is not None:
                    _looked(facts, opened).write(self.folder)

    def _take_steps(self, trainer: Trainer) -> None:
        count = Counted(self.job, Contention(trainer.device, window_s=CROWDED_S), trainer.feeder.steps_ahead)
        while not trainer.parallel.main_only(count.is_done):
            try:
                row = trainer.train_step()
            except RollBack as error:
                raise TrainingError("guard: wants the newest checkpoint back, and a trial saves none") from error
            count.add(row)
        self.outcome = replace(count.outcome(), is_short=trainer.passes.is_short)


class Counted:
    """Of the steps of a trial those that count.

    While programs are compiled, data workers make rows in advance. The steps that use these up wait for nothing,
    however slow the data are, and a trial is too short for that not to matter: they do not count.
    """

    def __init__(self, job: Job, contention: Contention, steps_ahead: Callable[[], int] = lambda: 0) -> None:
        """
        Args:
            steps_ahead: as ``Feeder.steps_ahead``.
        """
        self.job, self.contention, self.steps_ahead = job, contention, steps_ahead
        self.steps: list[Step] = []
        self.taken, self.warm_up_s, self.began_s = 0, 0.0, 0.0
        self.compiled: int | None = None
        self.compiling, self.again = 0, 0
        """Steps behind the first ones that compiled something, and those of them after which counting began again."""
        self.peak_bytes, self.is_crowded = 0, False
        self.ahead, self.used, self.used_s = 0, 0, 0.0
        """Steps whose rows were made in advance as the first ones ended, and steps since then that do not count for it,
        with their seconds."""

    def is_done(self) -> bool:
        """Raises TrainingError where so much is compiled that no end is seen."""
        if self.again > PATIENCE or self.compiling > PATIENCE * (self.job.steps + WARM_UP_STEPS):
            raise TrainingError(
                f"of {self.taken:,} steps {self.compiling:,} compiled something new, not counting the first ones, and "
                f"no end is seen ({self.compiled:,} programs so far)"
            )
        return len(self.steps) >= self.job.steps and sum(step.step_s for step in self.steps) >= self.job.seconds

    def add(self, row: dict[str, Any]) -> None:
        self.taken += 1
        self.began_s = self.began_s or perf_counter()
        self.is_crowded |= self.contention.look() is not None
        self.peak_bytes = max(self.peak_bytes, row["peak_memory_bytes"])
        step = Step(row["step_s"], row["data_wait_s"], row["tokens"])
        is_warm = self.taken > WARM_UP_STEPS and perf_counter() - self.began_s >= WARM_UP_S
        has_compiled = row.get("compilations") != self.compiled
        self.compiled = row.get("compilations")
        if is_warm and not has_compiled:
            if self.steps or self._is_fresh():
                self.steps += [step] * (step.tokens > 0)
            else:
                self.used, self.used_s = self.used + 1, self.used_s + step.step_s
                self.warm_up_s += step.step_s
            return
        self.warm_up_s += step.step_s + sum(earlier.step_s for earlier in self.steps)
        self.compiling += is_warm
        self.again += bool(self.steps or self.used)
        self.steps.clear()
        self.ahead, self.used, self.used_s = self.steps_ahead(), 0, 0.0

    def _is_fresh(self) -> bool:
        """Whether the step that was just taken waited for its rows as any later one does."""
        keep_pace = self.used >= PACE_STEPS and self.used_s >= PACE_S and self.steps_ahead() >= self.ahead
        return self.used >= self.ahead or keep_pace

    def outcome(self) -> Outcome:
        return Outcome(
            steps=self.steps, warm_up_s=self.warm_up_s, warm_up_steps=self.taken - len(self.steps),
            peak_memory_bytes=self.peak_bytes, compilations=self.compiled, is_crowded=self.is_crowded,
        )  # fmt: skip


def _facts(opened: Opened) -> Facts:
    config, device, parallel = opened.composition.config, opened.device, opened.parallel
    model, cores = opened.composition.model, usable_cores()
    on_gpu = device.type == "cuda"
    each = max(1, cores // parallel.local_world_size)
    return Facts(
        device=device.type,
        device_name=torch.cuda.get_device_name(device) if on_gpu else "CPU",
        precision=str(opened.dtype).removeprefix("torch."),
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        cores=cores,
        threads=torch.get_num_threads(),
        processes=parallel.world_size,
        workers=opened.workers,
        most_workers=each if opened.feed.streams else min(each, len(opened.lanes)),
        at_once_refused=_refused(lambda: check_at_once(_two_at_once(config), model, device, processes=1)),
        compile_refused=None if on_gpu else _refused(lambda: check_compile(model, True, device)),
        steps=config.train.steps,
    )


def _two_at_once(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={"lanes_at_once": 2, "compile": "auto"})})


def _refused(check: Callable[[], None]) -> str | None:
    try:
        check()
    except ConfigError as error:
        return str(error)
    return None


def _looked(facts: Facts, opened: Opened) -> Facts:
    """With the lengths of the documents that are drawn first."""
    lane, begin, longest = Lane(opened.feed, 0), perf_counter(), 0
    cells: dict[str, int] = {}
    for number, source in enumerate(opened.sources):
        for draw in range(min(LOOKED_AT, len(source))):
            if perf_counter() - begin > LOOK_S:
                break
            for plan in lane.read(number, draw)[1]:
                longest = max(longest, len(plan))
                cells |= {name: max(most, cells.get(name, 0)) for name, most in plan.cells_by_stream.items()}
    return replace(facts, longest=longest or None, cells=cells)
