"""Where metrics go beside ``metrics.jsonl``. A tracker that fails is reported once and never stops a run."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path
from time import sleep, time
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

from kosmos.config import ComponentConfig, RunConfig
from kosmos.errors import ConfigError, cause, own_line
from kosmos.files import replace_text
from kosmos.names import listed
from kosmos.plugins import Registry
from kosmos.train.goodput import TRACKERS, Goodput
from kosmos.train.shown_answers import COLUMNS, first_few, markdown_table
from kosmos.train.tracker_limit import SHARE, StandsStill, bounded
from kosmos.train.tracker_time import TrackerTime


class Tracker(Protocol):
    """Takes the rows of ``metrics.jsonl`` (they have a ``loss``) and of ``held_out.jsonl`` (``held_out``).

    A tracker may also have ``resume(step: int)``, called where a run goes on or goes back: rows of steps above
    ``step`` come again, and what was taken of them before does not count. And it may have ``flush()``, called before a
    checkpoint is saved: rows up to its step do not come again, so that they have to be on the disk by then. With
    ``log_answers(rows: Sequence[Mapping[str, Any]])`` it takes what the model wrote at a scoring, the rows of a file of
    ``answers/``, behind the scoring's own row; their texts are those of data and of a model.
    """

    def log(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files under ``OUTPUT/tensorboard``."""

    def __init__(self, output: Path, run: Mapping[str, Any]) -> None:
        self.folder = output / "tensorboard"
        self.open: Callable[..., Any] = partial(_summary_writer, str(self.folder))
        self.writer: Any = None

    def resume(self, step: int) -> None:
        self.close()
        self.open = partial(self.open, purge_step=step + 1)

    def log(self, row: Mapping[str, Any]) -> None:
        if self.writer is None:
            _wait_for_a_later_name(self.folder)
            self.writer = self.open()
        for name, value in flat(row).items():
            self.writer.add_scalar(name, value, row["step"])

    def log_answers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for source, cells in first_few(rows).items() if self.writer is not None else ():
            self.writer.add_text(f"answers/{source}", markdown_table(cells), rows[0]["step"])

    def flush(self) -> None:
        if self.writer is not None:
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


def _wait_for_a_later_name(folder: Path, *, longest_s: int = 5) -> None:
    """Files are read in the order of their names, which begin with the second; what follows it does not sort.

    A clock that is further behind the one that named the newest file than ``longest_s`` is not waited for.
    """
    seconds = (file.name.split(".")[3] for file in folder.glob("events.out.tfevents.*"))
    newest = max((int(second) for second in seconds if second.isdecimal()), default=0)
    while newest - longest_s <= int(time()) <= newest:
        sleep(0.05)


