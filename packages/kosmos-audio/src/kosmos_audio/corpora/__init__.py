"""Published speech corpora, each as the rows of what is said in it. Nothing is decoded here.

Every reader is a function of the files of a folder (``kosmos.CorpusFiles``): None where they are no such corpus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kosmos import CorpusFiles, SampleError
from kosmos_audio.plugin import SUFFIXES

Rows = Iterator[tuple[str, Mapping[str, Any] | SampleError]]
"""Each row with its origin."""


def sound_of(files: CorpusFiles, stem: str) -> str | None:
    """The file of sound that has a name, but for its suffix; None where there is none."""
    return next((name for name in files.starting(f"{stem}.") if name[len(stem) :].lower() in SUFFIXES), None)


def num_sounds(files: CorpusFiles, folder: str = "") -> int:
    """How many files of sound are below a folder, which ends in ``/``."""
    return sum(name.lower().endswith(SUFFIXES) for name in files.starting(folder))
