"""Begin with weights of another run where layers are in 4 bits there or here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from kosmos.checkpoint.tensors import MODEL, dtypes, read_whole
from kosmos.model.lora import plus
from kosmos.model.nf4 import PACKED, pack, shape_of, unpack
from kosmos.model.weights import is_update

WEIGHT = "weight"


def whole_shapes(found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of tensors, with those of weights in place of what stands for them in 4 bits."""
    return {_whole(name): shape_of(shape) if _is_packed(name) else shape for name, shape in found.items()}


class Taken:
    """Weights of a checkpoint that are in 4 bits there or in the model."""

    def __init__(self, own: Mapping[str, Tensor], folder: Path, names: Iterable[str]) -> None:
        """
        Args:
            own: tensors of the model.
            folder: of a checkpoint's tensors.
            names: of weights that both have, in 4 bits or not.
        """
        self._own, self._folder = own, folder
        self._types = dtypes(folder)
        self.added: dict[str, Tensor | None] = {
            name: None for name in names if name not in own or MODEL + name not in self._types
        }
        """By the name of each, what an update of the checkpoint adds to it."""

    def lines(self) -> Iterator[str]:
        """What is to be told of weights that are rounded here, and of updates that are rounded with them."""
        here = [name for name in self.added if name not in self._own and not self._is_copied(name)]
        if here:
            yield f"rounded to 4 bits: {len(here)} weights, such as {here[0]}"
        if lost := [name for name in here if self.added[name] is not None]:
            yield (
                f"warning: init.keep_updates: what updates had learned beside {len(lost)} weights was put into these "
                "and rounded with them, so that part of it is lost; set it to true to go on with the updates themselves"
            )

    def fill(self, as_here: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Read them, one after the other. All ranks call it, and each reads them.

        Args:
            as_here: cuts a whole tensor as another is cut.
        """
        for name, added in self.added.items():
            few, own = _few(name), self._own
            found = read_whole(self._folder, MODEL, only=lambda n, pair=(name, few): n.removeprefix(MODEL) in pair)  # type: ignore[misc]
            if self._is_copied(name):
                own[few].copy_(found[few])
                continue
            # As an export has it, so that the same is rounded of both.
            whole = unpack(found[few], self._type_of_part(name)) if few in found else found[name]
            whole = whole if added is None else plus(whole, added)
            if few in own:
                own[few].copy_(pack(whole.to(own[few].device)))
            else:
                own[name].copy_(as_here(whole, own[name]))

    def _is_copied(self, name: str) -> bool:
        """Whether it is in 4 bits on both sides, and nothing was learned beside it."""
        return self.added[name] is None and _few(name) in self._own and MODEL + _few(name) in self._types

    def _type_of_part(self, name: str) -> torch.dtype:
        """In which the checkpoint has what else there is of the part that a weight is of."""
        begin = MODEL + (".".join(name.split(".")[:2]) if name.startswith("streams.") else name.partition(".")[0])
        others = (kind for other, kind in self._types.items() if other.startswith(begin) and not is_update(other))
        return next((kind for kind in others if kind.is_floating_point), torch.bfloat16)


def _few(name: str) -> str:
    """What stands for a weight in 4 bits."""
    return f"{name.removesuffix(WEIGHT)}{PACKED}"


def _is_packed(name: str) -> bool:
    return name.rpartition(".")[2] == PACKED


def _whole(name: str) -> str:
    return f"{name.removesuffix(PACKED)}{WEIGHT}" if _is_packed(name) else name
