"""``kosmos score FILE --against FILE``: of which answers to the same documents more are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.answer_columns import Line
from kosmos.commands.differences import difference_lines
from kosmos.errors import DataError
from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.metrics import TextMetric
    from kosmos.evaluate.paired import Counted, Difference, Key

Against = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Compare with these answers to the same documents: by how many more are right, and how sure that is.",
    ),
]
Answers = Sequence[tuple[Line, "Generated"]]
_ADVICE = "give answers to the same documents"
IS_RIGHT = {"is_right": "accuracy", "is_right_by_length": "accuracy_by_length"}
"""Keys of lines of choices, to the figures of which they are."""


def compared_answers(
    first: Answers, second: Answers, files: tuple[Path, Path], exact_match: TextMetric
) -> list[Difference]:
    """How the first answers differ from the second, all together and by source.

    Args:
        exact_match: what is right of lines that do not say it themselves, as those of choices do.

    Raises:
        DataError: they are not answers to the same documents, or one document has several.
    """
    from kosmos.evaluate.paired import differences, paired

    one, other = (_counted(*given, exact_match) for given in zip((first, second), files, strict=True))
    ours, theirs = ({key: counted for key, (counted, _) in found.items()} for found in (one, other))
    pairs = paired(ours, theirs, names=(str(files[0]), str(files[1])), advice=_ADVICE)
    for key in pairs.pairs:
        if one[key][1] != other[key][1]:
            raise DataError(
                f"{key[2]}: {files[0]} expects {one[key][1]!r:.60} and {files[1]} {other[key][1]!r:.60}; {_ADVICE}"
            )
    return differences(pairs)


def _counted(answers: Answers, file: Path, exact_match: TextMetric) -> dict[Key, tuple[Counted, str | None]]:
    """With what is expected. Lines that name no document are called by their numbers."""
    from kosmos.evaluate.answer_scores import score_answers
    from kosmos.evaluate.paired import Counted

    found: dict[Key, tuple[Counted, str | None]] = {}
    for line, answer in answers:
        source = line.get("source")
        document = answer.origin.removeprefix(f"{file}:")
        key = ("source", source if isinstance(source, str) else "", document)
        if key in found:
            raise DataError(f"{file}: {document} has several answers, and one of each document is compared")
        figures = {figure: float(bool(line[name])) for name, figure in IS_RIGHT.items() if name in line}
        figures = figures or score_answers([answer], {"exact_match": exact_match})
        found[key] = Counted({name: (value, 1.0) for name, value in figures.items()}), answer.expected
    return found


def compared_row(file: str, found: Sequence[Difference]) -> dict[str, Any]:
    """As an object of JSON."""
    return {"file": file, "differences": [asdict(one) for one in found]}


def compared_lines(first: str, against: Mapping[str, Any], found: Sequence[Difference]) -> Iterator[str]:
    """As plain lines."""
    yield f"first {in_a_line(first)}, second {in_a_line(against['file'])}"
    yield from difference_lines(found)
