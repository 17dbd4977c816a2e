"""Load local weights into an encoder, each tensor of which has to be there."""

from __future__ import annotations

from torch import nn

from kosmos import ConfigError, read_weights


def load_weights(module: nn.Module, path: str, prefixes: tuple[str, ...] = ()) -> None:
    """Copy the tensors of ``path``, as ``kosmos.read_weights`` reads it, into ``module``.

    Args:
        module: takes them; every one of its tensors has to be there, in its shape.
        path: local file or folder.
        prefixes: tried in order; the first under which names begin is stripped, and the rest is left aside.

    Raises:
        ConfigError: nothing that can be read as tensors, or names or shapes do not fit.
    """
    tensors = read_weights(path)
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
