"""Operations that are counted, against those that the shapes say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kosmos.compose import compose, make_feed
from kosmos.data.batch import to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.model.attention import attend
from kosmos.model.segments import Segments
from kosmos.run_sources import open_sources
from kosmos.runtime.cores import usable_cores
from kosmos.train.flops import (
    _MAPPING,
    BACKBONE,
    CONNECTOR,
    HEAD,
    FlopMeter,
    Work,
    times_of,
    work_of,
)
from kosmos.train.peak import measured_products, peak_flops
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry

CPU = torch.device("cpu")


def counted(over: dict[str, object]):
    config = small_run(None, **over)
    registry = ticks_registry()
    parts = compose(config, registry)
    feed = make_feed(parts, open_sources(config, registry, "train"))
    [row, _] = open_feeder(feed, [0, 1], workers=0).next_step()
    batch = to_tensors(row.arrays)
    meter = FlopMeter(parts.model, CPU, torch.float32)
    with meter.counting(batch):
        parts.model(batch)
    return parts.model, meter, batch


def test_a_decoder_costs_two_operations_a_weight_and_token_and_attention_by_real_lengths() -> None:
    model, meter, batch = counted({"data": {"tokens_per_pack": 4096, "lanes": 2}})
    matrices = sum(p.numel() for n, p in model.backbone.blocks.named_parameters() if p.ndim == 2)
    assert meter.costs[BACKBONE].unit == 2 * matrices
    width, layers = 32, 1
    # Documents of nearly one length share a call, padded to a multiple of 8: 1.4 times what lengths say.
    assert meter.costs[BACKBONE].pair == 4 * layers * width
    assert work_of([batch], {"ticks": int})[BACKBONE].pairs == sum(n * n for n in batch.lengths)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", [{"causal": True}, {"causal": False}, {"causal": True, "window": 50}])
@pytest.mark.parametrize("lengths", [(1, 9, 0, 100, 130, 7, 64), (100, 100), (40,), ()])
def test_attention_costs_by_real_lengths_whatever_it_is_padded_to(
    lengths: tuple[int, ...], how: dict[str, object], dtype: torch.dtype
) -> None:
    q, k, v = (torch.zeros(sum(lengths), 4, 8, dtype=dtype) for _ in range(3))
    with FlopCounterMode(display=False, custom_mapping=_MAPPING) as mode:
        attend(q, k, v, Segments(lengths), **how)
    assert mode.get_total_flops() == 4 * 4 * 8 * sum(n * n for n in lengths)


def test_an_encoder_costs_by_the_cell_and_the_head_three_products_a_target() -> None:
    model, meter, _ = counted({})
    encoder, connector = model.streams["ticks"].encoder, model.streams["ticks"].connector
    for name, module in (("ticks", encoder), ("ticks" + CONNECTOR, connector)):
        assert meter.costs[name].unit == 2 * sum(p.numel() for p in module.parameters() if p.ndim == 2)
    assert meter.costs[HEAD].unit == 3 * 2 * model.backbone.vocab_size * model.backbone.width


def test_cells_of_padding_are_no_work() -> None:
    model, exact, batch = counted({})
    model.streams["ticks"].takes_padding = True
    meter = FlopMeter(model, CPU, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16), meter.counting(batch):
        assert model.streams["ticks"].padding(len(batch.media["ticks"].values))
        model(batch)
    assert meter.costs == exact.costs


@pytest.mark.parametrize(
    ("over", "times"),
    [
        ({}, {BACKBONE: (3, 3), "ticks": (3, 3)}),
        ({"backbone": {"freeze": True}}, {BACKBONE: (2, 3), "ticks": (3, 3)}),
        ({"streams": {"ticks": {"freeze": True}}}, {BACKBONE: (3, 3), "ticks": (1, 1), "ticks" + CONNECTOR: (3, 3)}),
        ({"streams": {"ticks": {"freeze_connector": True}}}, {"ticks": (3, 3), "ticks" + CONNECTOR: (2, 3)}),
        (
            {"streams": {"ticks": {"freeze": True, "freeze_connector": True}}},
            {BACKBONE: (3, 3), "ticks": (1, 1), "ticks" + CONNECTOR: (1, 1)},
        ),
    ],
)
def test_what_is_frozen_counts_without_its_gradients(over: dict[str, object], times: dict[str, Any]) -> None:
    _, meter, _ = counted(over)
    assert {name: meter.times[name] for name in times} == times


@pytest.mark.parametrize("over", [{}, {"freeze": True}, {"lora": 2}, {"lora": {"rank": 2, "whole": "inner"}}])
def test_products_count_as_often_as_forward_and_backward_take_them(over: dict[str, object]) -> None:
    layers = compose(small_run(None, backbone={"width": 64, "ffn_width": 256, **over}), ticks_registry()).model.backbone
    part = layers.blocks[0].feed_forward
    taken = []
    for times in (1, 2):
        with FlopCounterMode(display=False) as mode:
            out = part(torch.randn(8, 64, requires_grad=True))
            if times == 2:
                out.sum().backward()
        taken.append(mode.get_total_flops())
    assert taken[1] / taken[0] == pytest.approx(times_of(part, passed=True).unit, rel=0.01)


def test_a_run_that_goes_on_does_not_count_again_what_it_knows() -> None:
    model, meter, batch = counted({})
    again = FlopMeter(model, CPU, torch.float32)
    assert again.wants(3, batch, compiled=True)
    again.load({**json.loads(json.dumps(meter.state())), "gone": [1.0, 1.0]})
    assert again.costs == meter.costs
    assert not again.wants(3, batch, compiled=True)
    again.load({name: cost for name, cost in meter.state().items() if name != "ticks"})
    assert again.wants(3, batch, compiled=True)


def test_processes_that_share_the_cores_of_a_machine_have_no_peak_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, alone, batch = counted({})
    alone.row([alone.count([batch])], 1.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(4 * usable_cores()))
    _, crowded, _ = counted({})
    crowded.row([crowded.count([batch])], 1.0)
    assert crowded.peak is not None and alone.peak is not None
    assert crowded.peak * 4 == pytest.approx(alone.peak / torch.get_num_threads())


def test_every_step_says_what_it_came_to(tmp_path: Path) -> None:
    train_model(small_run(tmp_path / "run"), registry=ticks_registry())
    for row in rows_of(tmp_path / "run" / "metrics.jsonl"):
        assert row["flops"] > 0
        assert 0 < row["mfu_half_causal"] < row["mfu"] < 1
        assert row["mfu"] == pytest.approx(row["flops"] / row["step_s"] / row["peak_flops"], rel=1e-3)
        assert row["mfu"] == pytest.approx(sum(row["mfu_by_module"].values()))
        assert set(row["mfu_by_module"]) == {BACKBONE, "ticks", HEAD}
        assert row["samples_per_s"] > 0 and row["peak_memory_bytes"] > 1e6
    json.dumps(row)


@pytest.mark.parametrize(
    ("name", "peak"),
    [("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12), ("NVIDIA H200", 989e12), ("NVIDIA H20", 148e12),
     ("NVIDIA GH200 480GB", 989e12), ("NVIDIA L40S", 362e12), ("NVIDIA A100-SXM4-80GB", 312e12)],
)  # fmt: skip
def test_the_peak_of_a_gpu_is_that_of_its_data_sheet(name: str, peak: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(torch.device("cuda"), torch.bfloat16) == peak


@pytest.mark.parametrize("rate", [1e9, 1e13])
def test_the_peak_of_a_cpu_is_measured_in_the_time_that_is_given_however_slow_it_is(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of bf16 on a CPU without units for it, at 1e9."""
    clock, sides = [0.0], []

    def product(left: torch.Tensor, right: torch.Tensor) -> None:
        sides.append(len(left))
        clock[0] += 2 * len(left) ** 3 / rate + 1e-4

    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    monkeypatch.setattr("kosmos.model.products.pays", lambda: False)
    monkeypatch.setattr("kosmos.train.peak.perf_counter", lambda: clock[0])
    assert measured_products(torch.device("cpu"), torch.float32, seconds=0.3) == pytest.approx(rate, rel=0.35)
    assert 0.3 < clock[0] < 0.6
    assert max(sides) == (256 if rate == 1e9 else 1024)


