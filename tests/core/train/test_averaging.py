"""The mean of a run's checkpoints: a run to score, to export and to begin with, and none to go on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kosmos import load_run, resume_run, train_model
from kosmos.checkpoint.averaging import mean
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.cli import main
from kosmos.errors import CheckpointError, ConfigError
from kosmos.train.averaging import average_run
from kosmos.train.saved import open_checkpoint
from support.full_disk import room_for
from support.runs import small_run, ticks_registry


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the checkpoints of steps 1 to 4, whose frozen tensors are linked."""
    output = tmp_path_factory.mktemp("first") / "run"
    over = {"train": {"steps": 4}, "checkpoint": {"every_steps": 1, "keep_last": 4}}
    train_model(small_run(output, streams={"ticks": {"freeze": True}}, **over), registry=ticks_registry())
    return output


def tensors(output: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    return read_whole(open_checkpoint(output, step)[1].tensors, MODEL)


def test_weights_are_the_mean_of_those_of_the_steps(run: Path, tmp_path: Path) -> None:
    assert average_run(run, tmp_path / "mean", steps=[4, 2]) == [2, 4]
    found, two, four = tensors(tmp_path / "mean"), tensors(run, 2), tensors(run, 4)
    assert found.keys() == two.keys()
    assert all(torch.equal(tensor, (two[name] + four[name]) / 2) for name, tensor in found.items())
    assert not all(torch.equal(tensor, four[name]) for name, tensor in found.items())
    assert average_run(run, tmp_path / "three", last=3) == [2, 3, 4]
    assert average_run(run, tmp_path / "all") == [1, 2, 3, 4]


def test_counts_are_those_of_the_last_and_types_stay(run: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    def stored(step: int) -> Path:
        folder = tmp_path / str(step)
        folder.mkdir()
        made = {"model.n": torch.tensor([step]), "model.w": torch.tensor([1.0 + step / 128]).bfloat16()}
        save_file(made, folder / "shard-00001-model-00001-of-00001.safetensors")
        return folder

    found = mean([stored(step) for step in (1, 2, 6)])
    assert found["n"].tolist() == [6]
    assert found["w"].dtype is torch.bfloat16 and found["w"].item() == 1 + 3 / 128  # the sum in bf16 would be another


def test_it_is_scored_exported_and_begun_with_as_a_run(run: Path, tmp_path: Path) -> None:
    average_run(run, tmp_path / "mean")
    model = load_run(tmp_path / "mean", device="cpu", registry=ticks_registry()).composition.model
    expected = tensors(tmp_path / "mean")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items() if name in expected)
    assert main(["export", str(tmp_path / "mean"), str(tmp_path / "mean.safetensors")]) == 0
    assert load_file(tmp_path / "mean.safetensors").keys() == expected.keys()
    over = {"train": {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}, "init": str(tmp_path / "mean")}
    train_model(small_run(tmp_path / "second", **over), registry=ticks_registry())
    after = tensors(tmp_path / "second")
    assert all(torch.allclose(tensor, expected[name], atol=1e-6) for name, tensor in after.items())


def test_nothing_goes_on_from_it(run: Path, tmp_path: Path) -> None:
    average_run(run, tmp_path / "mean")
    with pytest.raises(CheckpointError, match=r"is the mean of the checkpoints of steps 1, 2, 3, 4, without .*init="):
        resume_run(tmp_path / "mean", {"train": {"steps": 6}}, registry=ticks_registry())
    init = {"path": str(tmp_path / "mean"), "optimizer": True}
    with pytest.raises(ConfigError, match="has the optimizer's state of no parameter"):
        train_model(small_run(tmp_path / "b", init=init), registry=ticks_registry())


@pytest.mark.parametrize(
    ("options", "status", "line"),
    [
        (["--steps", "2"], 3, "error[checkpoint]: {run}/checkpoints: an average is of two checkpoints or more"),
        (["--steps", "2,9"], 3, "error[checkpoint]: {run}/checkpoints: no checkpoint of step 9; steps: 1, 2, 3, 4"),
        (["--steps", "2,b"], 2, "error[config]: --steps: expected numbers of steps, such as 1000,2000, got '2,b'"),
        (["--last", "2", "--steps", "2,3"], 2, "error[config]: --last: --steps names the checkpoints; leave one"),
    ],
)  # fmt: skip
def test_what_cannot_be_averaged_is_one_line_and_leaves_nothing(
    run: Path, tmp_path: Path, capsys, options: list[str], status: int, line: str
) -> None:
    assert main(["checkpoint", "average", str(run), str(tmp_path / "mean"), *options]) == status
    assert capsys.readouterr().err.startswith(line.format(run=run))
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_it_averaged_and_writes_over_nothing(run: Path, tmp_path: Path, capsys) -> None:
    command = ["checkpoint", "average", str(run), str(tmp_path / "mean"), "--last", "2"]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'mean'}: the mean of steps 3, 4; kosmos eval")
    assert [path.name for path in tmp_path.iterdir()] == ["mean"]
    assert main(command) == 2
    assert "mean" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "mean")]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1:3] == [f"average    of steps 3, 4 of {run}", "ended      averaged"]
    assert not any(line.startswith("steps ") for line in told)
    assert main(["report", str(tmp_path / "mean"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ended"]["how"] == "averaged" and found["lineage"]["average"] == {"path": str(run), "steps": [3, 4]}


def test_a_full_disk_is_one_line_and_leaves_nothing(run: Path, tmp_path: Path, capsys) -> None:
    with room_for(20_000):
        status = main(["checkpoint", "average", str(run), str(tmp_path / "mean")])
    said = capsys.readouterr().err
    assert (
        status == 4 and said.startswith(f"error[training]: {tmp_path / 'mean'}: cannot copy") and said.count("\n") == 1
    )
    assert not list(tmp_path.iterdir())
