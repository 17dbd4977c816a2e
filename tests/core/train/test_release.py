"""Gradient release in a run: the same steps with less memory, refused where a step needs all gradients."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kosmos import OptimizerSpec, hookimpl
from kosmos.errors import ConfigError
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry

ONE_ROW = {"data": {"lanes": 1, "tokens_per_pack": 128}}


@pytest.mark.parametrize("optimizer", ["lion", "adamw"])
def test_a_run_with_released_gradients_has_the_losses_of_one_without(tmp_path: Path, optimizer: str) -> None:
    losses = {}
    for release in (False, True):
        train = {"clip_norm": None, "optimizer": optimizer, "release_gradients": release}
        train_model(small_run(tmp_path / str(release), **ONE_ROW, train=train), registry=ticks_registry())
        losses[release] = [row["loss"] for row in rows_of(tmp_path / str(release) / "metrics.jsonl")]
    assert losses[True] == losses[False]


def test_a_run_that_has_ended_leaves_no_parameters_in_memory(tmp_path: Path) -> None:
    """Another may follow in the process, as in a notebook; hooks would also step the optimizer in its place."""
    before = parameters()
    train = {"clip_norm": None, "steps": 1, "release_gradients": True}
    train_model(small_run(tmp_path / "run", **ONE_ROW, train=train), registry=ticks_registry())
    gc.collect()
    known = set(map(id, before))
    assert [tuple(p.shape) for p in parameters() if id(p) not in known] == []


def parameters() -> list[torch.nn.Parameter]:
    return [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Parameter)]


@pytest.mark.parametrize(
    ("over", "line"),
    [
        ({**ONE_ROW, "train": {"release_gradients": True}}, "set train.clip_norm to null"),
        ({"train": {"release_gradients": True, "clip_norm": None}}, "set data.lanes to 1"),
    ],
)
def test_it_is_refused_where_a_step_needs_all_gradients(tmp_path: Path, over: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        train_model(small_run(tmp_path / "run", **over), registry=ticks_registry())


def test_it_is_refused_in_a_run_that_computes_rows_in_parts(tmp_path: Path) -> None:
    over = {"train": {"clip_norm": None, "steps": 1}}
    train_model(small_run(tmp_path / "run", **ONE_ROW, **over), registry=ticks_registry())
    (tmp_path / "run" / "parts.json").write_text('{"parts": 2}')
    with pytest.raises(ConfigError, match=r"train\.release_gradients: for want of memory .* in 2 parts"):
        resume_run(tmp_path / "run", {"train": {"steps": 2, "release_gradients": True}}, registry=ticks_registry())


def plugin(monkeypatch: pytest.MonkeyPatch, seen: list[tuple[list[str], int, float]]) -> object:
    """Two names of SGD, of which one says that it steps parameters one at a time."""

    class Seen(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            seen.extend((group["names"], len(group["params"]), group["lr"]) for group in self.param_groups)
            super().step()

    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(seen=lambda groups, rate: Seen(groups, rate)))

    class Own:
        KOSMOS_API = 1

        @hookimpl
        def kosmos_optimizers():  # type: ignore[no-untyped-def]
            for name, alone in (("together", False), ("alone", True)):
                yield OptimizerSpec(name=name, target=f"{__name__}:seen", summary="SGD.", parameterwise=alone)

    return Own


def test_an_optimizer_that_does_not_say_so_is_not_stepped_one_parameter_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = ticks_registry(plugin=plugin(monkeypatch, []))
    train = {"clip_norm": None, "release_gradients": True, "optimizer": "together"}
    with pytest.raises(ConfigError, match=r"^train\.release_gradients: .* optimizer together .*parameterwise=True"):
        train_model(small_run(tmp_path / "run", **ONE_ROW, train=train), registry=registry)
    assert not (tmp_path / "run").exists()


def test_a_step_of_one_parameter_sees_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[list[str], int, float]] = []
    registry = ticks_registry(plugin=plugin(monkeypatch, seen))
    train = {"clip_norm": None, "release_gradients": True, "optimizer": "alone", "steps": 1, "warmup_steps": 0}
    train_model(small_run(tmp_path / "run", **ONE_ROW, train=train), registry=registry)
    names = [name for names, _, _ in seen for name in names]
    assert {(len(names), count) for names, count, _ in seen} == {(1, 1)}
    assert len(names) == len({*names}) > 10
