"""A whole run: compose what is installed, train, score before and after, save, and go on after a stop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kosmos.checkpoint.folder import Loaded, load_newest
from kosmos.checkpoint.saver import Saver
from kosmos.compose import check_components, compose, make_feed, open_held_out, open_sources
from kosmos.config import RunConfig, make_run
from kosmos.data.feeder import StopWaiting, open_feeder
from kosmos.data.quarantine import incident_row
from kosmos.errors import Interrupted, KosmosError, TrainingError
from kosmos.evaluate.score import Scores, ScoringStopped, score
from kosmos.lock import check_lock, keep_lock
from kosmos.plugins import Registry, load_plugins
from kosmos.runtime.devices import pick_device, pick_precision
from kosmos.runtime.parallel import Parallel
from kosmos.train.loop import RollBack, Trainer
from kosmos.train.order import check_same_order, sample_order
from kosmos.train.output import RunFolder
from kosmos.train.progress import Reporter, RunStart
from kosmos.train.stopping import StopRequest
from kosmos.train.trackers import Trackers
from kosmos.train.watch import open_watch


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
        return _Run(config, None, registry or load_plugins(config.plugins), reporter or Reporter(), parallel).go()
    finally:
        parallel.close()


def resume_run(
    output: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    registry: Registry | None = None,
    reporter: Reporter | None = None,
    accept_plugins: bool = False,
) -> RunResult:
    """Go on with the run in ``output`` from its newest whole checkpoint.

    Args:
        overrides: laid over its run file, such as ``{"train": {"steps": 1000}}``.
        accept_plugins: go on with plugins whose files are not those that the run used; otherwise that is a PluginError.
    """
    folder = RunFolder.open(output)
    config = make_run(folder.read_config(), overrides or {}, {"output": str(output)}, where=str(folder.run_file))
    parallel = Parallel.from_environment(config.train.device)
    try:
        plugins = registry or load_plugins(config.plugins)
        changed = parallel.agreed(lambda: check_lock(output, plugins, accept=accept_plugins))[0]
        run = _Run(config, folder, plugins, reporter or Reporter(), parallel)
        for line in changed:
            run.reporter.say(f"warning: {line}")
        return run.go()
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
        self.reporter = reporter if parallel.is_main else Reporter()
        self.resumed = folder is not None
        self.config, self.given = config, folder
        parallel.agreed(self._compose)
        self.folder = RunFolder(parallel.main_only(lambda: self._folder().path))
        self.config = config.model_copy(update={"output": self.folder.path})

    def _compose(self) -> None:
        """All that can fail before a run leaves anything behind. Tells other ranks nothing."""
        config, parallel, folder = self.config, self.parallel, self.given
        self.device = pick_device(config.train.device, parallel.local_rank)
        self.dtype = pick_precision(config.train.precision, self.device)
        self.workers = default_workers(parallel) if config.data.workers is None else config.data.workers
        check_components(config, self.registry)
        self.composition = compose(config, self.registry, tokenizer_folder=folder.tokenizer if folder else None)
        self.sources = open_sources(config, self.registry, "train")
        self.held_out = open_held_out(config, self.registry)
        self.feed = make_feed(self.composition, self.sources)
        self.lanes = parallel.lanes(config.data.lanes)

    def _folder(self) -> RunFolder:
        """The run's folder, on the first rank. It holds a run once its run file stands there."""
        if self.given is not None:
            return self.given
        folder = RunFolder.create(self.config)
        self.composition.tokenizer.save(folder.tokenizer)
        keep_lock(folder.path, self.registry)
        folder.write_config(with_absolute_paths(self.config.model_copy(update={"output": folder.path})))
        return folder

    def go(self) -> RunResult:
        order = sample_order(self.config, self.sources)
        loaded = self.parallel.main_only(lambda: load_newest(self.folder.checkpoints)) if self.resumed else None
        if loaded:
            check_same_order(loaded.state["order"], order, loaded.folder)
        self.reporter.start(
            RunStart(self.composition, self.sources, self.held_out, self.device, self.dtype, self.folder.path)
        )
        with ExitStack() as stack:
            self.watch = open_watch(self.parallel, hang_s=self.config.train.hang_s)
            self.watch.start()
            stack.push(self._end_watch)
            self.stop = StopRequest()
            stack.callback(self.stop.install())
            state = loaded.state["data"] if loaded else None
            feeder = open_feeder(self.feed, self.lanes, workers=self.workers, state=state)
            stack.callback(feeder.close)
            self.trainer = Trainer(
                self.composition, feeder, self.folder,
                device=self.device, dtype=self.dtype, parallel=self.parallel, order=order,
                report=self.reporter.say, at=self.watch.at,
            )  # fmt: skip
            self._restore(loaded)
            tracked = self.config if self.parallel.is_main else _silent(self.config)
            self.trackers = Trackers(tracked, self.registry, self.folder.path, self.reporter.say)
            stack.callback(self.trackers.close)
            if self.resumed:
                self.trackers.resume(self.trainer.step or -1)
            settings = self.config.checkpoint
            self.saver = Saver(
                self.folder.checkpoints, self.parallel,
                keep_last=settings.keep_last, keep_every=settings.keep_every, report=self.reporter.say,
            )  # fmt: skip
            stack.callback(self.saver.close)
            stack.callback(self.reporter.close)
            return self._train()

    def _end_watch(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.watch.tell(error.exit_status if isinstance(error, KosmosError) else 1)
        self.watch.close()

    def _restore(self, loaded: Loaded | None) -> None:
        if not self.resumed:
            return
        if loaded is not None:
            for damaged in loaded.skipped:
                self.reporter.say(f"warning: passed over a damaged checkpoint: {damaged}")
            self.trainer.load(loaded)
        self.parallel.main_only(self._rewind)
        where = loaded.folder if loaded else "no checkpoint was saved yet"
        self.reporter.say(f"going on from step {self.trainer.step} ({where})")

    def _rewind(self) -> None:
        self.folder.truncate(self.trainer.step or -1)  # held-out scores of step 0 are made again with it
        self.folder.write_config(with_absolute_paths(self.config))
        keep_lock(self.folder.path, self.registry)

    def _train(self) -> RunResult:
        before = None if self.resumed and self.trainer.step else self._score()
        steps, settings = self.config.train.steps, self.config
        while self.trainer.step < steps:
            self._stop_if_asked()
            try:
                row = self.trainer.train_step(self.stop.wanted)
            except StopWaiting:
                continue
            except RollBack:
                self._roll_back()
                continue
            self._log(row)
            step = self.trainer.step
            every = settings.evaluate.every_steps
            if every and step % every == 0 and step < steps:
                self._score()
            if step % settings.checkpoint.every_steps == 0 or step == steps:
                self._save()
        self._save()
        self.saver.wait()
        after = self._score()
        self.reporter.finish(before, after, self.folder.path, self.folder.count_bad())
        return RunResult(self.folder.path, self.trainer.step, before, after)

    def _stop_if_asked(self) -> None:
        causes = self.parallel.gather(self.stop.cause)
        asked = next((cause for cause in causes if cause is not None), None)
        if asked is None:
            return
        self._save()
        self.saver.wait()
        stopped = Interrupted(
            f"stopped at step {self.trainer.step} of {self.config.train.steps} ({asked}), all saved; "
            f"go on with: kosmos train --resume {self.folder.path}"
        )
        stopped.elsewhere = not self.parallel.is_main
        raise stopped

    def _roll_back(self) -> None:
        """Weights, optimizer and step of the newest checkpoint; the data go on where they are."""
        self.saver.wait()
        loaded = self.parallel.main_only(lambda: load_newest(self.folder.checkpoints))
        if loaded is None:
            raise TrainingError("guard: no checkpoint to go back to yet; lower checkpoint.every_steps")
        guard = self.trainer.guard.state()
        self.trainer.data_state = self.trainer.feeder.state()
        self.trainer.load(loaded)
        self.trainer.guard.load(guard)  # it counts how often in turn
        self.parallel.main_only(lambda: self.folder.truncate(self.trainer.step))
        self.trackers.resume(self.trainer.step)

    def _save(self) -> None:
        if self.trainer.step not in (self.saver.newest, 0):
            self.watch.at("saving")
            self.saver.save(self.trainer.step, *self.trainer.snapshot())

    def _score(self) -> Scores | None:
        if not self.held_out:
            return None
        try:
            scores = self._scores()
        except ScoringStopped:
            self._stop_if_asked()
            raise
        self.parallel.main_only(
            lambda: self.folder.note_bad(incident_row(i, self.trainer.step) for i in scores.incidents)
        )
        self._log(held_out_row(self.trainer.step, scores))
        return scores

    def _scores(self) -> Scores:
        with self.reporter.pause("scoring held-out documents"):
            return score(
                self.composition, self.held_out,
                device=self.device, dtype=self.dtype, max_documents=self.config.evaluate.max_documents,
                workers=min(1, self.workers), parallel=self.parallel, losses=self.trainer.distributed.losses,
                should_stop=self.stop.wanted, at=self.watch.at,
            )  # fmt: skip

    def _log(self, row: Mapping[str, Any]) -> None:
        trained = "loss" in row
        self.parallel.main_only(
            lambda: self.folder.append(self.folder.metrics if trained else self.folder.held_out, [row])
        )
        self.trackers.log(row)
        if trained:
            self.reporter.step(row, self.config.train.steps)


def held_out_row(step: int, scores: Scores) -> dict[str, Any]:
    """Scores as a row of ``held_out.jsonl``."""
    parts = {"overall": asdict(scores.overall)}
    by = {kind: {n: asdict(s) for n, s in getattr(scores, f"by_{kind}").items()} for kind in ("modality", "source")}
    return {"step": step, "held_out": {**parts, **by}}


def _silent(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"trackers": [], "observers": []})


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The run with the paths of its data as they are from anywhere, since it may go on from another folder."""

    def absolute(path: str) -> str:
        try:
            return str(Path(path).resolve()) if Path(path).exists() else path
        except (OSError, ValueError):
            return path

    sources = [entry.model_copy(update={"path": absolute(entry.path)}) for entry in config.data.sources]
    output = config.output.resolve() if config.output else None
    return config.model_copy(update={"data": config.data.model_copy(update={"sources": sources}), "output": output})
