"""Runs on documents that Python has given: which go on with them, what is said of them, and what is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import randrange
from time import sleep
from typing import Any

import pytest

from kosmos import (
    Document,
    Documents,
    Interrupted,
    Registry,
    Text,
    load_run,
    open_held_out,
    open_sources,
    resume_run,
    score,
    train_model,
)
from kosmos.checkpoint.folder import load_newest
from kosmos.cli import main
from kosmos.errors import CheckpointError, ConfigError, DataError, PluginError
from kosmos.runtime.parallel import Parallel
from kosmos.train.given_data import GivenData
from kosmos.train.stopping import how_to_go_on
from support.runs import Listener, assert_same_tensors, rows_of, small_run, ticks_registry
from support.ticks import TicksSource

from .test_given_data import StopsAt, run_on


def sums(numbers: range, more: int = 1) -> list[Document]:
    return [Document(f"sum {n}", (Text(f"{n} and: "), Text(str(n + more), train=True))) for n in numbers]


class Own:
    """A source of code of one's own."""

    def __init__(self, documents: list[Document], name: str = "sums") -> None:
        self.documents, self.name = documents, name

    def __len__(self) -> int:
        return len(self.documents)

    def document(self, index: int) -> Document:
        return self.documents[index]


class Unknown(Own):
    """One that says that it does not know whether its documents are others."""

    def fingerprint(self) -> None:
        return None


def cut(output: Path, source: Any, **more: Any) -> str:
    """A run that was stopped after 3 steps, and what it said."""
    with pytest.raises(Interrupted) as stopped:
        train_model(run_on(output), sources=[source], reporter=StopsAt(3), **more)
    return str(stopped.value)


def named(name: str, documents: list[Document]) -> Documents:
    return Documents(name, documents)


@pytest.mark.parametrize("kind", [Own, lambda documents: named("sums", documents)], ids=["a class", "Documents"])
def test_a_run_goes_on_among_the_documents_that_it_was_given_and_no_others(tmp_path: Path, kind: Callable) -> None:
    cut(tmp_path / "run", kind(sums(range(40))))
    others = sums(range(40), more=2), [*reversed(sums(range(40)))], sums(range(1, 41))
    for documents in others:
        with pytest.raises(CheckpointError) as refused:
            resume_run(tmp_path / "run", sources=[kind(documents)])
        said = str(refused.value)
        assert "was made with other documents of data.sources.0, or in another order, though they are as many; " in said
        assert ". Give resume_run the sources that the run was begun with; for one that makes its documents" in said
        assert "files" not in said
    resume_run(tmp_path / "run", sources=[kind(sums(range(40)))])
    train_model(run_on(tmp_path / "whole"), sources=[kind(sums(range(40)))])
    assert_same_tensors(tmp_path / "whole", tmp_path / "run")


def test_what_is_held_out_is_the_same_or_nothing(tmp_path: Path) -> None:
    given = {"sources": [Documents("sums", sums(range(40)))], "registry": ticks_registry()}
    run = small_run(tmp_path / "run", modalities=[])
    held = [Documents("held", sums(range(40, 48)))]
    train_model(run, **given, held_out=held)
    more = {"train": {"steps": 8}}
    for others in ([Documents("held", sums(range(40, 48), more=2))], [Documents("held", sums(range(40, 49)))]):
        with pytest.raises(
            CheckpointError, match=r"held_out\.held.*scores of other documents compare with none before"
        ):
            resume_run(tmp_path / "run", more, **given, held_out=others)
    assert resume_run(tmp_path / "run", more, **given, held_out=held).after is not None
    assert resume_run(tmp_path / "run", {"train": {"steps": 9}}, **given).after is None
    assert resume_run(tmp_path / "run", {"train": {"steps": 10}}, **given, held_out=held).after is not None


def test_a_run_that_does_not_know_its_documents_goes_on_as_before(tmp_path: Path) -> None:
    cut(tmp_path / "old", Unknown(sums(range(40))))  # as the runs of before are, which noted nothing
    (told,) = load_newest(tmp_path / "old" / "checkpoints").state["order"]["data"]["sources"]
    assert "fingerprint" not in told
    assert resume_run(tmp_path / "old", sources=[Own(sums(range(40), more=2))]).step == 6
    cut(tmp_path / "run", Own(sums(range(40))))
    assert resume_run(tmp_path / "run", sources=[Unknown(sums(range(40), more=2))]).step == 6


