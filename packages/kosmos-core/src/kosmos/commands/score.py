"""``kosmos score``: metrics of answers that are in a file, without the model that wrote them.

Imports no torch, but for metrics that do.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.against_file import Against, Metrics, compared_answers, compared_lines, compared_row
from kosmos.commands.answer_columns import SUCH_AS, named_file
from kosmos.commands.answer_file import Answered, read_answers
from kosmos.commands.arguments import refuse_empty, refuse_ranks
from kosmos.commands.by_value import class_lines, figures_by_value, told, value_lines
from kosmos.commands.metrics import SUCH_AS as SUCH_METRICS
from kosmos.commands.metrics import metrics_of
from kosmos.commands.scored_answers import failure, figures_and_failed, generated_lines
from kosmos.commands.unfinished import progress_of
from kosmos.errors import ConfigError, SampleError
from kosmos.own_output import aside
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.config import ComponentConfig
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

    with aside():
        result, compared, failed = _scored(file, columns, named, by, against)
    if as_json:
        from kosmos.train.json_lines import printed_json

        print(printed_json(result))
    else:
        lines = [*generated_lines(result["generated"]), *class_lines(result.get("by_class", {}))]
        say("\n".join([*lines, *value_lines(result.get("by_value", {}), "generated"), *compared]))
    if (error := failure([*dict.fromkeys(failed)])) is not None:
        raise error


def _scored(
    file: str, columns: Mapping[str, str], named: Sequence[ComponentConfig], by: str | None, against: str | None
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The figures, those of the comparison as plain lines, and why metrics failed."""
    from kosmos.evaluate.answer_scores import only_expected, text_metrics, without_several
    from kosmos.plugins import load_plugins

    registry, path = load_plugins(), Path(file)
    metrics = text_metrics(registry, [], named)
    answers, without = _read(path, columns)
    result: dict[str, Any] = {"file": file, "without_expected": without, "generated": {}}
    failed = _score_each(answers, path, metrics, by, result)
    compared: list[str] = []
    if against is not None:
        lower = {name for name in metrics if getattr(registry.get("metric", name), "lower_is_better", False)}
        wanted = Metrics(metrics, lower)
        found = _compared(against, answers, path, wanted, result, failed)
        compared += compared_lines(file, result["against"], found, wanted)
    if alone := without_several([one.answer for one in answers], metrics):
        _warn(only_expected(alone))
    if without:
        _warn(f"{file}: {without:,} of {without + len(answers):,} lines are not scored: they have no expected answer")
    return result, compared, failed


def _read(path: Path, columns: Mapping[str, str]) -> tuple[list[Answered], int]:
    """As ``read_answers``, of a file that may not be complete, too."""
    unfinished = progress_of(path).exists()
    if unfinished:
        _warn(f"{path}: is not complete, as {progress_of(path).name} beside it says; its answers so far are scored")
    return read_answers(path, columns, may_be_cut=unfinished)


def _score_each(
    answers: Sequence[Answered], path: Path, metrics: Mapping[str, TextMetric], by: str | None, result: dict[str, Any]
) -> list[str]:
    """Put the figures of each source into ``result``; why metrics failed is given back."""
    from kosmos.evaluate.answer_scores import no_numbers
    from kosmos.evaluate.class_metrics import figures_by_class

    values = [] if by is None else _values(by, answers, path)
    by_source: dict[str, list[int]] = {}
    for place, one in enumerate(answers):
        by_source.setdefault(one.source(path), []).append(place)
    failed: list[str] = []
    apart: dict[str, dict[str, dict[str, Any]]] = {}
    for source, places in by_source.items():
        found = [answers[place].answer for place in places]
        result["generated"][source], errors = figures_and_failed(found, metrics)
        failed += errors
        for said in no_numbers(source, result["generated"][source]):
            _warn(said)
        if (classes := figures_by_class(found, metrics)) is not None:
            result.setdefault("by_class", {})[source] = classes
        if by is not None:
            apart[source] = figures_by_value(found, [values[place] for place in places], metrics, _warn)
    if by is not None:
        result["by_value"] = told(by, {"generated": apart})
    return failed


def _warn(line: str) -> None:
    say(f"warning: {line}", file=sys.stderr)


def _compared(
    against: str, answers: Sequence[Answered], path: Path, metrics: Metrics, result: dict[str, Any], failed: list[str]
) -> list[Difference]:
    """How the answers of ``path`` differ from those of another file, which are put into ``result`` too."""
    other, columns = named_file(against)
    theirs, _ = _read(Path(other), columns)
    found = compared_answers(answers, theirs, (path, Path(other)), metrics, _warn, failed)
    result["against"] = compared_row(other, found)
    return found


def _values(key: str, answers: Sequence[Answered], file: Path) -> list[str]:
    """What each line has at a key. Raises ConfigError where none has it."""
    from kosmos.data.sources.columns import look_up
    from kosmos.evaluate.by_value import ABSENT, EXPECTED, called

    if key == EXPECTED:
        return [called(one.answer.expected) for one in answers]
    values, lacks = [], Counter[str]()
    for one in answers:
        try:
            values.append(called(look_up(one.line, key)))
        except SampleError as error:
            lacks[str(error)] += 1
            values.append(ABSENT)
    if sum(lacks.values()) == len(answers):
        why = next(iter(lacks)).replace("no column", "no line has")
        raise ConfigError(f"--by: {file}: {why}")
    return values
