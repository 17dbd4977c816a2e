"""Steps that went wrong: a loss or gradient that is not finite, a loss or gradient that jumps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Literal

import torch

from kosmos.config import GuardConfig
from kosmos.data.batch import PackedBatch
from kosmos.model.not_finite import DECODED, part_not_finite, weight_not_finite
from kosmos.model.omni import OmniModel
from kosmos.names import listed
from kosmos.runtime.devices import autocast
from kosmos.runtime.parallel import Parallel

WINDOW = 64
"""Steps whose losses and norms a spike is measured against."""
LEAST = 16
"""Below so many steps nothing is called a spike."""
Action = Literal["stop", "skip", "roll_back"]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a step, and what the run file says to do about it."""

    kind: Literal["non_finite", "spike"]
    action: Action
    text: str


def whence(
    model: OmniModel,
    batches: Iterable[PackedBatch],
    norms: Mapping[str, float],
    device: torch.device,
    dtype: torch.dtype,
    parallel: Parallel,
) -> str:
    """In brackets, where numbers of a step that are not finite came from; empty where that cannot be told.

    Every rank looks at its own rows, and all are told the same. A collective.

    Args:
        norms: of the gradients of each part of the model.
    """

    def look() -> str | None:
        rows = (batch.to(device) for batch in batches)
        with suppress(Exception), autocast(device, dtype):  # what went wrong is known; only its place is not
            return weight_not_finite(model) or part_not_finite(model, rows)
        return None

    found = next(filter(None, parallel.agreed(look)), None)
    wrong = [part for part, norm in norms.items() if not math.isfinite(norm)]
    if not found and 0 < len(wrong) < len(norms):  # going backward they come to all parts in front
        found = f"the gradients of {listed(wrong)} alone are not finite"
    return f" ({found})" if found else ""


def advice_on(text: str, steps_before: int, ledger: Path) -> str:
    """What to do about a step that stops the run. A lower rate helps neither against what was decoded nor in a step
    before which none has changed a weight.

    Args:
        text: what is said of it, with ``whence``.
        ledger: where its documents are noted.
    """
    helps = steps_before > 0 and DECODED not in text
    return f"{'Lower train.learning_rate or look' if helps else 'Look'} at the documents ({ledger})"


class Guard:
    """Looks at every step before its update. Its decisions depend on numbers that all ranks have."""

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self.losses: deque[float] = deque(maxlen=WINDOW)
        self.norms: deque[float] = deque(maxlen=WINDOW)
        self.in_turn = 0

    def look(self, loss: float, norm: float, of_modules: Mapping[str, float] = MappingProxyType({})) -> Finding | None:
        """None where the step may be taken.

        Args:
            of_modules: losses of parts of the model, by name.
        """
        found = self._find(loss, norm, of_modules)
        if found is None:
            self.losses.append(loss)
            self.norms.append(norm)
            self.in_turn = 0
            return None
        self.in_turn += 1
        if found.action != "stop" and self.in_turn > self.config.at_most:
            return Finding(found.kind, "stop", f"{found.text}, {self.in_turn} steps in turn (guard.at_most)")
        return found

    def _find(self, loss: float, norm: float, of_modules: Mapping[str, float]) -> Finding | None:
        wrong = [f"{name} {value:g}, " for name, value in of_modules.items() if not math.isfinite(value)]
        if wrong or not (math.isfinite(loss) and math.isfinite(norm)):
            text = f"loss {loss:g}, {''.join(wrong)}gradient norm {norm:g}: not finite"
            return Finding("non_finite", self.config.non_finite, text)
        for what, value, before, times in (
            ("loss", loss, self.losses, self.config.spike),
            ("gradient norm", norm, self.norms, self.config.norm_spike),
        ):
            if times is not None and len(before) >= LEAST and value > times * (usual := median(before)):
                return Finding("spike", self.config.on_spike, f"{what} {value:g}, usually {usual:g}: a spike")
        return None

    def state(self) -> dict[str, Any]:
        return {"losses": list(self.losses), "norms": list(self.norms), "in_turn": self.in_turn}

    def load(self, state: Mapping[str, Any]) -> None:
        self.losses = deque(state["losses"], maxlen=WINDOW)
        self.norms = deque(state.get("norms", ()), maxlen=WINDOW)  # older checkpoints hold none
        self.in_turn = state["in_turn"]
