"""What Hugging Face metadata say about columns: which hold media, and the names of class numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Features:
    """The columns of a table whose type means something."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    """Column to the type of its values, lower case: ``image``, ``audio``, ``video``, ..."""
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column of class numbers to the names of the classes."""

    def columns(self, modalities: Sequence[str]) -> dict[str, str]:
        """Modality to the one column of its type; one column of classes is the text, where nothing else may be."""
        found = {m: [c for c, kind in self.kinds.items() if kind == m] for m in modalities}
        columns = {m: columns[0] for m, columns in found.items() if len(columns) == 1}
        others = self.kinds.keys() - {*columns.values(), *self.class_names, "id", "split"}
        if columns and len(self.class_names) == 1 and not others:
            columns["text"] = next(iter(self.class_names))
        return columns

    def named(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with names in place of class numbers; a hidden class (-1) becomes null."""
        for column, names in self.class_names.items():
            if column in row:
                row[column] = _named(row[column], names)
        return row


def _named(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def read_features(features: Mapping[str, Any]) -> Features:
    """Features in the form of ``datasets.Features.to_dict()``."""
    kinds: dict[str, str] = {}
    class_names: dict[str, tuple[str, ...]] = {}
    for column, said in features.items():
        item = said
        while isinstance(item, Mapping) and item.get("_type") in ("List", "LargeList", "Sequence"):
            item = item.get("feature")
        while isinstance(item, list) and len(item) == 1:
            item = item[0]
        if not isinstance(item, Mapping) or not isinstance(item.get("_type"), str):
            continue
        kinds[column] = item["_type"].lower()
        names = item.get("names")
        if item["_type"] == "ClassLabel" and isinstance(names, list):
            class_names[column] = tuple(map(str, names))
    return Features(kinds, class_names)


def features_of_schema(metadata: Mapping[bytes, bytes] | None) -> Features:
    """Features in the metadata that ``datasets`` writes into parquet files; none where there are none."""
    try:
        said = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return Features()
    return read_features(said) if isinstance(said, dict) else Features()
