"""Objectives that learn by preferences: of each pair of answers the better one is to become likelier than the worse."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from kosmos.errors import ConfigError
from kosmos.model.objectives import RIGHT, Judged


class DPO:
    """Direct preference optimization (arXiv 2305.18290): how much likelier each answer has become than it was to the
    model as the run began with it, the better one against the worse one.

    Args:
        beta: how far the model may go away from what it was: the larger, the less.
        loss: of the margin: ``sigmoid`` as of DPO, ``hinge`` (SLiC, arXiv 2305.10425), or ``ipo``, the squared distance
            of the mean gain of a token to ``1 / (2 beta)`` (arXiv 2310.12036).
        label_smoothing: share of the pairs that are held to be the wrong way round (cDPO), of ``sigmoid``.
        sft: so many times the cross entropy of the better answer, a mean over its tokens, is added (arXiv 2404.19733).

    Raises:
        ConfigError: a number is out of its range.
    """

    def __init__(
        self,
        beta: float = 0.1,
        loss: Literal["sigmoid", "hinge", "ipo"] = "sigmoid",
        label_smoothing: float = 0.0,
        sft: float = 0.0,
    ) -> None:
        _check_positive("beta", beta)
        if not 0 <= label_smoothing < 0.5:
            raise ConfigError(f"label_smoothing: expected a share from 0 to below 0.5, got {label_smoothing}")
        if label_smoothing and loss != "sigmoid":
            raise ConfigError(f"label_smoothing: is of loss sigmoid, not of {loss}; leave one of them out")
        _check_not_negative("sft", sft)
        self.beta, self.loss, self.label_smoothing, self.sft = beta, loss, label_smoothing, sft

    def __call__(self, judged: Judged) -> Tensor:
        better, worse = judged.pairs
        gains = self._gains(judged)
        ahead = gains[better] - gains[worse]
        if self.loss == "ipo":
            found = (ahead - 1 / (2 * self.beta)) ** 2
        else:
            found = F.relu(1 - self.beta * ahead) if self.loss == "hinge" else self._sigmoid(self.beta * ahead)
        return found + self.sft * _mean_losses(judged)[better] if self.sft else found

    def _gains(self, judged: Judged) -> Tensor:
        return judged.gains / judged.learned if self.loss == "ipo" else judged.gains

    def _sigmoid(self, margin: Tensor) -> Tensor:
        wrong = self.label_smoothing
        return -(1 - wrong) * F.logsigmoid(margin) - wrong * F.logsigmoid(-margin)

    def figures(self, judged: Judged) -> dict[str, Tensor]:
        """Rewards are ``beta`` times the gains in log-probability over the model as the run began with it."""
        better, worse = judged.pairs
        rewards = self.beta * self._gains(judged)
        return _figures(rewards[better], rewards[worse])


class SimPO:
    """Simple preference optimization (arXiv 2405.14734): the mean log-probability of a token is the reward, and there
    is no model to compare with.

    Args:
        beta: how many times it counts.
        gamma: by how much, of the rewards, the better answer is to be ahead.
        sft: as of ``dpo``.

    Raises:
        ConfigError: a number is out of its range.
    """

    def __init__(self, beta: float = 2.0, gamma: float = 1.0, sft: float = 0.0) -> None:
        _check_positive("beta", beta)
        _check_not_negative("gamma", gamma)
        _check_not_negative("sft", sft)
        self.beta, self.gamma, self.sft = beta, gamma, sft

    def __call__(self, judged: Judged) -> Tensor:
        better, worse = judged.pairs
        losses = _mean_losses(judged)
        found = -F.logsigmoid(self.beta * (losses[worse] - losses[better]) - self.gamma)
        return found + self.sft * losses[better] if self.sft else found

    def figures(self, judged: Judged) -> dict[str, Tensor]:
        better, worse = judged.pairs
        rewards = -self.beta * _mean_losses(judged)
        return _figures(rewards[better], rewards[worse])


class ORPO:
    """Odds-ratio preference optimization (arXiv 2403.07691): the cross entropy of the better answer, and the logarithm
    of how its odds stand to those of the worse one. It begins with a model that has not learned to answer yet.

    Args:
        weight: of the second part (lambda in the paper, beta in TRL).

    Raises:
        ConfigError: it is not above 0.
    """

    def __init__(self, weight: float = 0.1) -> None:
        _check_positive("weight", weight)
        self.weight = weight

    def __call__(self, judged: Judged) -> Tensor:
        better, worse = judged.pairs
        losses = _mean_losses(judged)
        odds = -losses - _log1mexp(losses)
        return losses[better] - self.weight * F.logsigmoid(odds[better] - odds[worse])

    def figures(self, judged: Judged) -> dict[str, Tensor]:
        better, worse = judged.pairs
        rewards = -self.weight * _mean_losses(judged)
        return _figures(rewards[better], rewards[worse])


def _mean_losses(judged: Judged) -> Tensor:
    """Mean cross entropy of what is learned of each document: [documents]."""
    return judged.of_documents(judged.losses) / judged.learned


def _log1mexp(losses: Tensor) -> Tensor:
    """log(1 - exp(-x)) of x > 0; of a text that is certain, x is held to be as small as the type can tell from 0."""
    least = torch.finfo(losses.dtype).eps
    return torch.log(-torch.expm1(-losses.clamp(min=least)))


def _figures(better: Tensor, worse: Tensor) -> dict[str, Tensor]:
    """Of the rewards of the two answers of each pair: [pairs] each."""
    return {RIGHT: better > worse, "margin": better - worse, "better": better, "worse": worse}


def _check_positive(option: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ConfigError(f"{option}: expected a number above 0, got {value}")


def _check_not_negative(option: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise ConfigError(f"{option}: expected 0 or more, got {value}")
