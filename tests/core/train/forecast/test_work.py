"""Operations that are counted without weights or media, against what the meter of a training counts."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kosmos import hookimpl, make_run
from kosmos.components import BackboneSpec
from kosmos.config import RunConfig
from kosmos.model.decoder import Decoder
from kosmos.plugins import Registry, load_plugins
from kosmos.runtime.parallel import Parallel
from kosmos.train.forecast.whole import forecast
from support.held import stepped
from support.runs import small_run, ticks_registry

SAME = 1e-12
"""Relative; measured: no difference at all."""


def assert_as_trained(config: RunConfig, registry: Registry, folder: Path) -> None:
    _, row = stepped(config, folder, registry, Parallel())
    work = forecast(config, registry, steps=1, seconds=60).work
    assert not work.by_parameters
    assert work.total == pytest.approx(row["flops"], rel=SAME)
    assert work.half_causal / work.total == pytest.approx(row["mfu_half_causal"] / row["mfu"], rel=SAME)
    for name, share in row["mfu_by_module"].items():
        assert work.by_module[name] / work.total == pytest.approx(share / row["mfu"], rel=SAME)


def test_operations_of_the_sample_sets_are_those_that_training_counts(tmp_path: Path) -> None:
    run = {"data": {"lanes": 2, "look_ahead": 16, "workers": 0}, "train": {"precision": "fp32"}, "trackers": []}
    assert_as_trained(make_run(run, {"modalities": "image,audio,video"}), load_plugins(), tmp_path / "run")


@pytest.mark.parametrize("over", [
    {"backbone": {"freeze": True}},
    {"streams": {"ticks": {"freeze_connector": True}}},
    {"backbone": {"lora": 4}, "streams": {"ticks": {"freeze": True}}},
    {"train": {"weights": "bf16", "precision": "bf16"}},
    {"backbone": {"tie_embeddings": True, "kv_heads": 1}},
], ids=["frozen", "connector", "updates", "bf16", "tied"])  # fmt: skip
def test_operations_are_those_that_training_counts(over: dict[str, Any], tmp_path: Path) -> None:
    assert_as_trained(small_run(None, **over), ticks_registry(), tmp_path / "run")


class Nosy(Decoder):
    """Asks for a value on its way."""

    def forward(self, x: Any, *args: Any, **more: Any) -> torch.Tensor:
        assert float(x.detach().sum()) < 1e9
        return super().forward(x, *args, **more)


def with_nosy() -> Registry:
    """Core, ticks and the backbone above."""
    module: Any = ModuleType("acme")
    module.KOSMOS_API = 1

    @hookimpl
    def kosmos_backbones() -> list[BackboneSpec]:
        return [BackboneSpec(name="nosy", target=f"{__name__}:Nosy", summary="Looks at values.")]

    module.kosmos_backbones = kosmos_backbones
    return ticks_registry(acme=module)


def test_a_model_that_looks_at_values_is_estimated_by_its_parameters() -> None:
    shape = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
    plain, nosy = (
        forecast(small_run(None, backbone={"name": name, **shape}), with_nosy(), steps=1)
        for name in ("decoder", "nosy")
    )
    assert any(line.startswith("work: the model cannot be run without values") for line in nosy.warnings())
    assert nosy.as_row()["work"]["counted"] is False
    # But for attention they are the same; vectors count as products in an encoder whose layers are its own.
    backbone = plain.work.by_module["backbone"] - 2 * plain.work.saved
    assert nosy.work.by_module == pytest.approx({**plain.work.by_module, "backbone": backbone}, rel=0.06)
    assert nosy.work.by_module["backbone"] == backbone
