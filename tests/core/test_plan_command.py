"""``kosmos plan``: what it prints, and what it refuses as training does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kosmos.cli import main
from support.command import SMALL

GIVEN = ["--modalities", "image", *SMALL, "data.lanes=4"]
CaptureFixture = pytest.CaptureFixture[str]


def plan(capsys: CaptureFixture, *more: object) -> tuple[int, str, str]:
    status = main(["plan", *GIVEN, *map(str, more)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_plan_has_a_section_for_each_thing_that_it_tells(capsys: CaptureFixture) -> None:
    status, out, err = plan(capsys, "--processes", 4, "--device", "H100", "--steps", 500)
    assert (status, err) == (0, "")
    begins = [line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")]
    assert begins == [
        "model", "backbone", "streams.image.encoder", "streams.image.connector", "total", "memory",
        "data", "shapes", "step", "rows", "cells", "run",
        "work", "backbone", "image", "head", "total", "estimate", "time",
    ]  # fmt: skip
    assert "(the largest of 4: fsdp): weights " in out
    assert "step      4 lanes; 4 processes, 1 row a process\n" in out
    assert "rows      32 planned (8 whole steps), 100 % full\n" in out
    assert "run       500 steps: about 1,024 tokens a step, 512,000 in all\n" in out
    assert "time      4 H100, 989 TFLOP/s each at most in bfloat16:" not in out  # SMALL says fp32
    assert "time      no peak of H100 in float32 is known\n" in out


def test_a_long_count_of_epochs_is_told_of_beside_the_object(capsys: CaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr("kosmos.train.length.TOLD_AFTER_S", 0.0)
    status, out, err = plan(capsys, "--epochs", 2, "--json")
    assert status == 0
    assert json.loads(out)["counted"].startswith("2 epochs of ")
    assert re.fullmatch(r"counting the steps of 2 epochs: reading the headers of 4,\d+ documents\n", err)


def test_a_time_is_told_for_the_peak_and_half_of_it(capsys: CaptureFixture) -> None:
    _, out, _ = plan(capsys, "--device", "H100", "train.precision=auto")
    assert "time      H100, 989 TFLOP/s each at most in bfloat16:\n" in out
    assert "          at 100 % of it " in out
    assert "          at 50 % of it " in out


def test_a_plan_for_machines_is_one_object(capsys: CaptureFixture) -> None:
    status, out, err = plan(capsys, "--json", "--nproc", 2, "--device", "A100-40GB", "train.precision=bf16")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert {name: sorted(part) if isinstance(part, dict) else type(part) for name, part in found.items()} == {
        "layout": ["groups", "lanes", "processes", "rows_of_a_process", "shared"],
        "model": ["parameters", "parts", "trained"],
        "memory": [
            "gathered_bytes", "gradients_bytes", "held_bytes", "offloaded", "optimizer_bytes",
            "optimizer_bytes_by_name", "reference_bytes", "weights_bytes",
        ],
        "data": list,
        "rows": [
            "cells_by_stream", "documents_per_row", "fill", "imbalance_by_stream", "incidents", "media_tokens_per_row",
            "rows", "steps", "text_tokens_per_row", "tokens_by_source", "tokens_per_row",
        ],
        "steps": int,
        "counted": str,
        "tokens_of_step": float,
        "tokens": float,
        "work": ["counted", "flops", "flops_by_module", "flops_of_step", "flops_of_step_half_causal"],
        "device": ["memory_bytes", "name", "peak_flops", "type"],
        "times": list,
        "warnings": list,
    }  # fmt: skip
    assert set(found["data"][0]) == {
        "name", "documents", "share", "tokens", "tokens_error", "passes", "longer_than_a_row", "looked_at"
    }  # fmt: skip
    assert set(found["model"]["parts"][0]) == {"place", "component", "parameters", "trained", "how", "types"}
    assert [time["of_peak"] for time in found["times"]] == [1.0, 0.5]
    assert found["layout"]["processes"] == 2


@pytest.mark.parametrize(("more", "expected"), [
    (["--processes", 3], "data.lanes: 4 lanes cannot be dealt evenly to 3 processes"),
    (["--processes", 4, "--nproc", 3], "--processes 4: expected a multiple of --nproc, the 3 processes of a machine"),
    (["--processes", 2, "parallel.strategy=hsdp"], "parallel.shards: 2 ranks cannot be split into several groups of 2"),
    (["--device", "abacus"], "--device abacus: no GPU of this name is known; known: A100, "),
    (["--device", ""], "--device: the value is empty"),
    (["train.stepz=3"], "command line: train.stepz: unknown field; did you mean steps?"),
    (["train.schedule=wsd", "train.schedule.decay=7"], "train.schedule.decay: expected a share of the steps from 0 to"),
    (["--procs", 2], "--procs: unknown option; did you mean "),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(capsys: CaptureFixture, more: list[object], expected: str) -> None:
    status, out, err = plan(capsys, *more)
    assert (status, out) == (2, "")
    assert err.startswith(f"error[config]: {expected}"), err
    assert err.count("\n") == 1


def test_what_waits_for_scores_that_there_will_not_be_is_refused(capsys: CaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text\n")
    waits = "data.held_out=0", "evaluate.patience=2", "evaluate.every_steps=9"
    status, _, err = plan(capsys, "--data", tmp_path / "a.txt", *waits)
    assert (status, err.partition(";")[0]) == (2, "error[config]: evaluate.patience: nothing is held out to go by")


def test_what_is_compared_by_is_looked_for_as_in_training(capsys: CaptureFixture) -> None:
    status, _, err = plan(capsys, "evaluate.best=shape")
    assert status == 2 and "evaluate.best: no held-out source is called 'shape'; did you mean shapes?" in err


def test_nothing_is_written(capsys: CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert plan(capsys, "output=run", "train.optimizer.compile=true")[0] == 0
    assert list(tmp_path.iterdir()) == []
