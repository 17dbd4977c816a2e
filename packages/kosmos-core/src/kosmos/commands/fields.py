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
_BARE_PATTERN = re.compile(r"""\bpath:\s*(?!["'])([^\s"']*\{[^\s"'}]*\}[^\s,"'}]*)""")
"""A pattern in them that stands in no quotes."""


def are_fields(text: str) -> bool:
    """Whether an option is fields, and no path."""
    return _FIELDS.fullmatch(text) is not None and not os.path.lexists(text)


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
        if key:
            why = f"{key} stands there twice"
        elif (bare := _BARE_PATTERN.search(text)) is not None:
            why = f'is not YAML: a pattern needs quotes there (path: "{bare[1]}")'
        else:
            why = f"is not YAML; expected {expected}"
        raise ConfigError(f"{option} {text}: {why}") from error


def source_of(text: str) -> dict[str, Any]:
    """What a ``--data`` names, as an entry of ``data.sources``. Raises ConfigError where it is neither."""
    if not are_fields(text):
        return {"path": text}
    value = yaml_of("--data", text, f"a path, or fields as {SUCH_AS}")
    if not isinstance(value, Mapping) or not isinstance(value.get("path"), str):
        raise ConfigError(f"--data {text}: expected a path, or fields as {SUCH_AS}")
    return dict(value)
