"""Sources of one run that have the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos import make_run
from kosmos.plugins import load_core
from kosmos.run_sources import open_both
from kosmos.train.held_out_elsewhere import held_out_elsewhere

IDS = [{"id": f"r{n}"} for n in range(80)]


def write(folder: Path, suffix: str = "jsonl", more: list[dict[str, Any]] | None = None) -> None:
    folder.mkdir()
    for first, name in ((0, "b"), (40, "a")):
        rows = [{"text": f"text {n}", **(more[n] if more else {})} for n in range(first, first + 40)]
        lines = [row["text"] if suffix == "txt" else json.dumps(row) for row in rows]
        (folder / f"{name}.{suffix}").write_text("\n\n".join(lines))


def warnings(*sources: Any) -> list[str]:
    config = make_run({"modalities": [], "data": {"sources": list(sources), "held_out": 0.1}})
    return list(held_out_elsewhere(config, *open_both(config, load_core())))


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (["d", {"path": "d", "name": "again", "held_out": 0}], ["(again) trains on 8 of the 8 documents that data."]),
        (["d", {"path": "d", "name": "again", "held_out": 0.05}], ["(again) trains on 4 of the 8 documents that"]),
        (["d", {"path": "d", "name": "again"}], []),
        (["d", {"path": "d/../d", "name": "again", "weight": None, "limit": 9}], []),
        ([{"path": path, "held_out": 0} for path in ("d", "d/a.jsonl")], []),
        ([{"path": "d", "held_out": 0}, "d/b.jsonl"], ["0 (d) trains on 4 of the 4 documents that data.sources.1 (b)"]),
        (["d/a.jsonl", "d/b.jsonl"], []),
    ],
)
def test_what_one_source_holds_out_and_another_trains_on_is_told(tmp_path: Path, monkeypatch, sources, said) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("d"))
    found = warnings(*sources)
    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found, strict=True))


def test_rows_that_state_their_part_have_it_in_all_sources(tmp_path: Path) -> None:
    write(tmp_path / "d", more=[{"split": "test" if n % 40 < 3 else "train"} for n in range(80)])
    assert warnings(str(tmp_path / "d"), str(tmp_path / "d" / "b.jsonl")) == []


def test_files_that_are_cut_in_different_ways_may_share_what_they_hold_out(tmp_path: Path) -> None:
    write(tmp_path / "d", "txt")
    one, other = ({"path": str(tmp_path / "d"), "name": f"of {n}", "options": {"chunk_chars": n}} for n in (20, 60))
    assert warnings(one, {**one, "name": "again"}) == []
    assert [" trains on some of the " in line for line in warnings(one, other)] == [True, True]
