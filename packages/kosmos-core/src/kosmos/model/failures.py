"""Errors in the code of an encoder, a connector or an optimizer, which say whose they are."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kosmos.errors import KosmosError, PluginError, cause, is_out_of_memory
from kosmos.runtime.compiler_disk import disk_failure
from kosmos.runtime.parallel import tells_of_end

_TORCH = Path(torch.__file__).parent


def named(dtype: torch.dtype) -> str:
    """A type as messages write it: ``float32``."""
    return str(dtype).removeprefix("torch.")


def raise_as_its_own(error: Exception, title: str, method: str = "forward", given: str = "") -> None:
    """Raise what a method of a part has raised as an error of that part; return where it is none.

    Memory or a disk that does not suffice and errors of ours have their own lines. What fails between ranks, and on a
    device that works behind the program, comes up wherever that is waited for.

    Args:
        title: the part, as the line begins.
        method: which was called.
        given: what it was called with, in words.

    Raises:
        PluginError: with the cause, and the file and line of it where they are not torch's.
    """
    if isinstance(error, KosmosError | torch.AcceleratorError) or is_out_of_memory(error):
        return
    if disk_failure(error) is not None:
        return
    if dist.is_available() and dist.is_initialized() and tells_of_end(error):
        return
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)[1:]]
    if any(file.is_relative_to(_TORCH / "distributed") for file, _ in frames):
        return
    own = [f" ({file.name}:{line})" for file, line in frames if not file.is_relative_to(_TORCH)]
    what = f"{cause(error)}{own[-1] if own else ''}" + (f"; it was given {given}" if given else "")
    raise PluginError(f"{title}: {method} failed: {what}") from error


KEPT = "backward through the graph a second time"
"""What a backward pass says that comes to the graph of an earlier row, which is gone."""


def raise_as_kept(error: Exception, model: nn.Module) -> None:
    """Raise what a backward pass has raised as an error of the part that keeps something of an earlier row; return
    where it says nothing of the kind.

    Args:
        model: with streams that have titles.

    Raises:
        PluginError: names the part and its attribute, where they are found.
    """
    if KEPT not in str(error):
        return
    found = next(_kept(model), "")
    who = found or "a part of the model holds what was computed of an earlier row; kosmos plugin test finds which"
    raise PluginError(f"{who}; keep nothing of a row on self, or only what is detached (x.detach())") from error


def _kept(model: nn.Module) -> Iterator[str]:
    """What each module holds that was computed of a row, as a line."""
    titles = {
        id(module): title
        for stream in model.modules()
        for part, title in getattr(stream, "titles", {}).items()
        for module in getattr(stream, part).modules()
    }
    for path, module in model.named_modules():
        for name, value in _attributes(module):
            if isinstance(value, Tensor) and value.grad_fn is not None:
                title = titles.get(id(module), path.partition(".")[0])
                where = f"{title}: " if title else ""
                yield f"{where}{type(module).__name__}.{name} holds what was computed of an earlier row"


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Of itself, and what lies in its lists and dictionaries, buffers among them."""
    for name, value in vars(module).items():
        if isinstance(value, dict):
            own = name in ("_buffers", "_parameters")
            yield from ((str(key) if own else name, each) for key, each in value.items())
        elif isinstance(value, list | tuple):
            yield from ((name, each) for each in value)
        else:
            yield name, value
