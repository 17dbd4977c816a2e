"""What a device can do at most: products a second, by its data sheet or measured here."""

from __future__ import annotations

import re
from functools import cache
from time import perf_counter

import torch

from kosmos.model import products as fp32_products

PEAKS = {
    "A100": 312e12, "A800": 312e12, "H100": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "H800": 989e12,
    "H20": 148e12, "H200": 989e12, "H200 NVL": 835e12, "GH200": 989e12, "L4": 121e12, "L40": 181e12, "L40S": 362e12,
    "B200": 2250e12, "GB200": 2500e12,
}  # fmt: skip
"""Dense bf16 products a second, of NVIDIA's data sheets, by what the device's name holds: the longest one counts."""
LARGEST = 4
"""Products of the largest size by which a CPU is measured."""


def known_gpu(name: str) -> str | None:
    """The name in ``PEAKS`` of a GPU that torch or a person calls so, as in ``NVIDIA H100 80GB HBM3`` or h100-pcie."""
    said = _spaced(name)
    # As a word of its own: an RTX A1000 is no A100, and a GH200 no H200. An L40S is both L40 and L40S.
    found = [part for part in PEAKS if re.search(rf"(?<![A-Z0-9]){re.escape(_spaced(part))}(?![0-9])", said)]
    return max(found, key=len, default=None)


def _spaced(name: str) -> str:
    return name.upper().replace("-", " ").replace("_", " ")


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Products a second that the device can do: its data sheet's, else measured here, in 0.3 s once a process."""
    is_listed = device.type == "cuda" and dtype == torch.bfloat16
    if is_listed and (known := known_gpu(torch.cuda.get_device_name(device))):
        return PEAKS[known]
    return _measured_once(device, dtype, torch.get_num_threads())


@cache
def _measured_once(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    """``threads`` are PyTorch's, whose number the rate hangs on: after it was changed, it is measured again."""
    return measured_products(device, dtype)


def measured_products(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.3) -> float:
    """Operations a second of products of square matrices: the best of those that fit into ``seconds``.

    The largest are of 1,024, on a GPU of 8,192: the launch of less would count. On a CPU they are come to from small
    ones: where bf16 is slow, one product of 1,024 takes 2.3 s. Most are of half the side: between the turns of other
    programs there is time for such.
    """
    size = 8192 if device.type == "cuda" else 1024
    convolves = device.type == "cpu" and dtype == torch.float32 and fp32_products.pays()
    side = size if device.type == "cuda" else min(size, 128)
    random = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(size, size, device=device, generator=random).to(dtype) for _ in range(2))
    end, best, largest = perf_counter() + seconds, 0.0, 0
    with torch.no_grad():
        while True:
            left, right = a[:side, :side].contiguous(), b[:side, :side].contiguous()
            begin = perf_counter()
            fp32_products.linear(left, right) if convolves else left @ right
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            now = perf_counter()
            best = max(best, 2 * side**3 / (now - begin))
            if now > end:
                return best
            largest += side == size
            if device.type == "cpu" and largest >= LARGEST:
                side = size // 2
            elif side < size and now + 8 * (now - begin) < end:
                side = min(2 * side, size)
