"""The processes of a run: who owns which lanes, and sums over all of them.

Every rank holds the whole model; gradients are summed after the last row of a step. The loss is divided
by the global count of targets before backward, so a sum is all that is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from kosmos.errors import ConfigError

BUCKET_BYTES = 64 * 2**20
"""Gradients travel in buckets of about this size."""


@dataclass(frozen=True)
class Parallel:
    """Rank and number of processes; one process needs no start-up."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @staticmethod
    def from_environment(device: str) -> Parallel:
        """As torchrun set it up; joins the process group if there is more than one process."""
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        if world_size > 1 and not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if device != "cpu" and torch.cuda.is_available() else "gloo")
        return Parallel(int(os.environ.get("RANK", "0")), world_size, int(os.environ.get("LOCAL_RANK", "0")))

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def lanes(self, num_lanes: int) -> list[int]:
        """The lanes of this rank.

        Raises:
            ConfigError: the lanes cannot be dealt out evenly.
        """
        if num_lanes % self.world_size:
            raise ConfigError(
                f"data.lanes: {num_lanes} lanes cannot be dealt to {self.world_size} processes evenly; "
                "use a multiple of them"
            )
        return list(range(self.rank, num_lanes, self.world_size))

    def sum(self, *numbers: float) -> list[float]:
        """Sums over all ranks, exact for counts."""
        if self.world_size == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values)
        return [float(v) for v in values]

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank. Plain values of our own making only."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum gradients over ranks; a missing one counts as zero, so that all ranks send the same."""
        if self.world_size == 1:
            return
        bucket: list[Tensor] = []
        size = 0
        for parameter in parameters:
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if bucket and (size > BUCKET_BYTES or bucket[0].dtype != parameter.grad.dtype):
                _sum_bucket(bucket)
                bucket, size = [], 0
            bucket.append(parameter.grad)
            size += parameter.grad.nbytes
        if bucket:
            _sum_bucket(bucket)

    def close(self) -> None:
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _sum_bucket(gradients: list[Tensor]) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, summed in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))
