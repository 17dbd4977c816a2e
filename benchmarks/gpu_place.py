"""Where and at which size ``gpu.py`` measures, and how it takes times and memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch


@dataclass(frozen=True)
class Place:
    """Where and at which size to measure."""

    device: torch.device
    tiny: bool

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def seconds(self, act: Callable[[], Any], rounds: int = 10) -> float:
        """Median time of ``act`` after two calls that warm up."""
        return self.by_turns({"": act}, rounds)[""]

    def by_turns(self, arms: Mapping[str, Callable[[], Any]], rounds: int = 10) -> dict[str, float]:
        """Median time of each, one after another in every round, after two rounds that warm up."""
        times: dict[str, list[float]] = {name: [] for name in arms}
        for number in range(2 + (2 if self.tiny else rounds)):
            for name, act in arms.items():
                self.wait()
                begin = perf_counter()
                act()
                self.wait()
                if number > 1:
                    times[name].append(perf_counter() - begin)
        return {name: median(own) for name, own in times.items()}

    def forget(self) -> None:
        """Give memory back that nobody uses, and begin to count anew."""
        gc.collect()  # an optimizer that steps in the backward pass and its parameters hold each other
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self, act: Callable[[], Any]) -> int:
        if self.device.type != "cuda":
            return 0
        self.forget()
        before = torch.cuda.memory_allocated()
        act()
        self.wait()
        return torch.cuda.max_memory_allocated() - before
