"""How evenly a mixture of experts of transformers uses them, by its own function (arXiv 2101.03961)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from kosmos.errors import ConfigError

_FUNCTION = "load_balancing_loss_func"


def balance_of(name: str, model: Any, weight: float) -> Callable[[tuple[Tensor, ...]], Tensor]:
    """What makes the loss, a scalar, of the logits [T, experts] of the router of each layer. Where all experts are used
    alike it is ``weight`` times the experts of a token.

    Args:
        name: what errors call the model.

    Raises:
        ConfigError: it has no such loss, or the weight is no finite number above 0.
    """
    if not 0 < weight < math.inf:
        raise ConfigError(f"hf: router_loss: expected a number above 0, got {weight}; leave it out to add none")
    function = getattr(sys.modules[type(model).__module__], _FUNCTION, None)
    sizes = [getattr(model, field, None) for field in ("num_experts", "num_experts_per_tok")]
    if function is None or not all(isinstance(size, int) for size in sizes):
        raise ConfigError(
            f"hf: router_loss: {name} ({type(model).__name__}) has no loss of the balance of experts in transformers "
            "that is known here; leave it out"
        )
    return partial(_weighted, partial(function, num_experts=sizes[0], top_k=sizes[1]), weight)


def _weighted(balance: Callable[[tuple[Tensor, ...]], Tensor], weight: float, logits: tuple[Tensor, ...]) -> Tensor:
    return weight * balance(logits)
