"""What the steps since the last line of progress came to, as a row of metrics has it for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

RATES = ("tokens_per_s", "text_tokens_per_s", "media_tokens_per_s", "samples_per_s", "data_wait_share", "mfu",
         "mfu_half_causal")  # fmt: skip
"""What is a mean over the seconds of steps."""


class Interval:
    """Steps, one after another."""

    def __init__(self) -> None:
        self._steps, self._seconds = 0, 0.0
        self._sums: Counter[str] = Counter()
        self._by_module: Counter[str] = Counter()
        self._uneven: Counter[str] = Counter()
        self._cells: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        """A step by its row of metrics."""
        seconds = row["step_s"]
        self._steps += 1
        self._seconds += seconds
        for name in RATES:
            self._sums[name] += row.get(name, 0.0) * seconds
        for name in ("fill", "media_tokens"):
            self._sums[name] += row[name]
        for name, share in row.get("mfu_by_module", {}).items():
            self._by_module[name] += share * seconds
        for stream, ratio in row["imbalance_by_stream"].items():  # a step with a single item says little
            self._uneven[stream] += ratio * row["cells_by_stream"][stream]
            self._cells[stream] += row["cells_by_stream"][stream]

    def mean(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row of the last step with what its steps were on the average, where that is more than one number."""
        seconds = max(self._seconds, 1e-9)
        found: dict[str, Any] = {name: self._sums[name] / seconds for name in RATES if name in row}
        if "mfu_by_module" in row:
            found["mfu_by_module"] = {name: self._by_module[name] / seconds for name in row["mfu_by_module"]}
        uneven = {name: self._uneven[name] / cells for name, cells in self._cells.items() if cells}
        means = {"fill": self._sums["fill"] / self._steps, "media_tokens": self._sums["media_tokens"]}
        return {**row, **found, **means, "imbalance_by_stream": uneven}
