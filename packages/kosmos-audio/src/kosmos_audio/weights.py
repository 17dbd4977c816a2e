"""Load local weights into an encoder: safetensors, or torch files of tensors alone. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from kosmos.errors import ConfigError

FILES = ("model.safetensors", "pytorch_model.bin", "model.pt")


def load_weights(module: nn.Module, path: str, prefixes: tuple[str, ...] = ()) -> None:
    """Copy the tensors of ``path``, a file or a folder that holds one of ``FILES``, into ``module``.

    Args:
        module: takes them; every one of its tensors has to be there, in its shape.
        path: local path.
        prefixes: tried in order; the first under which names begin is stripped, and the rest is left aside.

    Raises:
        ConfigError: nothing there, not tensors alone, or names or shapes do not fit.
    """
    tensors = _read(_find(Path(path)))
    for prefix in prefixes:
        if any(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            break
    own = module.state_dict()
    missing = sorted(own.keys() - tensors.keys())
    if missing:
        raise ConfigError(f"weights {path}: {len(missing)} of {len(own)} tensors are missing, such as {missing[0]}")
    for name, tensor in own.items():
        if tensors[name].shape != tensor.shape:
            raise ConfigError(f"weights {path}: {name} is {list(tensors[name].shape)}, expected {list(tensor.shape)}")
    module.load_state_dict({name: tensors[name] for name in own})


def _find(path: Path) -> Path:
    if path.is_dir():
        for name in FILES:
            if (path / name).is_file():
                return path / name
        raise ConfigError(f"weights {path}: the folder holds none of {', '.join(FILES)}")
    if not path.is_file():
        raise ConfigError(f"weights {path}: no such file or folder (weights are local; nothing is downloaded)")
    return path


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each reader has errors of its own; with weights_only nothing is run
        raise ConfigError(f"weights {path}: not a file of tensors: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ConfigError(f"weights {path}: expected a dictionary of tensors")
    return state