def _summary_writer(folder: str, purge_step: int | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its protobuf and numpy deprecations are not the user's
        from torch.utils.tensorboard import SummaryWriter

        # By default ten values wait for the disk, of which a row has more: training would wait with them.
        return SummaryWriter(folder, purge_step=purge_step, max_queue=1000)


_Mode = Literal["online", "offline", "disabled"]


class WeightsAndBiases:
    """A run of Weights & Biases, offline unless stated otherwise; never a prompt.

    What is not stated here is taken from its own variables: WANDB_PROJECT, WANDB_NAME, WANDB_MODE.

    Its id is kept in ``OUTPUT/wandb/ids.json``, so that a resumed run goes on with it. Steps that are made again
    after a crash stand there as they were first: their history only grows.
    """

    def __init__(
        self,
        output: Path,
        run: Mapping[str, Any],
        *,
        project: str | None = None,
        run_name: str | None = None,
        online: bool | None = None,
        answers: bool = False,
    ) -> None:
        """
        Args:
            project: where the run is listed; None takes WANDB_PROJECT, or ``kosmos``.
            run_name: what it is listed as; None takes WANDB_NAME, or the output folder's name.
            online: send as it runs, which needs WANDB_API_KEY; None does so where WANDB_MODE is ``online``.
            answers: a table of what the model writes at each scoring, with the texts of data that it is asked.

        Raises:
            ConfigError: WANDB_MODE is none of online, offline and disabled.
        """
        self.answers = answers  # unasked no text of data leaves the machine
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        ids = _Ids(output / "wandb" / "ids.json")
        stated = f"{project or ''}/{run_name or ''}"  # what the variables say may be another when the run goes on
        known = ids.get(stated) or ids.get(f"{project or 'kosmos'}/{run_name or output.name}")
        project = project or (known and known.project) or os.environ.get("WANDB_PROJECT") or "kosmos"
        title = run_name or (known and known.title) or os.environ.get("WANDB_NAME") or output.name
        settings = wandb.Settings(init_timeout=30, console="off")
        # A second tracker of the same kind is a run of its own (create_new), by default it would be the first again.
        self.run = wandb.init(
            project=project, name=title, id=known and known.id, resume="allow", reinit="create_new",
            dir=str(output), config=dict(run), mode=_mode(online), settings=settings, allow_val_change=True,
        )  # fmt: skip
        if not self.run.disabled:  # else it has none
            ids.put(stated, _Known(self.run.id, project, title))

    def log(self, row: Mapping[str, Any]) -> None:
        self.run.log(flat(row), step=row["step"])

    def log_answers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not self.answers:
            return
        import wandb

        cells = [row for of_source in first_few(rows).values() for row in of_source]
        self.run.log({"answers": wandb.Table(columns=list(COLUMNS), data=cells)}, step=rows[0]["step"])

    def close(self) -> None:
        self.run.finish()


def _mode(online: bool | None) -> _Mode:
    if online is not None:
        return "online" if online else "offline"
    wanted, known = os.environ.get("WANDB_MODE") or "offline", get_args(_Mode)
    if wanted not in known:
        raise ConfigError(f"WANDB_MODE: expected {listed(known)}, got {wanted!r}")
    return cast(_Mode, wanted)


class _Known(NamedTuple):
    """A run of Weights & Biases."""

    id: str
    project: str | None = None
    """None where an older version wrote it down."""
    title: str | None = None


class _Ids:
    """Runs by what the run file states of project and name, in a JSON file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.known: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):  # a new run, or a file that a crash cut short
            self.known = dict(json.loads(file.read_text(encoding="utf-8")))

    def get(self, key: str) -> _Known | None:
        found = self.known.get(key)
        return None if found is None else _Known(found) if isinstance(found, str) else _Known(*found)

    def put(self, key: str, value: _Known) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(self.file, json.dumps(self.known | {key: value}))


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a row, nested ones as ``outer/inner``; the step is left out."""
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            numbers[prefix + name] = value
    return numbers


class Trackers:
    """The run's trackers and observers behind one guard."""

    def __init__(
        self,
        config: RunConfig,
        registry: Registry,
        output: Path,
        report: Callable[[str], None],
        clock: Goodput | None = None,
        at: Callable[[str], None] = lambda phase: None,
    ) -> None:
        """
        Args:
            output: the run's folder.
            report: shows a line to the user.
            clock: charged with what they take.
            at: told who begins: see ``kosmos.train.watch.Watch.at``.
        """
        self.report, self.at, self.time = report, at, TrackerTime(report)
        self.limit_s = SHARE * config.train.hang_s
        self.spending = nullcontext if clock is None else partial(clock.spending, TRACKERS)
        self.trackers: dict[str, Tracker] = {}
        self.observers: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        run = config.model_dump(mode="json")
        for path, label, wanted in _labelled("trackers", config.trackers):
            registry.get("tracker", wanted.name)  # an unknown name is the user's error, not an outage
            given = output, deepcopy(run)
            build = partial(registry.build, "tracker", wanted.name, *given, options=wanted.options, path=path)
            self._guard("tracker", label, partial(_put, self.trackers, label, build))
        for path, label, wanted in _labelled("observers", config.observers):
            registry.get("observer", wanted.name)
            build = partial(registry.build, "observer", wanted.name, options=wanted.options, path=path)
            self._guard("observer", label, partial(_put, self.observers, label, build), passes=ConfigError)

    def resume(self, step: int) -> None:
        """Steps above ``step`` come again; -1 where even the scores before the first step do."""
        for label, tracker in list(self.trackers.items()):
            self.at(f"tracker {label}")
            self._guard("tracker", label, partial(_resume, tracker, step))

    def log(self, row: Mapping[str, Any]) -> None:
        """Give a row to all; observers see the steps alone."""
        with self.spending():
            for label, tracker in list(self.trackers.items()):
                self._give("tracker", label, partial(_log, tracker, row))
            for label, observe in list(self.observers.items()) if "loss" in row else ():
                self._give("observer", label, partial(_show, observe, row))
        self.at("showing rows")

    def log_answers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give what was written at a scoring to all trackers that take it, if there is something."""
        if not rows:
            return
        with self.spending():
            for label, tracker in list(self.trackers.items()):
                self._give("tracker", label, partial(_log_answers, tracker, rows))
        self.at("showing rows")

    def flush(self) -> None:
        """A checkpoint is saved next: rows that were given so far come only once."""
        with self.spending():
            for label, tracker in list(self.trackers.items()):
                self.at(f"tracker {label}")
                self._guard("tracker", label, partial(_flush, tracker))
        self.at("saving")

    def close(self) -> None:
        """Once; nothing is given to them after it."""
        with self.spending():
            for label, tracker in list(self.trackers.items()):
                self.at(f"tracker {label}")
                self._guard("tracker", label, partial(_close, tracker))
                self.trackers.pop(label, None)

    def _give(self, kind: str, label: str, act: Callable[[], None]) -> None:
        self.at(f"{kind} {label}")
        self._guard(kind, label, partial(self._timed, f"{kind} {label}", act))

    def _timed(self, who: str, act: Callable[[], None]) -> None:
        with self.time.taking(who):  # which says nothing of one that fails
            act()

    def _guard(
        self, kind: str, label: str, act: Callable[[], None], *, passes: type[Exception] | tuple[()] = ()
    ) -> None:
        try:
            bounded(act, self.limit_s)
        except passes:  # the user's error, which ends the run before its first step
            raise
        except (Exception, SystemExit, StandsStill) as error:  # a seam: whatever a tracker raises must not cost the run
            part: Any = (self.trackers if kind == "tracker" else self.observers).pop(label, None)
            where = own_line(error, getattr(part, "__module__", ""))
            what = f"{error} (half of train.hang_s)" if isinstance(error, StandsStill) else cause(error)
            self.report(f"warning: {kind} {label} is off from here on: {what}{where}")


def _put(into: dict[str, Any], label: str, build: Callable[[], Any]) -> None:
    into[label] = build()


# Called behind the guard, as even to look for a method may fail. Each has a copy of the row: what one does with it is
# no business of the run's or of the next one's.
def _resume(tracker: Tracker, step: int) -> None:
    if (resume := getattr(tracker, "resume", None)) is not None:
        resume(step)


def _log(tracker: Tracker, row: Mapping[str, Any]) -> None:
    tracker.log(deepcopy(row))


def _log_answers(tracker: Tracker, rows: Sequence[Mapping[str, Any]]) -> None:
    if (log_answers := getattr(tracker, "log_answers", None)) is not None:
        log_answers(deepcopy(rows))


def _show(observe: Callable[[Mapping[str, Any]], None], row: Mapping[str, Any]) -> None:
    observe(deepcopy(row))


def _flush(tracker: Tracker) -> None:
    if (flush := getattr(tracker, "flush", None)) is not None:
        flush()


def _close(tracker: Tracker) -> None:
    tracker.close()


def _labelled(field: str, wanted: Sequence[ComponentConfig]) -> Iterator[tuple[str, str, ComponentConfig]]:
    """Each component with its place in the run file, and its name, or name and place where a name stands twice."""
    names = [part.name for part in wanted]
    for number, part in enumerate(wanted):
        path = f"{field}.{number}"
        yield path, part.name if names.count(part.name) == 1 else f"{part.name} ({path})", part
