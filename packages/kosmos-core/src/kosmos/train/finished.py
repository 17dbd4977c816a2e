"""A run that is gone on with where no step is left: it only scores, so what steps alone take stays as it was."""

from __future__ import annotations

from kosmos.config import RunConfig, StreamConfig
from kosmos.train.changes import Changed, changed_settings, told

SCORED_BY = ("steps", "tokens", "epochs", "precision", "compile", "device", "hang_s")
"""Fields of ``train`` that say how long the run is, or how it is scored."""
RATES = ("learning_rate", "connector_learning_rate")


def only_scored(before: RunConfig, now: RunConfig, step: int) -> tuple[RunConfig, str]:
    """The settings of a run that takes no step, and a line that says so with those of ``now`` that are not taken.

    Args:
        before: what its run file has.
        now: what it was told to go on with.
        step: the last that was taken. If that is not the last there is, the run has stopped early.
    """
    as_now = [*SCORED_BY]
    if now.train.warmup == before.train.warmup:  # which the other number of steps may state as it was
        as_now.append("warmup_steps")
    train = before.train.model_copy(update={name: getattr(now.train, name) for name in as_now})
    streams, plain = {}, StreamConfig()
    for name, stream in now.streams.items():
        own = before.streams.get(name, plain)
        as_it_was = stream.model_copy(update={rate: getattr(own, rate) for rate in RATES})
        if name in before.streams or as_it_was != plain:
            streams[name] = as_it_was
    kept = now.model_copy(
        update={
            "train": train,
            "guard": before.guard,
            "profile": before.profile,
            "backbone": now.backbone.model_copy(update={"learning_rate": before.backbone.learning_rate}),
            "streams": streams,
            "data": now.data.model_copy(update={"quarantine": before.data.quarantine}),
        }
    )
    return kept, _told(step, now.train.steps, changed_settings(kept, now))


def _told(step: int, steps: int, left: Changed) -> str:
    mark, is_early = "warning: " * (step > steps), step < steps
    done = f"step {step} of {steps} was taken already"
    if is_early:
        done = f"the run had stopped early at step {step} of {steps}"
    if not left:
        return f"{mark}{done}: nothing is trained"
    more = "evaluate.patience" if is_early else "train.steps"
    return (
        f"{mark}{done}: nothing is trained, and its settings stay, without {told(left)}; go on with more {more}, or "
        "train a run of its own in another --output"
    )
