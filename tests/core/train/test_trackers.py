from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from types import SimpleNamespace

import pytest

from kosmos import ObserverSpec, TrackerSpec, hookimpl
from kosmos.errors import ConfigError, PluginError
from kosmos.train.goodput_report import read_rows, summary
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from kosmos.train.tracker_time import TrackerTime
from kosmos.train.trackers import Trackers, flat
from support.runs import Listener, rows_of, small_run, ticks_registry


class Failing:
    """A tracker that raises at ``at``, and counts what it is asked for."""

    asked: list[str] = []  # noqa: RUF012 (shared on purpose: the run makes the instance)

    def __init__(self, output, run, *, at: str) -> None:
        self.at = at
        self.ask("init")

    def ask(self, what: str) -> None:
        self.asked.append(what)
        if what == self.at:
            raise OSError("no\n network")

    def log(self, row) -> None:
        self.ask("log")

    def close(self) -> None:
        self.ask("close")


class Watcher:
    """Keeps the rows of all that it is called with."""

    rows: list[dict] = []  # noqa: RUF012

    def __init__(self, *, fails_at: int = 0, says: str = "seen enough") -> None:
        self.fails_at, self.says = fails_at, says

    def __call__(self, row) -> None:
        self.rows.append(dict(row))
        if row["step"] == self.fails_at:
            raise ValueError(self.says)


class Plugin:
    KOSMOS_API = 1

    @hookimpl
    def kosmos_trackers():
        yield TrackerSpec(name="failing", target=f"{__name__}:Failing", summary="Raises.")

    @hookimpl
    def kosmos_observers():
        yield ObserverSpec(name="watcher", target=f"{__name__}:Watcher", summary="Keeps rows.")


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(Failing, "asked", [])
    monkeypatch.setattr(Watcher, "rows", [])
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(Failing=Failing, Watcher=Watcher))
    return ticks_registry(plugin=Plugin)


@pytest.mark.parametrize(("at", "asked"), [("init", 1), ("log", 2), ("close", 6)])
def test_a_tracker_that_fails_is_reported_once_and_never_stops_a_run(tmp_path, registry, at, asked):
    listener = Listener()
    config = small_run(tmp_path / "run", trackers=[{"name": "failing", "at": at}], train={"steps": 2})
    result = train_model(config, registry=registry, reporter=listener)
    assert result.step == 2
    assert len(Failing.asked) == asked  # init, held out, two steps, held out, close
    (warning,) = [line for line in listener.said if line.startswith("warning")]
    assert warning.startswith("warning: tracker failing is off from here on: ")
    assert warning.partition(" (test_trackers")[0].endswith("OSError: no network")


class Clears(Failing):
    """A tracker that takes its rows apart, and has lost its ``close`` by the end."""

    def log(self, row) -> None:
        row.get("mfu_by_module", {}).clear()
        row.clear()
        self.__dict__["close"] = None


def test_what_a_tracker_does_to_its_row_and_itself_is_no_business_of_the_runs(tmp_path, registry, monkeypatch):
    listener = Listener()
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(Failing=Clears, Watcher=Watcher))
    over = {"trackers": [{"name": "failing", "at": "never"}], "observers": ["watcher"], "train": {"steps": 2}}
    result = train_model(small_run(tmp_path / "run", **over), registry=registry, reporter=listener)
    assert result.step == 2
    assert Watcher.rows == rows_of(tmp_path / "run" / "metrics.jsonl") and Watcher.rows[0]["loss"]
    (warning,) = [line for line in listener.said if line.startswith("warning")]
    assert warning == "warning: tracker failing is off from here on: TypeError: 'NoneType' object is not callable"


def test_a_tracker_or_an_observer_that_lacks_what_it_needs_is_off_from_the_start(tmp_path, registry, monkeypatch):
    listener = Listener()
    bare = SimpleNamespace(Failing=lambda output, run: SimpleNamespace(log=print), Watcher=lambda: None)
    monkeypatch.setitem(sys.modules, __name__, bare)
    both = {"trackers": ["failing"], "observers": ["watcher"]}
    config = small_run(tmp_path / "run", **both, train={"steps": 2})
    assert train_model(config, registry=registry, reporter=listener).step == 2
    of_tracker, of_observer = [line for line in listener.said if line.startswith("warning")]
    assert of_tracker.startswith("warning: tracker failing is off from here on: ") and "has no close" in of_tracker
    assert of_observer.startswith("warning: observer watcher is off from here on: ") and "gives NoneType" in of_observer


