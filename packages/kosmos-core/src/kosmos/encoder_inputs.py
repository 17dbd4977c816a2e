"""Whether an encoder is one for a modality, by the types that both state.

A processor states what it takes as the type of its first parameter, an encoder what it gives by its ``input``, and,
before it is made, by the annotation of that name in its class. What is not stated is not checked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from inspect import isclass
from numbers import Integral, Real
from types import UnionType
from typing import Any, Union, get_args, get_origin

from kosmos.components import ModalitySpec
from kosmos.errors import ConfigError, PluginError
from kosmos.names import listed
from kosmos.plugins import Registry


def build_encoder(registry: Registry, name: str, options: Mapping[str, Any], path: str) -> Any:
    """An encoder, of which others can be built: by its width.

    Raises:
        PluginError: its ``width`` is no whole number from 1 on, or its ``input`` is nothing.
        ConfigError, PluginError: as ``Registry.build``.
    """
    built: Any = registry.build("encoder", name, options=options, path=path)
    width: Any = built.width
    if isinstance(width, bool) or not isinstance(width, Integral) or int(width) < 1:
        raise PluginError(
            f"{path}: {name} ({type(built).__name__}): width is {width!r:.40}; expected a whole number from 1 on, the "
            "features of a cell"
        )
    if built.input is None:
        raise PluginError(f"{path}: {name} ({type(built).__name__}): input is None; expected what its processor takes")
    return built


def check_encoder(registry: Registry, spec: ModalitySpec, encoder: str, path: str, given: Any = None) -> None:
    """Refuse an encoder that is one for other cells.

    Args:
        spec: of the modality. Its own encoder is its author's choice, and is not checked.
        encoder: the name of the one that its stream has.
        path: where that stands in the run file.
        given: the encoder's ``input``; None before it is made.

    Raises:
        ConfigError: names both types, and the encoders that fit.
    """
    wanted = _taken_by(registry, spec.name)
    stated = type(given) if given is not None else _given_by(registry, encoder)
    if encoder == spec.encoder or stated is None or not wanted or any(_fits(one, stated, given) for one in wanted):
        return
    there = [name for name in registry.specs("encoder") if name != encoder and _suits(registry, spec, name, wanted)]
    raise ConfigError(
        f"{path}: {encoder} is an encoder for {stated.__name__}, and the modality {spec.name} takes one for "
        f"{' or '.join(one.__name__ for one in wanted)}; name one of these: {listed(there)}"
    )


def suiting(registry: Registry, specs: Collection[ModalitySpec]) -> Callable[[str], bool]:
    """Tells whether to name an encoder to a stream of some modalities: it has to be one for all that state what they
    take."""

    def suits(encoder: str) -> bool:
        taken = [(spec, _taken_by(registry, spec.name)) for spec in specs]
        return all(not wanted or _suits(registry, spec, encoder, wanted) for spec, wanted in taken)

    return suits


def _suits(registry: Registry, spec: ModalitySpec, encoder: str, wanted: tuple[type, ...]) -> bool:
    """Whether to name an encoder. One that states nothing may suit the modality that its own plugin brings."""
    if registry.peek("encoder", encoder) is None:
        return False
    if encoder == spec.encoder:
        return True
    stated = _given_by(registry, encoder)
    if stated is None:
        return registry.owner("encoder", encoder) is registry.owner("modality", spec.name)
    return any(_fits(one, stated) for one in wanted)


def _taken_by(registry: Registry, modality: str) -> tuple[type, ...]:
    """Types of which an encoder's input has to be one; none where the processor states nothing that can be checked."""
    from kosmos.options import front_type  # pydantic

    factory = registry.peek("modality", modality)
    try:
        stated = front_type(factory) if factory is not None else Any
    except PluginError:  # of an annotation that cannot be resolved, which only matters to those who read it
        return ()
    found = get_args(stated) if get_origin(stated) in (Union, UnionType) else (stated,)
    sound = all(isclass(one) and one not in (Any, object) and not getattr(one, "_is_protocol", False) for one in found)
    return found if sound else ()


def _given_by(registry: Registry, encoder: str) -> type | None:
    """What the class of an encoder states of its ``input``."""
    factory = registry.peek("encoder", encoder)
    for parent in getattr(factory, "__mro__", ()):
        stated = vars(parent).get("__annotations__", {}).get("input")
        if isinstance(stated, str):
            stated = getattr(sys.modules.get(parent.__module__), stated, None)
        if isclass(stated):
            return stated
    return None


def _fits(wanted: type, stated: type, given: Any = None) -> bool:
    """Whether a value of the one type does for the other: by its class, or by the fields that are asked for."""
    try:
        if issubclass(stated, wanted) or (wanted in (int, float) and issubclass(stated, Real)):
            return True
    except TypeError:  # a class for type checkers alone
        return True
    asked = _fields_of(wanted)
    return bool(asked) and all(hasattr(given, name) or name in _fields_of(stated) for name in asked)


def _fields_of(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else tuple(getattr(kind, "_fields", ()))
