"""The built-in optimizers as components: parameter groups and a learning rate in, an optimizer out."""

from __future__ import annotations

from typing import Any, Literal

import torch

from kosmos.train.optim.adamw import FusedAdamW, MasterAdamW, check_means
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.masters import Master
from kosmos.train.optim.muon import Muon

Group = dict[str, Any]


def lion(
    groups: list[Group],
    learning_rate: float,
    *,
    betas: tuple[float, float] = (0.9, 0.99),
    master: Master = "none",
    compile: bool | Literal["auto"] = "auto",
    seed: int = 0,
) -> torch.optim.Optimizer:
    """Lion (arXiv 2302.06675): the sign of an interpolated momentum.

    Args:
        groups: see ``parameter_groups``.
        learning_rate: peak; 3 to 10 times smaller than AdamW's.
        betas: (0.9, 0.99), for language also (0.95, 0.98).
        master: what keeps updates that bf16 weights round away: nothing, ``stochastic`` rounding, or 8 or 16 extra
            bits (``bits8``, ``bits16``).
        compile: compile the step on a CPU, for which a C++ compiler takes a second or two: two to three times as fast.
            ``auto`` does from 4 million parameters on, and warns where there is no compiler. GPUs take a Triton kernel.
        seed: of stochastic rounding.
    """
    return Lion(_plain(groups), learning_rate, betas=betas, master=master, compile=compile, seed=seed)


def lion8bit(
    groups: list[Group],
    learning_rate: float,
    *,
    betas: tuple[float, float] = (0.9, 0.99),
    block: int = 256,
    master: Master = "none",
    compile: bool | Literal["auto"] = "auto",
    seed: int = 0,
) -> torch.optim.Optimizer:
    """Lion with momentum in 8 bits: one byte a parameter and a scale for each block.

    Args:
        groups: see ``parameter_groups``.
        learning_rate: peak; 3 to 10 times smaller than AdamW's.
        betas: (0.9, 0.99), for language also (0.95, 0.98).
        block: most elements of a row that share a scale.
        master: what keeps updates that bf16 weights round away: nothing, ``stochastic`` rounding, or 8 or 16 extra
            bits (``bits8``, ``bits16``).
        compile: compile the step on a CPU, for which a C++ compiler takes a second or two: six times as fast. ``auto``
            does from 4 million parameters on, and warns where there is no compiler. GPUs take a Triton kernel.
        seed: of stochastic rounding.
    """
    return Lion(_plain(groups), learning_rate, betas=betas, block=block, master=master, compile=compile, seed=seed)


def lion_pytorch(
    groups: list[Group], learning_rate: float, *, betas: tuple[float, float] = (0.9, 0.99)
) -> torch.optim.Optimizer:
    """Lion of the package lion-pytorch, which ``lion`` equals but for rounding.

    Args:
        groups: see ``parameter_groups``.
        learning_rate: peak; 3 to 10 times smaller than AdamW's.
        betas: (0.9, 0.99), for language also (0.95, 0.98).
    """
    from lion_pytorch import Lion as PeerLion

    optimizer: torch.optim.Optimizer = PeerLion(_plain(groups), lr=learning_rate, betas=betas)
    return optimizer


def adamw(
    groups: list[Group],
    learning_rate: float,
    *,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    master: Master = "none",
    compile: bool | Literal["auto"] = "auto",
    seed: int = 0,
) -> torch.optim.Optimizer:
    """AdamW of torch, fused.

    Args:
        groups: see ``parameter_groups``.
        learning_rate: peak.
        betas: of the running means of the gradient and its square.
        eps: added to the root of the second.
        master: what keeps updates that bf16 weights round away: nothing, ``stochastic`` rounding, or 8 or 16 extra
            bits (``bits8``, ``bits16``); both means are fp32 then.
        compile: with ``master``, compile the step on a CPU, for which a C++ compiler takes a second or two: four times
            as fast. ``auto`` does from 4 million bf16 parameters on, and warns where there is no compiler. GPUs take a
            Triton kernel; without ``master`` the step is PyTorch's, which is compiled.
        seed: of stochastic rounding.
    """
    if master != "none":
        return MasterAdamW(
            _plain(groups), learning_rate, betas=betas, eps=eps, master=master, compile=compile, seed=seed
        )
    check_means(betas, eps)
    return FusedAdamW(_plain(groups), lr=learning_rate, betas=betas, eps=eps)


def muon(
    groups: list[Group],
    learning_rate: float,
    *,
    momentum: float = 0.95,
    steps: int = 5,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    master: Master = "none",
    compile: bool | Literal["auto"] = "auto",
    seed: int = 0,
) -> torch.optim.Optimizer:
    """Muon (arXiv 2502.16982) for matrices; embeddings, the output head, norms and biases take AdamW.

    Each process makes its share of the matrices orthogonal.

    Args:
        groups: see ``parameter_groups``.
        learning_rate: peak, of AdamW's size: updates of matrices are scaled to it.
        momentum: what a matrix's momentum keeps from step to step; Nesterov's.
        steps: of the iteration that makes it orthogonal.
        betas: of AdamW.
        eps: of AdamW.
        master: what keeps updates that bf16 weights round away: nothing, ``stochastic`` rounding, or 8 or 16 extra
            bits (``bits8``, ``bits16``); momentum and means are fp32 always.
        compile: compile AdamW's step of bf16 weights on a CPU, not that of matrices. ``auto`` does where 4 million
            parameters or more take it, and warns where there is no compiler.
        seed: of stochastic rounding.
    """
    return Muon(
        _plain(groups, "names", "matrices"), learning_rate, momentum=momentum, steps=steps, betas=betas, eps=eps,
        master=master, compile=compile, seed=seed,
    )  # fmt: skip


def _plain(groups: list[Group], *more: str) -> list[Group]:
    return [{k: v for k, v in g.items() if k in ("params", "lr", "weight_decay", *more)} for g in groups]
