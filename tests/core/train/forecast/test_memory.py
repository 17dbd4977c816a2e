"""Bytes of a process, told before there are any, against those that a trainer holds."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kosmos import hookimpl
from kosmos.components import OptimizerSpec
from kosmos.compose import compose
from kosmos.plugins import Registry
from kosmos.runtime.parallel import Parallel
from kosmos.train.forecast.optimizer_state import state_bytes
from kosmos.train.forecast.whole import forecast
from kosmos.train.parameter_groups import parameter_groups
from support import held
from support.held import told
from support.runs import small_run, ticks_registry

WIDE = {"width": 64, "ffn_width": 128}
"""Rows that have blocks of 8-bit momentum."""
BF16 = {"weights": "bf16", "precision": "bf16"}
RUNS: dict[str, dict[str, Any]] = {
    "lion": {"train": {"optimizer": "lion"}},
    "lion8bit": {"train": {"optimizer": "lion8bit"}, "backbone": WIDE},
    "adamw": {"train": {"optimizer": "adamw"}},
    "muon": {"train": {"optimizer": "muon"}},
    "rounded at random": {"train": {**BF16, "optimizer": {"name": "lion", "master": "stochastic"}}},
    "16 bits more": {"train": {**BF16, "optimizer": {"name": "adamw", "master": "bits16"}}},
    "updates": {"backbone": {"lora": 4}, "train": {"optimizer": "adamw"}},
    "frozen": {"backbone": {"freeze": True}, "streams": {"ticks": {"freeze": True}}},
    "frozen connector": {"streams": {"ticks": {"freeze": True, "freeze_connector": True}}},
}


@pytest.mark.parametrize("name", RUNS)
def test_a_process_holds_the_bytes_that_were_told(name: str, tmp_path: Path) -> None:
    config = small_run(None, **RUNS[name])
    trainer, _ = held.stepped(config, tmp_path / "run", ticks_registry(), Parallel())
    assert held.held(trainer) == told(RUNS[name])


def test_ranks_of_hsdp_share_within_their_group() -> None:
    over = {"data": {"lanes": 4}, "parallel": {"strategy": "hsdp", "shards": 2}}
    fully = {"data": {"lanes": 2}, "parallel": {"strategy": "fsdp"}}
    assert told(over, 4) == told(fully, 2)


def test_of_released_gradients_one_is_there_at_a_time() -> None:
    over = {"train": {"release_gradients": True, "clip_norm": None}, "data": {"lanes": 1}}
    composition = compose(small_run(None, **over), ticks_registry(), draw=False)
    largest = max(p.numel() for p in composition.model.parameters())
    assert told(over)["gradients"] == 4 * largest


@pytest.mark.parametrize("options", [{}, {"name": "lion8bit", "block": 256}, {"name": "adamw"}], ids=str)
def test_state_of_large_parameters_is_known_from_small_ones(options: dict[str, Any]) -> None:
    over = {"backbone": {"width": 256, "heads": 4, "layers": 1, "ffn_width": 1100}, "train": {"optimizer": options}}
    config, registry = small_run(None, **over), ticks_registry()
    model = compose(config, registry).model
    groups = parameter_groups(model, config)
    assert max(p.numel() for p in model.parameters()) > 2**18
    optimizer = registry.build(
        "optimizer", config.train.optimizer.name, groups, 1e-3,
        options=config.train.optimizer.options, path="train.optimizer",
    )  # fmt: skip
    for group in groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    tensors = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    assert state_bytes(registry, config.train, groups).total == sum(t.numel() * t.element_size() for t in tensors)


class Preconditioned(torch.optim.Optimizer):
    """Keeps a square matrix for the rows of a parameter, and a vector for its columns."""

    def __init__(self, groups: Any, learning_rate: float) -> None:
        super().__init__([{"params": group["params"]} for group in groups], {"lr": learning_rate})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                columns = p.numel() // p.shape[0]
                self.state[p] = {"rows": torch.zeros(p.shape[0], p.shape[0]), "of": {"columns": torch.zeros(columns)}}


class Elsewhere(Preconditioned):
    """Steps on one kind of device alone."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        raise RuntimeError("no kernel for cpu")


def with_optimizers() -> Registry:
    """Core, ticks and the optimizers above."""
    module: Any = ModuleType("acme")
    module.KOSMOS_API = 1

    @hookimpl
    def kosmos_optimizers() -> list[OptimizerSpec]:
        return [
            OptimizerSpec(name="preconditioned", target=f"{__name__}:Preconditioned", summary="Keeps squares."),
            OptimizerSpec(name="elsewhere", target=f"{__name__}:Elsewhere", summary="Wants a GPU."),
        ]

    module.kosmos_optimizers = kosmos_optimizers
    return ticks_registry(acme=module)


def test_state_of_any_optimizer_is_counted_even_where_it_grows_with_the_square_of_rows() -> None:
    config = small_run(None, train={"optimizer": "preconditioned"})
    parameters = [torch.empty(3000, 512, device="meta"), torch.empty(7)]
    group = {"names": ["a", "b"], "params": parameters, "lr": 1.0, "weight_decay": 0.0}
    found = state_bytes(with_optimizers(), config.train, [group])
    assert found.by_name == {"rows": 4 * (3000**2 + 7**2), "of.columns": 4 * (512 + 1)}


def test_an_optimizer_that_wants_another_device_is_told_and_left_out_of_the_sum() -> None:
    found = forecast(small_run(None, train={"optimizer": "elsewhere"}), with_optimizers(), steps=1)
    assert found.as_row()["memory"]["optimizer_bytes"] is None
    (warning,) = [line for line in found.warnings() if "optimizer" in line]
    assert "elsewhere took no step of small parameters on a CPU (RuntimeError: no kernel for cpu)" in warning
