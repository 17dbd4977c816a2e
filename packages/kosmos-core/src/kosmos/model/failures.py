"""Errors in the code of an encoder, a connector or an optimizer, which say whose they are."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from kosmos.errors import KosmosError, PluginError, cause, is_out_of_memory

_TORCH = Path(torch.__file__).parent
PEER_GONE = r"(?i)closed by peer|closed by remote peer|remote process exited|reset by peer|broken pipe"
"""What an exchange of gloo or NCCL says whose other end has died."""


def raise_as_its_own(error: Exception, title: str, method: str = "forward") -> None:
    """Raise what a method of a part has raised as an error of that part; return where it is none.

    Memory that does not suffice and errors of ours have their own lines. What fails between ranks, and on a device that
    works behind the program, comes up wherever that is waited for.

    Args:
        title: the part, as the line begins.
        method: which was called.

    Raises:
        PluginError: with the cause, and the file and line of it where they are not torch's.
    """
    if isinstance(error, KosmosError | torch.AcceleratorError) or is_out_of_memory(error):
        return
    if dist.is_available() and dist.is_initialized() and re.search(PEER_GONE, str(error)):
        return
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)[1:]]
    if any(file.is_relative_to(_TORCH / "distributed") for file, _ in frames):
        return
    own = [f" ({file.name}:{line})" for file, line in frames if not file.is_relative_to(_TORCH)]
    raise PluginError(f"{title}: {method} failed: {cause(error)}{own[-1] if own else ''}") from error
