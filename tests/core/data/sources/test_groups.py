"""Values that tell rows apart are often untidy: what is one patient stays on one side, and what may be is told."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kosmos import make_run, open_held_out, open_sources
from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.data.sources.since import opened_before
from kosmos.plugins import Registry, load_core
from kosmos.run_sources import open_named
from kosmos.train.older_rules import rules_of
from kosmos.train.order import READ, READS
from kosmos.train.run import resume_run, train_model
from support.runs import small_run, ticks_registry

SPACED = ("P{:03}", "P{:03} ", " P{:03}", "P{:03}\t")


def write(folder: Path, rows: list[dict[str, Any]]) -> str:
    (file := folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def opened(folder: Path, rows: list[dict[str, Any]], **source: Any) -> tuple[Source, list[Source]]:
    run = make_run({"modalities": [], "data": {"sources": [{"path": write(folder, rows), **source}]}})
    [trained] = open_sources(run, load_core(), "train")
    return trained, open_held_out(run, load_core())


def texts(source: Source) -> list[str]:
    return [source.document(n).segments[0].text for n in range(len(source))]


def table(of: tuple[str, ...] = SPACED, **more: Any) -> list[dict[str, Any]]:
    """Eight patients of four rows, each written in four ways."""
    return [{"text": f"row {n // 4}", "patient": of[n % 4].format(n // 4), **more} for n in range(32)]


def test_spaces_around_a_group_are_none_of_it(tmp_path: Path) -> None:
    trained, [held] = opened(tmp_path, table(), columns={"group": "patient"})
    assert len(held) == 4
    assert not {*texts(held)} & {*texts(trained)}
    assert trained.remarks == ()


def test_a_run_that_was_begun_before_keeps_its_rows(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with opened_before(lacking=["spaces"]):
        trained, [held] = opened(tmp_path, table(), columns={"group": "patient"})
        _, [named] = opened(tmp_path / "other", table(), held_out={"patient": "P003"})
    assert {*texts(held)} <= {*texts(trained)}
    assert len(named) == 1


@pytest.mark.parametrize("values", [["P000", "P005"], ["P000 ", " P005"]])
def test_spaces_around_values_that_are_held_out_are_none_of_them(tmp_path: Path, values: list[str]) -> None:
    trained, [held] = opened(tmp_path, table(), held_out={"patient": values})
    assert sorted(texts(held)) == ["row 0"] * 4 + ["row 5"] * 4
    assert len(trained) == 24
    assert trained.remarks == ()


def test_a_fold_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    rows = [{"text": "x", "fold": (1, "1 ", "1.0", "2")[n % 4]} for n in range(8)]
    assert len(opened(tmp_path, rows, held_out={"fold": 1})[1][0]) == 6


@pytest.mark.parametrize("of", [("P{:03}", "p{:03}"), ("{}", "{}.0"), ("Zo\u00eb{}", "Zoe\u0308{}")])
def test_groups_that_may_be_one_are_told(tmp_path: Path, of: tuple[str, str]) -> None:
    [line] = opened(tmp_path, table((*of, *of)), columns={"group": "patient"})[0].remarks
    assert line.startswith("8 groups are written in several ways in patient, such as ")
    assert f"{of[0].format(0)!r} and {of[1].format(0)!r}" in line


def test_rows_like_those_that_are_held_out_are_told(tmp_path: Path) -> None:
    rows = table(("P{:03}", "p{:03}", "P{:03}", "P{:03}"))
    [line] = opened(tmp_path, rows, held_out={"patient": "P003"})[0].remarks
    assert "held_out: 1 row is trained on, whose patient is 'p003', beside those of 'P003'" in line


def test_rows_without_a_group_are_counted(tmp_path: Path) -> None:
    rows = [{**row, "patient": " "} if n in (4, 9) else row for n, row in enumerate(table())]
    trained, held = opened(tmp_path, rows, columns={"group": "patient"})
    assert trained.remarks == held[0].remarks
    assert trained.remarks == (
        f"2 rows have no patient (the first: {tmp_path / 'all.jsonl'}:5): each is a group by itself",
    )


@pytest.mark.parametrize("stated", [{"held_out": {"fold": 1}}, {}])
def test_groups_on_both_sides_of_a_split_that_is_stated_are_told(tmp_path: Path, stated: dict[str, Any]) -> None:
    rows = [
        {**row, "fold": int(n in (13, 20)), **({} if stated else {"split": "test" if n in (13, 20) else "train"})}
        for n, row in enumerate(table())
    ]
    [line] = opened(tmp_path, rows, columns={"group": "patient"}, **stated)[0].remarks
    assert line.startswith("2 groups are on both sides, trained on and held out, of patient (such as P003)")
    apart = [{**row, "fold": int(n < 4), "split": "test" if n < 4 else "train"} for n, row in enumerate(table())]
    apart = [{key: value for key, value in row.items() if key != "split" or not stated} for row in apart]
    assert opened(tmp_path, apart, columns={"group": "patient"}, **stated)[0].remarks == ()


def test_a_test_that_is_scored_with_what_a_run_is_chosen_by_is_told(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "split": ("train", "train", "val", "test")[n % 4]} for n in range(12)]
    [line] = opened(tmp_path, rows)[0].remarks
    assert line.startswith("its held-out rows are of val (3 rows), test (3 rows) and are scored together")
    assert opened(tmp_path, [row for row in rows if row["split"] != "val"])[0].remarks == ()


def test_a_test_that_is_trained_on_is_told(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "split": ("train", "train", "val", "test")[n % 4]} for n in range(12)]
    [line] = opened(tmp_path, rows, held_out={"split": "val"})[0].remarks
    assert line == (
        "held_out: 3 rows are trained on whose split is test; if they are not to be, leave them out "
        "(rows: {split: [train, val]})"
    )


@pytest.mark.parametrize("now", [True, False])
def test_a_run_is_scored_and_goes_on_with_the_groups_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bool
) -> None:
    source = {"path": write(tmp_path, table()), "columns": {"group": "patient"}}
    run = small_run(tmp_path / "run", modalities=[], data={"sources": [source]}, train={"steps": 1})
    registry = ticks_registry()
    with monkeypatch.context() as older, nullcontext() if now else opened_before(lacking=["spaces"]):
        if not now:
            older.setattr("kosmos.train.order.READ", [rule for rule in READ if rule != "spaces"])
        train_model(run, registry=registry)
    assert resume_run(tmp_path / "run", {"train": {"steps": 2}}, registry=registry).step == 2
    rules = rules_of({READS: READ if now else [rule for rule in READ if rule != "spaces"]})
    [scored] = open_named(run, registry, [source["path"]], **rules)
    [trained] = _trained(run, registry, **rules)
    assert not {scored.origin(n) for n in range(len(scored))} & {trained.origin(n) for n in range(len(trained))}
    assert len(scored) == (4 if now else 2)


def _trained(run: RunConfig, registry: Registry, **rules: Any) -> list[Source]:
    with opened_before(**rules):
        return open_sources(run, registry, "train")
