"""How far an unfinished file of answers has come, beside it in ``FILE.progress``: lines of JSON.

The first line says what the answers are made by, each other one how many bytes of the file are whole and which row of
which source was answered last. So a file that was cut anywhere goes on behind its last whole group of answers, and the
groups that are continued together are those of a call that nobody interrupts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from kosmos.commands.arguments import check_writable
from kosmos.errors import ConfigError

if TYPE_CHECKING:
    from kosmos.data.document import Source
    from kosmos.train.saved import SavedRun

MADE_BY = "made_by"


class Reached(NamedTuple):
    """How far a file of answers has come."""

    source: int = -1
    """Number of a source, in the order in which they are answered; those before are finished."""
    row: int = -1
    """The last of its rows that is answered."""
    bytes: int = 0
    """Of the file, up to there."""
    answers: int = 0
    """Lines of the file, up to there."""


def progress_of(answers: Path) -> Path:
    """Where it stands how far a file of answers has come."""
    return answers.with_name(f"{answers.name}.progress")


def check_answers(answers: str, *, resume: bool) -> None:
    """Raises ConfigError where the file cannot be begun, or with ``resume`` gone on with."""
    file = Path(answers)
    if not answers.strip() or not os.path.lexists(file):
        check_writable("--answers", answers)
        return
    unfinished = progress_of(file).is_file()
    if not resume and unfinished:
        raise ConfigError(
            f"{file}: exists already, unfinished; go on with it by --resume, name another file, or remove it"
        )
    if not resume:
        check_writable("--answers", answers)
    if not unfinished:
        raise ConfigError(
            f"--resume: {file} is finished, or was written by something else ({progress_of(file).name} is not beside "
            "it); name another file, or remove it"
        )


def made_by(
    run: SavedRun, sources: Sequence[Source], paths: Sequence[str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What answers depend on, as plain values. Places of the run and its data do not count, as these may move.

    Args:
        paths: of the sources, as they were named; empty where they are those of the run.
        settings: of the command.
    """
    config = run.composition.config
    sizes = [path.stat().st_size if (path := Path(given)).is_file() else None for given in paths]
    opened = [{"name": source.name, "documents": len(source)} for source in sources]
    layouts = [
        entry.model_dump(mode="json", exclude={"name", "path", "root", "weight", "limit"})
        for entry in (*config.data.sources, *config.evaluate.sources)
    ]
    told = {
        "step": run.step,
        "checkpoint": run.checkpoint,
        **settings,
        "sources": opened,
        "bytes": sizes,
        "layouts": layouts,
        "modalities": config.model_dump(mode="json")["modalities"],
        "tokens_per_pack": config.data.tokens_per_pack,
        "device": run.device.type,
        "precision": str(run.dtype).removeprefix("torch."),
    }
    plain: dict[str, Any] = json.loads(json.dumps(told))
    return plain


class Progress:
    """The file of one that is written."""

    def __init__(self, answers: Path) -> None:
        self._answers, self._file = answers, progress_of(answers)
        self._lines: BinaryIO | None = None

    def begin(self, by: Mapping[str, Any]) -> None:
        """In the place of what an earlier file of the name has left. Raises OSError."""
        self._lines = self._file.open("wb", buffering=0)
        _put(self._lines, {MADE_BY: by})

    def note(self, reached: Reached) -> None:
        """Raises OSError."""
        if self._lines is None:
            self._lines = self._file.open("ab", buffering=0)
        _put(self._lines, reached._asdict())

    def finish(self) -> None:
        """The answers are complete."""
        self.close()
        self._file.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def read(self, by: Mapping[str, Any]) -> Reached:
        """Up to where the answers are whole.

        Raises:
            ConfigError: it cannot be read, or the answers were made by something else.
        """
        try:
            size = self._answers.stat().st_size
            first, *others = self._file.read_bytes().split(b"\n")
            before = json.loads(first)[MADE_BY]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"--resume: {self._file} cannot be read; name another file than {self._answers}, or remove it"
            ) from error
        self._refuse_other(before, by)
        for line in reversed(others):  # the last may be cut short
            try:
                reached = Reached(**json.loads(line))
            except (ValueError, TypeError):
                continue
            if reached.bytes <= size:
                self._check_lines(reached)
                return reached
        return Reached()

    def _check_lines(self, reached: Reached) -> None:
        """Raises ConfigError where the file holds something else up to there: it is somebody's, and is not cut."""
        with self._answers.open("rb") as answers:
            whole = answers.read(reached.bytes)
        if whole.count(b"\n") != reached.answers or not whole.endswith(b"\n"):
            raise ConfigError(
                f"--resume: {self._answers} is not the file of which {self._file.name} tells; name another file"
            )

    def _refuse_other(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        from kosmos.train.order import differences, shown

        for path, one, other in differences(before, now, ""):
            what = f"{path} {shown(one)}, and this is {shown(other)}"
            if path == "checkpoint":
                what = "another checkpoint of this step"
            raise ConfigError(
                f"--resume: {self._answers} was begun with {what}; go on with what it was begun with, or name another "
                "file"
            )


def _put(lines: BinaryIO, row: Mapping[str, Any]) -> None:
    """Without a buffer, of which a full disk takes a part. Raises OSError."""
    data = json.dumps(row).encode() + b"\n"
    while data:
        data = data[lines.write(data) :]