def test_an_observer_sees_each_row_of_the_metrics_and_no_other(tmp_path, registry):
    train_model(small_run(tmp_path / "run", observers=["watcher"]), registry=registry)
    assert Watcher.rows == rows_of(tmp_path / "run" / "metrics.jsonl")


def test_an_observer_that_fails_is_reported_once_and_never_stops_a_run(tmp_path, registry):
    listener = Listener()
    config = small_run(tmp_path / "run", observers=[{"name": "watcher", "fails_at": 2}])
    assert train_model(config, registry=registry, reporter=listener).step == 6
    (warning,) = listener.said
    said = r"warning: observer watcher is off from here on: ValueError: seen enough \(test_trackers\.py:\d+\)"
    assert re.fullmatch(said, warning)
    assert len(Watcher.rows) == 2


@pytest.mark.parametrize(
    ("over", "kind", "line"),
    [
        ({"trackers": ["tensorbord"]}, PluginError, r"^tracker 'tensorbord': unknown; did you mean tensorboard\?"),
        ({"trackers": [{"name": "wandb", "projekt": "x"}]}, ConfigError, r"^trackers.0.projekt: .*mean project\?"),
        ({"observers": ["nobody"]}, PluginError, "^observer 'nobody': no installed plugin brings it"),
        ({"evaluate": {"metrics": ["blew"]}}, PluginError, r"^metric 'blew': unknown; did you mean bleu\?"),
        ({"train": {"optimizer": "lino"}}, PluginError, r"^optimizer 'lino': unknown; did you mean lion\?"),
        ({"train": {"optimizer": {"bets": [0, 1]}}}, ConfigError, r"^train.optimizer.bets: .*did you mean betas\?"),
        ({"train": {"schedule": "lineer"}}, PluginError, r"^schedule 'lineer': unknown; did you mean linear\?"),
    ],
)
def test_a_wrong_name_or_option_is_one_line_and_leaves_no_folder(tmp_path, registry, over, kind, line):
    with pytest.raises(kind, match=line) as error:
        train_model(small_run(tmp_path / "run", **over), registry=registry)
    assert "\n" not in error.value.line()
    assert not (tmp_path / "run").exists()


