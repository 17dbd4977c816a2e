"""Series that know their row, and a processor that comes to grief at chosen ones: it raises, dies or hangs.

Like a good plugin's this module imports no torch, so that workers that die all the time start again at once.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from kosmos import Document, Grid, Media, MediaPlan, Text


@dataclass(frozen=True)
class Numbered:
    """Series of different lengths that hold the number of their row; ``fates`` as in ``Faulty``, at ``read``."""

    size: int
    fates: Mapping[tuple[str, int], str] = field(default_factory=dict)
    name: str = "numbered"

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        meet(self.fates.get(("read", index)), index)
        length = int(np.random.default_rng(index).integers(1, 12))
        series = np.full(length, index, np.float32)
        return Document(f"{self.name} {index}", (Media("ticks", series), Text(f"number {index}", train=True)))


@dataclass(frozen=True)
class Plain(Numbered):
    """Text alone."""

    def document(self, index: int) -> Document:
        return Document(f"{self.name} {index}", (Text(f"number {index}", train=True),))


@dataclass(frozen=True)
class Heavy(Numbered):
    """With ones of which every document reads a few."""

    numbers: Any = None

    def document(self, index: int) -> Document:
        assert self.numbers[:: 1 << 12].all()
        return super().document(index)


@dataclass(frozen=True)
class Faulty:
    """A cell a value. ``fates`` say what happens at ``("plan", row)`` and ``("decode", row)``."""

    fates: Mapping[tuple[str, int], str] = field(default_factory=dict)
    cell_shape: tuple[int, ...] = (1,)
    cell_dtype: ClassVar[np.dtype] = np.dtype(np.float32)

    def plan(self, media: Media) -> MediaPlan:
        meet(self.fates.get(("plan", int(media.source[0]))), int(media.source[0]))
        return MediaPlan(("<ticks>", Grid(len(media.source), 1, 1), "</ticks>"))

    def decode(self, media: Media, plan: MediaPlan) -> np.ndarray:
        meet(self.fates.get(("decode", int(media.source[0]))), int(media.source[0]))
        return media.source.reshape(-1, 1)


class DiesBetweenSamples:
    """Kills its process where rows are put together."""

    cell_dtype = np.dtype(np.float32)

    @property
    def cell_shape(self) -> tuple[int, ...]:
        os.kill(os.getpid(), signal.SIGKILL)
        return (1,)


class FailsBetweenSamples:
    """Raises where rows are put together, which concerns no sample."""

    cell_dtype = np.dtype(np.float32)

    @property
    def cell_shape(self) -> tuple[int, ...]:
        raise KeyError("the table\nof cells")


class DiesOnArrival(Numbered):
    """Ends the process that it is sent to."""

    def __setstate__(self, state: object) -> None:
        os._exit(3)


def meet(fate: str | None, row: int) -> None:
    """What happens: an exception by its name, a signal by its, ``hang``; ``NAME unless FILE``, which makes the file;
    ``wait for FILE``; ``no descriptors``."""
    match (fate or "").split():
        case []:
            return
        case ["exit"]:
            os._exit(7)
        case ["hang"]:
            time.sleep(3600)
        case ["no", "descriptors"]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "a file")
        case ["wait", "for", path]:
            while not Path(path).exists():
                time.sleep(0.01)
        case [name, "unless", path]:
            if not Path(path).exists():
                Path(path).touch()
                meet(name, row)
        case [name] if name.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, name))
        case [name]:
            kinds = {"ValueError": ValueError, "KeyError": KeyError, "MemoryError": MemoryError}
            raise kinds[name](f"row {row}\nis odd")


@dataclass(frozen=True)
class Unlucky:
    """A processor that meets a fate before it decodes some files, by their names."""

    own: Any
    fates: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("own", "fates"):  # as it is unpickled there is none of them yet
            raise AttributeError(name)
        return getattr(self.own, name)

    def decode(self, media: Media, plan: MediaPlan) -> np.ndarray:
        """As its own does."""
        meet(self.fates.get(Path(str(media.source)).name), 0)
        found: np.ndarray = self.own.decode(media, plan)
        return found
