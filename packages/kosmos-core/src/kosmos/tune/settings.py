"""The settings of the run that is tried: what the user gave, with candidates laid over it. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from kosmos.config import RunConfig
from kosmos.run_file import COMMAND_LINE, lay_over, merge


@dataclass(frozen=True)
class Settings:
    """As ``kosmos train`` reads them."""

    file: str | None
    """The run file."""
    base: Mapping[str, Any]
    """What stands in it."""
    short: Mapping[str, Any]
    """The short options of the command line, as a layer."""
    given: Mapping[str, Any]
    """Fields that were set on it."""

    def config(self, overrides: Mapping[str, Any] | None = None) -> RunConfig:
        """The run with dotted fields laid over it. Raises ConfigError as ``make_run`` does."""
        layers = [self.short, self.given, nested(overrides or {})]
        return lay_over([self.base], layers, where=self.file or COMMAND_LINE, over=COMMAND_LINE)

    def is_fixed(self, path: str) -> bool:
        """Whether the command line states the field, or the section that it stands in."""
        return any(_states(layer, path.split(".")) for layer in (self.short, self.given))

    def text(self, overrides: Mapping[str, Any]) -> str:
        """A run file that says what the user's says, what the command line does, and ``overrides``."""
        whole: Mapping[str, Any] = {}
        for layer in (self.base, self.short, self.given, nested(overrides)):
            whole = merge(whole, layer)
        return yaml.safe_dump(_plain(whole), sort_keys=False, allow_unicode=True)


def nested(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """``{"train.steps": 1}`` as ``{"train": {"steps": 1}}``."""
    merged: dict[str, Any] = {}
    for path, value in overrides.items():
        for part in reversed(path.split(".")):
            value = {part: value}
        merged = merge(merged, value, renames=False)
    return merged


def written(overrides: Mapping[str, Any]) -> list[str]:
    """As arguments of a command: ``["train.lanes_at_once=2"]``."""
    return [f"{path}={str(v).lower() if isinstance(v, bool) else v}" for path, v in overrides.items()]


def _states(layer: Any, path: list[str]) -> bool:
    for part in path:
        if not isinstance(layer, Mapping):
            return True  # the section as a whole
        if part not in layer:
            return False
        layer = layer[part]
    return True


def _plain(value: Any) -> Any:
    """Mappings as YAML's writer knows them."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
