"""Learning rates that are not what they seem: that jump where a run goes on, or say nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kosmos.config import RunConfig, TrainConfig
from kosmos.train.parameter_groups import UNDECAYED
from kosmos.train.schedules import share_at

if TYPE_CHECKING:
    from kosmos.train.loop import Trainer

JUMP = 1.5
"""A rate above so many times that of the step before is warned of, and one below it where the warmup begins again."""


def jumps(trainer: Trainer, last: Mapping[str, Any] | None, before: TrainConfig) -> Iterator[str]:
    """A warning where the next step of a trainer that goes on has a far higher rate than its last one had, or a far
    lower one since its warmup is longer than it was.

    None where the settings of now would have given the last step its rate: then the schedule
    rises there by itself.

    Args:
        last: the row of metrics of the last step.
        before: what the run file had until then.
    """
    train, step = trainer.config.train, trainer.step
    if last is None or last["step"] != step or not 1 <= step < train.steps:
        return
    names = [name.removesuffix(UNDECAYED) for name in trainer.groups]
    peaks = dict(zip(names, trainer.peaks, strict=True))
    then, now = (share_at(trainer.schedule, at, train.schedule.name) for at in (step - 1, step))
    rates = {part: last.get("learning_rate_by_part", {}).get(part, last.get("learning_rate")) for part in peaks}
    if step < train.warmup != before.warmup:
        yield from _warmed_up_again(trainer, {part: rate for part, rate in rates.items() if rate}, before)
    risen = {part: min(then, now) * peaks[part] / rate for part, rate in rates.items() if rate}
    part = max(risen, key=lambda name: risen[name], default="")
    if risen.get(part, 0.0) <= JUMP:
        return
    evenly = f"{_field(trainer.config, part)}={rates[part] / now:.2e}"
    if part not in trainer.parts:  # a group of the optimizer's own, whose peak goes with that of the run
        evenly = f"train.learning_rate={train.learning_rate * rates[part] / now / peaks[part]:.2e}"
    of = f" of {part}" if len({*peaks.values()}) > 1 or len({*rates.values()}) > 1 else ""
    yield (
        f"the learning rate{of} was {rates[part]:.2e} at step {step} and is {now * peaks[part]:.2e} at step "
        f"{step + 1}: {train.schedule.name} over {train.steps} steps now has {now:.0%} of the peak {peaks[part]:.2e} "
        f"there, and the loss may rise. To go on evenly set {evenly}; if the rate had come down before, "
        "begin from a checkpoint from before that (kosmos checkpoint branch)"
    )


def _warmed_up_again(trainer: Trainer, rates: Mapping[str, float], before: TrainConfig) -> Iterator[str]:
    """A warning where all rates fall back into the warmup; elsewhere a schedule comes down by itself."""
    train, step = trainer.config.train, trainer.step
    now = share_at(trainer.schedule, step, train.schedule.name)
    own = zip(trainer.groups, trainer.peaks, strict=True)
    fell = {part: (rates[part], now * peak) for n, peak in own if (part := n.removesuffix(UNDECAYED)) in rates}
    if fell and all(JUMP * is_now < was for was, is_now in fell.values()):
        was, is_now = next(iter(fell.values()))
        yield (
            f"the learning rate was {was:.2e} at step {step} and is {is_now:.2e} at step {step + 1}, since the warmup "
            f"now takes {train.warmup} steps, {before.warmup} before; to go on evenly set "
            f"train.warmup_steps={before.warmup}"
        )


def unused_rate(trainer: Trainer) -> Iterator[str]:
    """A warning where ``train.learning_rate`` is stated, and says nothing since each part has a rate of its own."""
    config = trainer.config
    fields = dict.fromkeys(_field(config, part) for part in trainer.parts)
    if fields and "train.learning_rate" not in fields:
        yield (
            f"train.learning_rate {config.train.learning_rate:g}: no part is trained at it, since each has a rate of "
            f"its own ({', '.join(fields)}); set these, or leave them out"
        )


def _field(config: RunConfig, part: str) -> str:
    """That which states the peak of a part."""
    own = {"backbone": config.backbone.learning_rate}
    own |= {f"streams.{name}": stream.learning_rate for name, stream in config.streams.items()}
    if part.count(".") == 2:  # a connector, which is a part of its own by that field alone
        return f"{part}_learning_rate"
    return f"{part if own.get(part) else 'train'}.learning_rate"
