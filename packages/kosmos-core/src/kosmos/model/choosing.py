"""Which token comes next: the most likely, or one that is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# B = documents, V = tokens of the tokenizer, K = those of them that are sampled among

GREEDY_BELOW = 1e-6
"""Lower temperatures take the most likely token: by then it has all the probability, and smaller divisors overflow."""
NO_TOKEN = -1
"""Where some logit is no number, or none is finite, or one is beyond all: the arg max of these would be written."""


def choose(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, randoms: Sequence[torch.Generator]
) -> list[int]:
    """[B, V] to a token of each, or ``NO_TOKEN``. Arguments are those of ``generate_text``.

    Args:
        randoms: the generator of each document, so that what is drawn for one does not depend on the others. None are
            needed for the most likely tokens.
    """
    if temperature < GREEDY_BELOW:
        return _most_likely(logits)
    logits = logits.float() / temperature
    usable = logits.amax(-1).isfinite().tolist()
    likely = logits.softmax(-1)
    if top_k is None and top_p is None:
        return _drawn(likely.cpu(), usable, randoms)
    likely, tokens = likely.sort(descending=True, stable=True)
    likely = likely[:, :top_k].cpu()  # a GPU sorts faster, and does not sum alike each time
    keep = [likely.shape[1]] * len(likely) if top_p is None else _keep(likely, top_p)
    tokens = tokens[:, : max(keep)].cpu()
    places = _drawn([of_one[:most] for of_one, most in zip(likely, keep, strict=True)], usable, randoms)
    return [NO_TOKEN if place == NO_TOKEN else int(tokens[number, place]) for number, place in enumerate(places)]


def _most_likely(logits: Tensor) -> list[int]:
    """``NO_TOKEN`` comes with the tokens, so that a GPU is asked once."""
    most, tokens = logits.max(-1)
    found: list[int] = tokens.where(most.isfinite(), NO_TOKEN).tolist()
    return found


def _keep(likely: Tensor, top_p: float) -> list[int]:
    """How many of the most likely [B, K], in this order, sum to ``top_p``: the last of them brings the sum to it."""
    return [min(likely.shape[1], 1 + before) for before in (likely.cumsum(-1) < top_p).sum(-1).tolist()]


def _drawn(likely: Tensor | Sequence[Tensor], usable: Sequence[bool], randoms: Sequence[torch.Generator]) -> list[int]:
    """The place of one of the probabilities [K] of each document, or ``NO_TOKEN``."""
    return [
        int(torch.multinomial(of_one, 1, generator=random)) if can else NO_TOKEN
        for of_one, can, random in zip(likely, usable, randoms, strict=True)
    ]