def test_the_peak_of_a_cpu_is_measured_once_a_process() -> None:
    """A run after another takes none of the time again: two measurements would differ in some digit."""
    first, again = (peak_flops(torch.device("cpu"), torch.float32) for _ in range(2))
    assert first == again > 0


def test_experts_cost_what_a_token_meets_of_them() -> None:
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    experts = {"model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2}
    model, meter, _ = counted({"backbone": {"name": "hf", "config": {**shape, **experts}}})
    layers = [(n, p) for n, p in model.backbone.named_parameters() if ".layers." in n and p.ndim > 1]
    met = sum(p.numel() * (2 / 8 if "experts" in n else 1) for n, p in layers)
    assert meter.costs[BACKBONE].unit == pytest.approx(2 * met)


def test_an_encoder_that_fills_items_up_costs_the_same_for_each() -> None:
    _, _, batch = counted({})
    items = len(batch.media["ticks"].grids)
    assert work_of([batch], {"ticks": lambda cells: 1500})["ticks"] == Work(1500 * items, 1500**2 * items)


def test_a_causal_mask_leaves_half_of_the_pairs():
    _, meter, batch = counted({})
    pairs = work_of([batch], {"ticks": int})[BACKBONE].pairs
    assert meter.count([batch]).saved == pytest.approx(3 * meter.costs[BACKBONE].pair * pairs / 2)


def test_what_is_known_is_counted_again_only_where_nothing_is_compiled():
    _, meter, batch = counted({})
    assert [meter.wants(50, batch, compiled=c) for c in (True, False)] == [False, True]
    assert not meter.wants(51, batch, compiled=False)
