"""A whole run: compose what is installed, train, score before and after, save, and go on after a stop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kosmos.compose import check_components, compose, make_feed, open_held_out, open_sources
from kosmos.config import RunConfig, dump_run, make_run
from kosmos.data.feeder import open_feeder
from kosmos.data.quarantine import incident_row
from kosmos.errors import Interrupted, KosmosError
from kosmos.evaluate.score import Scores, score
from kosmos.plugins import Registry, load_plugins
from kosmos.runtime.devices import pick_device, pick_precision
from kosmos.runtime.parallel import Parallel
from kosmos.train import checkpoint
from kosmos.train.loop import StopRequest, Trainer, check_same_data
from kosmos.train.output import RunFolder
from kosmos.train.progress import Reporter, SilentReporter
from kosmos.train.trackers import Trackers


@dataclass(frozen=True)
class RunResult:
    """What a run came to."""

    output: Path
    step: int
    before: Scores | None
    """Held-out scores before the first step; None on resume."""
    after: Scores | None
    """Held-out scores after the last step; None where nothing is held out."""


def train_model(config: RunConfig, *, registry: Registry | None = None, reporter: Reporter | None = None) -> RunResult:
    """Train a new run.

    Args:
        config: from ``make_run``.
        registry: the plugins; None takes the installed ones.
        reporter: what shows progress; None shows none.

    Raises:
        KosmosError: of the kind that fits; see ``kosmos.errors``.
        Interrupted: a signal stopped it; a checkpoint was saved.

    Example:
        >>> from kosmos import make_run, train_model
        >>> result = train_model(make_run({"modalities": ["image"], "train": {"steps": 10}}))
        >>> result.after.by_modality["image"].exact_match
    """
    parallel = Parallel.from_environment(config.train.device)
    try:
        return _Run(config, None, registry or load_plugins(), reporter or SilentReporter(), parallel).go()
    finally:
        parallel.close()


def resume_run(
    output: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    registry: Registry | None = None,
    reporter: Reporter | None = None,
) -> RunResult:
    """Go on with the run in ``output`` from its newest whole checkpoint.

    Args:
        overrides: laid over its run file, such as ``{"train": {"steps": 1000}}``.
    """
    folder = RunFolder.open(output)
    config = make_run(folder.read_config(), overrides or {}, {"output": str(output)}, where=str(folder.run_file))
    parallel = Parallel.from_environment(config.train.device)
    try:
        return _Run(config, folder, registry or load_plugins(), reporter or SilentReporter(), parallel).go()
    finally:
        parallel.close()


def default_workers(parallel: Parallel) -> int:
    """Decoding processes of a rank: half the cores that are its share, one at least, eight at most."""
    share = (os.cpu_count() or 1) // parallel.world_size
    return min(8, max(1, share // 2))


class _Run:
    """One call of ``train_model`` or ``resume_run``."""

    def __init__(
        self, config: RunConfig, folder: RunFolder | None, registry: Registry, reporter: Reporter, parallel: Parallel
    ) -> None:
        self.registry, self.parallel = registry, parallel
        self.reporter = reporter if parallel.is_main else SilentReporter()
        self.resumed = folder is not None
        self.loaded = checkpoint.load_newest(folder.checkpoints) if folder else None
        self.device = pick_device(config.train.device, parallel.local_rank)
        self.dtype = pick_precision(config.train.precision, self.device)
        self.workers = default_workers(parallel) if config.data.workers is None else config.data.workers
        check_components(config, registry)
        self.composition = compose(config, registry, tokenizer_folder=folder.tokenizer if folder else None)
        self.sources = open_sources(config, registry, "train")
        self.held_out = open_held_out(config, registry)
        self.feed = make_feed(self.composition, self.sources)
        self.lanes = parallel.lanes(config.data.lanes)
        self.folder = folder or self._new_folder(config)
        self.config = config.model_copy(update={"output": self.folder.path})

    def _new_folder(self, config: RunConfig) -> RunFolder:
        """Made by the first rank once all that could fail has been tried. Where it cannot, all ranks say why."""
        made: Path | KosmosError | None = None
        if self.parallel.is_main:
            try:
                folder, _ = RunFolder.create(config)
                self.composition.tokenizer.save(folder.tokenizer)
                made = folder.path
            except KosmosError as error:
                made = error
        made = self.parallel.gather(made)[0]
        if isinstance(made, KosmosError):
            raise made
        assert made is not None
        return RunFolder(made)

    def go(self) -> RunResult:
        sizes = {source.name: len(source) for source in self.sources}
        if self.loaded:
            check_same_data(self.loaded.state, sizes, self.config.data.lanes, self.loaded.folder)
        self.reporter.start(self.composition, self.sources, self.held_out, self.device, self.dtype, self.folder.path)
        with ExitStack() as stack:
            state = self.loaded.state["data"] if self.loaded else None
            feeder = open_feeder(self.feed, self.lanes, workers=self.workers, state=state)
            stack.callback(feeder.close)
            self.trainer = Trainer(
                self.composition, feeder, self.folder,
                device=self.device, dtype=self.dtype, parallel=self.parallel, sources=sizes,
            )  # fmt: skip
            self._restore()
            tracked = self.config if self.parallel.is_main else _silent(self.config)
            self.trackers = Trackers(tracked, self.registry, self.folder.path, self.reporter.say)
            stack.callback(self.trackers.close)
            self.stop = StopRequest()
            stack.callback(self.stop.install())
            stack.callback(self.reporter.close)
            return self._train()

    def _restore(self) -> None:
        if self.loaded is None:
            return
        for damaged in self.loaded.skipped:
            self.reporter.say(f"warning: passed over a damaged checkpoint: {damaged}")
        self.trainer.load(self.loaded)
        if self.parallel.is_main:
            self.folder.truncate(self.trainer.step)
            self.folder.run_file.write_text(dump_run(self.config), encoding="utf-8")
        self.reporter.say(f"going on from step {self.trainer.step} ({self.loaded.folder})")

    def _train(self) -> RunResult:
        before = after = None if self.resumed else self._score()
        steps, settings = self.config.train.steps, self.config
        while self.trainer.step < steps:
            row = self.trainer.train_step()
            self._log(row)
            step = self.trainer.step
            every = settings.evaluate.every_steps
            if every and step % every == 0 and step < steps:
                self._score()
            stopped = bool(self.parallel.sum(float(self.stop.signal_name is not None))[0])
            if stopped or step % settings.checkpoint.every_steps == 0 or step == steps:
                self.trainer.save()
            if stopped and step < steps:
                asked = self.stop.signal_name or "another rank was asked to"
                raise Interrupted(
                    f"stopped at step {step} of {steps} ({asked}), all saved; "
                    f"go on with: kosmos train --resume {self.folder.path}"
                )
        after = self._score()
        self.reporter.finish(before, after, self.folder.path, self.folder.count_bad())
        return RunResult(self.folder.path, self.trainer.step, before, after)

    def _score(self) -> Scores | None:
        if not self.held_out:
            return None
        with self.reporter.pause("scoring held-out documents"):
            scores = score(
                self.composition, self.held_out,
                device=self.device, dtype=self.dtype, max_documents=self.config.evaluate.max_documents,
                workers=min(1, self.workers), parallel=self.parallel,
            )  # fmt: skip
        if self.parallel.is_main:
            self.folder.note_bad(incident_row(i, self.trainer.step) for i in scores.incidents)
        self._log(held_out_row(self.trainer.step, scores))
        return scores

    def _log(self, row: Mapping[str, Any]) -> None:
        if self.parallel.is_main:
            if "loss" in row:
                self.folder.append(self.folder.metrics, [row])
            else:
                self.folder.append(self.folder.held_out, [row])
            self.trackers.log(row)
        if "loss" in row:
            self.reporter.step(row, self.config.train.steps)


def held_out_row(step: int, scores: Scores) -> dict[str, Any]:
    """Scores as a row of ``held_out.jsonl``."""
    parts = {"overall": asdict(scores.overall)}
    by = {kind: {n: asdict(s) for n, s in getattr(scores, f"by_{kind}").items()} for kind in ("modality", "source")}
    return {"step": step, "held_out": {**parts, **by}}


def _silent(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"trackers": [], "observers": []})
