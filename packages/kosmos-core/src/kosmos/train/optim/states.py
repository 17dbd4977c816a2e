"""Optimizer state: made like the parameter, told apart, and loaded as it was saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from kosmos.checkpoint.folder import Loaded
from kosmos.errors import CheckpointError, ConfigError
from kosmos.train.optim.masters import Master
from kosmos.train.optim.operands import local


def zeros_like(parameter: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Contiguous zeros of the parameter's shape, sharded like it."""
    return torch.zeros_like(parameter, dtype=dtype, memory_format=torch.contiguous_format)


def first_place(parameter: Tensor) -> int:
    """Place of this process's first element among all of the parameter: 0 unless it is sharded."""
    if not isinstance(parameter, DTensor):
        return 0
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return sum(o * s for o, s in zip(offset, torch.empty(parameter.shape, device="meta").stride(), strict=True))


def flat(tensor: Tensor) -> Tensor:
    """This process's elements in one dimension: a view where they are contiguous, else a copy."""
    return local(tensor).detach().contiguous().view(-1)


def put_back(values: Tensor, parameter: Tensor) -> None:
    """Copy what ``flat`` gave to the parameter, if it is no view of it."""
    own = local(parameter)
    if not own.is_contiguous():
        own.copy_(values.view(own.shape))


def check_keys(state: Mapping[str, Any], wanted: Iterable[str], optimizer: str) -> None:
    """Refuse the state of another optimizer, which a checkpoint may hold.

    Raises:
        CheckpointError: names what it holds and what was expected.
    """
    if set(state) != set(wanted):
        raise CheckpointError(
            f"the optimizer state holds {', '.join(sorted(state))}, {optimizer} keeps {', '.join(sorted(wanted))}: "
            "it is of another optimizer or of other options; go on with those of the checkpoint"
        )


def made_with(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Options of an optimizer that its state depends on, where it tells them."""
    return dict(getattr(optimizer, "made_with", {}))


def check_made_with(optimizer: torch.optim.Optimizer, loaded: Loaded, advice: str) -> None:
    """Refuse the state of an optimizer with other options that it depends on.

    Raises:
        CheckpointError: names one and ends with ``advice``.
    """
    now = made_with(optimizer)
    for option, before in loaded.state.get("made_with_options", {}).items():  # older ones lack it
        if now.get(option, before) != before:
            raise CheckpointError(
                f"{loaded.folder}: was made with train.optimizer.{option} {before}, the run now has {now[option]}; "
                f"{advice}"
            )


def check_master(master: Master, parameters: Iterable[Tensor]) -> None:
    """Refuse what keeps the bits of bf16 weights where no weight is bf16.

    Raises:
        ConfigError: says what to do.
    """
    if master != "none" and not any(p.dtype is torch.bfloat16 for p in parameters):
        raise ConfigError(
            f"train.optimizer.master: {master} keeps what bf16 weights round away, but no trained weight is bf16; "
            "leave it out or train bf16 weights"
        )


def restore_dtypes(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Undo what ``Optimizer.load_state_dict`` does to states of other dtypes: it casts them to the parameter's."""
    ids = [i for group in saved["param_groups"] for i in group["params"]]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, parameter in zip(ids, parameters, strict=True):
        for key, value in saved["state"].get(number, {}).items():
            if isinstance(value, Tensor):
                optimizer.state[parameter][key] = value.detach().to(
                    parameter.device, copy=True, memory_format=torch.contiguous_format
                )
