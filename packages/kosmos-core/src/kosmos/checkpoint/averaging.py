"""The mean of the weights of several checkpoints, as a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from kosmos.checkpoint import AVERAGED
from kosmos.checkpoint import folder as folders
from kosmos.checkpoint.folder import Loaded
from kosmos.checkpoint.tensors import MODEL, ShardWriter, cause_of, expect_alone, read_whole


def write_average(loaded: Sequence[Loaded], checkpoints: Path) -> Path:
    """Write the mean of checkpoints of one run as that of the step of the last.

    Args:
        loaded: verified, two or more.
        checkpoints: the folder to write it in.

    Returns:
        Its folder.

    Raises:
        CheckpointError: one cannot be read, or what was written does not match its hashes.
        OSError: the disk is full or not writable.
    """
    steps = [one.state["step"] for one in loaded]
    return write_weights(mean([one.tensors for one in loaded]), loaded[-1].state, checkpoints, of=steps)


def write_weights(
    weights: Mapping[str, Tensor], state: Mapping[str, Any], checkpoints: Path, *, of: Sequence[int]
) -> Path:
    """Write weights as the checkpoint of a step, whose optimizer knows nothing: no run goes on from it.

    Args:
        state: of the checkpoint whose step and data it has.
        of: the steps that they are the mean of; none where they are of somebody's making.

    Returns, Raises: as ``write_average``.
    """
    step: int = state["step"]
    partial = folders.begin(checkpoints, step)
    writer = ShardWriter(partial / folders.TENSORS)
    try:
        expect_alone()
        save({MODEL + name: tensor for name, tensor in weights.items()}, storage_writer=writer, no_dist=True)
    except CheckpointException as error:  # a BaseException
        raise OSError(cause_of(error)) from error
    hashes = folders.hash_and_sync(partial, writer.names)
    return folders.commit(partial, step, {**state, "optimizer": {}, "optimizer_groups": [], AVERAGED: [*of]}, hashes)


def mean(folders_of_tensors: Sequence[Path]) -> dict[str, Tensor]:
    """Of the model's tensors by name, in their types. What are no floats, such as counts, are those of the last.

    Sums are fp32 (fp64 of fp64): memory holds them and the tensors of one checkpoint.
    """
    sums: dict[str, Tensor] = {}
    for tensors in folders_of_tensors[:-1]:
        _add(sums, read_whole(tensors, MODEL))
    last = read_whole(folders_of_tensors[-1], MODEL)
    _add(sums, last)
    for name, tensor in last.items():
        if name in sums:
            tensor.copy_(sums.pop(name).div_(len(folders_of_tensors)))
    return last


def _add(sums: dict[str, Tensor], found: Mapping[str, Tensor]) -> None:
    for name, tensor in found.items():
        if tensor.is_floating_point():
            exact = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
            sums[name] = sums[name].add_(exact) if name in sums else exact.clone()
