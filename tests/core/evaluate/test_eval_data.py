"""What ``kosmos eval`` scores, with and without ``--data``."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from kosmos import DatasetSpec, hookimpl, load_run, train_model
from kosmos.cli import main
from kosmos.config import RunConfig
from kosmos.data.sources.jsonl import JsonlTable
from kosmos.errors import ConfigError, DataError
from kosmos.plugins import Registry
from kosmos.run_file import make_run
from kosmos.run_sources import open_asked, open_both, open_held_out, open_named, open_sources
from support.runs import small_run, ticks_registry

REGISTRY = ticks_registry()


def write(folder: Path, splits: list[str | None]) -> str:
    """A manifest with a row of text for each split."""
    folder.mkdir()
    rows = [{"id": i, "text": f"text {i}", **({"split": s} if s else {})} for i, s in enumerate(splits)]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def run_on(*paths: object) -> RunConfig:
    return make_run({"data": {"sources": list(paths), "held_out": 0.25}})


def texts(config: RunConfig, *paths: str) -> list[set[str]]:
    sources = open_named(config, REGISTRY, paths)
    return [{s.text for i in range(len(source)) for s in source.document(i).segments} for source in sources]


def test_of_data_that_the_run_was_trained_on_the_part_that_it_held_out_is_scored(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [None] * 20)
    config = run_on(path)
    (trained,) = open_sources(config, REGISTRY, "train")
    (held_out,) = open_held_out(config, REGISTRY)
    assert (len(trained), len(held_out)) == (15, 5)
    expected = {s.text for i in range(5) for s in held_out.document(i).segments}
    for said in (path, f"{path}/", f"{path}/../a", f"{path}/manifest.jsonl", "a"):
        assert texts(config, said) == [expected]
    assert texts(run_on(f"{path}/manifest.jsonl"), path) == [expected]


def test_data_that_share_files_with_a_source_of_the_run_are_warned_of(tmp_path: Path) -> None:
    inner = write(tmp_path / "a", [None] * 20)
    rows = Path(inner, "more.jsonl")
    rows.write_text('{"text": "x"}\n')
    other, warnings = write(tmp_path / "b", [None] * 4), []
    open_named(run_on(inner), REGISTRY, [str(rows), other], warn=warnings.append)
    assert warnings == [f"data {str(rows)!r}: shares files with the run's source {inner}, and may have been trained on"]


def test_media_of_other_data_may_be_in_another_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [None] * 4)
    (tmp_path / "media").mkdir()
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "x"}\n')
    (found,) = open_named(run_on(path), REGISTRY, [str(rows)], root=tmp_path / "media")
    assert found.table.root(0) == tmp_path / "media"
    with pytest.raises(ConfigError, match=r"--root: .* is data of the run, whose run file says where its media are"):
        open_named(run_on(path), REGISTRY, [path], root=tmp_path / "media")


def test_the_folder_of_a_source_of_the_run_may_be_said_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [None] * 20)
    stated = run_on({"path": path, "root": str(tmp_path)})
    file = run_on(f"{path}/manifest.jsonl")
    for config, root in ((run_on(path), path), (run_on(path), f"{path}/../a"), (stated, tmp_path), (file, path)):
        for opened in (open_named, open_asked):
            assert len(opened(config, REGISTRY, [config.data.sources[0].path], root=Path(root))) == 1
    with pytest.raises(ConfigError, match=rf"where its media are \({tmp_path}\); leave it out"):
        open_named(stated, REGISTRY, [path], root=Path(path))
    with pytest.raises(ConfigError, match=r"whose run file says where its media are; leave it out"):
        open_named(run_on("ticks"), REGISTRY, ["ticks"], root=Path())


def test_a_source_of_the_run_is_known_by_its_name_too_and_keeps_its_template(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [None] * 20)
    config = run_on({"path": path, "name": "mine", "template": "{id}: → {text}"})
    own: list[object] = []
    found, other = open_named(config, REGISTRY, ["mine", write(tmp_path / "b", [None])], own=own.extend)
    assert (found.name, len(found)) == ("mine", 5)
    asked, _ = open_asked(config, REGISTRY, ["mine", other.folder], own=own.extend)
    assert own == [found, asked]
    assert [s.train for s in found.document(0).segments] == [False, True]


def test_of_other_data_all_is_scored_where_they_state_no_split(tmp_path: Path) -> None:
    config = run_on(write(tmp_path / "a", [None] * 20))
    assert [len(found) for found in texts(config, write(tmp_path / "b", [None] * 20))] == [20]
    assert [len(found) for found in texts(config, write(tmp_path / "c", ["train"] * 7))] == [7]
    assert [len(found) for found in texts(config, write(tmp_path / "d", [None]))] == [1]


def test_of_other_data_the_part_that_they_state_is_scored(tmp_path: Path) -> None:
    config = run_on(write(tmp_path / "a", [None] * 20))
    assert texts(config, write(tmp_path / "b", ["test"] * 3 + ["train"] * 9)) == [{"text 0", "text 1", "text 2"}]
    assert [len(found) for found in texts(config, write(tmp_path / "c", ["test"] * 4))] == [4]


def test_a_registered_dataset_gives_its_held_out_part(tmp_path: Path) -> None:
    (found,) = open_named(run_on(write(tmp_path / "a", [None] * 20)), REGISTRY, ["sums"])
    assert len(found) == 44


def test_a_source_of_one_row_is_trained_on_and_has_no_held_out_part(tmp_path: Path) -> None:
    config = run_on(write(tmp_path / "a", [None]), write(tmp_path / "b", [None] * 8))
    assert [len(source) for source in open_sources(config, REGISTRY, "train")] == [1, 6]
    assert [(source.name, len(source)) for source in open_held_out(config, REGISTRY)] == [("b", 2)]


def test_every_row_is_looked_at_once_for_both_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = [], JsonlTable.scan
    monkeypatch.setattr(JsonlTable, "scan", lambda table, layout: seen.append(len(table)) or real(table, layout))
    config = run_on(write(tmp_path / "a", [None] * 20), write(tmp_path / "b", [None]))
    train, held_out = open_both(config, REGISTRY)
    assert seen == [20, 1]
    for one, other in ((train, open_sources(config, REGISTRY, "train")), (held_out, open_held_out(config, REGISTRY))):
        assert [(s.name, s.rows.tolist()) for s in one] == [(s.name, s.rows.tolist()) for s in other]


def test_data_that_are_not_there_are_named(tmp_path: Path) -> None:
    config = run_on(write(tmp_path / "a", [None] * 20))
    with pytest.raises(DataError, match="nowhere"):
        open_named(config, REGISTRY, [str(tmp_path / "nowhere")])
    with pytest.raises(DataError, match="gone"):
        open_held_out(run_on(str(tmp_path / "gone")), REGISTRY)
    with pytest.raises(ConfigError, match=r"^--data: two sources are called 'a'; score them one after the other"):
        open_named(config, REGISTRY, [str(tmp_path / "a")] * 2)


def test_what_is_wrong_with_a_source_of_the_run_is_named_by_its_place_in_the_run(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", [None] * 20), write(tmp_path / "b", [None] * 20)
    config = run_on(first, {"path": second, "root": str(tmp_path / "gone")})
    with pytest.raises(ConfigError, match=r"^data\.sources\.1\.root: "):
        open_named(config, REGISTRY, ["b"])


def no_held_out_part(split: str) -> object:
    """A data set whose held-out file is damaged."""
    if split == "held_out":
        raise DataError("test.bin: is damaged")
    return REGISTRY.build("dataset", "sums", split)


class _Damaged:
    KOSMOS_API = 1

    @staticmethod
    @hookimpl
    def kosmos_datasets() -> list[DatasetSpec]:
        return [DatasetSpec(name="damaged", target=f"{__name__}:no_held_out_part", summary="Its test part is damaged.")]


def test_a_damaged_held_out_part_is_an_error_and_not_a_run_without_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, types.ModuleType(__name__)))
    monkeypatch.setattr(sys.modules[__name__], "no_held_out_part", no_held_out_part, raising=False)
    registry = Registry.from_modules({"damaged": _Damaged})
    config = make_run({"data": {"sources": ["damaged"]}})
    assert len(open_sources(config, registry, "train")) == 1
    with pytest.raises(DataError, match=r"test\.bin: is damaged"):
        open_held_out(config, registry)


def test_of_several_sources_an_error_says_which_it_is_about(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, [None] * 4) for name in "ab"]
    wrong = {"columns": {"qestion": "text"}}, {"template": "{x"}, {"options": {"chunk_chars": 0}}, {"path": "c.csv"}
    for entry in wrong:
        config = make_run({"data": {"sources": [{"path": paths[0]}, {"path": paths[1], **entry}]}})
        with pytest.raises((ConfigError, DataError), match=r"^data\.sources\.1: (?!data\.sources)"):
            open_both(config, REGISTRY)
    with pytest.raises(ConfigError, match=r"^data\.sources\.1\.options\.chunk: unknown field"):
        open_both(make_run({"data": {"sources": [paths[0], {"path": paths[1], "options": {"chunk": 1}}]}}), REGISTRY)


def test_of_several_sources_an_error_says_of_which_a_part_is_empty(tmp_path: Path) -> None:
    config = run_on(write(tmp_path / "a", [None] * 20), write(tmp_path / "b", ["test"] * 4))
    with pytest.raises(DataError, match=r"^data\.sources\.1: .*b.*: its train part is empty"):
        open_both(config, REGISTRY)


TEMPLATE = "Question: {question} Answer: → {answer}"
UNSPACED = "answers begin without a space, and those that the run learned by its template begin with one"


@pytest.fixture(scope="module")
def by_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned by ``TEMPLATE``."""
    folder = tmp_path_factory.mktemp("template")
    rows = [{"question": f"Which of {n}?", "answer": "C"} for n in range(20)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"sources": [{"path": str(folder / "rows.jsonl"), "template": TEMPLATE}]}
    train_model(small_run(folder / "run", modalities=[], data=data, train={"steps": 1}))
    return folder / "run"


