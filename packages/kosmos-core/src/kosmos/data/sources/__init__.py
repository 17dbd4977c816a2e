"""Sources of documents: registered datasets, folders, files, Hugging Face datasets. ``open_source`` opens them all."""

from __future__ import annotations

from kosmos.data.sources.file_options import FileOptions
from kosmos.data.sources.opening import open_source
from kosmos.data.sources.source import RowSource
from kosmos.data.sources.texts import TextsRead, texts_of

__all__ = ["FileOptions", "RowSource", "TextsRead", "open_source", "texts_of"]
