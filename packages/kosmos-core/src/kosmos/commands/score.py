"""``kosmos score``: metrics of answers that are in a file, without the model that wrote them.

Imports no torch, but for metrics that do.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.against_file import Against, Answers, compared_answers, compared_lines, compared_row
from kosmos.commands.answer_columns import ANSWERS, RIGHT, SUCH_AS, Line, by_role, named_file, right_beside
from kosmos.commands.arguments import refuse_empty, refuse_ranks
from kosmos.commands.by_value import class_lines, figures_by_value, told, value_lines
from kosmos.commands.metrics import SUCH_AS as SUCH_METRICS
from kosmos.commands.metrics import metrics_of
from kosmos.commands.scored_answers import failure, figures_and_failed, generated_lines
from kosmos.commands.unfinished import progress_of
from kosmos.errors import ConfigError, DataError, SampleError
from kosmos.own_output import aside
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.metrics import TextMetric
    from kosmos.evaluate.paired import Difference

Metric = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help=f"Score by this too: a name, or with options such as {SUCH_METRICS}; may be repeated."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Tell the figures of each source apart by the values of this key of the lines; expected is the right "
        "answer.",
    ),
]


def score(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSON lines, CSV or TSV: answer, and expected or references. Where they are called otherwise, fields "
            f"such as {SUCH_AS}.",
        ),
    ],
    metric: Metric = None,
    by: By = None,
    against: Against = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Score answers of a file: kosmos score answers.jsonl --metric word_error_rate

    The lines are those that kosmos eval and kosmos generate write with --answers, or somebody else. exact_match is
    always told. Lines without a right answer are counted and left out. Nothing is generated, and no model is needed.
    """
    refuse_ranks("kosmos score")
    refuse_empty("--by", by)
    refuse_empty("--against", against)
    named = metrics_of(metric or ())
    file, columns = named_file(file)

    from kosmos.evaluate.answer_scores import no_numbers, only_expected, text_metrics, without_several
    from kosmos.evaluate.class_metrics import figures_by_class
    from kosmos.plugins import load_plugins

    with aside():
        metrics = text_metrics(load_plugins(), [], named)
        path = Path(file)
        unfinished = progress_of(path).exists()
        if unfinished:
            _warn(f"{file}: is not complete, as {progress_of(path).name} beside it says; its answers so far are scored")
        answers, without = _read(path, columns, may_be_cut=unfinished)
        result: dict[str, Any] = {"file": file, "without_expected": without, "generated": {}}
        values = _values(by, answers, file) if by is not None else []
        apart: dict[str, dict[str, dict[str, Any]]] = {}
        by_source: dict[str, list[int]] = {}
        for place, (line, _) in enumerate(answers):
            by_source.setdefault(_source(line, path), []).append(place)
        failed: dict[str, None] = {}
        for source, places in by_source.items():
            found = [answers[place][1] for place in places]
            result["generated"][source], errors = figures_and_failed(found, metrics)
            failed |= dict.fromkeys(errors)
            for said in no_numbers(source, result["generated"][source]):
                _warn(said)
            if (classes := figures_by_class(found, metrics)) is not None:
                result.setdefault("by_class", {})[source] = classes
            if by is not None:
                apart[source] = figures_by_value(found, [values[place] for place in places], metrics, _warn)
        compared = [] if against is None else _compared(against, answers, path, metrics["exact_match"], result)
        if by is not None:
            result["by_value"] = told(by, {"generated": apart})
        if alone := without_several([answer for _, answer in answers], metrics):
            _warn(only_expected(alone))
    if without:
        _warn(f"{file}: {without:,} of {without + len(answers):,} lines are not scored: they have no expected answer")
    if as_json:
        from kosmos.train.json_lines import printed_json

        print(printed_json(result))
    else:
        lines = [*generated_lines(result["generated"]), *class_lines(result.get("by_class", {}))]
        lines += value_lines(result.get("by_value", {}), "generated")
        lines += compared_lines(file, result["against"], compared) if against is not None else []
        say("\n".join(lines))
    if (error := failure([*failed])) is not None:
        raise error


def _warn(line: str) -> None:
    say(f"warning: {line}", file=sys.stderr)


def _compared(
    against: str, answers: Answers, path: Path, exact_match: TextMetric, result: dict[str, Any]
) -> list[Difference]:
    """How the answers of ``path`` differ from those of another file, which are put into ``result`` too."""
    other, columns = named_file(against)
    theirs, _ = _read(Path(other), columns, may_be_cut=False)
    found = compared_answers(answers, theirs, (path, Path(other)), exact_match)
    result["against"] = compared_row(other, found)
    return found


def _source(line: Line, path: Path) -> str:
    source = line.get("source")
    return source if isinstance(source, str) else path.stem


