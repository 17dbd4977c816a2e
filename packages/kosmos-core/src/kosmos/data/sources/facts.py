"""What opening a source finds out about the rows of its table, as it is kept for the next time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kosmos.data.sources.scan_cache import Record


@dataclass(frozen=True)
class Facts:
    """What opening found out about the rows of a table."""

    usable: NDArray[np.bool_]
    """Rows with no medium of a modality that was not asked for: [rows]. Unreadable rows are among them."""
    hashes: NDArray[np.uint64]
    """``row_hash`` of each row's id or position: [rows]."""
    splits: NDArray[np.int8]
    """1 train, 2 held out, 0 not said: [rows]."""
    left_out: dict[str, int]
    readable: int
    """Rows that were readable."""
    first_error: str
    """What was wrong with the first that was not."""

    unnamed: Mapping[str, str] = field(default_factory=dict)
    """Columns of files without a meaning, with the suffix of the first of each."""
    beside: Sequence[str] = ()
    """Those of them that stand beside media."""
    asked: Sequence[tuple[str, str, bool]] = ()
    """Folders, names in them and whether there is such a file: what this hangs on beside the rows."""
    held: Sequence[str] = ()
    """Modalities of which a usable row has a medium."""
    wishes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """As of a ``RowSource``, of usable rows."""
    not_there: Mapping[str, str] = field(default_factory=dict)
    """Columns that name media in rows without others, where none of those that were looked for is there, with the
    first name."""
    said: Sequence[str] = ()
    """What is to be said of the columns by which rows are held out, or read, a line each."""
    passed: int = 0
    """Rows that are not among those that are to be read."""

    def record(self) -> Record:
        """As arrays."""
        of_columns = [self.unnamed, self.beside, self.asked, self.held, self.wishes, self.not_there]
        of_rows = [self.left_out, self.readable, self.first_error]
        said = json.dumps([*of_rows, *of_columns, self.said, self.passed]).encode()
        return {
            "usable": self.usable, "hashes": self.hashes, "splits": self.splits, "said": np.frombuffer(said, np.uint8),
        }  # fmt: skip

    @classmethod
    def of_record(cls, record: Record) -> Facts:
        usable, hashes, splits = (record[name] for name in ("usable", "hashes", "splits"))
        return cls(usable, hashes, splits, *json.loads(record["said"].tobytes()))