def scalars(output):
    """What TensorBoard would show of a run: tag to (step, value)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its protobuf
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(output / "tensorboard"), size_guidance={"scalars": 0})
        events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_holds_the_numbers_of_the_metrics(tmp_path):
    train_model(small_run(tmp_path / "run", trackers=["tensorboard"]), registry=ticks_registry())
    shown = scalars(tmp_path / "run")
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    for name in ("loss", "learning_rate", "tokens_per_s", "loss_by_modality/ticks"):
        assert shown[name] == [(row["step"], pytest.approx(flat(row)[name], rel=1e-6)) for row in rows]
    (first, last) = rows_of(tmp_path / "run" / "held_out.jsonl")
    for event, row in zip(shown["held_out/modality/ticks/exact_match"], (first, last), strict=True):
        exact = row["held_out"]["modality"]["ticks"]["exact_match"]
        assert event == (row["step"], pytest.approx(exact))


class Crash(Exception):
    pass


class Crasher(Reporter):
    """Ends a run after step ``at`` as a crash would: nothing is saved."""

    def __init__(self, at: int) -> None:
        self.at = at

    def step(self, row, steps) -> None:
        if row["step"] == self.at:
            raise Crash


def written(file):
    """The content of a file of Weights & Biases, whose service may write it after the run has been finished."""
    end = time.monotonic() + 30
    while len(content := file.read_bytes()) < 100 and time.monotonic() < end:
        time.sleep(0.01)
    return content


def crash_and_resume(output, trackers, *, at=5):
    """A run of six steps that saves after the third and crashes after step ``at``."""
    config = small_run(output, trackers=trackers, checkpoint={"every_steps": 3}, evaluate={"every_steps": 2})
    with pytest.raises(Crash):
        train_model(config, registry=ticks_registry(), reporter=Crasher(at))
    resume_run(output, registry=ticks_registry())


@pytest.mark.parametrize("at", [5, 2])  # behind the checkpoint, and before there is one
def test_tensorboard_shows_each_step_of_a_resumed_run_once(tmp_path, at):
    crash_and_resume(tmp_path / "run", ["tensorboard"], at=at)
    shown = scalars(tmp_path / "run")
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert shown["loss"] == [(row["step"], pytest.approx(row["loss"], rel=1e-6)) for row in rows]
    assert [step for step, _ in shown["loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in shown["held_out/overall/loss"]] == [0, 2, 4, 6]


def test_tensorboard_shows_a_step_once_where_a_run_goes_back(tmp_path):
    from tensorboard.summary.writer import event_file_writer

    while event_file_writer._global_uid.get() % 10 != 8:  # the next files are ..9 and .10, which sorts before it
        pass
    trackers = Trackers(small_run(trackers=["tensorboard"]), ticks_registry(), tmp_path, print)
    for step in (1, 2, 3, 4, 5):
        trackers.log({"step": step, "loss": 1.0})
    trackers.resume(3)
    for step in (4, 5, 6):
        trackers.log({"step": step, "loss": 2.0})
    trackers.close()
    assert scalars(tmp_path)["loss"] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0), (6, 2.0)]


def test_tensorboard_shows_a_step_once_where_a_run_is_resumed_within_a_second(tmp_path):
    from tensorboard.summary.writer import event_file_writer

    while event_file_writer._global_uid.get() % 10 != 8:
        pass
    for value in (1.0, 2.0):
        trackers = Trackers(small_run(trackers=["tensorboard"]), ticks_registry(), tmp_path, print)
        trackers.resume(0)
        trackers.log({"step": 1, "loss": value})
        trackers.close()
    assert scalars(tmp_path)["loss"] == [(1, 2.0)]


def test_weights_and_biases_goes_on_with_its_run_after_a_crash(tmp_path, wandb_alone):
    crash_and_resume(tmp_path / "run", ["wandb"])
    folders = sorted((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    assert len({folder.name.split("-")[3] for folder in folders}) == 1  # offline-run-TIME-ID


def test_a_tracker_that_stands_twice_is_two_trackers(tmp_path, wandb_alone):
    listener = Listener()
    twice = [{"name": "wandb", "project": "one"}, {"name": "wandb", "project": "two", "run_name": "again"}]
    config = small_run(tmp_path / "run", trackers=twice, train={"steps": 2})
    train_model(config, registry=ticks_registry(), reporter=listener)
    assert listener.said == []
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert all(b"loss_by_modality/ticks" in written(file) for file in files)
    ids = json.loads((tmp_path / "run" / "wandb" / "ids.json").read_text())
    assert sorted(ids) == ["one/", "two/again"]
    assert len({run_id for run_id, *_ in ids.values()}) == 2


def test_an_observer_that_fails_without_a_word_is_told_by_the_kind_of_its_error(tmp_path, registry):
    said: list[str] = []
    config = small_run(tmp_path / "run", observers=[{"name": "watcher", "fails_at": 2, "says": ""}])
    Trackers(config, registry, tmp_path, said.append).log({"step": 2, "loss": 1.0})
    assert [line.partition(" (")[0] for line in said] == ["warning: observer watcher is off from here on: ValueError"]


def test_an_observer_that_wants_to_leave_does_not_take_the_run_with_it(tmp_path, registry, monkeypatch):
    def leaves(row):
        raise SystemExit(0)

    listener = Listener()
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(Watcher=lambda **options: leaves))
    config = small_run(tmp_path / "run", observers=["watcher"])
    assert train_model(config, registry=registry, reporter=listener).step == 6
    (warning,) = listener.said
    assert warning.startswith("warning: observer watcher is off from here on: SystemExit: 0 (test_trackers.py:")


def test_of_two_observers_of_one_name_the_one_that_fails_is_named_by_its_place(tmp_path, registry):
    listener = Listener()
    config = small_run(tmp_path / "run", observers=["watcher", {"name": "watcher", "fails_at": 2}])
    train_model(config, registry=registry, reporter=listener)
    (warning,) = listener.said
    assert warning.startswith("warning: observer watcher (observers.1) is off from here on: ValueError: seen enough")
    assert [row["step"] for row in Watcher.rows] == [1, 1, 2, 2, 3, 4, 5, 6]


@pytest.fixture
def wandb_alone(tmp_path, monkeypatch):
    """No key and no setting of whoever runs the tests."""
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_weights_and_biases_writes_offline_without_a_key_or_a_question(tmp_path, wandb_alone):
    listener = Listener()
    config = small_run(tmp_path / "run", trackers=["wandb"], train={"steps": 2})
    train_model(config, registry=ticks_registry(), reporter=listener)
    assert listener.said == []
    (folder,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    (file,) = folder.glob("run-*.wandb")
    content = written(file)
    row = rows_of(tmp_path / "run" / "metrics.jsonl")[-1]
    for part in (b"loss_by_modality/ticks", b"held_out/overall/perplexity", json.dumps(row["loss"]).encode()):
        assert part in content


def test_weights_and_biases_takes_its_own_variables_where_the_run_file_says_nothing(tmp_path, wandb_alone, monkeypatch):
    for name, value in (("PROJECT", "shapes"), ("NAME", "first"), ("MODE", "disabled")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    listener = Listener()
    trackers = ["wandb", {"name": "wandb", "project": "stated", "run_name": "so", "online": False}]
    config = small_run(tmp_path / "run", trackers=trackers, train={"steps": 1, "warmup_steps": 0})
    ids = tmp_path / "run" / "wandb" / "ids.json"
    train_model(config, registry=ticks_registry(), reporter=listener)
    assert set(json.loads(ids.read_text())) == {"stated/so"}  # the other one is off

    def goes_on(steps, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"WANDB_{name}", value)
        resume_run(tmp_path / "run", {"train": {"steps": steps}}, registry=ticks_registry(), reporter=listener)
        return json.loads(ids.read_text())

    first = goes_on(2, MODE="offline")
    assert first["/"][1:] == ["shapes", "first"]
    assert goes_on(3, PROJECT="other", NAME="second") == first  # it is one run, whatever they say now
    assert not [line for line in listener.said if "warning" in line]
    goes_on(4, MODE="sometimes")
    assert [line for line in listener.said if "WANDB_MODE: expected online, offline, disabled, got 'sometimes'" in line]


def test_numbers_of_a_row_are_laid_flat_and_the_rest_is_left_out():
    row = {"step": 3, "loss": 1.5, "by": {"image": 2, "deep": {"x": 1}}, "none": None, "name": "a", "yes": True}
    assert flat(row) == {"loss": 1.5, "by/image": 2, "by/deep/x": 1}


def test_a_slow_tracker_is_named_once_with_its_share_of_the_time():
    said: list[str] = []
    clock = SimpleNamespace(s=0.0)
    time_of = TrackerTime(said.append, now=lambda: clock.s)
    for _ in range(12):
        clock.s += 0.3  # the step
        for who, takes in (("tracker http", 0.7), ("observer beat", 0.01)):
            with time_of.taking(who):
                clock.s += takes
    (line,) = said
    assert line.startswith("warning: tracker http takes 0.7 s a row (69 % of the time): the next step waits for it")


def test_the_first_row_of_a_tracker_does_not_make_it_slow():
    said: list[str] = []
    clock = SimpleNamespace(s=0.0)
    time_of = TrackerTime(said.append, now=lambda: clock.s)
    for takes in (30.0, *[0.01] * 50):
        with time_of.taking("tracker http"):
            clock.s += takes
        clock.s += 0.3
    assert said == []


def test_what_trackers_take_is_a_class_of_goodput(tmp_path, registry):
    config = small_run(tmp_path / "run", trackers=[{"name": "failing", "at": "never"}], train={"steps": 2})
    train_model(config, registry=registry)
    assert summary(read_rows(tmp_path / "run" / "goodput.jsonl")).seconds["trackers"] > 0


def test_the_watch_is_told_which_tracker_or_observer_a_row_is_given_to(tmp_path, registry):
    phases: list[str] = []
    config = small_run(trackers=[{"name": "failing", "at": "never"}], observers=["watcher"])
    trackers = Trackers(config, registry, tmp_path, print, at=phases.append)
    trackers.log({"step": 1, "loss": 1.0})
    trackers.close()
    assert phases == ["tracker failing", "observer watcher", "showing rows", "tracker failing"]


def test_tensorboard_has_its_rows_on_disk_once_it_is_flushed(tmp_path):
    trackers = Trackers(small_run(trackers=["tensorboard"]), ticks_registry(), tmp_path, print)
    trackers.log({"step": 1, "loss": 1.0})
    trackers.flush()
    assert scalars(tmp_path)["loss"] == [(1, 1.0)]
    trackers.close()