def _read(path: Path, columns: Mapping[str, str], *, may_be_cut: bool) -> tuple[list[tuple[Line, Generated]], int]:
    """The lines with what they answer, and how many have no right answer.

    Args:
        columns: by role, where they are named.
        may_be_cut: the last line may be, and is then passed over.

    Raises:
        DataError: the file cannot be read, a line is no answer, or none has a right one.
    """
    found: list[tuple[Line, Generated]] = []
    without = 0
    lines = list(_lines(path, columns, may_be_cut=may_be_cut))
    beside = None if columns else right_beside([line for _, line in lines])
    if beside is not None:
        say(f"hint: {path}: expected is read from {beside}", file=sys.stderr)
        columns = {"expected": beside}
    for where, line in lines:
        try:
            answer = _answer(by_role(line, columns), where)
        except SampleError as error:
            raise DataError(f"{where}: {error}") from error
        if answer is None:
            without += 1
        else:
            found.append((line, answer))
    if not found:
        right = ", or ".join(columns[role] for role in ("expected", "references") if role in columns)
        lacks = f"none of its {without:,} lines has an expected answer ({right or 'expected, or references'})"
        why = lacks if without else "empty"
        raise DataError(f"{path}: {why}")
    return found, without


def _lines(path: Path, columns: Mapping[str, str], *, may_be_cut: bool) -> Iterator[tuple[str, Line]]:
    from kosmos.data.sources.delimited import SUFFIXES

    if path.suffix.lower() in SUFFIXES:
        yield from _rows(path, columns)
        return
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                where = f"{path}:{number}"
                try:
                    line = json.loads(text)
                except ValueError as error:
                    if may_be_cut and not text.endswith("\n"):
                        return
                    raise DataError(f"{where}: expected a line of JSON ({error})") from error
                if not isinstance(line, dict):
                    raise DataError(f"{where}: expected an object with answer and expected, got {text.strip()[:60]}")
                yield where, line
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); give a file of lines of answers") from error


def _rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[str, Line]]:
    """Of a table. An answer that is empty there is one in which nothing was written."""
    from kosmos.data.sources.delimited import index_delimited

    table = index_delimited(path)
    of_answers, lists = (columns.get("answer"), *ANSWERS), (columns.get("references"), RIGHT[-1])
    table = replace(table, nested=tuple(name for name in table.names if name in lists))
    for number in range(len(table)):
        where = table.origin(number)
        try:
            row = table.row(number)
        except SampleError as error:
            raise DataError(f"{where}: {error}") from error
        yield where, {name: "" if value is None and name in of_answers else value for name, value in row.items()}


def _answer(line: Line, where: str) -> Generated | None:
    """None where there is no right answer. Raises SampleError where something is no text."""
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.references import all_right

    key = next((name for name in ANSWERS if name in line), None)
    if key is None:
        keys = ", ".join(map(str, line)) or "none"
        raise SampleError(
            f"no answer; expected the keys answer, and expected or references, got {keys}; name others ({SUCH_AS})"
        )
    answer = _text(line[key], key)
    first, *more = [texts for name in RIGHT if (texts := _texts(line.get(name), name))] or [[]]
    if not first:
        return None
    others = [text for texts in more for text in texts]
    there = {*map(str.strip, others)}  # what is expected is one of the references, where lines have both
    references = all_right(first[0], [*(text for text in first if text.strip() not in there), *others])
    document, ended = line.get("document", where), line.get("ended", "")
    return Generated(str(document), first[0], answer, ended=str(ended), references=references)


def _texts(value: Any, key: str) -> list[str]:
    """One right answer or a list of them; none of null. Raises SampleError where one is no text and no number."""
    if value is None:
        return []
    if isinstance(value, list):
        return [_text(one, f"{key}[{number}]") for number, one in enumerate(value)]
    return [_text(value, key)]


def _text(value: Any, key: str) -> str:
    """A number is a text, as it is in data."""
    from kosmos.data.sources.columns import text_value

    if not isinstance(value, str | int | float):
        raise SampleError(f"{key}: expected text, got {value!r:.60}")
    return text_value(value, key)


def _values(key: str, answers: list[tuple[Line, Generated]], file: str) -> list[str]:
    """What each line has at a key. Raises ConfigError where none has it."""
    from kosmos.data.sources.columns import look_up
    from kosmos.evaluate.by_value import ABSENT, EXPECTED, called

    if key == EXPECTED:
        return [called(answer.expected) for _, answer in answers]
    values, lacks = [], Counter[str]()
    for line, _ in answers:
        try:
            values.append(called(look_up(line, key)))
        except SampleError as error:
            lacks[str(error)] += 1
            values.append(ABSENT)
    if sum(lacks.values()) == len(answers):
        why = next(iter(lacks)).replace("no column", "no line has")
        raise ConfigError(f"--by: {file}: {why}")
    return values
