"""``kosmos launch`` refuses what ``kosmos train`` would, as far as settings tell, and knows what a cluster may have."""

from __future__ import annotations

import pytest

from kosmos.cli import main

ALONE = {
    ("backbone.nope=1",): "backbone.nope: unknown field (fields: preset, width",
    ("backbone.heads=5",): "backbone.heads: 5 must cut width 128 into even parts",
    ("backbone.lora.layers=[nope]",): "backbone.lora.layers: no linear layer is called 'nope'",
    ("backbone.lora=4", "backbone.freeze=true"): "backbone.lora: backbone.freeze trains nothing of it",
    ("backbone.freeze=true",): "backbone.freeze: nothing is left to train",
    ("checkpoint.keep_best=true",): "checkpoint.keep_best: keeps what scored best during training: set evaluate.",
    ("data.sources=[a, {path: b, weight: 1}]",): "data.sources: a has no weight and others have",
    ("data.lanes=1", "train.release_gradients=true"): "train.release_gradients: gradients are freed one by one, train.",
    ("parallel.offload=true",): "parallel.offload: only sharded runs offload",
    ("streams.image.freeze=true",): "streams.image: no modality of the run uses this stream",
    ("train.schedule.nope=1",): "train.schedule.nope: unknown field",
    ("train.weights=bf16", "train.precision=fp32"): "train.precision: fp32 products are wanted, but train.weights bf16",
}
"""Fields of a run of one process to what is wrong with them."""
TOGETHER = {
    ("parallel.strategy=ddp", "parallel.tensor=2"): "parallel.tensor: goes with strategy fsdp, not with ddp",
    ("parallel.strategy=hsdp", "parallel.shards=3"): "parallel.shards: 16 ranks cannot be split into several groups of",
    ("parallel.strategy=ddp", "parallel.shards=2"): "parallel.shards: only strategy hsdp shards within groups",
    ("parallel.strategy=ddp", "parallel.offload=true"): "parallel.offload: not with strategy ddp",
    ("parallel.tensor=8",): "parallel.tensor: 8 ranks cannot share 4 heads evenly",
    ("parallel.sequence=8",): "parallel.sequence: 8 ranks cannot share 4 heads evenly",
    ("parallel.tensor=2", "backbone.lora=4"): "parallel.tensor: matrices with updates beside them (backbone.lora)",
    ("parallel.tensor=2", "backbone={name: hf, model: /cluster/model}"): "parallel.tensor: only the built-in decoder "
    "can be shared, the backbone is HuggingFaceBackbone",
    ("train.release_gradients=true", "train.clip_norm=null", "data.lanes=32"): "adds up those of 2 rows on a process",
}
"""Fields of a run of two nodes with eight processes each to what is wrong with them."""


@pytest.mark.parametrize("fields", ALONE, ids=" ".join)
def test_a_run_that_cannot_start_is_refused_as_in_training(
    fields: tuple[str, ...], run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "slurm", run_file, "--gpus-per-node", "1", *fields]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error[config]: {ALONE[fields]}")
    assert main(["train", run_file, *fields]) == 2
    assert capsys.readouterr().err == said.err


@pytest.mark.parametrize("fields", TOGETHER, ids=" ".join)
def test_ranks_that_cannot_train_together_are_refused(
    fields: tuple[str, ...], run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "slurm", run_file, "--nodes", "2", *fields]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error[config]: ") and said.err.count("\n") == 1
    assert TOGETHER[fields] in said.err


def test_groups_of_hsdp_are_nodes_where_nothing_else_is_said(run_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "slurm", run_file, "--nodes", "2", "parallel.strategy=hsdp"]) == 0
    assert main(["launch", "slurm", run_file, "--nodes", "1", "parallel.strategy=hsdp"]) == 2
    assert "8 ranks cannot be split into several groups of 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "field",
    [
        "tokenizer=/cluster/tokenizer",
        "backbone={name: hf, model: /cluster/model}",
        "data.sources=[/cluster/data]",
        "evaluate.sources=[/cluster/scored]",
        "init=/cluster/run",
        "backbone.preset=18b",
    ],
)
def test_files_that_a_cluster_has_are_not_looked_for(
    field: str, run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "slurm", run_file, field]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("modalities={touch: {}}", "modality 'touch': no installed plugin brings it"),
        ("backbone=mamba", "backbone 'mamba': no installed plugin brings it"),
        ("train.optimizer=shampoo", "optimizer 'shampoo': no installed plugin brings it"),
        ("plugins=[touch]", "plugin 'touch' is not installed"),
    ],
)
def test_a_plugin_that_is_missing_here_is_told_and_may_be_on_the_cluster(
    field: str, said: str, run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "slurm", run_file, field]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {said}")
    assert line.endswith("; not checked here: the job needs it on the cluster")


def test_what_is_missing_keeps_nothing_else_from_being_checked(
    run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "slurm", run_file, "modalities={touch: {}}", "backbone.nope=1"]) == 2
    assert capsys.readouterr().err.startswith("error[config]: backbone.nope: unknown field")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("train.device=cpu",),
            "warning: train.device=cpu: the job asks for 8 GPUs a node and the run uses none; set train.device=auto, "
            "or ask for none with --gpus-per-node 0\n",
        ),
        (
            ("train.device=cuda", "--gpus-per-node", "0"),
            "warning: train.device=cuda: the job asks for no GPUs (--gpus-per-node 0), and the run cannot start "
            "without\n",
        ),
        (("train.device=cpu", "--gpus-per-node", "0"), ""),
        (("train.device=cuda",), ""),
    ],
)
def test_a_device_that_the_job_does_not_suit_is_doubted(
    arguments: tuple[str, ...], said: str, run_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "slurm", run_file, *arguments]) == 0
    assert capsys.readouterr().err == said
