"""A run as it would be: its parts, its layout, what does not fit, and what it costs to tell."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from typing import Any

import pytest

from kosmos import ConfigError, make_run
from kosmos.compose import compose
from kosmos.runtime.parallel import Parallel
from kosmos.train.forecast.devices import device_named
from kosmos.train.forecast.whole import Forecast, forecast
from kosmos.train.peak import known_gpu
from support.runs import small_run, ticks_registry

SEVEN = {"backbone": {"name": "decoder", "preset": "7b"}, "data": {"sources": ["sums"]}, "trackers": []}


def test_parts_have_the_parameters_of_the_model_that_is_trained() -> None:
    config = small_run(None, backbone={"lora": 4}, streams={"ticks": {"freeze": True}})
    found = forecast(config, ticks_registry(), steps=1)
    parts = {part.place: part for part in found.parts}
    model = compose(config, ticks_registry()).model
    stream: Any = model.streams["ticks"]
    modules = {
        "backbone": model.backbone, "streams.ticks.encoder": stream.encoder, "streams.ticks.connector": stream.connector
    }  # fmt: skip
    assert parts.keys() == modules.keys()
    for place, module in modules.items():
        assert parts[place].parameters == sum(p.numel() for p in module.parameters())
        assert parts[place].trained == sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert [part.how for part in parts.values()] == ["LoRA", "frozen", "trained"]
    assert found.parameters == sum(p.numel() for p in model.parameters())


@pytest.fixture(scope="module")
def seven() -> tuple[Forecast, int]:
    """A decoder of 7 billion parameters on one GPU, and by how many bytes telling it has this process grow."""
    train = {"weights": "bf16", "optimizer": {"name": "lion8bit", "master": "stochastic"}}
    config = make_run(SEVEN, {"data": {"lanes": 64}, "train": train})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = forecast(config, ticks_registry(), steps=1, seconds=0, device=device_named("H100", "auto"))
    return told, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def test_a_decoder_of_7_billion_parameters_takes_no_memory_and_its_time_is_told(seven: tuple[Forecast, int]) -> None:
    told, grown = seven
    assert grown < 2**30, "its weights alone would be 13 GiB"
    assert 6.5e9 < told.parameters < 7.5e9
    assert told.memory.weights_bytes == 2 * told.parameters
    assert told.memory.state.total == pytest.approx(told.parameters, rel=0.02)
    assert not list(told.warnings())
    whole, half = told.times()
    assert whole["step_s"] == pytest.approx(told.work.total / 989e12)
    assert half["gpu_hours"] == pytest.approx(2 * whole["gpu_hours"])
    many = replace(told, parallel=Parallel(world_size=64, local_world_size=8)).times()[0]
    assert many["step_s"] == pytest.approx(whole["step_s"] / 64)
    assert many["gpu_hours"] == pytest.approx(whole["gpu_hours"])


def test_too_little_memory_is_a_warning_that_says_what_to_do(seven: tuple[Forecast, int]) -> None:
    told = replace(seven[0], device=device_named("L4", "auto"))
    (line,) = told.warnings()
    assert line.startswith("memory: L4 has 24 GiB, and a process needs 32.")
    assert line.endswith("before the first activation; start more processes to share it")
    copied = replace(told, config=make_run(SEVEN, {"parallel": {"strategy": "ddp"}}))
    (line,) = copied.warnings()
    assert "take fewer bytes a parameter (train.weights=bf16" in line
    assert line.endswith("or shard the model (parallel.strategy=fsdp)")


def test_a_layout_that_cannot_be_dealt_is_refused_as_training_does() -> None:
    config, registry = small_run(None, data={"lanes": 6}), ticks_registry()
    with pytest.raises(ConfigError, match=r"data\.lanes: 6 lanes cannot be dealt evenly to 4 processes"):
        forecast(config, registry, Parallel(world_size=4, local_world_size=4))
    layout = forecast(config, registry, Parallel(world_size=3, local_world_size=3), steps=1).layout
    assert layout == {"processes": 3, "shared": "3: fsdp", "groups": 3, "lanes": 6, "rows_of_a_process": 2}


@pytest.mark.parametrize(("name", "peak", "memory"), [
    ("H100", 989e12, 80), ("h100-pcie", 756e12, 80), ("A100-40GB", 312e12, 40), ("NVIDIA L40S", 362e12, 48),
    ("NVIDIA A100-SXM4-80GB", 312e12, 80), ("NVIDIA GH200 480GB", 989e12, 96), ("NVIDIA GB200", 2500e12, 186),
])  # fmt: skip
def test_a_gpu_is_known_by_what_its_name_holds(name: str, peak: float, memory: int) -> None:
    device = device_named(name, "auto")
    assert (device.peak, device.memory_bytes) == (peak, memory * 2**30)


def test_of_products_in_fp32_no_peak_is_kept() -> None:
    told = forecast(small_run(None), ticks_registry(), steps=1, device=device_named("H100", "fp32"))
    assert told.times() == []
    assert told.as_row()["device"]["type"] == "float32"


def test_a_gpu_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match="--device TPU: no GPU of this name is known; known: A100, "):
        device_named("TPU", "auto")
    assert known_gpu("NVIDIA RTX A1000 Laptop GPU") is None and known_gpu("H2000") is None


def test_all_of_it_is_plain_values() -> None:
    row = forecast(small_run(None), ticks_registry(), steps=1, device=device_named("H200", "auto")).as_row()
    assert json.loads(json.dumps(row)) == row
