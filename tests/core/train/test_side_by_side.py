"""Rows that are computed at once: what they give, and where they are refused."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.compose import compose
from kosmos.errors import ConfigError, PluginError
from kosmos.train.progress import Reporter
from kosmos.train.run import train_model
from kosmos.train.side_by_side import SideBySide, check_at_once, open_side_by_side
from support.runs import rows_of, small_run, ticks_registry
from support.steps import threads_of_torch
from support.ticks_encoder import TicksEncoder


class Lines(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def trained(output: Path, *, threads: int = 2, lanes: int = 4, **train: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of metrics, and lines that were said."""
    reporter = Lines()
    run = small_run(output, data={"lanes": lanes}, train={"clip_norm": None, **train})
    with threads_of_torch(threads):
        train_model(run, registry=ticks_registry(), reporter=reporter)
    return rows_of(output / "metrics.jsonl"), reporter.lines


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("lanes", [3, 4])
def test_they_are_rows_one_after_another_to_the_bit(tmp_path: Path, precision: str, lanes: int) -> None:
    """A thread each, as one thread for all."""
    rows, _ = trained(tmp_path / "at-once", lanes=lanes, precision=precision, lanes_at_once=2)
    expected, _ = trained(tmp_path / "one", threads=1, lanes=lanes, precision=precision)
    for name in ("loss", "loss_by_source", "documents", "flops"):
        assert [row[name] for row in rows] == [row[name] for row in expected], name
    weights, others = (
        read_whole(load_newest(tmp_path / run / "checkpoints").tensors, MODEL) for run in ("at-once", "one")
    )
    assert all(torch.equal(weight, others[name]) for name, weight in weights.items())


def test_the_sum_has_the_order_of_the_rows_whichever_is_done_first() -> None:
    parameter = torch.nn.Parameter(torch.zeros(()))
    sizes, delays = (1e8, -1e8, 1.0), (400, 1, 1)  # in fp32 (1e8 - 1e8) + 1 is 1, (1 + 1e8) - 1e8 is 0
    rows = [partial(_slowly, parameter, size, delay) for size, delay in zip(sizes, delays, strict=True)]
    with threads_of_torch(3):
        beside = SideBySide([parameter], 3)
        for _ in range(20):
            parameter.grad = None
            assert beside.backward(rows, seed=0) == list(sizes)
            assert float(parameter.grad) == 1.0


def _slowly(parameter: torch.Tensor, size: float, delay: int) -> tuple[torch.Tensor, float]:
    for _ in range(delay):
        torch.ones(64, 64) @ torch.ones(64, 64)
    return parameter * size, size


