"""GPUs by their names: what they multiply, and what they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import torch

from kosmos.errors import ConfigError
from kosmos.names import did_you_mean, listed
from kosmos.runtime.devices import pick_precision
from kosmos.train.peak import PEAKS, known_gpu

Precision = Literal["auto", "fp32", "bf16"]
GIB = 2**30
MEMORY_GIB = {
    "A100": 80, "A800": 80, "H100": 80, "H100 PCIe": 80, "H100 NVL": 94, "H800": 80, "H20": 96, "H200": 141,
    "H200 NVL": 141, "GH200": 96, "L4": 24, "L40": 48, "L40S": 48, "B200": 180, "GB200": 186,
}  # fmt: skip
"""Memory by NVIDIA's data sheets, where the name states none, as A100-40GB does."""


@dataclass(frozen=True)
class Device:
    """A GPU as a plan knows it."""

    name: str
    peak: float | None
    """Dense products a second, in the type of the run; None where that is not known."""
    memory_bytes: int
    dtype: torch.dtype
    """Of matrix products."""


def device_named(name: str, precision: Precision) -> Device:
    """
    Args:
        precision: ``train.precision``; products are in bf16 unless it says fp32, for which no peaks are kept.

    Raises:
        ConfigError: no such GPU is known.
    """
    known = known_gpu(name)
    if known is None:
        hint = did_you_mean(name, PEAKS) or f"known: {listed(PEAKS, at_most=len(PEAKS))}"
        raise ConfigError(f"--device {name}: no GPU of this name is known; {hint}")
    with_cpu = known.startswith("G")  # a Grace Hopper's name states the memory of its CPU
    stated = None if with_cpu else re.search(r"(\d+) ?GI?B?\b", name.upper())
    memory = int(stated[1]) if stated else MEMORY_GIB[known]
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    return Device(name, PEAKS[known] if dtype == torch.bfloat16 else None, memory * GIB, dtype)


def device_here(wanted: Literal["auto", "cpu", "cuda"], precision: Precision) -> Device | None:
    """The first GPU of this machine, where the run would take one: ``wanted`` is ``train.device``."""
    if wanted == "cpu" or not torch.cuda.is_available():
        return None
    found = torch.cuda.get_device_properties(0)
    dtype = pick_precision(precision, torch.device("cuda", 0))
    known = known_gpu(found.name)
    peak = PEAKS[known] if known and dtype == torch.bfloat16 else None
    return Device(found.name, peak, found.total_memory, dtype)
