"""One session of a run: open it, train, score before and after, save, and stop in good order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from kosmos.checkpoint.folder import Loaded, reading
from kosmos.checkpoint.saver import Saver
from kosmos.config import RunConfig
from kosmos.data.feeder import StopWaiting
from kosmos.data.quarantine import incident_row
from kosmos.errors import DataError, Interrupted, TrainingError
from kosmos.evaluate.score import Scores, ScoringStopped
from kosmos.lock import check_lock, keep_lock
from kosmos.plugins import Registry
from kosmos.runtime.launch import apart
from kosmos.runtime.parallel import Parallel
from kosmos.train.alike import check_same_folder
from kosmos.train.best import Best
from kosmos.train.changes import Changed, changed_settings, told
from kosmos.train.compiling import compile_time_told, slower_here
from kosmos.train.ended import noting_end
from kosmos.train.finished import only_scored
from kosmos.train.given_data import GivenData
from kosmos.train.going_back import GoingBack
from kosmos.train.goodput import COMPILE, Goodput
from kosmos.train.jumps import jumps, unused_rate
from kosmos.train.loop import RollBack
from kosmos.train.new_folder import new_folder
from kosmos.train.older_rules import keep_older
from kosmos.train.opening import open_run
from kosmos.train.order import made_by
from kosmos.train.output import RunFolder
from kosmos.train.profiling import Profiler
from kosmos.train.progress import Noting, Reporter, RunResult, RunStart
from kosmos.train.run_doubts import StepDoubts, first_doubts, told_of_failed_data
from kosmos.train.scorer import Scorer
from kosmos.train.scorings import Scorings
from kosmos.train.sharding import layout
from kosmos.train.starting import begin_with_weights, newest, start_trainer
from kosmos.train.stopping import StopRequest, heed_swallowed, how_to_go_on
from kosmos.train.time_budget import TimeBudget
from kosmos.train.trackers import Trackers
from kosmos.train.watch import open_watch

TELLS_OF_FOLDER = (DataError, TrainingError, Interrupted, KeyboardInterrupt)
"""Errors of a run that has begun which say what stands in its folder, or how to go on there."""


class Session:
    """One call of ``train_model`` or ``resume_run``.

    ``__init__`` opens the run, whose folder is there from then on; ``_begin`` opens what is closed however it ends
    (watch, trainer, trackers and saver, in this order); ``_train`` takes the steps. No other method adds an attribute.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder | None,
        registry: Registry,
        reporter: Reporter,
        parallel: Parallel,
        given: GivenData | None,
    ) -> None:
        self.clock = Goodput()
        self.registry, self.resumed, self.settings_kept = registry, folder is not None, False
        self.has_begun = False  # until then whatever fails leaves nothing
        self.opened = open_run(config, folder, registry, parallel, reporter.say, given)
        self.parallel = self.opened.parallel
        if parallel.world_size == 1:  # several agree on it after their first step
            heed_swallowed()
        self.reporter = Noting(reporter if parallel.is_main else Reporter())
        self.stop = StopRequest(asked=self.reporter.wants_stop)
        self.time = TimeBudget(config.train.max_time, self.clock.began, self.parallel)
        if warning := apart(parallel.world_size):  # before the folder, which another of the tasks may hold
            self.reporter.say(f"warning: {warning}")
        made = self.opened.composition
        if folder is None:
            self.folder = new_folder(made, registry, parallel)
        else:
            there = folder.path
            self.folder = RunFolder(parallel.main_only(lambda: there))
        self.folder.report = self.reporter.say
        self.config = made.config.model_copy(update={"output": self.folder.path})
        metrics = self.opened.metrics
        rows = partial(self.parallel.main_only, self.folder.scores)
        self.scorings = Scorings(self.config, self._score, rows, self.reporter.say, metrics, self.parallel)
        self.best = Best(self.folder, self.config, metrics)
        self.changed: Changed = {}  # what it goes on with in place of what its run file has

    def go(self) -> RunResult:
        """Train to the end, or until something stops it."""
        with ExitStack() as whole:
            whole.callback(vars(self).clear)  # it holds itself: weights would wait for Python's collector
            whole.callback(self.stop.install())  # first of all: the folder is there, and how to go on wants to be said
            whole.callback(self.folder.release)
            self.parallel.main_only(self.folder.hold)
            with self._or_nothing_left(), ExitStack() as stack:
                self._begin(stack)
                return self._train()

    def _begin(self, stack: ExitStack) -> None:
        """What is opened last is closed first. Ranks meet in all of it."""
        opened = self.opened
        order = opened.order
        loaded = None
        if self.resumed:
            with self.clock.spending("checkpoint_load"):
                loaded = self.parallel.main_only(lambda: newest(self.folder, self.config, order, self.registry))
        if loaded is not None:
            keep_older(loaded.state["order"], order, (*opened.sources, *opened.held_out, *opened.choices))
        counted = self.config.train.steps if opened.counted else loaded and loaded.state.get("steps_of_epochs")
        self.in_epochs = counted == self.config.train.steps  # else other ones were said since
        self._say_what_begins()
        stack.push(noting_end(self.clock, lambda: (self.scorings.early.wanted, self.time.is_spent)))
        stack.enter_context(compile_time_told(partial(self.clock.reassign, to=COMPILE)))
        self.watch = open_watch(self.parallel, hang_s=self.config.train.hang_s, clock=self.clock)
        stack.push(self.watch.ended_by)
        self.profiler = Profiler(
            self.config.profile, self.folder.profiles,
            rank=self.parallel.rank, device=opened.device, at=self.watch.at, report=self.reporter.say,
        )  # fmt: skip
        check_same_folder(self.folder.path, self.parallel, hang_s=self.config.train.hang_s)
        stack.callback(self.profiler.close)
        self.trainer = start_trainer(
            stack, opened, self.folder,
            order=order, watch=self.watch, at=self.profiler.at, report=self.reporter.say, loaded=loaded,
        )  # fmt: skip
        if loaded is None:
            with self.clock.spending("checkpoint_load"):
                begin_with_weights(self.trainer, self.folder, opened.sources, resumed=self.resumed)
        self.scorer = Scorer(
            opened, self.trainer.losses,
            should_stop=self.stop.wanted, at=self.watch.at, warn=lambda line: self._warn([line]),
        )  # fmt: skip
        self.has_begun = True
        self.stop.go_on = self.watch.go_on = how_to_go_on(self.folder.path, self.parallel, opened.given)
        self.back = GoingBack(self.trainer, self.folder, self.config.guard, self.reporter.say, self.stop.go_on)
        with self.clock.spending("checkpoint_load"), reading(loaded):
            self._restore(loaded)
        if passes := self.trainer.passes.told():
            self.reporter.say(passes)
        if self.parallel.is_main:
            self.clock.open(self.folder.goodput, self.trainer.step)
        tracked = self.config
        if not self.parallel.is_main:
            tracked = tracked.model_copy(update={"trackers": [], "observers": []})
        self.trackers = Trackers(tracked, self.registry, self.folder.path, self.reporter.say, self.clock, self.watch.at)
        stack.callback(self.trackers.close)
        if self.resumed:
            self.trackers.resume(self.trainer.step or -1)
        settings = self.config.checkpoint
        self.saver = Saver(
            self.folder.checkpoints, self.parallel,
            keep_last=settings.keep_last, keep_every=settings.keep_every, best=self.best.of, report=self.reporter.say,
            moves=lambda: self.watch.at("waiting for the checkpoint"), noted=self.clock.note_save,
        )  # fmt: skip
        if loaded:
            self.saver.newest = self.trainer.step  # it is whole, and stays as it is
            self.saver.went_on_from(self.trainer.step)
        stack.callback(self.saver.close)
        stack.callback(self.reporter.close)

    def _say_what_begins(self) -> None:
        run, made = self.opened, self.opened.composition
        shared, where = layout(self.config.parallel, self.parallel), (run.device, run.dtype, self.folder.path)
        self.reporter.start(RunStart(made, run.sources, run.held_out, *where, shared, self.in_epochs))
        doubtful = self.parallel.main_only(partial(first_doubts, self.config, run, resumed=self.resumed))
        if run.counted:
            self.reporter.say(run.counted)
        slower = slower_here(self.config.train, run.device)
        self._warn((*slower, *self.registry.given_way(), run.repeats, *doubtful))

    def _warn(self, warnings: Iterable[str | None]) -> None:
        for warning in filter(None, warnings):
            self.reporter.say(f"warning: {warning}")

    @contextmanager
    def _or_nothing_left(self) -> Iterator[None]:
        """A run that cannot take a step leaves no folder behind, so that its name is free for the next try."""
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            stays = self.has_begun and (self.trainer.step > 0 or isinstance(error, TELLS_OF_FOLDER))
            if not (self.resumed or stays) and self.parallel.is_main:
                self.folder.discard()
            raise

    def _restore(self, loaded: Loaded | None) -> None:
        if not self.resumed:
            self._warn(unused_rate(self.trainer) if "learning_rate" in self.config.train.model_fields_set else ())
            return
        if loaded is not None:
            self._warn(f"passed over a damaged checkpoint: {damaged}" for damaged in loaded.skipped)
            self.trainer.load(loaded)
            self.scorings.load(loaded.state)
        if line := self.trainer.passes.take_up(self.parallel.main_only(self.folder.noted_parts)):
            self.reporter.say(line)
        self.trainer.passes.check_release(self.trainer.release is not None)
        noted = loaded.state.get("noted") if loaded else None  # older ones lack it
        kept = self.trainer.step or -1  # held-out scores of step 0 are made again with it
        self.parallel.main_only(lambda: self.folder.truncate(kept, same_data=True, noted=noted))
        where = loaded.folder if loaded else "no checkpoint was saved yet"
        self.reporter.say(f"going on from step {self.trainer.step} ({where})")
        before = self.parallel.main_only(lambda: self.folder.goes_on_with({}))
        if is_over := (step := self.trainer.step) >= self.config.train.steps or self.scorings.early.wanted:
            self.config, line = only_scored(before, self.config, step)
            self.reporter.say(line)
        if step <= self.config.train.steps:  # else nothing is kept of it
            self.changed = changed_settings(before, self.config)
        if self.changed:
            self.reporter.say(f"changed: {told(self.changed)}")
        if "train.learning_rate" in self.changed:
            self._warn(unused_rate(self.trainer))
        if not is_over:  # else no step is taken at the rate
            self._warn(jumps(self.trainer, self.parallel.main_only(self.folder.last_step), before.train))

    def _keep_settings(self) -> None:
        """Those of a run that goes on become its own once a step was taken with them: none that fail stay behind."""
        if self.resumed and not self.settings_kept:
            self.parallel.main_only(self._write_settings)
        self.settings_kept = True

    def _write_settings(self) -> None:
        if self.opened.from_files:  # else built by what stands there, the parts know of no files
            self.folder.write_model(self.opened.composition.without_files())
        if self.changed:
            row = {"step": self.trainer.first_step + 1, "launch": self.clock.launch, "changed": self.changed}
            self.folder.append(self.folder.changes, [row])
        if self.changed or self.trainer.step > self.trainer.first_step:
            self.folder.write_config(self.config.model_copy(update={"output": self.folder.path.resolve()}))
        keep_lock(self.folder.path, self.registry)

    def _is_as_written(self) -> bool:
        """Whether settings and plugins are those that the folder keeps. On the first rank."""
        kept = self.folder.goes_on_with({"data": {"workers": self.config.data.workers}})  # which change no score
        return not check_lock(self.folder.path, self.registry, accept=True) and kept == self.config

    def _train(self) -> RunResult:
        steps, step = self.config.train.steps, self.trainer.step
        before = self.scorings.take_up(step) if self.resumed and step else self.scorings.first()
        self._stop_if_asked()
        self.time.first = step
        step_doubts = StepDoubts(self.opened)
        while self._goes_on() or not self._save():  # else broken, and gone back
            try:
                with self.clock.spending("productive"), self.profiler.around(self.trainer.step + 1):
                    row = self.trainer.train_step(lambda: self.stop.wanted() or self.time.is_over(self.trainer.step))
            except StopWaiting:  # all ranks have it where one is asked to stop
                self._stop_if_asked()
                self.time.agree(self.trainer.step)
                continue
            except RollBack:
                self._roll_back()
                continue
            except DataError:
                self._keep_steps()
                raise
            step = self.trainer.step
            self.clock.finish_step(step, kept="skipped" not in row, waited_s=row["data_wait_s"])
            self._keep_settings()
            self._log(row)
            self._warn(step_doubts.after(self.trainer, row))
            is_best = partial(self.best.is_to_be_saved, step, self.saver.newest)
            if (self.scorings.after(step) and self.parallel.main_only(is_best)) or self.config.checkpoint.is_due(step):
                self._save()
        self._wait_for_save()
        if self.scorings.early.wanted:
            self.reporter.say(f"stopped early at step {self.trainer.step}: {self.scorings.early.told(before)}")
        elif self.time.is_spent:
            self.reporter.say(self.time.told(self.trainer.step, steps, self.stop.go_on))
        after = self.scorings.last(self.trainer.step, as_written=lambda: self.parallel.main_only(self._is_as_written))
        if self.trainer.step <= steps:  # else they ask for fewer than were taken, and nothing was done with them
            self._keep_settings()
        for end in (self.folder.finish, self.saver.prune, self.trackers.close):  # what fails is among the warnings
            self.parallel.main_only(end)
        self._warn([self.parallel.main_only(self.best.warning)])
        if line := self.parallel.main_only(lambda: self.best.line(self.trainer.step)):
            self.reporter.say(line)
        self.reporter.finish(before, after, self.folder.path, bad := self.folder.count_bad())
        return RunResult(self.folder.path, self.trainer.step, before, after, bad, tuple(self.reporter.warnings))

    def _goes_on(self) -> bool:
        return self.trainer.step < self.config.train.steps and not (self.scorings.early.wanted or self.time.is_spent)

    def _stop_if_asked(self) -> None:
        asked = next((cause for cause in self.parallel.gather(self.stop.cause) if cause is not None), None)
        if asked is None:
            return
        self._save_all()
        saved = "all saved" if (step := self.trainer.step) else "before the first one"
        where = f"stopped at step {step} of {self.config.train.steps} ({asked}), {saved}"
        # That rows were waited for says nothing to who reads how it came up.
        raise self.parallel.found_by_all(Interrupted(f"{where}; go on with: {self.stop.go_on}")) from None

    def _roll_back(self) -> None:
        """Weights, optimizer and step of the newest checkpoint that is good; the data go on where they are."""
        try:
            self._wait_for_save()
        except TrainingError as error:
            self.reporter.say(f"warning: {error}; going back to one of them")
        loaded = self.back.load()
        self.saver.newest = None  # none holds where the data are now
        self.saver.went_on_from(self.trainer.step)
        self.scorings.load(loaded.state)  # what the steps that are gone scored counts no more
        self.parallel.main_only(lambda: self.folder.truncate(self.trainer.step, same_data=False))
        self.scorings.take_up(self.trainer.step)
        self.trackers.resume(self.trainer.step)
        self.clock.roll_back(self.trainer.step)

    def _save(self, *, unfinished: int = 0) -> bool:
        """Save what is not saved. Returns False where that is broken, and the guard has gone back instead.

        Args:
            unfinished: bad samples in the ledger of a step that was not taken; they will come again.

        Raises:
            TrainingError: it is broken, and the run stops at that.
        """
        if self.trainer.step in (self.saver.newest, 0):
            return True
        self.trackers.flush()
        self.watch.at("saving")
        with self.clock.spending("blocking_save"):
            if (what := self.trainer.broken()) is None:
                (tensors, state), counted = self.trainer.snapshot(), self.in_epochs * self.config.train.steps
                state |= {"early": self.scorings.early.state(), "steps_of_epochs": counted, **made_by(self.config)}
                state["noted"] = self.folder.noted(but=unfinished) if self.parallel.is_main else {}
                self.saver.save(self.trainer.step, tensors, state, frozen=self.trainer.frozen())
        self.clock.flush()
        if what is not None:
            self.saver.close()  # what is being written is good
            self.back.cannot_save(what)
            self._roll_back()
        return what is None

    def _save_all(self, *, unfinished: int = 0) -> None:
        """Save, as the run ends. Arguments and errors of ``_save``."""
        if not self._save(unfinished=unfinished):
            self._save(unfinished=unfinished)  # where the data are now
        self._wait_for_save()

    def _keep_steps(self) -> None:
        """The data have failed, such as a disk that is gone: the steps that were taken are not lost with them."""
        if not (self.trainer.reading and self.trainer.step):
            return
        try:
            failed = self.trainer.step
            self._save_all(unfinished=self.trainer.noted)
            self.reporter.say(told_of_failed_data(failed, self.trainer.step, self.stop.go_on))
        except TrainingError as error:
            self.reporter.say(f"warning: {error}")

    def _wait_for_save(self) -> None:
        self.watch.at("waiting for the checkpoint")
        with self.clock.spending("blocking_save"):
            self.saver.wait()

    def _score(self) -> Scores | None:
        if not (self.opened.held_out or self.opened.choices):
            return None
        self.watch.at("reading held-out documents")
        try:
            with self.reporter.pause("scoring held-out documents"), self.clock.spending("evaluation"):
                scores = self.scorer.scores()
        except ScoringStopped:
            self._stop_if_asked()
            raise
        written = self.scorer.answer_rows(step := self.trainer.step)
        bad = [incident_row(i, step) for i in scores.incidents]
        self.parallel.main_only(lambda: self.folder.note_scoring(bad, written))
        self._log(self.scorer.row_of(step, scores))
        self.trackers.log_answers(written)
        with self._or_saved():
            self.reporter.scored(step, scores)
        return scores

    def _log(self, row: Mapping[str, Any]) -> None:
        file = self.folder.metrics if (trained := "loss" in row) else self.folder.held_out
        self.parallel.main_only(lambda: self.folder.append(file, [row]))
        self.trackers.log(row)
        if trained:
            with self._or_saved():
                self.reporter.step(row, self.config.train.steps)

    @contextmanager
    def _or_saved(self) -> Iterator[None]:
        """Around a reporter's code: where it fails, the steps that were taken are not lost with it."""
        try:
            yield
        except Exception:
            if self.parallel.world_size == 1:  # others do not come to save
                self._save_all()
            raise
        if not self.trainer.model.training:  # who has looked at the model may have left it in evaluation
            self.trainer.model.train()
