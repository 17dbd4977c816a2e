"""Weights that somebody has saved, for encoders that begin with them: tensors are read, and no code runs."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kosmos.errors import ConfigError

FILES = ("model.safetensors", "open_clip_model.safetensors", "pytorch_model.bin", "model.pt")
"""What is looked for in a folder, in this order; else an index of several files, else its only file of safetensors."""
INDEX = "model.safetensors.index.json"
"""What transformers writes beside weights in several files."""
_INSIDE = ("state_dict", "model", "model_state")
"""Keys under which training scripts save a model's tensors beside other things."""


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a local file, by their names: safetensors, or what ``torch.save`` has written of tensors alone.

    Args:
        path: the file, or a folder that holds one. Nothing is downloaded.

    Raises:
        ConfigError: nothing is there, or something else than tensors, such as objects that would have to be unpickled.
    """
    file = _find(Path(path))
    state: Any
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(file)
        elif file.name == INDEX:
            state = _of_parts(file)
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file, or one that wants to run code: each reader has errors of its own
        raise ConfigError(f"weights {file}: cannot be read as tensors: {_why(error, file)}") from error
    while isinstance(state, dict) and (inner := [state[key] for key in _INSIDE if isinstance(state.get(key), dict)]):
        state = inner[0]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ConfigError(f"weights {file}: holds something else than named tensors; save the model's state_dict()")
    return state


def prefix_of(names: Collection[str], among: Collection[str]) -> str:
    """What stands in front of all of ``names`` among others, such as ``streams.x.encoder.`` in a file of a whole model.

    Returns:
        The shortest such beginning, with its dot; empty where there is none, or the names stand there as they are.
    """
    first = next(iter(names), None)
    if first is None or first in among:
        return ""
    found = sorted((name.removesuffix(first) for name in among if name.endswith(f".{first}")), key=len)
    return next((prefix for prefix in found if all(prefix + name in among for name in names)), "")


def _of_parts(index: Path) -> dict[str, Tensor]:
    """The tensors of all files that an index names, which lie beside it."""
    from safetensors.torch import load_file

    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    found: dict[str, Tensor] = {}
    for part in sorted({Path(str(name)).name for name in names.values()}):  # never out of the folder
        found |= load_file(index.with_name(part))
    if missing := sorted(names.keys() - found.keys()):
        raise ValueError(f"{missing[0]} is in none of the files that {index.name} names")
    return found


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise ConfigError(f"weights {path}: no such file or folder (nothing is downloaded)")
    for name in FILES:
        if (path / name).is_file():
            return path / name
    if (path / INDEX).is_file():
        return path / INDEX
    found = sorted(path.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    several = f"{len(found)} files of safetensors; name one of them" if found else f"none of {', '.join(FILES)}"
    raise ConfigError(f"weights {path}: the folder holds {several}")


def _why(error: Exception, file: Path) -> str:
    if file.suffix != ".safetensors" and file.name != INDEX and not isinstance(error, OSError):
        # PyTorch fails of other files in any way, and says how to unpickle, which runs whatever is there.
        return "neither safetensors nor what torch.save writes of tensors alone; save the model's state_dict()"
    return str(error).split("\n")[0].strip() or type(error).__name__
