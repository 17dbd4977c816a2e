"""Answers as lines of JSON: of ``kosmos eval --generate`` and ``--choices``, and of ``kosmos generate --data``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO

import typer

from kosmos.commands.unfinished import Progress, Reached, hash_of
from kosmos.errors import Interrupted, unwritable
from kosmos.evaluate.answer_rows import asked_row

if TYPE_CHECKING:
    from kosmos.evaluate.choices import Chosen


Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on where the file of --answers ends, if an earlier call was interrupted."),
]


class AnswerLines:
    """A file of answers, or standard output. The file is made with the first line: without one there is none.

    Args:
        file: a new one, or with ``resume`` one that was interrupted; None is standard output.
    """

    def __init__(self, file: str | None, *, resume: bool = False) -> None:
        self.file = None if file is None else Path(file)
        self._resumed = self.file is not None and resume and self.file.exists()
        self._progress = None if self.file is None else Progress(self.file)
        self._made_by: Mapping[str, Any] = {}
        self._lines: BinaryIO | None = None
        self._shown = sys.stdout  # as it is now: meanwhile it may be another for what plugins print
        self._reached = Reached()
        self._hash = hash_of(b"")

    @property
    def count(self) -> int:
        """Lines that were written, those of earlier calls among them."""
        return self._reached.answers

    @property
    def left_out(self) -> int:
        """Rows up to the last answer that could not be used, those of earlier calls among them."""
        return self._reached.left_out

    def begin(self, by: Mapping[str, Any], paths: Sequence[str] = ()) -> None:
        """Say what the answers are made by, before the first of them.

        Args:
            paths: of the data, as they were named; empty where they are those of the run.

        Raises:
            ConfigError: the file that is gone on with was made by something else.
        """
        self._made_by = by
        if self._resumed and self._progress is not None:
            self._reached = self._progress.read(by, paths)
            self._hash = hash_of(self._kept())

    def answered(self, source: int) -> int:
        """The last row of a source that is answered; -1 where none is."""
        if source == self._reached.source:
            return self._reached.row
        return sys.maxsize if source < self._reached.source else -1

    def earlier(self, source: str) -> list[dict[str, Any]]:
        """The lines of a source that an earlier call has written."""
        if not self._resumed or self.file is None:
            return []
        rows = map(json.loads, self._kept().split(b"\n")[:-1])
        return [row for row in rows if row["source"] == source and "choices" not in row]

    def _kept(self) -> bytes:
        """What an earlier call has written, as far as it stays."""
        return b"" if self.file is None else self.file.read_bytes()[: self._reached.bytes]

    def __enter__(self) -> AnswerLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises Interrupted, which says what is in the file, in the place of a KeyboardInterrupt."""
        if self._progress is not None:
            self._progress.close()
        if self._lines is None or self.file is None:
            return
        with suppress(OSError):  # of what could not be written, which was said, or has been removed
            self._lines.close()
            if isinstance(error, KeyboardInterrupt):
                count = self.file.read_bytes().count(b"\n")  # it may come between a line and its being counted
                are = "1 answer is" if count == 1 else f"{count:,} answers are"
                raise Interrupted(f"stopped (SIGINT); {are} in {self.file}; --resume goes on there") from error

    def write(self, rows: Sequence[Mapping[str, Any]], source: int, row: int, *, left_out: int = 0) -> None:
        """Add lines, which stay there whatever happens next.

        Args:
            source: number of the source that they are of.
            row: the last of its rows that they answer.
            left_out: rows up to that one which could not be used.

        Raises:
            ConfigError: the file cannot be written, or somebody has made it meanwhile.
            TrainingError: the disk is full.
        """
        text = "".join(as_line(row, self._shown if self.file is None else None) + "\n" for row in rows)
        done, data = self._reached, text.encode("utf-8", "backslashreplace")
        self._hash.update(data)
        counts = done.bytes + len(data), done.answers + len(rows), left_out
        reached = Reached(source, row, *counts, self._hash.hexdigest())
        if self.file is None:
            print(text, end="", flush=True, file=self._shown)
        elif text:
            self._write(data, self.file, reached)
        self._reached = reached

    def _write(self, data: bytes, file: Path, reached: Reached) -> None:
        assert self._progress is not None
        try:
            if self._lines is None:
                if self._resumed:
                    self._lines = file.open("r+b")
                    self._lines.truncate(self._reached.bytes)  # behind it an answer may be cut short
                    self._lines.seek(0, os.SEEK_END)
                else:
                    self._lines = self._begun(self._progress, file)
            self._lines.write(data)
            self._lines.flush()
            self._progress.note(reached)
        except OSError as error:
            kept = f"its first {self.count:,} answers are there; --resume goes on, once there is room"
            advice = kept if self.count else "name another file"
            raise unwritable(f"--answers {file}", error, advice) from error

    def _begun(self, progress: Progress, file: Path) -> BinaryIO:
        """The file first: what stands beside that of another call, or of somebody else, is not touched."""
        lines = file.open("xb")
        try:
            progress.begin(self._made_by)
        except BaseException:  # an interrupt too: without what stands beside it, it could not be gone on with
            lines.close()
            file.unlink()
            raise
        return lines

    def finish(self) -> None:
        """All answers are there: nothing is left to go on with. Raises as ``write`` where what stands beside stays."""
        if self._progress is None or not (self._resumed or self.count):
            return
        try:
            if self._lines is not None:
                self._lines.close()
                self._lines = None
            elif self.file is not None:  # nothing was to be added
                os.truncate(self.file, self._reached.bytes)
            self._progress.finish()
        except OSError as error:
            raise unwritable(f"--answers {self.file}", error, "its answers are there") from error


def as_line(row: Mapping[str, Any], stream: TextIO | None = None) -> str:
    """A row as JSON.

    Args:
        stream: where it is shown; None where UTF-8 can be written.
    """
    from kosmos.train.json_lines import printed_json, rounded

    plain = stream is not None and not is_utf8(stream)  # JSON has escapes of its own for what is not ASCII
    return json.dumps(rounded(row)) if plain else printed_json(row)


def is_utf8(stream: TextIO) -> bool:
    """Whether any text can be written there as it is."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def choice_row(question: Chosen) -> dict[str, Any]:
    """Which of several answers was chosen as the columns of a line. Raises SampleError as the source does."""
    from kosmos.evaluate.called import called

    asks, place = question.source, question.place
    origin, row, prompt, media = called(asks.source, asks.rows[place], asks.question(place), asks.example_names(place))
    shots: dict[str, Any] = {}
    if asks.shots:
        own = called(asks.source, asks.rows[place], asks.asked(place))
        shots = {"shots": asks.shots, "question": {"prompt": own.prompt, "media": list(own.media)}}
    values, by_length = question.log_probabilities, question.by_length
    chosen = values.index(max(values))
    return {
        **asked_row(asks.name, origin, row, prompt, media),
        **shots,
        "expected": question.answers[question.right],
        "answer": question.answers[chosen],
        "choices": list(question.answers),
        "log_probabilities": list(values),
        "log_probabilities_by_length": list(by_length),
        "right": question.right,
        "chosen": chosen,
        "chosen_by_length": by_length.index(max(by_length)),
        "is_right": question.is_right(values),
        "is_right_by_length": question.is_right(by_length),
    }
