"""Which token comes next."""

from __future__ import annotations

import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from kosmos import ConfigError, TrainingError, generate_text
from kosmos.generate import generate_together, ready_prompt
from kosmos.model.choosing import NO_TOKEN, choose
from support.backbones import BACKBONES, composed, documents


def _choose(logits, temperature, top_k, top_p, random):
    (token,) = choose(logits[None], temperature, top_k, top_p, [random])
    return token


@pytest.fixture(scope="module", params=BACKBONES)
def parts(request):
    return composed(request.param)


def test_sampling_is_repeated_by_its_seed_and_differs_between_seeds(parts):
    document = next(documents())
    texts = [generate_text(parts, document, max_new_tokens=30, temperature=1.0, seed=seed) for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    greedy = [generate_text(parts, document, max_new_tokens=30, seed=seed) for seed in (1, 2)]
    assert greedy[0] == greedy[1]


def test_top_k_and_top_p_say_what_is_sampled_from():
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()

    def sampled(temperature=1.0, top_k=None, top_p=None):
        random = torch.Generator().manual_seed(0)
        return {_choose(logits, temperature, top_k, top_p, random) for _ in range(300)}

    assert sampled() == sampled(top_k=9) == sampled(top_p=1.0) == {0, 1, 2, 3}
    assert [sampled(top_k=k) for k in (1, 2, 3)] == [{1}, {1, 3}, {1, 3, 2}]
    assert [sampled(top_p=p) for p in (0.01, 0.39, 0.41, 0.69, 0.71)] == [{1}, {1}, {1, 3}, {1, 3}, {1, 3, 2}]
    assert sampled(top_k=2, top_p=0.89) == sampled(top_k=3, top_p=0.6) == {1, 3}
    # the most likely has 0.533 at this temperature
    assert sampled(temperature=0.5, top_p=0.5) == {1}


def test_the_samples_of_top_k_stand_in_the_proportion_of_their_probabilities():
    logits, random = torch.tensor([0.1, 0.6, 0.3]).log(), torch.Generator().manual_seed(0)
    found = [_choose(logits, 1.0, 2, None, random) for _ in range(2000)]
    assert found.count(1) / len(found) == pytest.approx(2 / 3, abs=0.04)  # four standard errors


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"temperature": 1.0, "top_k": 0}, "top_k: expected a whole number from 1 on, got 0"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p: expected a number above 0 and up to 1, got 0.0"),
        ({"temperature": 1.0, "top_k": 2.5}, "top_k: expected a whole number from 1 on, got 2.5"),
        ({"temperature": 1.0, "top_p": "0.9"}, "top_p: expected a number above 0 and up to 1, got '0.9'"),
        ({"temperature": "0.5"}, "temperature: expected a number from 0 on, got '0.5'"),
        ({"seed": -1}, "seed: expected a whole number from 0 to .*, got -1"),
        ({"temperature": 1.0, "top_p": float("nan")}, "top_p: expected a number above 0 and up to 1, got nan"),
        ({"top_p": 0.9}, "top_k, top_p: say what is sampled from; give a temperature above 0"),
    ],
)
def test_what_cannot_be_sampled_from_is_refused(parts, given, says):
    with pytest.raises(ConfigError, match=says):
        generate_text(parts, next(documents()), **given)


def test_numbers_of_numpy_sample_as_those_of_python_do(parts):
    document = next(documents())
    plain, given = (
        generate_text(parts, document, max_new_tokens=whole(8), temperature=one(0.5), top_k=whole(4), seed=whole(3))
        for whole, one in ((int, float), (np.int64, np.float32))
    )
    assert plain == given


@pytest.mark.parametrize("temperature", [1e-45, 1e-9, 1e-6])
def test_a_temperature_near_zero_takes_the_most_likely_token(parts, temperature):
    document = next(documents())
    greedy = generate_text(parts, document, max_new_tokens=12)
    assert generate_text(parts, document, max_new_tokens=12, temperature=temperature) == greedy


@pytest.mark.parametrize("temperature", [float("inf"), float("nan"), -1.0])
def test_a_temperature_that_is_no_number_from_zero_on_is_refused(parts, temperature):
    with pytest.raises(ConfigError, match=f"temperature: expected a number from 0 on, got {temperature}"):
        generate_text(parts, next(documents()), temperature=temperature)


@contextmanager
def weights_gone_wrong(parts, value):
    """As a run that diverges leaves them, in the part that all tokens pass. Of two logits one goes up, whatever
    the sign of what it is made of: one that goes down without end is just never chosen."""
    weight = parts.model.backbone.output_weight()
    before = weight.detach().clone()
    with torch.no_grad():
        weight[5], weight[6] = value, -value
        try:
            yield
        finally:  # else a failure is one of the tests behind it, too
            weight.copy_(before)


def test_an_encoder_whose_features_are_not_finite_is_named(parts, monkeypatch):
    *_, document = documents()
    encoder = parts.model.streams["ticks"].encoder
    monkeypatch.setattr(encoder, "forward", lambda values, grids: torch.full((len(values), encoder.width), math.nan))
    with pytest.raises(TrainingError, match=r"no token 1 .*: streams\.ticks\.encoder: .* features are not finite$"):
        generate_text(parts, document, max_new_tokens=3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("given", [{}, {"temperature": 1.0}, {"temperature": 0.5, "top_k": 3, "top_p": 0.9}])
def test_weights_that_are_not_finite_write_nothing(parts, given, value):
    says = r"text: the model gives no token 1 a probability .* take an earlier checkpoint \(--step\)"
    with weights_gone_wrong(parts, value):
        with pytest.raises(TrainingError, match=says):
            generate_text(parts, next(documents()), max_new_tokens=3, **given)
        device = {"device": torch.device("cpu"), "dtype": torch.float32}
        with pytest.raises(TrainingError, match=says):
            generate_together(parts, [ready_prompt(parts, d) for d in documents()], max_new_tokens=3, **device)


@pytest.mark.parametrize("logits", [[math.nan, 1.0], [-math.inf] * 3, [math.inf, 0.0], [math.inf, -math.inf]])
def test_a_token_is_chosen_by_finite_logits_alone(logits):
    for temperature in (0.0, 1.0):
        assert _choose(torch.tensor(logits), temperature, None, None, torch.Generator()) == NO_TOKEN
    # what a backbone rules out does not rule out the rest
    for temperature in (0.0, 1.0):
        assert _choose(torch.tensor([-math.inf, 0.0, -math.inf]), temperature, 2, 0.9, torch.Generator()) == 1


def test_sampling_leaves_the_random_state_of_torch_alone(parts):
    before = torch.get_rng_state()
    generate_text(parts, next(documents()), max_new_tokens=3, temperature=1.0, seed=5)
    assert torch.equal(torch.get_rng_state(), before)
