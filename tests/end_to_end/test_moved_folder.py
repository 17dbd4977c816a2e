"""A run's folder without the files that its models were built from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from kosmos import PluginError, load_run, make_run, resume_run, train_model
from kosmos.checkpoint.tensors import read_whole
from kosmos.model.huggingface import HuggingFaceBackbone
from support.runs import rows_of, small_run, ticks_registry
from support.ticks_encoder import TicksEncoder


def test_an_encoders_weights_are_needed_once(tmp_path: Path) -> None:
    source = timm.create_model("test_efficientnet", num_classes=0)
    weights = tmp_path / "weights.safetensors"
    save_file({key: value.contiguous() for key, value in source.state_dict().items()}, weights)
    run: dict[str, Any] = {
        "modalities": ["image"], "output": str(tmp_path / "run"), "trackers": [], "evaluate": {"max_documents": 2},
        "streams": {"image": {"encoder": {"weights": str(weights)}, "freeze": True}},
        "data": {"tokens_per_pack": 128, "lanes": 1, "workers": 0}, "train": {"steps": 1, "warmup_steps": 0},
    }  # fmt: skip
    train_model(make_run(run))
    weights.unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    composition = load_run(tmp_path / "moved", device="cpu").composition
    encoder: Any = composition.model.streams["image"].encoder
    found, expected = encoder.model.state_dict(), source.state_dict()
    assert len([name for name in found if "running_mean" in name]) > 3  # BatchNorm with its statistics
    for name, value in found.items():
        assert torch.equal(value, expected[name])
    assert composition.config.streams["image"].freeze


def image_run(folder: Path) -> dict[str, Any]:
    source = timm.create_model("test_efficientnet", num_classes=0)
    weights = folder / "weights.safetensors"
    save_file({key: value.contiguous() for key, value in source.state_dict().items()}, weights)
    encoder = {"weights": str(weights), "model_options": {"drop_path_rate": 0.2}}
    return {
        "modalities": ["image"], "streams": {"image": {"encoder": encoder}},
        "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
    }  # fmt: skip


def text_run(folder: Path) -> dict[str, Any]:
    config = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256, "attn_pdrop": 0.2}
    HuggingFaceBackbone(300, config=config).model.save_pretrained(folder / "gpt2")
    return {"modalities": "text", "backbone": {"name": "hf", "model": str(folder / "gpt2")}}


@pytest.mark.parametrize("made", [image_run, text_run])
def test_a_run_goes_on_without_the_files_of_its_models_as_one_that_was_never_stopped(tmp_path: Path, made: Any) -> None:
    files = tmp_path / "files"
    files.mkdir()
    settings: dict[str, Any] = {
        "trackers": [], "evaluate": {"max_documents": 2}, "checkpoint": {"keep_last": 9},
        "data": {"tokens_per_pack": 128, "lanes": 1, "workers": 0},
        "train": {"steps": 2, "warmup_steps": 0, "schedule": "constant", "precision": "fp32"},
    }  # fmt: skip
    run = {**made(files), **settings}
    train_model(make_run(run, {"output": str(tmp_path / "whole"), "train": {"steps": 4}}))
    train_model(make_run(run, {"output": str(tmp_path / "run")}))
    shutil.rmtree(files)
    kept = (tmp_path / "run" / "model.yaml").read_bytes()
    (tmp_path / "run").rename(tmp_path / "moved")
    for steps in (3, 4):  # what is written as it goes on is enough to go on again
        resume_run(tmp_path / "moved", {"train": {"steps": steps}})
    assert (tmp_path / "moved" / "model.yaml").read_bytes() == kept
    rows = {name: rows_of(tmp_path / name / "metrics.jsonl") for name in ("whole", "moved")}
    assert [row["loss"] for row in rows["moved"]] == [row["loss"] for row in rows["whole"]]
    expected, found = (read_whole(tmp_path / name / "checkpoints/step-00000004/tensors") for name in rows)
    assert expected.keys() == found.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
    assert str(files) in (tmp_path / "moved" / "run.yaml").read_text()  # which says what it began with


def test_a_run_without_a_checkpoint_is_built_by_its_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins again, with the weights in the files that this names."""
    with monkeypatch.context() as built_from_files:
        built_from_files.setattr(TicksEncoder, "without_files", {"width": 8}, raising=False)
        train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=ticks_registry())
    assert (tmp_path / "run" / "model.yaml").exists()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000001")
    (tmp_path / "run" / "goodput.jsonl").unlink()  # which tells of it
    resume_run(tmp_path / "run", {"train": {"steps": 2}}, registry=ticks_registry())
    assert not (tmp_path / "run" / "model.yaml").exists()


def test_a_run_that_names_no_files_keeps_none(tmp_path: Path) -> None:
    train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=ticks_registry())
    assert not (tmp_path / "run" / "model.yaml").exists()


def test_options_that_no_run_file_can_hold_are_laid_to_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TicksEncoder, "without_files", {"weights": torch.zeros(1)}, raising=False)
    with pytest.raises(PluginError, match="without_files of a part of the model: not plain values"):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry())
    assert not (tmp_path / "run").exists()
