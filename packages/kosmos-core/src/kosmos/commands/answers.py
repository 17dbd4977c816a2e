"""Answers as lines of JSON: of ``kosmos eval --generate`` and ``--choices``, and of ``kosmos generate --data``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from kosmos.errors import ConfigError, Interrupted

if TYPE_CHECKING:
    from kosmos.evaluate.choices import Chosen
    from kosmos.evaluate.generated import Generated


class AnswerLines:
    """A new file of answers, or standard output. The file is made with the first line: without one there is none."""

    def __init__(self, file: str | None) -> None:
        self.file = None if file is None else Path(file)
        self._lines: TextIO | None = None
        self._shown = sys.stdout  # as it is now: meanwhile it may be another for what plugins print
        self.count = 0
        """Lines that were written."""

    def __enter__(self) -> AnswerLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises Interrupted, which says what is in the file, in the place of a KeyboardInterrupt."""
        if self._lines is not None and self.file is not None:
            with suppress(OSError):  # of what could not be written, which was said, or has been removed
                self._lines.close()
                if isinstance(error, KeyboardInterrupt):
                    count = self.file.read_bytes().count(b"\n")  # it may come between a line and its being counted
                    are = "1 answer is" if count == 1 else f"{count:,} answers are"
                    raise Interrupted(f"stopped (SIGINT); {are} in {self.file}") from error

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add lines, which stay there whatever happens next.

        Raises:
            ConfigError: the file cannot be written, or somebody has made it meanwhile.
        """
        from kosmos.train.output import as_json

        plain = self.file is None and not is_utf8(self._shown)  # JSON has escapes of its own for what is not ASCII
        text = "".join((json.dumps(row) if plain else as_json(row)) + "\n" for row in rows)
        if self.file is None:
            print(text, end="", flush=True, file=self._shown)
        elif text:
            self._write(text, self.file)
        self.count += len(rows)

    def _write(self, text: str, file: Path) -> None:
        try:
            if self._lines is None:
                self._lines = file.open("x", encoding="utf-8", errors="backslashreplace")
            self._lines.write(text)
            self._lines.flush()
        except OSError as error:
            kept = f"; its first {self.count:,} answers are there" if self.count else ""
            raise ConfigError(f"--answers {file}: cannot write ({error.strerror}){kept}; name another file") from error


def is_utf8(stream: TextIO) -> bool:
    """Whether any text can be written there as it is."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def answer_row(answer: Generated, source: str) -> dict[str, Any]:
    """What was generated as the columns of a line."""
    return {
        **_asked(source, answer.origin, answer.id, answer.prompt, answer.media),
        **({} if answer.expected is None else {"expected": answer.expected}),
        "answer": answer.text,
    }


def choice_row(question: Chosen) -> dict[str, Any]:
    """Which of several answers was chosen as the columns of a line. Raises SampleError as the source does."""
    from kosmos.evaluate.generated import called

    origin, row, prompt, media = called(
        question.source.source, question.source.rows[question.place], question.source.question(question.place)
    )
    values, by_length = question.log_probabilities, question.by_length
    chosen = values.index(max(values))
    return {
        **_asked(question.source.name, origin, row, prompt, media),
        "expected": question.answers[question.right],
        "answer": question.answers[chosen],
        "choices": list(question.answers),
        "log_probabilities": list(values),
        "log_probabilities_by_length": list(by_length),
        "right": question.right,
        "chosen": chosen,
        "chosen_by_length": by_length.index(max(by_length)),
    }


def _asked(
    source: str, document: str, row: str | int | None, prompt: str, media: Sequence[str | None]
) -> dict[str, Any]:
    """The columns that tell of what the answer is."""
    return {
        "source": source,
        "document": document,
        **({} if row is None else {"id": row}),
        "prompt": prompt,
        "media": list(media),
    }
