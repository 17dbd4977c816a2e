"""Load local weights into an encoder, each tensor of which has to be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from kosmos import ConfigError, prefix_of, read_weights

Convert = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], dict[str, Tensor]]
"""Tensors by other names, and those of the module that takes them, to tensors by the names of the latter."""


def load_weights(module: nn.Module, path: str, prefixes: tuple[str, ...] = (), convert: Convert | None = None) -> None:
    """Copy the tensors of ``path``, as ``kosmos.read_weights`` reads it, into ``module``.

    Args:
        module: takes them; every one of its tensors has to be there, in its shape.
        path: local file or folder.
        prefixes: tried in order; the first under which names begin is stripped, and the rest is left aside.
        convert: what else is done with names first.

    Raises:
        ConfigError: nothing that can be read as tensors, or names or shapes do not fit.
    """
    tensors = stored = read_weights(path)
    own = module.state_dict()
    tensors = tensors if convert is None else convert(tensors, own)
    for prefix in prefixes:
        if any(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            break
    missing = sorted(own.keys() - tensors.keys())
    if missing:
        under = prefix_of(missing, stored)
        there = f"; it holds them under {under[:-1]}: kosmos export RUN FILE --part {under[:-1]} writes them alone"
        what = f"{len(missing)} of {len(own)} tensors are missing, such as {missing[0]}{there if under else ''}"
        raise ConfigError(f"weights {path}: {what}")
    for name, tensor in own.items():
        if tensors[name].shape != tensor.shape:
            raise ConfigError(f"weights {path}: {name} is {list(tensors[name].shape)}, expected {list(tensor.shape)}")
    module.load_state_dict({name: tensors[name] for name in own})
