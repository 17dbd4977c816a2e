"""``kosmos eval ONE --against OTHER``."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kosmos import make_run
from kosmos.cli import main
from kosmos.commands.differences import difference_lines
from kosmos.evaluate.paired import Difference, of_shares
from kosmos.train.run import train_model
from support.pages import blocks

ROWS = [{"prompt": f"{n % 7} is", "completion": " odd" if n % 7 % 2 else " even and more"} for n in range(40)]
OFFERS = [{"query": f"{n % 7} is", "choices": ["odd", "even and more"], "gold": 1 - n % 7 % 2} for n in range(9)]


def lines(file: Path, rows: Sequence[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on the same rows, of which one holds out others."""
    folder = tmp_path_factory.mktemp("against")
    lines(folder / "rows.jsonl", ROWS)
    lines(folder / "bench.jsonl", [{**row, "id": n} for n, row in enumerate(ROWS)])
    lines(folder / "offers.jsonl", OFFERS)
    for name, share, rate in (("one", 0.3, 0.01), ("other", 0.1, 0.002)):
        data = {"sources": [{"path": str(folder / "rows.jsonl"), "held_out": share}]}
        config = {
            "modalities": [], "data": data | {"tokens_per_pack": 64, "workers": 0, "lanes": 1},
            "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
            "train": {"steps": 20, "warmup_steps": 1, "learning_rate": rate, "precision": "fp32"},
            "checkpoint": {"every_steps": 10}, "trackers": [], "output": str(folder / name),
        }  # fmt: skip
        train_model(make_run(config))
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["eval", *map(str, arguments), "--workers", "0", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_figures_and_differences_are_those_of_each_run_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = ("--data", runs / "bench.jsonl", "--choices", runs / "offers.jsonl")
    one, other = (told(capsys, runs / name, "--step", 10, *named) for name in ("one", "other"))
    both = told(capsys, runs / "one", "--against", runs / "other", "--step", 10, *named)
    assert both["runs"] == [one, other]
    (against,) = both["against"]
    assert (against["output"], against["step"], against["documents"]) == (str(runs / "other"), 10, 49)
    found = {(d["kind"], d["name"], d["figure"]): d for d in against["differences"]}
    expected = {
        ("all", "", "loss"): [run["overall"]["loss"] for run in (one, other)],
        ("source", "bench", "exact_match"): [run["by_source"]["bench"]["exact_match"] for run in (one, other)],
        ("choices", "offers", "accuracy"): [run["choices"]["offers"]["accuracy"] for run in (one, other)],
        ("choices", "offers", "accuracy_by_length"): [
            run["choices"]["offers"]["accuracy_by_length"] for run in (one, other)
        ],
    }
    for key, figures in expected.items():
        assert [found[key]["first"], found[key]["second"]] == pytest.approx(figures, rel=1e-5)
        assert found[key]["difference"] == pytest.approx(figures[0] - figures[1], rel=1e-4, abs=1e-6)
    loss = found["all", "", "loss"]
    assert loss["low"] < loss["difference"] < loss["high"] < 0 and loss["p"] < 0.01


def test_checkpoints_of_one_run_are_compared_on_what_it_holds_out(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    one = str(runs / "one")
    assert main(["eval", one, "--against", f"{one}@10", "--against", f"{one}@best", "--step", "20"]) == 2
    assert f"--against {one}: {one}, step 20 is there already; name another step, as {one}@STEP" in (
        capsys.readouterr().err
    )
    assert main(["eval", one, "--against", f"{one}@10", "--workers", "0"]) == 0
    first, *table = capsys.readouterr().out.splitlines()
    assert first.startswith(f"first {one}, step 20, second {one}, step 10: ") and first.endswith(" scored by both")
    heads, loss, right = table  # the one source is all there is
    assert heads.split() == ["documents", "first", "second", "difference", "95", "%", "p", "better"]
    assert loss.startswith("  all, loss") and right.startswith("  all, exact match")


def test_runs_that_hold_out_others_are_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(runs / "one"), "--against", str(runs / "other"), "--workers", "0"]) == 3
    said = capsys.readouterr().err
    assert "not the same documents: " in said and "name documents with --data" in said


def test_a_document_that_one_cannot_read_is_left_out_of_both(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = lines(runs / "broken.jsonl", [*ROWS, {"prompt": "x", "completion": None}])
    found = told(capsys, runs / "one", "--against", runs / "other", "--data", file)
    assert found["against"][0]["documents"] == 40 and len(found["runs"][0]["incidents"]) == 1


def test_a_run_whose_plugin_is_missing_is_one_line(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(runs / "other", tmp_path / "other"))
    file = other / "run.yaml"
    file.write_text(re.sub(r"^modalities: .*$", "modalities: {nowhere: {}}", file.read_text(), flags=re.M))
    data = ("--data", str(runs / "bench.jsonl"), "--workers", "0", "--json")
    assert main(["eval", str(runs / "one"), "--against", str(other), *data]) == 3
    out, said = capsys.readouterr()
    assert out == "" and said.count("\n") == 1 and said.startswith("error[plugin]: ") and "nowhere" in said


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--by", "kind"], "--against and --by: what is compared is losses, exact match and choices"),
        (["--generate", "4"], "--against and --generate: "),
        (["--metric", "bleu"], "--against and --metric: "),
    ],
)
def test_what_is_not_compared_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], more: list[str], line: str
) -> None:
    assert main(["eval", str(runs / "one"), "--against", str(runs / "other"), *more]) == 2
    assert line in capsys.readouterr().err
    assert main(["eval", str(runs / "one"), "--against", f"{runs / 'other'}@x"]) == 2
    assert f"--against {runs / 'other'}@x: expected the number of a step, or best, got 'x' behind the @" in (
        capsys.readouterr().err
    )


def test_the_page_shows_a_table_as_it_is_printed() -> None:
    (block,) = blocks("text", "against")
    loss = Difference(40, 0.0060, 0.0953, -0.0894, -0.1249, -0.0539, 8.1e-07, figure="loss", lower_is_better=True)
    right = of_shares([((1, 1), (n < 23, 1)) for n in range(40)])
    chosen = of_shares([((1, 1), (n < 25, 1)) for n in range(30)])
    found = [loss, replace(right, figure="exact_match")]
    found += [replace(chosen, kind="choices", name="arc_easy", figure=f) for f in ("accuracy", "accuracy_by_length")]
    assert list(difference_lines(found)) == block.text.splitlines()[1:]
