"""Rows in memory as a source: read as those of a file are, by a template or columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, cast, get_args

from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.data.fingerprint import LOOKED_AT, fingerprint_of, sampled_fingerprint
from kosmos.data.foreign import first_line
from kosmos.data.sources.file_options import read_options
from kosmos.data.sources.gathered import one_each
from kosmos.data.sources.hub import HubTable
from kosmos.data.sources.media import NO_FILES
from kosmos.data.sources.opened_media import as_objects, examples_of, holds_opened, with_kinds_of
from kosmos.data.sources.request import Request, checked_root, finish
from kosmos.data.sources.source import RowSource
from kosmos.data.sources.splits import Split
from kosmos.data.sources.typed_columns import layout_of
from kosmos.errors import ConfigError, DataError, SampleError
from kosmos.given import MADE_BY, check_is
from kosmos.plugins import Registry, check_registry, load_plugins
from kosmos.strict import as_written

EXPECTED = "expected a datasets.Dataset (one split, map-style) or a list of mappings"


def open_rows(
    config: RunConfig,
    rows: Any,
    *,
    name: str = "rows",
    split: Literal["train", "held_out"] | None = None,
    template: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    root: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    registry: Registry | None = None,
) -> Source:
    """Rows in memory as a source for ``train_model``, ``score`` and the like, as the rows of a file would be.

    Args:
        config: the run from ``make_run``, whose modalities rows may have media of.
        rows: a ``datasets.Dataset``, of which nothing is decoded, or a list of mappings with the same keys. Media are
            bytes, paths, or objects that ``datasets`` encodes, such as pictures of PIL. Of one that was opened from a
            file out of ``root`` the file is read at once, or, where something was decoded already, what it shows.
        name: what metrics call it.
        split: the part to train on or to hold out, by ``data.held_out`` or a column of splits; None is all rows.
        template: as of ``data.sources``, such as ``"[image:photo] Q: {question} A: → {answer}"``.
        columns: likewise: role or modality to column, or of ``references`` to several.
        root: folder of the media that rows name by paths; without one no row can name a file.
        options: likewise.
        registry: the plugins; None takes the installed ones.

    Raises:
        ConfigError: an argument is something else than its type says, or the template or a column is wrong.
        DataError: no row can be used, or the part is empty.

    Example:
        >>> from kosmos import make_run, open_rows
        >>> rows = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(40)]
        >>> source = open_rows(make_run({}), rows, template="{question} = → {answer}")
        >>> len(source), source.document(3).segments[-1].text
        (40, '4')
    """
    check_is("config", config, RunConfig, MADE_BY)
    check_registry(registry)
    if split not in (None, *get_args(Split)):
        raise ConfigError(f"split: expected 'train', 'held_out' or None, got {split!r:.60}")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"name: expected a text, such as 'answers', got {name!r:.60}")
    folder = checked_root(None if root is None else Path(root).absolute(), "")
    table = HubTable(_dataset(rows, folder or NO_FILES), name, folder or NO_FILES)
    named, series = one_each(columns or {})
    request = Request(
        path=name,
        name=name,
        modalities=tuple(config.modalities),
        written=tuple(config.written),
        specs=(registry or load_plugins(config.plugins)).specs("modality"),
        template=template,
        columns=named,
        series=series,
        root=None,
        options=read_options(options or {}, ""),
    )
    layout = layout_of(table, request)
    table.use(layout)
    parts = finish(table, layout, request)
    source = parts.whole() if split is None else parts.part(split, config.data.held_out)
    _check_readable(source)
    # By what they hold: rows of a table have no ids, and no file tells these from others.
    told = f"{fingerprint_of(source)} {sampled_fingerprint(source)}"
    return replace(cast(RowSource, source), identity=blake2b(told.encode(), digest_size=8).hexdigest())


def _check_readable(source: Source) -> None:
    """Raises DataError where none of the first documents can be used, as of media of another form."""
    wrong: SampleError | None = None
    for index in range(min(len(source), LOOKED_AT)):
        try:
            source.document(index)
            return
        except SampleError as error:
            wrong = wrong or error
    raise DataError(
        f"{source.name}: none of the first {min(len(source), LOOKED_AT)} rows can be used; {wrong}"
    ) from wrong


def _dataset(rows: Any, root: Path) -> Any:
    """Rows as a dataset. Raises ConfigError where they are something else, or a transform shows them otherwise.

    Args:
        root: below which rows may name files.
    """
    import datasets

    if isinstance(rows, datasets.DatasetDict):
        raise ConfigError(f"rows: {EXPECTED}, got a DatasetDict; give one of its splits ({', '.join(map(str, rows))})")
    if isinstance(rows, datasets.IterableDataset | datasets.IterableDatasetDict):
        raise ConfigError("rows: the dataset is read in turn, and rows are drawn at random; load it without streaming")
    if isinstance(rows, datasets.Dataset):
        if rows.format["type"] == "custom":
            raise ConfigError("rows: the dataset has a transform, which is not applied here; apply it with map")
        return rows
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise ConfigError(f"rows: {EXPECTED}, got {rows!r:.60}")
    listed = list(rows)
    if not listed or not all(isinstance(row, Mapping) for row in listed):
        wrong = next((row for row in listed if not isinstance(row, Mapping)), rows)
        raise ConfigError(f"rows: {EXPECTED}, got {wrong!r:.60}")
    opened = holds_opened(listed, root)
    held = as_objects(listed, root, "rows") if opened else listed
    try:
        table = datasets.Dataset.from_list([as_written(row) for row in held])
        return with_kinds_of(table, datasets.Dataset.from_list([as_written(examples_of(listed))])) if opened else table
    except Exception as error:  # whatever the library raises
        raise ConfigError(
            f"rows: no table can be made of them ({first_line(error)}); give each key values of one type"
        ) from error
