"""Learning rate over the steps, as a share of the peak. Steps count from 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from kosmos.errors import ConfigError, PluginError, cause, own_line

Schedule = Callable[[int], float]
ROUNDED = 1e-6
"""By so much a share may exceed 1, as sums of floats do."""


def share_at(schedule: Schedule, step: int, name: str) -> float:
    """What a schedule, which may be a plugin's, gives for a step.

    Raises:
        PluginError: it fails, or gives no number from 0 to 1. Parameters would be spoilt by the first such step.
    """
    try:
        share = float(schedule(step))
    except Exception as error:  # a seam: code of plugins
        where = own_line(error, getattr(schedule, "__module__", ""))
        raise PluginError(f"train.schedule: {name} raised {cause(error)} for step {step}{where}") from error
    if not 0 <= share <= 1 + ROUNDED:
        raise PluginError(
            f"train.schedule: {name} gave {share} for step {step}, expected a share of the peak rate, from 0 to 1"
        )
    return share


def linear(steps: int, warmup_steps: int, *, final: float = 0.0) -> Schedule:
    """Linear warmup, then linear to ``final``.

    Args:
        final: share of the peak that the step after the last would have.

    Raises:
        ConfigError: ``final`` is no share from 0 to 1.
    """
    _check_share("final", final)
    return lambda step: _warmup(step, warmup_steps) * (1 - (1 - final) * _progress(step, steps, warmup_steps))


def cosine(steps: int, warmup_steps: int, *, final: float = 0.1) -> Schedule:
    """Linear warmup, then half a cosine (arXiv 1608.03983, one cycle) to ``final``.

    Args:
        final: share of the peak that the step after the last would have.

    Raises:
        ConfigError: ``final`` is no share from 0 to 1.
    """
    _check_share("final", final)

    def share(step: int) -> float:
        turned = (1 + math.cos(math.pi * _progress(step, steps, warmup_steps))) / 2
        return _warmup(step, warmup_steps) * (final + (1 - final) * turned)

    return share


def wsd(
    steps: int,
    warmup_steps: int,
    *,
    decay: float | None = None,
    decay_steps: int | None = None,
    shape: Literal["linear", "cosine", "sqrt"] = "linear",
    final: float = 0.0,
) -> Schedule:
    """Linear warmup, the peak, then down to ``final`` (warmup-stable-decay, arXiv 2404.06395).

    A checkpoint from before the decay can go on with more steps as if it had never been meant to end.

    Args:
        decay: share of the steps that the way down takes; a fifth where ``decay_steps`` are not stated either.
        decay_steps: steps that it takes, in place of a share: the same ones for a longer run.
        shape: of the way down: ``linear``, half a ``cosine``, or 1 minus the root of the share taken
            (``sqrt``, arXiv 2405.18392).
        final: share of the peak that the step after the last would have.

    Raises:
        ConfigError: ``decay`` or ``final`` is no share from 0 to 1, or both lengths are stated.
    """
    _check_share("final", final)
    if decay is not None and decay_steps is not None:
        raise ConfigError("decay_steps: decay says how long the way down is too; leave one of them out")
    if decay_steps is not None and decay_steps < 0:
        raise ConfigError(f"decay_steps: expected 0 or more, got {decay_steps}")
    decay = 0.2 if decay is None else decay
    _check_share("decay", decay, of="the steps")
    begin = max(warmup_steps, steps - (round(decay * steps) if decay_steps is None else decay_steps))
    left = {"linear": lambda x: 1 - x, "cosine": lambda x: (1 + math.cos(math.pi * x)) / 2, "sqrt": _root_left}[shape]
    return lambda step: _warmup(step, warmup_steps) * (final + (1 - final) * left(_progress(step, steps, begin)))


def inverse_sqrt(steps: int, warmup_steps: int) -> Schedule:
    """Linear warmup, then down by the square root of the steps (arXiv 1706.03762), wherever the end is."""
    return lambda step: _warmup(step, warmup_steps) * min(1.0, ((warmup_steps + 1) / (step + 1)) ** 0.5)


def constant(steps: int, warmup_steps: int) -> Schedule:
    """Linear warmup, then the peak."""
    return lambda step: _warmup(step, warmup_steps)


def _check_share(option: str, share: float, of: str = "the peak") -> None:
    if not 0 <= share <= 1:
        raise ConfigError(f"{option}: expected a share of {of} from 0 to 1, got {share}")


def _root_left(progress: float) -> float:
    return 1 - math.sqrt(progress)


def _warmup(step: int, warmup_steps: int) -> float:
    return min(1.0, (step + 1) / (warmup_steps + 1))


def _progress(step: int, steps: int, warmup_steps: int) -> float:
    """0 until the end of the warmup, 1 behind the last step: that too is to learn something."""
    return min(1.0, max(0, step - warmup_steps) / max(1, steps - warmup_steps))
