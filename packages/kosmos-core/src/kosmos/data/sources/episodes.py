"""Folders of a robot's episodes as LeRobot writes them: tables of moments, media in files, and texts apart of both.

``meta/info.json``, ``meta/tasks.jsonl``, ``data/chunk-000/episode_000000.parquet``, and media of the same names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kosmos.data.sources.file_names import suffix_of
from kosmos.data.sources.folders import list_files
from kosmos.errors import DataError

INFO, TABLES = "meta/info.json", "data/chunk-"


@contextmanager
def naming_episodes(path: Path, suffixes: Mapping[str, Collection[str]]) -> Iterator[None]:
    """Errors of a folder that is of this form say so, and what to write.

    Args:
        suffixes: of media, with the modalities that they may be of.
    """
    try:
        yield
    except DataError as error:
        files = list_files(path) if (path / INFO).is_file() else []
        if not any(name.startswith(TABLES) for name in files):
            raise
        medium = next((name for name in files if suffixes.get(suffix_of(name))), None)
        advice = f"name the tables (--data '{path}/data/**/*.parquet') with a template of their columns"
        if medium is not None:
            row = json.dumps({min(suffixes[suffix_of(medium)]): medium, "text": "TASK"})
            advice = f"write a row for each episode into {path}/rows.jsonl and name that file: {row}"
        tables = sum(name.startswith(TABLES) for name in files)
        raise type(error)(
            f"{error}; these are episodes as LeRobot writes them (data/: {tables:,} tables of moments, meta/: the "
            f"tasks): {advice}"
        ) from error
