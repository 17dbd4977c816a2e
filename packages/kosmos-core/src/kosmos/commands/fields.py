"""Options that are a path, or fields of the run file in YAML in place of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from kosmos.errors import ConfigError

SUCH_AS = "'{path: FILE, columns: {text: sentence}}'"
_FIELDS = re.compile(r"\s*\{.*:.*\}\s*", re.DOTALL)
"""Braces of a pattern (``{a,b}.jsonl``) hold no colon."""


def yaml_of(option: str, text: str, expected: str) -> Any:
    """The value of an option that is YAML.

    Args:
        expected: in words, where it is none.

    Raises:
        ConfigError: it is no YAML, or a key stands there twice.
    """
    import yaml

    from kosmos.run_file import load_yaml

    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        key = getattr(error, "key", None)
        why = f"{key} stands there twice" if key else f"is not YAML; expected {expected}"
        raise ConfigError(f"{option} {text}: {why}") from error


def source_of(text: str) -> dict[str, Any]:
    """What a ``--data`` names, as an entry of ``data.sources``. Raises ConfigError where it is neither."""
    if _FIELDS.fullmatch(text) is None or os.path.lexists(text):
        return {"path": text}
    value = yaml_of("--data", text, f"a path, or fields as {SUCH_AS}")
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        raise ConfigError(f"--data {text}: expected a path, or fields as {SUCH_AS}")
    return dict(value)
