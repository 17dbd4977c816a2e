"""What every part of a model promises of random numbers: they come of PyTorch's generator, and so of the run's seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kosmos.testing.items import output, row, same
from kosmos.testing.promise import BrokenPromise, rule
from kosmos.testing.rules import backbone as backbones
from kosmos.testing.rules import connector as connectors
from kosmos.testing.subjects import ComponentUnderTest, EncoderUnderTest

BUILT = "built again after the same seed of PyTorch's generator it has the same weights, and never seeds it itself"
RUN = "in training it gives the same again after the same seed of PyTorch's generator, and never seeds it itself"
REMEDY = "draw by PyTorch's generator, and leave its seed to the run"
SEEDING = "leave its seed to the run"
TRIED = ((1, 1), (1, 2), (2, 1))
"""Seeds of PyTorch, and of Python's and numpy's generators, which no run seeds."""


@contextmanager
def _seeded(torchs: int, others: int) -> Iterator[None]:
    """The generators of Python and numpy are afterwards what they were."""
    pythons, numpys = random.getstate(), np.random.get_state()
    torch.manual_seed(torchs)
    random.seed(others)
    np.random.seed(others)
    try:
        yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)


def _weights_are_of_the_seed(make: Callable[[], Any]) -> None:
    found, states = [], []
    for torchs, others in TRIED:
        with _seeded(torchs, others):
            module = make()
            found.append(dict(chain(module.named_parameters(), module.named_buffers())))
            states.append(torch.get_rng_state())
    for name, tensor in found[0].items():
        if name not in found[1] or not same(tensor, found[1][name]):
            raise BrokenPromise(f"{name} has other values when it is built again after the same seed; {REMEDY}")
    _check_states(states, "building it")


def _results_are_of_the_seed(make: Callable[[], Any], run: Callable[[Any], Tensor]) -> None:
    found, states = [], []
    for torchs, others in TRIED:
        with _seeded(0, 0):
            module = make().train()
        with _seeded(torchs, others):
            found.append(run(module).detach())
            states.append(torch.get_rng_state())
    if not same(found[0], found[1]):
        raise BrokenPromise(f"it gives something else when it runs again after the same seed; {REMEDY}")
    _check_states(states, "running it")


def _check_states(states: list[Tensor], doing: str) -> None:
    first, again, other = states
    if not torch.equal(first, again):
        raise BrokenPromise(f"{doing} twice after the same seed leaves PyTorch's generator in two states; {SEEDING}")
    if torch.equal(first, other):
        raise BrokenPromise(f"{doing} leaves PyTorch's generator in one state whatever its seed was; {SEEDING}")


@rule("encoder", "weights-by-seed", BUILT)
def encoder_weights(encoder: EncoderUnderTest) -> None:
    _weights_are_of_the_seed(encoder.build)


@rule("encoder", "draws-by-seed", RUN)
def encoder_draws(encoder: EncoderUnderTest) -> None:
    values, grids = row(encoder.items[:3], encoder.items[0])
    _results_are_of_the_seed(encoder.build, lambda module: output(module, values.clone(), grids.clone()))


@rule("connector", "weights-by-seed", BUILT)
def connector_weights(connector: ComponentUnderTest) -> None:
    _weights_are_of_the_seed(lambda: connector.build(connectors.WIDTH_IN, connectors.WIDTH_OUT))


@rule("connector", "draws-by-seed", RUN)
def connector_draws(connector: ComponentUnderTest) -> None:
    def make() -> Any:
        return connector.build(connectors.WIDTH_IN, connectors.WIDTH_OUT).double()

    values, grids = row(connectors.features(), connectors.features()[0])
    _results_are_of_the_seed(make, lambda module: output(module, values.clone(), grids.clone()))


@rule("backbone", "weights-by-seed", BUILT)
def backbone_weights(backbone: ComponentUnderTest) -> None:
    _weights_are_of_the_seed(lambda: backbone.build(backbones.VOCABULARY))


@rule("backbone", "draws-by-seed", RUN)
def backbone_draws(backbone: ComponentUnderTest) -> None:
    def run(module: Any) -> Tensor:
        return backbones.hidden_states(module, backbones.some_tokens(), backbones.LENGTHS)

    _results_are_of_the_seed(lambda: backbone.build(backbones.VOCABULARY), run)


RULES = (encoder_weights, encoder_draws, connector_weights, connector_draws, backbone_weights, backbone_draws)