class Drawing(Own):
    """One whose documents are drawn anew each time, until ``draws`` is False."""

    draws = True

    def document(self, index: int) -> Document:
        return self.documents[randrange(len(self.documents)) if self.draws else index]


class DrawsNoMore(Drawing):
    draws = False


@pytest.mark.parametrize(("begun", "resumed"), [(Drawing, Drawing), (Drawing, DrawsNoMore), (DrawsNoMore, Drawing)])
def test_a_source_that_draws_at_each_call_goes_on_whether_or_not_that_is_noticed(
    tmp_path: Path, begun: Callable, resumed: Callable
) -> None:
    cut(tmp_path / "run", begun(sums(range(40))))
    assert resume_run(tmp_path / "run", sources=[resumed(sums(range(40)))]).step == 6


class Slow(Own):
    def document(self, index: int) -> Document:
        sleep(0.002)
        return super().document(index)


def test_reading_that_takes_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "reading 16 of the documents of sums, by which resume_run knows them"
    for seconds, times in ((60.0, 0), (0.01, 1)):
        monkeypatch.setattr("kosmos.train.length.TOLD_AFTER_S", seconds)
        listener = Listener()
        train_model(run_on(tmp_path / str(seconds)), sources=[Slow(sums(range(40)))], reporter=listener)
        assert listener.said.count(line) == times


def test_a_source_of_another_name_is_told_to_be_given_again(tmp_path: Path) -> None:
    cut(tmp_path / "run", Own(sums(range(40))))
    with pytest.raises(
        CheckpointError, match=r"name 'sums', .* 'others'; .*\. Give resume_run the sources that the run"
    ):
        resume_run(tmp_path / "run", sources=[Own(sums(range(40)), "others")])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("train", [{"steps": 2}, {"epochs": 1}], ids=str)
@pytest.mark.parametrize("beside", [[], [named("good", sums(range(9)))]], ids=["alone", "beside a good one"])
def test_an_empty_source_is_refused_before_anything_is_written(
    tmp_path: Path, workers: int, train: dict[str, int], beside: list[Any]
) -> None:
    config = run_on(tmp_path / "run", data={"workers": workers}, train=train)
    line = "^kept: holds no documents; leave it out of {}, or give it some$"
    with pytest.raises(DataError, match=line.format("sources")):
        train_model(config, sources=[*beside, named("kept", [])])
    with pytest.raises(DataError, match=line.format("held_out")):
        train_model(config, sources=[named("good", sums(range(9)))], held_out=[named("kept", [])])
    assert not (tmp_path / "run").exists()


def test_a_run_that_earlier_versions_began_with_nothing_held_out_in_a_source_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, held_out = named("sums", sums(range(40))), [named("kept", []), named("some", sums(range(4)))]
    with monkeypatch.context() as earlier:
        earlier.setattr(GivenData, "check_some", lambda self, resumed: None)
        cut(tmp_path / "run", source, held_out=held_out)
    with pytest.raises(DataError, match=r"^kept: holds no documents; leave it out of sources, "):
        resume_run(tmp_path / "run", sources=[named("kept", [])], held_out=held_out)
    assert resume_run(tmp_path / "run", sources=[source], held_out=held_out).step == 6


def test_the_folder_that_an_empty_source_was_to_be_trained_in_is_free(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="kept: holds no documents"):
        train_model(run_on(tmp_path / "run"), sources=[named("kept", [])])
    assert train_model(run_on(tmp_path / "run"), sources=[named("kept", sums(range(9)))]).step == 6


class NoTicks(TicksSource):
    def __len__(self) -> int:
        return 0


