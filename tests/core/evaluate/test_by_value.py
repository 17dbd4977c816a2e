"""``kosmos eval --by``: figures told apart by a column of the rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos import make_run
from kosmos.cli import main
from kosmos.commands.by_value import told, value_lines
from kosmos.evaluate.by_value import called, ranked
from kosmos.train.run import train_model

ROWS = [
    {"prompt": f"{'one' if n % 3 else 'two'} is", "completion": f" {'1' if n % 3 else '2'}", "kind": f"k{n % 4}",
     "meta": {"flag": n % 2 == 0}} for n in range(12)
]  # fmt: skip
OFFERS = [{"query": "two is", "choices": ["1", "2"], "gold": n % 2, "lang": "de" if n else "en"} for n in range(3)]


def lines(file: Path, rows: Sequence[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("by")
    lines(folder / "rows.jsonl", ROWS)
    lines(folder / "offers.jsonl", OFFERS)
    (folder / "table").mkdir()
    for part in (0, 1):
        pq.write_table(pa.Table.from_pylist(ROWS[part::2]), folder / "table" / f"{part}.parquet", row_group_size=5)
    datasets.disable_progress_bars()
    datasets.Dataset.from_list(ROWS).save_to_disk(folder / "saved")
    config = {
        "modalities": [],
        "data": {"sources": [lines(folder / "facts.jsonl", ROWS)], "tokens_per_pack": 64, "workers": 0},
        "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
        "train": {"steps": 12, "warmup_steps": 1, "learning_rate": 0.01, "precision": "fp32"},
        "evaluate": {"max_documents": 4}, "trackers": [], "output": str(folder / "run"),
    }  # fmt: skip
    train_model(make_run(config))
    return folder


def evaluated(capsys: pytest.CaptureFixture[str], run: Path, *more: object) -> dict[str, Any]:
    assert main(["eval", str(run / "run"), "--json", "--workers", "0", *map(str, more)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_figures_of_the_values_come_to_those_of_the_source(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    named = [part for name in ("rows.jsonl", "table", "saved") for part in ("--data", run / name)]
    found = evaluated(capsys, run, *named, "--by", "meta.flag")
    for name in ("rows", "table", "saved"):  # of tables a column that the layout does not use
        whole, by = found["by_source"][name], found["by_value"]["scored"][name]
        assert {value: one["documents"] for value, one in by.items()} == {"false": 6, "true": 6}
        right = sum(one["exact_match"] * one["answers"] for one in by.values())
        assert right == pytest.approx(whole["exact_match"] * 12, rel=1e-4)
        assert sum(one["loss"] for one in by.values()) / 2 == pytest.approx(whole["loss"], rel=1e-4)


def test_classes_are_told_apart_by_what_is_expected(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    asked = "--data", run / "rows.jsonl", "--choices", run / "offers.jsonl", "--generate", 12, "--max-new-tokens", 4
    found = evaluated(capsys, run, *asked, "--by", "expected")["by_value"]
    for what in ("scored", "generated"):
        by = found[what]["rows"]
        assert [(value, one["documents"]) for value, one in by.items()] == [("1", 8), ("2", 4)]
        balanced = (by["1"]["exact_match"] + by["2"]["exact_match"]) / 2
        assert found["means"][what]["rows"]["exact_match"] == pytest.approx(balanced, rel=1e-4)
    asked_by = found["choices"]["offers"]
    assert {value: one["documents"] for value, one in asked_by.items()} == {"1": 2, "2": 1}
    assert sorted(one["accuracy"] for one in asked_by.values()) == [0.0, 1.0]  # one question, asked three times
    assert found["means"]["choices"]["offers"]["accuracy"] == 0.5


def test_lines_of_answers_have_the_column_by_which_they_are_scored_again(
    capsys: pytest.CaptureFixture[str], run: Path, tmp_path: Path
) -> None:
    asked = "--data", run / "rows.jsonl", "--data", run / "facts.jsonl", "--generate", 12, "--max-new-tokens", 4
    found = evaluated(capsys, run, *asked, "--by", "meta.flag", "--answers", tmp_path / "answers.jsonl")
    assert main(["score", str(tmp_path / "answers.jsonl"), "--by", "meta.flag", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["by_value"]
    assert again["generated"] == found["by_value"]["generated"]
    assert max(len(of) for of in again["generated"].values()) == 2
    offers = "--choices", run / "offers.jsonl", "--answers", tmp_path / "chosen.jsonl"
    evaluated(capsys, run, *offers, "--by", "lang")
    assert [json.loads(line)["lang"] for line in (tmp_path / "chosen.jsonl").read_text().splitlines()] == [
        "en",
        "de",
        "de",
    ]


def test_a_source_without_the_column_is_told_and_alone_refused(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    assert main(["eval", str(run / "run"), "--data", str(run / "rows.jsonl"), "--by", "knd"]) == 2
    assert "error[config]: --by: rows: no column 'knd'; did you mean kind?" in capsys.readouterr().err
    asked = ["eval", str(run / "run"), "--choices", str(run / "offers.jsonl")]
    assert main([*asked, "--by", "lng"]) == 2
    said = capsys.readouterr()
    assert "error[config]: --by: offers: no column 'lng'; did you mean lang?" in said.err and not said.out
    assert main([*asked, "--data", str(run / "rows.jsonl"), "--workers", "0", "--by", "lang"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: --by: rows: no column 'lang'; there are: ")


def test_what_has_no_value_is_none_of_those_of_the_mean() -> None:
    shares = {"anna": 0.4, "ben": 0.0, "(none)": 0.0}
    figures = {value: {"documents": 5, "exact_match": share} for value, share in shares.items()}
    assert told("speaker", {"generated": {"rows": figures}})["means"] == {"generated": {"rows": {"exact_match": 0.2}}}


def test_fifty_values_are_shown_the_most_frequent_first() -> None:
    figures = {f"v{n:02}": {"documents": 60 - n, "exact_match": 0.5} for n in range(60)}
    head, *shown = value_lines(told("kind", {"generated": {"rows": figures}}), "generated")
    assert head.split() == ["generated,", "rows", "by", "kind", "documents", "exact", "match"]
    assert [line.split()[0] for line in shown[:50]] == [f"v{n:02}" for n in range(50)]
    assert [line.split() for line in shown[50:]] == [
        "and 10 more values (--json has all) 55".split(), "mean over values 50.00 %".split()
    ]  # fmt: skip


def test_values_that_are_numbers_come_by_their_size() -> None:
    assert ranked({"30": 5, "4": 1, "2.5": 9}) == ["2.5", "4", "30"]
    assert ranked({"30": 5, "4": 1, "none": 9}) == ["none", "30", "4"]


def test_values_are_called_as_json_has_them_and_texts_as_they_are() -> None:
    assert [called(value) for value in (" a ", None, True, 3, 0.5, ["a"])] == [
        "a",
        "(none)",
        "true",
        "3",
        "0.5",
        '["a"]',
    ]
