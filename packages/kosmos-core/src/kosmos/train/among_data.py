"""An output folder that holds data, or would be taken for data, is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath

from kosmos.config import RunConfig
from kosmos.config_rows import RowsConfig
from kosmos.errors import ConfigError, DataError
from kosmos.patterns import files_of, is_pattern

LEDGER = "metrics.jsonl"


def refuse_among_data(output: Path, config: RunConfig) -> None:
    """
    Raises:
        ConfigError: the folder is one that holds files of the run's sources or media that their rows name, or a pattern
            of files would find those of the run.
    """
    place = os.path.realpath(output)
    if place in set(_places_of_data(config)):
        raise ConfigError(
            f"{output}: holds the data, whose files those of the run would lie among; name another --output"
        )
    for pattern in (path for path in _paths(config) if is_pattern(path)):
        if PurePath(place, LEDGER).match(pattern):
            raise ConfigError(f"{output}: {pattern} would find the files of the run as data; name another --output")


def _entries(config: RunConfig) -> Iterator[RowsConfig]:
    yield from config.data.sources
    yield from config.evaluate.sources
    yield from config.evaluate.choices


def _paths(config: RunConfig) -> Iterator[str]:
    """Of its sources, but for those that are registered."""
    for entry in _entries(config):
        if os.path.isabs(entry.path):
            yield entry.path


def _places_of_data(config: RunConfig) -> Iterator[str]:
    """The folders that hold the files of its sources, and those of the media that their rows name."""
    for path in _paths(config):
        if is_pattern(path):
            with suppress(DataError):  # told where it is opened
                yield from {os.path.realpath(file.parent) for file in files_of(path)}
        else:
            yield os.path.realpath(path if os.path.isdir(path) else os.path.dirname(path))
    for entry in _entries(config):
        if entry.root is not None:
            yield os.path.realpath(entry.root)
