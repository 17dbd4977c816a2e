"""What an objective promises: a loss of each unit of a row, which depends on nothing else in the row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from kosmos.components import ObjectiveSpec
from kosmos.data.batch import DocumentInfo
from kosmos.errors import PluginError
from kosmos.model.objectives import Judged, Learning
from kosmos.testing.promise import BrokenPromise, Rule, rule
from kosmos.testing.subjects import ComponentUnderTest

LENGTHS = ((5, 3), (1, 7), (2, 2), (9, 1), (4, 6))
"""Learned tokens of the documents of pairs."""


def _learning(objective: ComponentUnderTest) -> Learning:
    spec = cast(ObjectiveSpec, objective.spec)
    return Learning(objective.build(), spec.unit, spec.reference, spec.name)


def _row(pairs: Sequence[int], learning: Learning) -> Judged:
    """Some of the pairs above; of other units their documents are alone."""
    documents: list[DocumentInfo] = []
    losses, owner = [], []
    for pair in pairs:
        random = torch.Generator().manual_seed(pair)
        for worse, length in enumerate(LENGTHS[pair]):
            own = torch.rand(length, dtype=torch.float64, generator=random)
            start = sum(document.length for document in documents)
            rejected = learning.unit == "pair" and bool(worse)
            info = DocumentInfo(f"document {pair}.{worse}", "made", ("text",), start, length + 1, is_rejected=rejected)
            owner += [len(documents)] * length
            losses.append(3 * own + 0.01)
            documents.append(info)
    every = torch.cat(losses)
    reference = torch.cat([one.flip(0) for one in losses])
    given = reference if learning.reference else None
    return Judged(every.requires_grad_(), torch.tensor(owner), tuple(documents), given)


def _values(learning: Learning, judged: Judged) -> Tensor:
    try:
        return learning.values(judged)
    except PluginError as error:
        raise BrokenPromise(str(error)) from error


@rule("objective", "loss-of-each-unit", "each unit of a row gets a finite loss, with a gradient by its tokens")
def loss_of_each_unit(objective: ComponentUnderTest) -> None:
    learning = _learning(objective)
    for pairs in ((0,), (1, 2), (0, 1, 2, 3, 4)):
        judged = _row(pairs, learning)
        values = _values(learning, judged)
        if not bool(values.detach().isfinite().all()):
            raise BrokenPromise(f"the loss of a {learning.unit} is not finite: {values.tolist()}")
        (slopes,) = torch.autograd.grad(values.sum(), judged.losses)
        if not bool(slopes.isfinite().all()) or not bool(slopes.any()):
            raise BrokenPromise("no token's loss has a finite gradient other than 0")


@rule("objective", "packed-equals-alone", "the loss of a unit is the same alone and among others, and each time")
def packed_equals_alone(objective: ComponentUnderTest) -> None:
    learning = _learning(objective)
    every = tuple(range(len(LENGTHS)))
    packed, again = (_values(learning, _row(every, learning)).detach() for _ in range(2))
    alone = torch.cat([_values(learning, _row((pair,), learning)).detach() for pair in every])
    for what, other in (("alone", alone), ("the second time", again)):
        if (apart := float((packed - other).abs().max())) > 1e-6 * max(1.0, float(packed.abs().max())):
            raise BrokenPromise(f"the loss of a {learning.unit} is another one {what}, by {apart:.3g}")


@rule("objective", "figures-of-each-unit", "where it has `figures`, each tells one number of each unit of a row")
def figures_of_each_unit(objective: ComponentUnderTest) -> None:
    learning = _learning(objective)
    judged = _row((0, 2, 3), learning)
    try:
        learning.figures(judged._replace(losses=judged.losses.detach()))
    except PluginError as error:
        raise BrokenPromise(str(error)) from error


RULES: tuple[Rule, ...] = (loss_of_each_unit, packed_equals_alone, figures_of_each_unit)
