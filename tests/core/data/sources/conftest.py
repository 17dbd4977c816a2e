"""A registry of three modalities and one dataset, and a shorter way to open sources."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.components import DatasetSpec, ModalitySpec
from kosmos.data.document import Document, Source, Text
from kosmos.data.sources import open_source, parquet
from kosmos.hookspecs import hookimpl
from kosmos.plugins import Registry

SUFFIXES = {"image": (".png", ".jpg", ".gif"), "audio": (".wav", ".flac", ".ogg"), "video": (".mp4", ".gif")}


class Rhymes:
    """A dataset that makes its own documents."""

    name = "rhymes"

    def __init__(self, split: str, lines: int = 3) -> None:
        self.split, self.lines = split, lines

    def __len__(self) -> int:
        return self.lines

    def document(self, index: int) -> Document:
        return Document(f"rhyme {index}", (Text(f"{self.split} {index}", train=True),))


@hookimpl
def kosmos_modalities() -> Iterable[ModalitySpec]:
    for name, suffixes in SUFFIXES.items():
        yield ModalitySpec(
            name=name,
            target="media:Processor",
            summary=name,
            encoder="none",
            suffixes=suffixes,
            has_time=name != "image",
        )


@hookimpl
def kosmos_datasets() -> Iterable[DatasetSpec]:
    target = "kosmos_test_rhymes:Rhymes"
    yield DatasetSpec(name="rhymes", target=target, summary="Lines.")
    yield DatasetSpec(name="pictures", target=target, summary="Pictures.", modalities=("image",))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    plugin = ModuleType("kosmos_test_rhymes")
    hooks = {"kosmos_modalities": kosmos_modalities, "kosmos_datasets": kosmos_datasets}
    vars(plugin).update(KOSMOS_API=1, Rhymes=Rhymes, **hooks)
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
    found = Registry.from_modules({"media": plugin}, core=False)
    assert not found.plugins[0].problems
    return found


@pytest.fixture
def open_(registry: Registry) -> Callable[..., Any]:
    """``open_source`` with the registry, for image and audio, the train part and nothing held out."""

    def opened(path: object, **given: Any) -> Source:
        settings = {"split": "train", "modalities": ("image", "audio"), "held_out": 0.0} | given
        return open_source(str(path), registry=registry, **settings)

    return opened


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., Path]:
    """Write rows (objects, or lines as they are) to a JSONL file beside two small files of media."""

    def write(*given: Any, name: str = "rows.jsonl") -> Path:
        folder = (tmp_path / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "a.png").write_bytes(b"picture")
        (folder / "b.wav").write_bytes(b"sound")
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in given]
        (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in lines))
        return tmp_path / name

    return write


@pytest.fixture
def table(tmp_path):
    """Write columns to a parquet file of row groups of 4."""

    def write(columns, name="part.parquet", features=None):
        data = pa.table(columns)
        if features:
            data = data.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, tmp_path / name, row_group_size=4)
        return tmp_path / name

    return write


@pytest.fixture
def kept(monkeypatch):
    """The row groups that this process keeps, none at first."""
    monkeypatch.setattr(parquet, "KEPT", parquet.KeptGroups())
    return parquet.KEPT.groups
