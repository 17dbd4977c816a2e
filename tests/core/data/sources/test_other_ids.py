"""What a row is called in lines of answers, where it has no ``id``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.plugins import load_plugins
from kosmos.run_file import make_run
from kosmos.run_sources import open_both

TEXTS = [{"text": f"text {number}"} for number in range(40)]


def ids(rows: list[dict[str, Any]], file: Path, **entry: Any) -> tuple[list[object], list[object]]:
    """Of what is trained on and what is held out."""
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = make_run({"data": {"sources": [{"path": str(file), **entry}], "held_out": 0.25}})
    parts = [sources[0] for sources in open_both(config, load_plugins())]
    return tuple([part.names(number).row for number in range(len(part))] for part in parts)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", ["question_id", "questionId", "qid", "sample_id", "uid"])
def test_a_row_without_an_id_is_called_as_benchmarks_call_it(tmp_path: Path, name: str, kind: str) -> None:
    trained, held_out = ids([{**row, name: number} for number, row in enumerate(TEXTS)], tmp_path / f"a.{kind}")
    assert sorted([*trained, *held_out]) == list(range(40)) and len(held_out) == 10


def test_what_a_row_is_called_otherwise_says_nothing_about_what_is_held_out(tmp_path: Path) -> None:
    numbered = [{**row, "qid": number} for number, row in enumerate(TEXTS)]
    other = [{**row, "qid": f"q{number}"} for number, row in enumerate(TEXTS)]
    assert [f"q{qid}" for qid in ids(numbered, tmp_path / "a.jsonl")[1]] == ids(other, tmp_path / "b.jsonl")[1]


def test_an_id_of_its_own_or_one_that_is_named_counts_first(tmp_path: Path) -> None:
    both = [{**row, "id": number, "qid": "q", "key": f"k{number}"} for number, row in enumerate(TEXTS)]
    assert "q" not in ids(both, tmp_path / "a.jsonl")[0]
    named = ids([{**row, "id": None} for row in both], tmp_path / "b.jsonl", columns={"id": "key"})[0]
    assert all(str(key).startswith("k") for key in named)
