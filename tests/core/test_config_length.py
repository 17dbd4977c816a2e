"""How long a run is, as its layers say it."""

from __future__ import annotations

import pytest

from kosmos.config import RunConfig
from kosmos.errors import ConfigError
from kosmos.run_file import make_run


@pytest.mark.parametrize("lower", [{"steps": 7}, {"epochs": 2.0}, {"tokens": 9000}])
@pytest.mark.parametrize(
    ("upper", "steps", "epochs"), [({"steps": 5}, 5, None), ({"epochs": 0.5}, 1000, 0.5), ({"tokens": 4097}, 5, None)]
)
def test_the_length_of_a_run_is_that_which_is_said_last(lower, upper, steps, epochs):
    config = make_run({"data": {"lanes": 2}, "train": {**lower, "seed": 3}}, {"train": upper})
    assert (config.train.steps, config.train.epochs, config.train.tokens) == (steps, epochs, None)
    assert config.train.seed == 3
    assert make_run(config.model_dump(mode="json")) == config  # a length that is not counted yet is none in steps
    for part in ({"exclude_unset": True}, {"exclude_defaults": True}, {"include": {"train": {"seed"}}}):
        config.model_dump(**part)
    assert RunConfig.model_validate({"data": {"lanes": 2}, "train": upper}).train.steps == steps


@pytest.mark.parametrize("said", [{"steps": 40}, {"steps": 40, "epochs": None}, {"tokens": 40 * 512}])
def test_a_length_of_null_says_nothing_and_takes_away_itself_alone(said):
    assert make_run({"train": said}, {"train": {"epochs": None}}).train.steps == 40
    assert make_run({"train": {"epochs": 3}}, {"train": {"epochs": None}}).train.is_counted


def test_a_warmup_may_be_a_share_of_the_steps_and_is_short_in_a_short_run():
    for said, steps in ((0, 0), (0.03, 30), (60, 60), (60.0, 60), ("1e2", 100)):
        train = make_run({"train": {"warmup_steps": said}}).train
        assert train.warmup == steps
        assert train.warmup_steps == (said if said == 0.03 else steps)
    assert [make_run({"train": {"steps": steps}}).train.warmup for steps in (1000, 300, 299, 4)] == [60, 60, 59, 0]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"train": {"epochs": 0}}, r"train.epochs: .*greater than 0, got 0"),
        ({"train": {"warmup_steps": "10%"}}, r"train.warmup_steps: expected whole .* such as 0.1, got '10%'"),
        ({"train": {"tokens": "1B"}}, r"train.tokens: expected a whole number, such as 1e9, got '1B'"),
        ({"train": {"warmup_steps": True}}, r"train.warmup_steps: .*valid integer, got True"),
        (
            {"train": {"epochs": 2, "tokens": 9}},
            r"run: train: tokens and epochs each say how long the run is; leave one",
        ),
        (
            {"train": {"warmup_steps": 2.5}},
            r"train.warmup_steps: expected whole steps, or a share.* such as 0.1, got 2.5",
        ),
        ({"epochs": 3}, r"epochs: unknown field; did you mean train.epochs\?"),
    ],
)
def test_a_wrong_length_is_one_line(values, line):
    with pytest.raises(ConfigError, match=line) as error:
        make_run(values)
    assert "\n" not in error.value.line()
