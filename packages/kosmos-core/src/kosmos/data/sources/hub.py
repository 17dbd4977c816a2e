"""Hugging Face datasets: folders of ``save_to_disk`` and ids of the hub. Media stay encoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kosmos.data.file_state import StatesInTime, states_of
from kosmos.data.foreign import first_line
from kosmos.data.sources.arrow import plain_columns, present_values, read_row, reading, shadow_rows, shape_of
from kosmos.data.sources.columns import Row, there
from kosmos.data.sources.features import Features, read_features
from kosmos.data.sources.joined import JoinedTable
from kosmos.data.sources.layout import Layout
from kosmos.data.sources.media import NO_FILES
from kosmos.data.sources.reach import unreachable_hub
from kosmos.data.sources.source import Extent, Table
from kosmos.data.sources.splits import check_group, split_of
from kosmos.errors import DataError, SampleError

_BATCH = 4096


class HubTable:
    """The rows of one split of a map-style dataset (a ``Table``)."""

    def __init__(self, dataset: Any, label: str, folder: Path) -> None:
        """
        Args:
            folder: below which rows may name files, or ``NO_FILES``.
        """
        self.features: Features = read_features(dataset.features.to_dict())
        self.columns: tuple[str, ...] = tuple(dataset.column_names)
        self.shape: Mapping[str, Any] = shape_of(dataset.features.arrow_schema)
        self.label = label
        self.folder = folder
        # In arrow form nothing is decoded: media come as the bytes and the path that are stored.
        self.dataset = self._every = dataset.with_format("arrow")
        files = tuple(Path(file["filename"]) for file in dataset.cache_files)
        self.files = StatesInTime(files, states_of(files))

    def __getstate__(self) -> dict[str, Any]:
        """Without the columns that no worker has a use for."""
        return {**vars(self), "_every": self.dataset}

    def __len__(self) -> int:
        return len(self.dataset)

    def origin(self, index: int) -> str:
        return f"{self.label}:row {index}"

    def root(self, index: int) -> Path:
        return self.folder

    def use(self, layout: Layout) -> None:
        """Read no more columns than a layout uses. Raises DataError where one is missing."""
        try:
            layout.check(self.shape.keys())
        except DataError as error:
            raise DataError(f"{self.label}: {error}") from error
        plain = plain_columns(self.dataset.features.arrow_schema)
        used = layout.used(self.columns).union(*layout.scanned(self.columns, plain))
        self.columns = tuple(name for name in self.columns if name in used)
        self.dataset = self.dataset.select_columns(list(self.columns))

    def row(self, index: int) -> Row:
        self.files.check()
        with reading("row"):
            table = self.dataset[index]
        return read_row(table, 0, self.features)

    def row_with(self, index: int, path: str) -> Row:
        """The column of a row that a path leads into, used or not. Raises SampleError where there is none."""
        one = self._every.select_columns([there(path, self._every.column_names)])
        with reading("row"):
            table = one[index]
        return read_row(table, 0, self.features)

    def every_column(self, index: int) -> list[str]:
        """The columns of a row, used or not."""
        del index  # all have the same
        names: list[str] = self._every.column_names
        return names

    def scan(self, layout: Layout) -> Iterator[Row | SampleError]:
        plain = plain_columns(self.dataset.features.arrow_schema)
        check_group(layout.columns, self.columns, plain)
        light, media = layout.scanned(self.columns, plain)
        looked_at = self.dataset.select_columns([*light, *media]) if light or media else None
        for begin in range(0, len(self), _BATCH):
            end = min(begin + _BATCH, len(self))
            if looked_at is None:
                yield from ({} for _ in range(begin, end))
                continue
            try:
                with reading(f"rows {begin} to {end - 1}"):
                    table: Any = looked_at[begin:end]
                    present = {name: present_values(table.column(name)) for name in media}
            except SampleError as error:
                yield from (SampleError(str(error)) for _ in range(begin, end))
                continue
            yield from shadow_rows(table.select(light), present, self.features)

    def row_blocks(self) -> None:
        return None  # the library maps its files into memory and finds rows in them

    def holds(self) -> tuple[()]:
        return ()

    def extent(self) -> Extent | None:
        files = tuple(Path(file["filename"]) for file in self.dataset.cache_files)
        # Names of classes are not in those files, and a split may be such a class.
        return Extent(files, f"{len(self)} {self.columns} {self.features}") if files else None


def open_saved(path: Path) -> list[tuple[str, HubTable]]:
    """The splits of a ``save_to_disk`` folder, with their names.

    Raises:
        DataError: it cannot be read.
    """
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # whatever the library raises
        raise DataError(f"{path}: no readable Hugging Face dataset ({first_line(error)})") from error
    if isinstance(found, datasets.DatasetDict):
        return [(str(name), HubTable(part, f"{path}/{name}", path / str(name))) for name, part in found.items()]
    return [("", HubTable(found, str(path), path))]


def open_hub(name: str) -> list[tuple[str, HubTable]]:
    """The splits of a dataset of the hub, ``namespace/name`` or ``namespace/name:config``, with their names.

    Raises:
        DataError: why: the hub cannot be reached, or it has no such dataset, or one that needs code of its own.
    """
    if (reason := unreachable_hub()) is not None:
        raise DataError(reason)
    import datasets

    identity, _, config = name.partition(":")
    try:
        found = datasets.load_dataset(identity, config or None)
    except Exception as error:  # whatever the library raises
        raise DataError(first_line(error)) from error
    # Media are bytes in the rows. A path beside them names a file of the machine that made them; here it could only
    # lead into the cache, where the user's other datasets are.
    return [(str(split), HubTable(part, f"{name}/{split}", NO_FILES)) for split, part in found.items()]


def join_splits(parts: list[tuple[str, HubTable]], name: str, layout: Layout) -> Table:
    """The splits as one table. One split alone says nothing about what is held out.

    Raises:
        DataError: one of several splits has a name that says neither train nor held out.
    """
    for _, table in parts:
        table.use(layout)
    if len(parts) == 1:
        return parts[0][1]
    splits = [split_of(part) for part, _ in parts]
    if None in splits:
        unknown = [part for part, split in zip(parts, splits, strict=True) if split is None]
        known = [part for part, split in zip(parts, splits, strict=True) if split is not None]
        beside = f" beside {', '.join(part for part, _ in known)}" if known else ""
        raise DataError(
            f"{name}: unknown split {', '.join(part for part, _ in unknown)}{beside}; expected names that begin with "
            f"train, or with test, validation, val, dev, eval or held_out; {_alone(name, *(known or unknown)[0])}"
        )
    return JoinedTable([table for _, table in parts], splits)


def _alone(name: str, part: str, table: HubTable) -> str:
    """How to name a split of several alone."""
    if table.folder != NO_FILES:
        return f"name those that are meant as sources of their own, in data.sources or evaluate.sources ({name}/{part})"
    identity, _, config = name.partition(":")
    asked = f"{identity!r}, {config!r}" if config else f"{identity!r}"
    return (
        f"save one that is meant alone, datasets.load_dataset({asked}, split={part!r}).save_to_disk('FOLDER'), and "
        "name that folder"
    )
