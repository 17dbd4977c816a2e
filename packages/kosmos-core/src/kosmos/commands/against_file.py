"""``kosmos score FILE --against FILE``: of which answers to the same questions more are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.answer_file import Answered, is_right
from kosmos.commands.differences import difference_lines
from kosmos.commands.same_question import ask_again, in_front, unlike, unlike_right
from kosmos.errors import DataError, PluginError
from kosmos.names import listed
from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.evaluate.metrics import TextMetric
    from kosmos.evaluate.paired import Difference, Key

Against = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Compare with these answers to the same questions: by how much each metric differs, and how sure that is.",
    ),
]
_ADVICE = "give answers to the same documents, under one name of their source"
_SAME = "give answers to the same questions (rows that have an id of their own are paired by it, in any order)"
_BY_NUMBER = (
    "lines that name no document are paired by their numbers in the file, and the first line of a table is that of its "
    "columns: add an id of its own to each line, and they are paired by it"
)
IS_RIGHT = {"is_right": "accuracy", "is_right_by_length": "accuracy_by_length"}
"""Keys of lines of choices, to the figures of which they are."""


@dataclass(frozen=True)
class Metrics:
    """What answers are compared by."""

    by_name: Mapping[str, TextMetric]
    """``exact_match`` among them, which lines of choices say themselves."""
    lower: Collection[str] = ()
    """Of which less is better."""

    def of(self, kind: str) -> Iterator[tuple[str, TextMetric]]:
        """Those of a group. What all answers together have of their parts is the sum of those of each source."""
        for name, metric in self.by_name.items():
            if not (kind == "choices" and name == "exact_match") and not (kind == "all" and _has_parts(metric)):
                yield name, metric


def _has_parts(metric: TextMetric) -> bool:
    return callable(getattr(metric, "of_each", None))


@dataclass(frozen=True)
class _Pairs:
    """Lines of both files, by what they are called in them."""

    ours: Mapping[Key, Answered]
    theirs: Mapping[Key, Answered]

    def sides(self, keys: Sequence[Key]) -> tuple[list[Answered], list[Answered]]:
        return [self.ours[key] for key in keys], [self.theirs[key] for key in keys]


def compared_answers(
    first: Sequence[Answered],
    second: Sequence[Answered],
    files: tuple[Path, Path],
    metrics: Metrics,
    warn: Callable[[str], None],
    failed: list[str],
) -> list[Difference]:
    """How the first answers differ from the second, by source, and all together where no question is there twice.

    Args:
        failed: gets why a metric failed, which is then left out.

    Raises:
        DataError: they are not answers to the same questions, or one question has several.
    """
    from kosmos.evaluate.paired import Counted, Paired, differences, paired

    pairs = _Pairs(*_called(first, second, files))
    ours, theirs = ({key: Counted({}) for key in side} for side in (pairs.ours, pairs.theirs))
    keys = [*paired(ours, theirs, names=(str(files[0]), str(files[1])), advice=_advice(first, second)).pairs]
    _check_same(pairs, keys, files, warn)
    groups = _groups(pairs, keys, warn)
    counted: dict[Key, tuple[Counted, Counted]] = {}
    apart: list[Difference] = []
    for (kind, name), of_group in groups.items():
        one, other = (_Group(side, metrics.of(kind), failed) for side in pairs.sides(of_group))
        if kind != "all":
            each = zip(one.counted(), other.counted(), strict=True)
            counted |= {(kind, name, key[2]): both for key, both in zip(of_group, each, strict=True)}
        apart += [replace(found, kind=kind, name=name) for found in _without_interval(one, other, metrics)]
    told = [one for one in differences(Paired(counted), metrics.lower) if (one.kind, one.name) in groups]
    return sorted([*told, *apart], key=lambda one: (one.kind, one.name))


def _advice(*sides: Sequence[Answered]) -> str:
    """What to do where lines do not pair."""
    named = all("document" in one.line or one.line.get("id") is not None for side in sides for one in side)
    return _ADVICE if named else f"{_ADVICE}; {_BY_NUMBER}"


def _called(
    first: Sequence[Answered], second: Sequence[Answered], files: tuple[Path, Path]
) -> tuple[dict[Key, Answered], dict[Key, Answered]]:
    """Lines by source, and by their ids where all of the source have one of their own in both files, else by their
    documents. Those that name no document are called by their numbers, and those without a source by the first file."""
    sides = [[(one.source(files[0]), one) for one in side] for side in (first, second)]
    by_id = set.intersection(*map(_have_ids, sides))
    found: tuple[dict[Key, Answered], dict[Key, Answered]] = ({}, {})
    for side, own, file in zip(sides, found, files, strict=True):
        for source, one in side:
            document = one.answer.origin.removeprefix(f"{file}:")
            key = ("source", source, f"id {one.line['id']}" if source in by_id else document)
            if key in own:
                raise DataError(f"{file}: {key[2]} has several answers, and one of each document is compared")
            own[key] = one
    return found


def _have_ids(side: Sequence[tuple[str, Answered]]) -> set[str]:
    """Sources whose lines all have an id of their own."""
    ids = Counter((source, str(one.line.get("id"))) for source, one in side)
    without = {source for source, one in side if one.line.get("id") is None}
    return {source for source, _ in side} - without - {source for (source, _), count in ids.items() if count > 1}


def _check_same(pairs: _Pairs, keys: Sequence[Key], files: tuple[Path, Path], warn: Callable[[str], None]) -> None:
    """Raises DataError where a pair is of two questions. Warns where other examples stand in front of the same."""
    others, several = [], []
    for key, one, other in zip(keys, *pairs.sides(keys), strict=True):
        wrong = unlike(one.line, other.line) or unlike_right(one.answer, other.answer)
        if wrong is not None:
            what, ours, theirs = wrong
            raise DataError(
                f"{key[2]}: not the same question: {what} is {ours!r:.80} in {one.where} and {theirs!r:.80} in "
                f"{other.where}; {_SAME}"
            )
        others += [key[2]] if in_front(one.line, other.line) else []
        several += [key[2]] if bool(one.answer.references) != bool(other.answer.references) else []
    if several:
        warn(
            f"{files[0]} and {files[1]}: one of them alone has several right answers (references) to {len(several):,} "
            f"of {len(keys):,} questions, the first {several[0]}; the difference is of that, too"
        )
    if others:
        shots = [_shots(side) for side in pairs.sides(keys)]
        told = f" ({shots[0]} and {shots[1]} shots)" if shots[0] != shots[1] else ""
        warn(
            f"{files[0]} and {files[1]}: other text stands in front of {len(others):,} of {len(keys):,} questions, as "
            f"other examples do{told}, the first {others[0]}; the difference is of that, too"
        )


def _shots(lines: Sequence[Answered]) -> str:
    counts = sorted({_number_of_shots(one) for one in lines})
    return ", ".join(map(str, counts))


def _number_of_shots(one: Answered) -> int:
    """Raises DataError where it is no number."""
    said = one.line.get("shots") or 0
    try:
        return int(said)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{one.where}: shots: expected a number of examples, got {said!r:.60}") from error


def _groups(pairs: _Pairs, keys: Sequence[Key], warn: Callable[[str], None]) -> dict[tuple[str, str], list[Key]]:
    """What figures are told of: each source, and all that is not chosen together, unless questions are there twice."""
    groups: dict[tuple[str, str], list[Key]] = {}
    for key in keys:
        both = (pairs.ours[key], pairs.theirs[key])
        kind = "choices" if all(any(one.line.get(name) is not None for name in IS_RIGHT) for one in both) else "source"
        groups.setdefault((kind, key[1]), []).append(key)
    together = [key for (kind, _), of_source in groups.items() if kind == "source" for key in of_source]
    if not ask_again((key[1], (one := pairs.ours[key]).line, one.answer.expected) for key in together):
        return {("all", ""): together, **groups} if together else groups
    warn("sources ask the same questions, so that there are no figures of all of them together")
    return groups


class _Group:
    """Answers of one file of which figures are told."""

    def __init__(self, lines: Sequence[Answered], metrics: Iterable[tuple[str, TextMetric]], failed: list[str]) -> None:
        from kosmos.evaluate.answer_scores import parts_of_each

        self.lines, self.failed = lines, failed
        self.answers = [one.answer for one in lines]
        self.parts: dict[str, list[tuple[float, float]]] = {}
        self.apart: dict[str, TextMetric] = {}
        """Of which no answer has a part of its own, or whose parts are of nothing."""
        for name, metric in metrics:
            try:
                parts = parts_of_each(self.answers, name, metric)
            except PluginError as error:
                failed.append(str(error))
                continue
            if parts is not None:
                self.parts[name] = parts
            if parts is None or not sum(under for _, under in parts):
                self.apart[name] = metric

    def counted(self) -> Iterator[Any]:
        """What each line adds to the figures."""
        from kosmos.evaluate.paired import Counted

        for number, one in enumerate(self.lines):
            said = ((figure, is_right(one, key)) for key, figure in IS_RIGHT.items())
            figures = {figure: (float(right), 1.0) for figure, right in said if right is not None}
            yield Counted(figures | {name: parts[number] for name, parts in self.parts.items()})

    def value(self, name: str) -> float | None:
        from kosmos.evaluate.answer_scores import score_answers

        try:
            return score_answers(self.answers, {name: self.apart[name]})[name]
        except PluginError as error:
            self.failed.append(str(error))
            return None


def _without_interval(one: _Group, other: _Group, metrics: Metrics) -> Iterator[Difference]:
    """Metrics of all answers of a group together, such as BLEU."""
    from kosmos.evaluate.paired import Difference

    for name in one.apart:
        ours = one.value(name)
        theirs = other.value(name) if name in other.apart and ours is not None else None
        if ours is not None and theirs is not None:
            lower = name in metrics.lower
            yield Difference(len(one.lines), ours, theirs, ours - theirs, figure=name, lower_is_better=lower)


def compared_row(file: str, found: Sequence[Difference]) -> dict[str, Any]:
    """As an object of JSON."""
    return {"file": file, "differences": [asdict(one) for one in found]}


def compared_lines(
    first: str, against: Mapping[str, Any], found: Sequence[Difference], metrics: Metrics
) -> Iterator[str]:
    """As plain lines."""
    yield f"first {in_a_line(first)}, second {in_a_line(against['file'])}"
    yield from difference_lines(found)
    figures = {one.figure for one in found}
    apart = [name for name, metric in metrics.by_name.items() if name in figures and not _has_parts(metric)]
    if apart:
        have = "has" if len(apart) == 1 else "have"
        yield f"{listed(apart)} {have} no interval: no answer has a figure of its own there"