def test_dropout_is_refused_at_the_first_step(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", backbone={"dropout": 0.1}, train={"lanes_at_once": 2})
    with threads_of_torch(2), pytest.raises(ConfigError, match=r"train\.lanes_at_once: dropout.* set train\.lanes_at"):
        train_model(run, registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_it_is_refused_with_compiled_blocks(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", train={"lanes_at_once": 2, "compile": True})
    with pytest.raises(ConfigError, match=r"train\.lanes_at_once: not with train\.compile=true on a CPU"):
        train_model(run, registry=ticks_registry())


def test_more_than_there_are_lanes_is_told(tmp_path: Path) -> None:
    _, lines = trained(tmp_path / "run", lanes=2, lanes_at_once=3, steps=1, warmup_steps=0)
    told = "warning: train.lanes_at_once=3: only 2 rows are computed at once, data.lanes being 2; raise that, or lower"
    assert [line for line in lines if line.startswith(told)]


@pytest.mark.parametrize(
    ("lanes", "threads", "elements", "told"), [(4, 2, 4_000_000, 2), (6, 4, 4_000_000, 2), (3, 2, 4_000_000, None),
                                               (2, 1, 4_000_000, None), (2, 2, 3_999_999, None)]
)  # fmt: skip
def test_that_rows_could_be_computed_at_once_is_said_where_it_pays(
    lanes: int, threads: int, elements: int, told: int | None
) -> None:
    run = small_run(data={"lanes": lanes})
    model = compose(run, ticks_registry()).model
    parameters = [torch.nn.Parameter(torch.empty(elements, device="meta"))]
    with threads_of_torch(threads):
        found, line = open_side_by_side(run, model, parameters, torch.device("cpu"), processes=1)
        assert found is None and (line is not None) == (told is not None)
        assert told is None or f"train.lanes_at_once={told} is faster" in str(line)
        assert open_side_by_side(run, model, parameters, torch.device("cpu"), processes=2) == (None, None)
        model.streams["ticks"].encoder.takes_threads = False
        assert open_side_by_side(run, model, parameters, torch.device("cpu"), processes=1) == (None, None)


@pytest.mark.parametrize(
    ("processes", "device", "says"), [(2, "cpu", "is for GPUs and one process on a CPU"), (1, "cuda", None)]
)
def test_several_processes_take_lanes_one_after_another_and_a_gpu_joins_them(
    processes: int, device: str, says: str | None
) -> None:
    run = small_run(train={"lanes_at_once": 2, "compile": True})
    model = compose(run, ticks_registry()).model
    check_at_once(run, model, torch.device(device), processes=processes)
    found, told = open_side_by_side(run, model, [], torch.device(device), processes=processes)
    assert found is None
    assert told is None if says is None else says in str(told)


def test_an_encoder_that_takes_one_row_at_a_time_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TicksEncoder, "takes_threads", False, raising=False)
    run = small_run(tmp_path / "run", train={"lanes_at_once": 2})
    with pytest.raises(ConfigError, match=r"train\.lanes_at_once: streams\.ticks\.encoder: .* takes one row at a time"):
        train_model(run, registry=ticks_registry())


def test_a_part_that_fails_beside_other_rows_is_told_with_what_to_say_of_it() -> None:
    def fails() -> tuple[torch.Tensor, None]:
        raise PluginError("streams.ticks.encoder: forward failed")

    says = r"forward failed\. .* takes_threads = False; train\.lanes_at_once=1 computes"
    with threads_of_torch(2), pytest.raises(PluginError, match=says):
        SideBySide([torch.nn.Parameter(torch.zeros(()))], 2).backward([fails] * 2, seed=0)


def test_parameters_that_are_added_have_a_gradient_each() -> None:
    one, other = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    joined, more = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))

    def row() -> tuple[torch.Tensor, None]:
        return (one + other).sum() + torch.cat([joined, more]).square().sum(), None

    parameters = [one, other, joined, more]
    with threads_of_torch(2):
        SideBySide(parameters, 2).backward([row] * 2, seed=0)
    assert [p.grad.tolist() for p in parameters] == [[2.0] * 3, [2.0] * 3, [4.0] * 3, [4.0] * 3]
    assert len({p.grad.untyped_storage().data_ptr() for p in parameters}) == 4


def test_a_weight_used_twice_is_cast_once_whoever_leaves_autocast_in_between() -> None:
    weight = torch.nn.Parameter(torch.randn(64, 64, generator=torch.Generator().manual_seed(0)))
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    halfway, left = threading.Event(), threading.Event()

    def uses_twice(waits: bool) -> tuple[torch.Tensor, None]:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ weight
            halfway.set()
            assert not waits or left.wait(60)
            return (y @ weight).float().square().mean(), None

    def leaves() -> tuple[torch.Tensor, None]:
        halfway.wait(60)
        with torch.autocast("cpu", torch.bfloat16):
            x @ weight
        left.set()
        return weight.sum() * 0, None

    found = []
    with threads_of_torch(2):
        for rows in ([partial(uses_twice, False)], [partial(uses_twice, True), leaves]):
            weight.grad = None
            SideBySide([weight], 2).backward(rows, seed=0)
            found.append(weight.grad)
    assert torch.equal(*found)


def test_threads_are_as_before_after_a_step_and_after_a_failure() -> None:
    begun = []

    def fails() -> tuple[torch.Tensor, int]:
        raise ValueError("row")

    def later(number: int) -> tuple[torch.Tensor, int]:
        begun.append(number)
        return parameter * 1, torch.get_num_threads()

    with threads_of_torch(2):
        parameter = torch.nn.Parameter(torch.zeros(()))
        beside = SideBySide([parameter], 2)
        assert beside.backward([partial(later, n) for n in range(2)], seed=0) == [1, 1]
        assert torch.get_num_threads() == 2
        begun.clear()
        with pytest.raises(ValueError, match="row"):
            beside.backward([fails, *(partial(later, n) for n in range(20))], seed=0)
        assert len(begun) < 4, "rows begin behind one that failed"
        assert torch.get_num_threads() == 2


def test_random_numbers_behind_gradients_are_those_behind_one_row_after_another(tmp_path: Path) -> None:
    """Whatever the run drew before: an optimizer may draw."""
    found = []
    hook = register_optimizer_step_pre_hook(lambda *given: found.append(torch.default_generator.get_state()))
    try:
        for threads, at_once in ((1, 1), (2, 2)):
            torch.rand(threads)
            trained(tmp_path / str(at_once), threads=threads, lanes_at_once=at_once, steps=1, warmup_steps=0)
    finally:
        hook.remove()
    assert len(found) == 2
    assert torch.equal(*found)