def test_an_empty_dataset_of_a_plugin_is_refused_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.ticks.TicksSource", NoTicks)
    with pytest.raises(DataError, match=r"^dataset 'ticks': its train part is empty$"):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_a_run_that_stops_tells_the_call_that_goes_on_with_it(tmp_path: Path, capsys) -> None:
    call = f"resume_run({str(tmp_path / 'run')!r}, sources=...)"
    assert cut(tmp_path / "run", Own(sums(range(40)))).endswith(f", all saved; go on with: {call}")
    with pytest.raises(ConfigError, match="holds a run already") as taken:
        train_model(run_on(tmp_path / "run"), sources=[Own(sums(range(40)))])
    assert f'go on with "{call}" or name another' in str(taken.value)
    assert main(["checkpoint", "branch", str(tmp_path / "run"), str(tmp_path / "new"), "--step", "3"]) == 0
    assert capsys.readouterr().out.endswith(f"go on with: resume_run({str(tmp_path / 'new')!r}, sources=...)\n")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "goodput.jsonl").unlink()  # which tells of one
    with pytest.raises(CheckpointError, match="no checkpoint was saved yet") as none:
        load_run(tmp_path / "run")
    assert str(none.value).endswith(f'go on with "{call}"')

    both = cut(tmp_path / "both", Own(sums(range(40))), held_out=[Own(sums(range(40, 44)))])
    call = f"resume_run({str(tmp_path / 'both')!r}, sources=..., held_out=...)"
    assert both.endswith(f"go on with: {call}") and rows_of(tmp_path / "both" / "held_out.jsonl")
    with pytest.raises(ConfigError) as taken:
        train_model(run_on(tmp_path / "both"), sources=[Own(sums(range(40)))])
    assert f'go on with "{call}" or name another' in str(taken.value)


def test_in_several_processes_the_call_is_to_be_made_in_as_many() -> None:
    given = GivenData([Own(sums(range(4)))], [])
    said = how_to_go_on(Path("runs/a"), Parallel(0, 2, 0, 2), given)
    assert said == "resume_run('runs/a', sources=...) (in 2 processes, started as these were)"


def test_other_plugins_are_accepted_by_the_same_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise PluginError(more["by"])

    cut(tmp_path / "run", Own(sums(range(40))))
    monkeypatch.setattr("kosmos.train.run.check_lock", broken)
    with pytest.raises(PluginError) as refused:
        resume_run(tmp_path / "run", sources=[Own(sums(range(40)))])
    assert str(refused.value) == f"resume_run({str(tmp_path / 'run')!r}, sources=..., accept_plugins=True)"


def test_whoever_opens_documents_that_were_given_is_told_that_they_were(tmp_path: Path, capsys) -> None:
    output = train_model(run_on(tmp_path / "run"), sources=[Own(sums(range(40)), "s3://sums")]).output
    saved = load_run(output)
    config, registry = saved.composition.config, saved.composition.registry
    tries: list[Callable[[], Any]] = [
        lambda: open_sources(config, registry, "train"),
        lambda: open_held_out(config, registry),
        lambda: resume_run(output),
    ]
    for opens in tries:
        with pytest.raises(DataError) as refused:
            opens()
        said = str(refused.value)
        assert said.startswith(
            "data 's3://sums (given to train_model)': these documents were given in Python, and no f"
        )
        assert "resume_run(output, sources=..., held_out=...)" in said and "score(composition, [source])" in said
    for command in (
        ["eval", str(output)],
        ["train", "--resume", str(output)],
        ["eval", str(output), "--data", "s3://sums"],
    ):
        assert main(command) == 3
    assert capsys.readouterr().err.count("these documents were given in Python") == 3
    assert score(saved.composition, [Own(sums(range(4)))]).overall.documents == 4


def test_a_list_of_documents_is_told_what_makes_a_source_of_it(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^sources: expected .*; Documents\(name, \[\.\.\.\]\) is one of a list of Doc"
    ):
        train_model(run_on(tmp_path / "run"), sources=sums(range(4)))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"such as open_sources gives, got .*Own object"):
        train_model(run_on(tmp_path / "run"), sources=Own(sums(range(4))))  # type: ignore[arg-type]


def test_documents_are_read_by_data_workers(tmp_path: Path) -> None:
    source = named("sums", sums(range(40)))
    for workers in (0, 1):
        config = run_on(tmp_path / str(workers), data={"workers": workers}, train={"steps": 2})
        train_model(config, sources=[source], registry=Registry.from_modules({}))
    assert_same_tensors(tmp_path / "0", tmp_path / "1")
