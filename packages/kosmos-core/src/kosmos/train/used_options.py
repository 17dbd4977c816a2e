"""With which options the components of a run were made: those that it states, and the defaults of the others."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kosmos.compose import Composition
from kosmos.options import fields_of

POSITIONAL = {"backbone": 1, "encoder": 0, "connector": 2, "optimizer": 2, "schedule": 2}
"""Parameters in front of a factory that are no options, by the last part of a component's place in the run file."""


def used_options(composition: Composition) -> dict[str, dict[str, Any]]:
    """By the place of each component in the run file its name and its options, as plain values.

    A default that is no plain value, such as one that a component makes anew, is left out.
    """
    train = composition.config.train
    parts = {place: by for place, (_, by) in composition.parts.items()}
    parts |= {"train.optimizer": train.optimizer, "train.schedule": train.schedule}
    found: dict[str, dict[str, Any]] = {}
    for place, by in parts.items():
        kind = place.rpartition(".")[2]
        defaults = _defaults(composition, kind, by.name, POSITIONAL[kind])
        found[place] = {"name": by.name, **_plain({**defaults, **by.options})}
    for name, settings in composition.config.modalities.items():
        defaults = _defaults(composition, "modality", name, 1)
        found[f"modalities.{name}.processor"] = _plain({**defaults, **settings.processor})
    return found


def _defaults(composition: Composition, kind: str, name: str, positional: int) -> dict[str, Any]:
    factory = composition.registry.peek(kind, name)
    options = {} if factory is None else fields_of(factory, positional)
    return {n: option.default for n, option in options.items() if option.default is not inspect.Parameter.empty}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in options.items():
        with suppress(TypeError, ValueError):
            found[name] = json.loads(json.dumps(value, allow_nan=False))
    return found
