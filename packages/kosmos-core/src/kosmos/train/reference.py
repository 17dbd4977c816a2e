"""The model as a run began with it, which objectives compare with: a frozen copy, spread over the ranks as the model.

What the run trains nothing of is shared with the model where no rank holds shards: under LoRA the copy is the updates.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from kosmos.checkpoint import tensors as stored
from kosmos.config import RunConfig
from kosmos.data.batch import PackedBatch
from kosmos.errors import CheckpointError
from kosmos.model.fp8 import use_fp8
from kosmos.model.kernels_in_use import follow_kernels
from kosmos.model.loss import TokenLosses
from kosmos.model.nf4 import is_packed
from kosmos.model.omni import OmniModel
from kosmos.model.weights import materialize
from kosmos.runtime.parallel import Parallel
from kosmos.train.compiling import compile_blocks
from kosmos.train.sharding import distribute, forget_forward, settle

PREFIX = "reference."
"""In front of its tensors in a checkpoint."""


class Reference:
    """See the module. Made of a model before that is compiled or spread; ``spread`` comes once the model is."""

    def __init__(self, model: OmniModel) -> None:
        self.model = model
        shared: dict[int, object] = {id(p): p for p in model.parameters() if not p.requires_grad}
        learning, model.learning = model.learning, None
        self.copy: OmniModel = copy.deepcopy(model, shared)
        model.learning = learning
        self.copy.requires_grad_(False).eval()
        self.is_filled = False
        """Whether it has the weights that the run began with."""

    def spread(self, config: RunConfig, parallel: Parallel, device: torch.device, dtype: torch.dtype) -> None:
        """Compile the copy as the model, and move it to its device, sharded likewise. All ranks call it.

        Args:
            dtype: of matrix products.
        """
        use_fp8(self.copy.backbone, config.train.fp8, device)
        compile_blocks(self.copy, config.train.compile, device)
        follow_kernels(self.copy, self.model)
        if parallel.world_size > 1 and config.parallel.strategy != "ddp":
            self._keep_apart()
            self._share(is_packed)
            distribute(self.copy, parallel, config.parallel, device, dtype, draw=False)
            return
        self._share(lambda parameter: not parameter.requires_grad)
        materialize(self.copy, device, draw=False)
        self.copy.to(device)

    def _share(self, wanted: Callable[[Tensor], bool]) -> None:
        """Give the copy some of the model's own parameters, which no step changes."""
        same = {name: p for name, p in _parameters(self.model) if wanted(p)}
        for module_name, module in self.copy.named_modules():
            for name in module._parameters:
                if (own := same.get(f"{module_name}.{name}".lstrip("."))) is not None:
                    module._parameters[name] = own

    def _keep_apart(self) -> None:
        """Give the copy parameters of its own alone: each model shards its own."""
        own: dict[int, nn.Parameter] = {}
        for module in self.copy.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    made = nn.Parameter(parameter.detach().clone(), requires_grad=False)
                    module._parameters[name] = own.setdefault(id(parameter), made)

    def before(self, losses: Callable[[PackedBatch], TokenLosses]) -> Callable[[PackedBatch], TokenLosses]:
        """The forward pass of the model, of rows that the reference has looked at."""
        return lambda row: losses(self.look(row))

    def look(self, row: PackedBatch) -> PackedBatch:
        """The row with the losses of the reference. The first call takes the model's weights over: it comes before the
        first step.

        They are computed as the model's, with gradients or without, by the same kernels, so that what these round
        cancels out; nothing of it is kept, since nothing of it is trained.
        """
        if not self.is_filled:
            self._fill()
        row.reference = self.copy(row).per_token
        forget_forward(self.copy)
        return row

    @torch.no_grad()
    def _fill(self, *, all_of_it: bool = True) -> None:
        """Take over the model's weights, or those alone that the run does not train."""
        settle(self.model)
        theirs, trained = stored.model_tensors(self.model), self._trained()
        for name, tensor in stored.model_tensors(self.copy).items():
            if tensor is not theirs[name] and (all_of_it or name not in trained):
                _here(tensor).copy_(_here(theirs[name]))
        self.is_filled = True

    def _trained(self) -> set[str]:
        """Names of what a step may change: trained parameters, and buffers."""
        frozen = {name for name, parameter in self.model.named_parameters() if not parameter.requires_grad}
        return stored.model_tensors(self.model).keys() - frozen

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it, by name: all that is not in the model's own weights."""
        settle(self.copy)
        trained = self._trained()
        own = stored.model_tensors(self.copy).items()
        return {PREFIX + name: tensor.detach() for name, tensor in own if name in trained}

    @torch.no_grad()
    def load(self, folder: Path, *, alone: bool) -> None:
        """Read what ``tensors`` gave, once the model has its weights.

        Raises:
            CheckpointError: the run had no reference.
        """
        targets, there = self.tensors(), stored.shapes(folder)
        if missing := next((name for name in targets if name not in there), None):
            raise CheckpointError(
                f"{folder}: holds no model to compare with ({missing}), as train.objective was another one; leave it "
                "as it was, or begin a run with these weights (init)"
            )
        stored.read_into(folder, targets, alone=alone)
        self._fill(all_of_it=False)


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return model.named_parameters(remove_duplicate=False)


def _here(tensor: Tensor) -> Tensor:
    """The part of a tensor that lies on this rank."""
    local = getattr(tensor, "to_local", None)
    found: Tensor = tensor if local is None else local()
    return found
