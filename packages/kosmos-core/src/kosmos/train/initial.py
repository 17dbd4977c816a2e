"""Begin with the weights of another run: a second stage, with other data, other settings, other parts frozen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from kosmos.checkpoint.folder import Loaded
from kosmos.checkpoint.tensors import MODEL, model_tensors, read_into, shapes
from kosmos.errors import ConfigError, KosmosError
from kosmos.train.saved import open_checkpoint

Shapes = dict[str, tuple[int, ...]]


def open_initial(init: Path, tokenizer: Path, model: nn.Module) -> Loaded:
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
    return loaded


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}


def take_weights(model: nn.Module, loaded: Loaded, *, alone: bool) -> Iterator[str]:
    """Fill the parts of a model that a checkpoint has too, and tell what was taken, and what was not.

    Args:
        model: whole or sharded, with memory.
        loaded: what ``open_initial`` gave.
        alone: this process reads by itself; otherwise all ranks read together.

    Raises:
        CheckpointError: the checkpoint cannot be read.
    """
    own = model_tensors(model)
    ours, theirs = _parts(model, loaded)
    both = [part for part in ours if part in theirs]
    taken = {name: own[name] for part in both for name in ours[part]}
    with torch.no_grad():
        read_into(loaded.tensors, {MODEL + name: tensor.detach() for name, tensor in taken.items()}, alone=alone)
    yield f"begins with {', '.join(both)} of {loaded.folder}"
    for what, parts in (("drawn anew", ours.keys() - theirs.keys()), ("left there", theirs.keys() - ours.keys())):
        if parts:
            yield f"{what}: {', '.join(sorted(parts))}"


def _parts(model: nn.Module, loaded: Loaded) -> tuple[dict[str, Shapes], dict[str, Shapes]]:
    """Those of a model and those of a checkpoint."""
    stored: Shapes = {n.removeprefix(MODEL): s for n, s in shapes(loaded.tensors).items() if n.startswith(MODEL)}
    return _by_part({name: tuple(t.shape) for name, t in model_tensors(model).items()}), _by_part(stored)


def _by_part(found: Shapes) -> dict[str, Shapes]:
    """Tensors by the part that owns them: the backbone, or encoder or connector of a stream."""
    parts: dict[str, Shapes] = {}
    for name, shape in found.items():
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