@pytest.mark.parametrize(
    ("row", "warned"),
    [
        ({"prompt": "Question: Which? Answer:", "completion": " C"}, False),
        ({"prompt": "Question: Which? Answer:", "completion": "C"}, True),
        ({"prompt": "Question: Which? Answer: ", "completion": "C"}, False),  # the same bytes, which are the tokens
        ({"prompt": "Question: Which?\n", "completion": "C"}, False),
        ({"query": "Which?", "response": "C"}, False),
        ({"text": "A text."}, False),
    ],
)
def test_answers_without_the_space_of_the_template_are_warned_of(
    by_template: Path, row: dict[str, str], warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["eval", str(by_template), "--data", str(tmp_path / "asked.jsonl"), "--workers", "0"]) == 0
    said = capsys.readouterr().err
    assert (f"warning: asked: {UNSPACED}" in said) is warned and ("(' C')" in said) is warned


def test_what_the_run_held_out_by_its_template_is_not_warned_of(by_template: Path, capsys) -> None:
    assert main(["eval", str(by_template), "--workers", "0"]) == 0
    assert main(["eval", str(by_template), "--workers", "0", "--data", str(by_template.parent / "rows.jsonl")]) == 0
    assert UNSPACED not in capsys.readouterr().err


def test_rows_as_the_template_lays_them_out_have_its_tokens(by_template: Path, tmp_path: Path) -> None:
    row = {"prompt": "Question: Which of 0? Answer:", "completion": " C"}
    (tmp_path / "asked.jsonl").write_text(json.dumps(row) + "\n")
    composition = load_run(by_template, device="cpu").composition
    (own,) = open_asked(composition.config, composition.registry, [str(by_template.parent / "rows.jsonl")])
    (other,) = open_asked(composition.config, composition.registry, [str(tmp_path / "asked.jsonl")])
    plans = [composition.planner.plan(source.document(0))[0] for source in (own, other)]
    assert plans[0].token_ids.tolist() == plans[1].token_ids.tolist()
    assert plans[0].train.tolist() == plans[1].train.tolist()
    assert plans[0].answer_start == plans[1].answer_start


def test_examples_in_front_of_a_question_are_written_by_a_template(tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").write_text('{"question": "2 + 2", "answer": "4"}\n')
    template = "2 + 3 = 5\n7 + 1 = 8\n{question} = → {answer}"
    config = make_run(
        {"evaluate": {"sources": [{"path": str(tmp_path / "sums.jsonl"), "template": template}]}},
        {"data": {"sources": [write(tmp_path / "a", [None] * 4)]}},
    )
    (found,) = open_named(config, REGISTRY, ["sums"])
    said = [(part.text, part.train) for part in found.document(0).segments]
    assert said == [("2 + 3 = 5\n7 + 1 = 8\n2 + 2 =", False), (" 4", True)]
