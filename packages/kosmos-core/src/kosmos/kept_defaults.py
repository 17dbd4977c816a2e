"""Defaults of components that a run keeps: a newer version of a plugin may have others, and would be another model."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kosmos.errors import KosmosError
from kosmos.options import fields_of
from kosmos.plugins import Registry, Suits

Defaults = Mapping[str, Mapping[str, Any]]
"""Kind and name of components, such as ``encoder timm``, to the defaults of their options as plain values."""


class Keeping(Registry):
    """A registry whose components have, where nothing is stated, the defaults that they had before."""

    def __init__(self, registry: Registry, before: Defaults) -> None:
        super().__init__(registry.plugins, registry.off)
        self.used, self.resolved = registry.used, registry.resolved
        self._before = before

    def check(
        self, kind: str, name: str, options: Mapping[str, Any], *, path: str, positional: int, suits: Suits = None
    ) -> dict[str, Any]:
        kept = self.kept(kind, name)
        return super().check(kind, name, {**kept, **options}, path=path, positional=positional, suits=suits)

    def kept(self, kind: str, name: str) -> dict[str, Any]:
        """The options of a component whose defaults are others now, with those of before."""
        before = self._before.get(f"{kind} {name}")
        if not before:
            return {}
        now = _defaults(self, kind, name)
        return {option: value for option, value in before.items() if option in now and now[option] != value}


def defaults_of(registry: Registry, kind: str, name: str) -> dict[str, Any]:
    """The defaults by which a registry makes a component, as far as they are plain values."""
    kept = registry.kept(kind, name) if isinstance(registry, Keeping) else {}
    return {option: value for option, value in _defaults(registry, kind, name).items() if value is not ...} | kept


def other_defaults(registry: Registry, before: Defaults) -> dict[str, list[str]]:
    """What a run keeps, and what it cannot keep, in words, by the plugin that brings the component."""
    found: dict[str, list[str]] = {}
    for component, defaults in before.items():
        kind, _, name = component.partition(" ")
        with suppress(KosmosError, AssertionError):  # it is gone, or of a kind that is: others say so
            now, owner = _defaults(registry, kind, name), registry.owner(kind, name).name
            kept = [f"{n} {_word(v)}" for n, v in defaults.items() if n in now and now[n] != v]
            gone = [n for n in defaults if n not in now]
            lines = [f"the run keeps the defaults that {component} had ({', '.join(kept)})"] if kept else []
            lines += [f"{component} has no option {', '.join(gone)} any more"] if gone else []
            if lines:
                found.setdefault(owner, []).extend(lines)
    return found


def _defaults(registry: Registry, kind: str, name: str) -> dict[str, Any]:
    """Each option of a component with its default of today: ``...`` where it has none that is plain."""
    factory, positional = registry.peek(kind, name), registry.get(kind, name).positional
    return {n: _plain(p.default) for n, p in fields_of(factory, positional).items()} if factory is not None else {}


def _plain(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return ...
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return ...


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
