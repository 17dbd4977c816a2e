"""Begin with the weights of another run: a second stage, with other data, other settings, other parts frozen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from kosmos.checkpoint.folder import Loaded
from kosmos.checkpoint.tensors import MODEL, model_tensors, read_into, read_whole, shapes
from kosmos.compose import update_scales
from kosmos.errors import ConfigError, KosmosError
from kosmos.model.lora import added, plus
from kosmos.model.weights import is_update
from kosmos.run_file import make_run
from kosmos.train.saved import open_checkpoint

Shapes = dict[str, tuple[int, ...]]


class Initial(NamedTuple):
    """What a run begins with."""

    loaded: Loaded
    scales: dict[str, float]
    """How often its low-rank updates count, by part."""


def open_initial(init: Path, tokenizer: Path, model: nn.Module) -> Initial:
    """The checkpoint that a run begins with.

    Args:
        init: as in the run file.
        tokenizer: folder of the run's own tokenizer, whose ids have to mean the same.
        model: whose parts have to be the same where both have them.

    Raises:
        ConfigError: there is no run or whole checkpoint, or its tokens or one of those parts are others.
    """
    try:
        folder, loaded = open_checkpoint(init)
    except KosmosError as error:
        raise ConfigError(f"init: {error}") from error
    if _contents(folder.tokenizer) != _contents(tokenizer):
        raise ConfigError(
            f"init: the tokens of {folder.path} are others: give this run the same tokenizer (tokenizer: "
            f"{folder.tokenizer}) and name in both the modalities of both, whose marks are tokens"
        )
    ours, theirs = _parts(model, loaded)
    for part in (part for part in ours if part in theirs):
        _check_same(part, ours[part], theirs[part], loaded.folder)
    return Initial(loaded, update_scales(make_run(folder.read_config(), where=str(folder.run_file))))


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


def take_weights(model: nn.Module, initial: Initial, *, alone: bool) -> Iterator[str]:
    """Fill the parts of a model that a checkpoint has too, and tell what was taken, and what was not.

    Low-rank updates there are put into the weights that they stand beside; those of the model are drawn anew.

    Args:
        model: whole or sharded, with memory.
        initial: what ``open_initial`` gave.
        alone: this process reads by itself; otherwise all ranks read together.

    Raises:
        CheckpointError: the checkpoint cannot be read.
    """
    own, folder = model_tensors(model), initial.loaded.tensors
    ours, theirs = _parts(model, initial.loaded)
    both = [part for part in ours if part in theirs]
    taken = {name: own[name].detach() for part in both for name in ours[part]}
    with torch.no_grad():
        read_into(folder, {MODEL + name: tensor for name, tensor in taken.items()}, alone=alone)
        for name, change in added(read_whole(folder, MODEL, only=is_update), initial.scales):
            if name in taken:
                _add(taken[name], change)
    yield f"begins with {', '.join(both)} of {initial.loaded.folder}"
    for what, parts in (("drawn anew", ours.keys() - theirs.keys()), ("left there", theirs.keys() - ours.keys())):
        if parts:
            yield f"{what}: {', '.join(sorted(parts))}"


def _add(weight: Tensor, change: Tensor) -> None:
    """To a weight, sharded or not, in its type."""
    change = change.to(weight.device)
    if isinstance(weight, DTensor):
        change = distribute_tensor(change, weight.device_mesh, weight.placements)
    weight.copy_(plus(weight, change))


def _parts(model: nn.Module, loaded: Loaded) -> tuple[dict[str, Shapes], dict[str, Shapes]]:
    """Those of a model and those of a checkpoint, without low-rank updates."""
    stored: Shapes = {n.removeprefix(MODEL): s for n, s in shapes(loaded.tensors).items() if n.startswith(MODEL)}
    return _by_part({name: tuple(t.shape) for name, t in model_tensors(model).items()}), _by_part(stored)


def _by_part(found: Shapes) -> dict[str, Shapes]:
    """Tensors by the part that owns them: the backbone, or encoder or connector of a stream."""
    parts: dict[str, Shapes] = {}
    for name, shape in found.items():
        if is_update(name):
            continue
        steps = name.split(".")
        parts.setdefault(".".join(steps[:3] if steps[0] == "streams" else steps[:1]), {})[name] = shape
    return parts


def _check_same(part: str, ours: Shapes, theirs: Shapes, folder: Path) -> None:
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            there, here = (f"has {list(of[name])}" if name in of else "lacks it" for of in (theirs, ours))
            raise ConfigError(
                f"init: {part} of {folder} is another: {name}: it {there}, this run {here}; give both the same options"
            )
