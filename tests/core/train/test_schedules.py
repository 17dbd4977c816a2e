"""Learning rates over the steps."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch

from kosmos import OptimizerSpec, ScheduleSpec, hookimpl, make_run, train_model
from kosmos.errors import ConfigError, PluginError
from kosmos.train.schedules import constant, cosine, inverse_sqrt, linear, wsd
from support.runs import rows_of, small_run, ticks_registry


@pytest.mark.parametrize(("make", "last"), [(linear, 0.1), (cosine, 0.122)])
def test_the_last_step_is_one_before_the_end(make, last):
    share = make(10, 0)
    assert share(0) == 1 and share(9) == pytest.approx(last, abs=1e-3)
    assert share(10) == share(50) == pytest.approx(0.0 if make is linear else 0.1)


@pytest.mark.parametrize("make", [linear, cosine, wsd, inverse_sqrt, constant])
def test_the_warmup_is_linear(make):
    assert [make(100, 4)(step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize("final", [-3, 1.5, float("nan")])
def test_an_end_that_is_no_share_is_refused(final):
    for make in (linear, cosine, wsd):
        with pytest.raises(ConfigError, match="final: expected a share of the peak from 0 to 1"):
            make(10, 0, final=final)


def test_a_run_with_such_an_end_does_not_begin(tmp_path):
    over = {"train": {"schedule": {"name": "linear", "final": -3}}}
    with pytest.raises(ConfigError, match="final: expected a share"):
        train_model(make_run(small_run(tmp_path / "run", **over).model_dump()), registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_a_stable_rate_falls_at_the_end_alone():
    share = wsd(100, 10, decay=0.3)
    assert {share(step) for step in range(10, 71)} == {1.0}
    assert [share(step) for step in (85, 100)] == pytest.approx([0.5, 0.0])
    assert wsd(100, 10, decay=0.3, final=0.2)(85) == pytest.approx(0.6)
    assert wsd(100, 10, decay=1.0)(55) == linear(100, 10)(55)
    assert wsd(100, 10, decay=0.0)(99) == 1.0
    with pytest.raises(ConfigError, match=r"^decay: expected a share of the steps from 0 to 1, got 1\.5$"):
        wsd(100, 10, decay=1.5)


def test_a_longer_run_has_the_same_rates_before_its_decay():
    short, long = wsd(100, 10), wsd(1000, 10)
    assert [short(step) for step in range(80)] == [long(step) for step in range(80)]


@pytest.mark.parametrize(("shape", "half_way"), [("linear", 0.5), ("cosine", 0.5), ("sqrt", 1 - 0.5**0.5)])
def test_the_way_down_has_a_shape_and_so_many_steps(shape, half_way):
    share = wsd(1000, 10, decay_steps=100, shape=shape, final=0.1)
    assert share(900) == pytest.approx(1.0) and share(1000) == pytest.approx(0.1)
    assert share(950) == pytest.approx(0.1 + 0.9 * half_way)
    assert [share(step) for step in range(890, 1000)] == pytest.approx(
        [wsd(5000, 10, decay_steps=100, shape=shape, final=0.1)(4000 + step) for step in range(890, 1000)]
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"decay": 0.1, "decay_steps": 5}, "decay_steps: decay says how"),
        ({"decay_steps": -1}, "decay_steps: expected 0"),
    ],
)
def test_lengths_that_say_nothing_are_refused(options, line):
    with pytest.raises(ConfigError, match=f"^{line}"):
        wsd(100, 0, **options)


def test_the_inverse_root_knows_no_end():
    share = inverse_sqrt(10, 3)
    assert [share(step) for step in (3, 15, 35)] == pytest.approx([1.0, 0.5, 1 / 3])


def test_half_way():
    assert cosine(110, 10)(60) == pytest.approx(0.55)
    assert linear(110, 10, final=0.5)(60) == pytest.approx(0.75)


def raises(steps: int, warmup_steps: int):
    return {0: 1.0}.__getitem__


def climbs(steps: int, warmup_steps: int):
    return lambda step: 1.0 if step < 2 else -1.0


def soars(steps: int, warmup_steps: int):
    return lambda step: 1.0 if step < 2 else 50.0


class Stops(torch.optim.SGD):
    def step(self, closure=None):
        raise ZeroDivisionError("by the second moment")


def stops(groups, learning_rate: float):
    return Stops(groups, lr=learning_rate)


def spoils(steps: int, warmup_steps: int):
    return lambda step: 1.0 if step < 2 else float("nan")


class Schedules:
    KOSMOS_API = 1

    @hookimpl
    def kosmos_schedules():
        for name in ("raises", "spoils", "climbs", "soars"):
            yield ScheduleSpec(name=name, target=f"{__name__}:{name}", summary="Fails.")

    @hookimpl
    def kosmos_optimizers():
        yield OptimizerSpec(name="stops", target=f"{__name__}:stops", summary="Fails.")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("raises", r"^train\.schedule: raises raised KeyError: 1 for step 1$"),
        ("spoils", r"^train\.schedule: spoils gave nan for step 2, expected a share of the peak rate, from 0 to 1$"),
        ("climbs", r"^train\.schedule: climbs gave -1\.0 for step 2, expected a share of the peak rate, from 0 to 1$"),
        ("soars", r"^train\.schedule: soars gave 50\.0 for step 2, expected a share of the peak rate, from 0 to 1$"),
    ],
)
def test_a_schedule_that_fails_is_named_before_it_spoils_a_parameter(tmp_path, monkeypatch, name, line):
    monkeypatch.setitem(
        sys.modules, __name__, SimpleNamespace(raises=raises, spoils=spoils, climbs=climbs, soars=soars)
    )
    config = small_run(tmp_path / "run", train={"schedule": name, "steps": 5})
    with pytest.raises(PluginError, match=line):
        train_model(config, registry=ticks_registry(plugin=Schedules))
    assert all(math.isfinite(row["loss"]) for row in rows_of(tmp_path / "run" / "metrics.jsonl"))


def test_an_optimizer_that_fails_is_named_with_the_place(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(stops=stops))
    config = small_run(tmp_path / "run", train={"optimizer": "stops", "steps": 1})
    line = r"^train\.optimizer: stops: step failed: ZeroDivisionError: by the second moment \(test_schedules\.py:\d+\)$"
    with pytest.raises(PluginError, match=line):
        train_model(config, registry=ticks_registry(plugin=Schedules))
