"""Begin with weights of another run where layers are in 4 bits there or here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from kosmos.checkpoint.tensors import MODEL, read_whole, shapes
from kosmos.model.nf4 import PACKED, pack, shape_of, unpack

WEIGHT = "weight"


def whole_shapes(found: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of tensors, with those of weights in place of what stands for them in 4 bits."""
    return {_whole(name): shape_of(shape) if _is_packed(name) else shape for name, shape in found.items()}


def packed_in(own: Mapping[str, Tensor], folder: Path, names: Iterable[str]) -> dict[str, Tensor | None]:
    """Which of some weights are in 4 bits on either side, each to what is added to it: nothing yet.

    Args:
        own: tensors of the model.
        folder: of a checkpoint's tensors.
    """
    there = shapes(folder)
    return {name: None for name in names if name not in own or MODEL + name not in there}


def rounded(own: Mapping[str, Tensor], packed: Mapping[str, Tensor | None]) -> Iterator[str]:
    """A line of weights that are in 4 bits here, and one if updates were rounded with them; as of ``take_packed``."""
    here = [name for name in packed if name not in own]
    if here:
        yield f"rounded to 4 bits: {len(here)} weights, such as {here[0]}"
    if lost := [name for name in here if packed[name] is not None]:
        yield (
            f"warning: init.keep_updates: what updates had learned beside {len(lost)} weights was put into these and "
            "rounded with them, so that part of it is lost; set it to true to go on with the updates themselves"
        )


def take_packed(
    own: Mapping[str, Tensor],
    folder: Path,
    names: Mapping[str, Tensor | None],
    as_here: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """Fill weights that are in 4 bits on either side, one after the other. All ranks call it, and each reads them.

    Args:
        own, folder: as of ``packed_in``.
        names: what that gave, with what updates add.
        as_here: cuts a whole tensor as another is cut.
    """
    for name, added in names.items():
        few = f"{name.removesuffix(WEIGHT)}{PACKED}"
        found = read_whole(folder, MODEL, only=lambda n, pair=(name, few): n.removeprefix(MODEL) in pair)  # type: ignore[misc]
        if few in found and few in own and added is None:
            own[few].copy_(found[few])
            continue
        whole = unpack(found[few], torch.float32) if few in found else found[name].float()
        whole = whole if added is None else whole + added
        if few in own:
            own[few].copy_(pack(whole.to(own[few].device)))
        else:
            own[name].copy_(as_here(whole, own[name]))


def _is_packed(name: str) -> bool:
    return name.rpartition(".")[2] == PACKED


def _whole(name: str) -> str:
    return f"{name.removesuffix(PACKED)}{WEIGHT}" if _is_packed(name) else name
