"""What ``--data`` names: a path, or the fields of a source."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kosmos.commands.arguments import yaml_of
from kosmos.errors import ConfigError

if TYPE_CHECKING:
    from kosmos.config import DocumentsConfig

SUCH_AS = "'{path: FILE, columns: {text: sentence}}'"
_FIELDS = re.compile(r"\s*\{.*:.*\}\s*", re.DOTALL)
"""Braces of a pattern (``{a,b}.jsonl``) hold no colon."""


def source_of(text: str) -> dict[str, Any]:
    """What a ``--data`` names, as an entry of ``data.sources``. Raises ConfigError where it is neither."""
    if _FIELDS.fullmatch(text) is None or os.path.lexists(text):
        return {"path": text}
    value = yaml_of("--data", text, f"a path, or fields as {SUCH_AS}")
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        raise ConfigError(f"--data {text}: expected a path, or fields as {SUCH_AS}")
    return dict(value)


def named_data(given: Sequence[str]) -> list[str | DocumentsConfig]:
    """What each ``--data`` of a run that there is names: a path as it is, or an entry as of ``evaluate.sources``.

    Raises:
        ConfigError: one has other fields.
    """
    from pydantic import ValidationError

    from kosmos.config import RunConfig
    from kosmos.mistakes import explain

    found: list[str | DocumentsConfig] = []
    for text in given:
        if (entry := source_of(text)) == {"path": text}:
            found.append(text)
            continue
        try:
            found += RunConfig.model_validate({"evaluate": {"sources": [entry]}}).evaluate.sources
        except ValidationError as error:
            raise ConfigError(f"--data {text}: {explain(error).replace('evaluate.sources.0.', '')}") from error
    return found


def path_of(one: str | DocumentsConfig) -> str:
    return one if isinstance(one, str) else one.path


def settings_of(named: Sequence[str | DocumentsConfig]) -> dict[str, Any]:
    """What answers depend on beside the paths, as plain values: nothing of paths alone."""
    told = [None if isinstance(one, str) else one.model_dump(mode="json", exclude={"path", "root"}) for one in named]
    return {"data": told} if any(told) else {}
