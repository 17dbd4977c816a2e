"""A run's folder without the files that its models were built from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from kosmos import PluginError, load_run, make_run, resume_run, train_model
from support.runs import small_run, ticks_registry
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


def test_a_run_that_goes_on_with_other_options_is_built_by_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are in the checkpoint: who takes the name of their file out of the run file may resume."""
    with monkeypatch.context() as built_from_files:
        built_from_files.setattr(TicksEncoder, "without_files", {"width": 8}, raising=False)
        train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=ticks_registry())
    assert (tmp_path / "run" / "model.yaml").exists()
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
