"""Learning rates over the steps."""

from __future__ import annotations

import pytest

from kosmos import make_run, train_model
from kosmos.errors import ConfigError
from kosmos.train.schedules import constant, cosine, linear
from support.runs import small_run, ticks_registry


@pytest.mark.parametrize(("make", "last"), [(linear, 0.1), (cosine, 0.122)])
def test_the_last_step_is_one_before_the_end(make, last):
    share = make(10, 0)
    assert share(0) == 1 and share(9) == pytest.approx(last, abs=1e-3)
    assert share(10) == share(50) == pytest.approx(0.0 if make is linear else 0.1)


@pytest.mark.parametrize("make", [linear, cosine, constant])
def test_the_warmup_is_linear(make):
    assert [make(100, 4)(step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize("final", [-3, 1.5, float("nan")])
def test_an_end_that_is_no_share_is_refused(final):
    for make in (linear, cosine):
        with pytest.raises(ConfigError, match="final: expected a share of the peak from 0 to 1"):
            make(10, 0, final=final)


def test_a_run_with_such_an_end_does_not_begin(tmp_path):
    over = {"train": {"schedule": {"name": "linear", "final": -3}}}
    with pytest.raises(ConfigError, match="final: expected a share"):
        train_model(make_run(small_run(tmp_path / "run", **over).model_dump()), registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_half_way():
    assert cosine(110, 10)(60) == pytest.approx(0.55)
    assert linear(110, 10, final=0.5)(60) == pytest.approx(0.75)
