"""What ``--data`` names: a path, or the fields of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kosmos.commands.fields import source_of
from kosmos.errors import ConfigError

if TYPE_CHECKING:
    from kosmos.config import DocumentsConfig


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
        if (entry := source_of(text)).keys() == {"path"}:
            found.append(entry["path"])
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
