"""Media that are shown otherwise to a trained model than they were in training: options of processors that differ.

The weights stay those of the run: no option of a processor makes a tensor, but its cells have to be those that the
encoder takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kosmos.compose import Composition
from kosmos.data.processor import Processor
from kosmos.errors import ConfigError, KosmosError

_OPTION = re.compile(r"modalities\.([^.]+)\.processor\..+")


def modality_of(path: str) -> str | None:
    """Whose processor the field at a path is an option of; None of other fields."""
    found = _OPTION.fullmatch(path)
    return None if found is None else found[1]


def check_cells(composition: Composition, before: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse processors whose cells are others than those that the model was trained on.

    Args:
        composition: with the processors as they are now.
        before: by modality the options that the run has, of those whose options differ.

    Raises:
        ConfigError: the encoder would be given cells of another shape or type.
    """
    for name, options in before.items():
        route, where = composition.planner.routes[name], f"modalities.{name}.processor"
        encoder: Any = composition.model.streams[route.stream].encoder
        try:
            trained = composition.registry.build("modality", name, encoder.input, options=options, path=where)
        except KosmosError:  # of options that today's plugin refuses, which may be why others are given
            continue
        one, now = _cells(trained), _cells(route.processor)
        if one != now:
            raise ConfigError(
                f"{where}: its cells would be {now}, and the run's encoder takes {one}; leave out what changes them"
            )


def _cells(processor: Processor) -> str:
    return f"{tuple(processor.cell_shape)} {processor.cell_dtype}"
