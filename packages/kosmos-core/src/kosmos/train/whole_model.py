"""The model of a run once more, over the weights that it has now, to write texts with.

What is trained may be cut over ranks, compiled, or hold fp8 matrices; this is none of it. Where a process has all
weights they are the same memory; of a model that is cut each process gathers them, and lets go of them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kosmos.compose import Composition, compose
from kosmos.run_file import make_run
from kosmos.train.sharding import settle


class WholeModel:
    """See the module.

    Args:
        composition: of the run, whose model is trained on ``device``.
    """

    def __init__(self, composition: Composition, device: torch.device) -> None:
        self._trained, self._device = composition, device
        self._made: Composition | None = None

    @contextmanager
    def lent(self) -> Iterator[Composition]:
        """The run with its model in evaluation mode. All ranks call it, where the model is cut over them."""
        made, self._made = self._made or self._make(), None
        weights, gathered = _weights(self._trained.model)
        made.model.load_state_dict(weights, assign=True)
        made.model.to(self._device).eval()
        # Also what is frozen: autocast keeps casts of weights that want gradients, and casts others at every use.
        for parameter in made.model.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        del weights
        yield made
        self._made = None if gathered else made

    def _make(self) -> Composition:
        """The same parts, built without the files that they were read from."""
        trained = self._trained
        config = make_run(trained.config.model_dump(mode="json"), trained.without_files())
        made = compose(config, trained.registry, draw=False)
        return replace(made, tokenizer=trained.tokenizer, planner=trained.planner.for_scores())


def _weights(model: nn.Module) -> tuple[dict[str, Tensor], bool]:
    """Parameters and persistent buffers, whole, by name, and whether they were gathered for that."""
    settle(model)
    found: dict[int, Tensor] = {}
    gathered = False

    def whole(tensor: Tensor) -> Tensor:
        nonlocal gathered
        known = found.get(id(tensor))
        if known is None:
            values = tensor.detach()
            if isinstance(values, DTensor):
                gathered, values = True, values.full_tensor()
            known = nn.Parameter(values, requires_grad=False) if isinstance(tensor, nn.Parameter) else values
            found[id(tensor)] = known
        return known

    return {name: whole(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}, gathered
