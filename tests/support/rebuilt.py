"""A part that was built from files, built again without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


def rebuilt(part: Any, *positional: Any, **options: Any) -> nn.Module:
    """By ``part.without_files`` laid over the options that it was built by, with the values of a checkpoint."""
    assert part.without_files
    again: nn.Module = type(part)(*positional, **{**options, **part.without_files})
    state: Mapping[str, Tensor] = part.state_dict()
    again.load_state_dict(state)  # strict: the same names and shapes
    return again.train(part.training)
