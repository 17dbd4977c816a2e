"""The state of a run's newest checkpoint, without a look at its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kosmos.checkpoint.folder import STATE, committed, manifest_of, mapping_of, mismatch


def newest_state(checkpoints: Path) -> dict[str, Any] | None:
    """What the newest state whose hash fits holds; None where there is none.

    Args:
        checkpoints: the folder that has them.
    """
    states = (state_of(checkpoint) for checkpoint in committed(checkpoints))
    return next((found for found in states if found is not None), None)


def state_of(checkpoint: Path) -> dict[str, Any] | None:
    """What its state holds, where that fits its hash; tensors are not looked at."""
    try:
        if mismatch(checkpoint, STATE, manifest_of(checkpoint)[STATE]) is None:
            state: dict[str, Any] = mapping_of(checkpoint / STATE)
            return state
    except (OSError, ValueError, KeyError, TypeError):  # damaged: an older one will do
        pass
    return None
