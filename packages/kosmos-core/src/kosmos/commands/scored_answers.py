"""``kosmos eval --generate`` and ``--answers``: what is generated or chosen as lines of a file, and its scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kosmos.commands.answers import AnswerLines, choice_row
from kosmos.commands.choices import share
from kosmos.commands.unfinished import check_answers
from kosmos.commands.writing import LongPrompts
from kosmos.errors import ConfigError, DataError, KosmosError, NoRoom, PluginError, SampleError
from kosmos.evaluate.answer_rows import answer_row
from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.commands.by_value import ByValue
    from kosmos.config import ComponentConfig
    from kosmos.data.document import Source
    from kosmos.data.quarantine import Incident
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.choices import Chosen
    from kosmos.evaluate.metrics import TextMetric
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.saved import SavedRun

CHOICES = 0
"""Number of what was chosen in a file of answers, behind which are the sources."""
FAILURES = 4
"""Of metrics that are named: each source may have others."""


@dataclass(frozen=True)
class Wanted:
    """What is to be generated."""

    documents: int
    """Of each source; 0 generates nothing."""
    max_new_tokens: int
    metrics: Mapping[str, TextMetric]
    by: ByValue
    """By what their scores are told apart."""
    stop: tuple[str, ...] = ()

    def settings(self) -> dict[str, Any]:
        """What answers depend on, as plain values."""
        stop = {"stop": self.stop} if self.stop else {}
        return {"generate": self.documents, "max_new_tokens": self.max_new_tokens, **stop, **self.by.settings()}


def check_options(answers: str | None, generate: int, *, resume: bool, of_generate: Mapping[str, object]) -> None:
    """Raises ConfigError where an option goes without that which it is for, or the answers cannot be written."""
    for option, value in of_generate.items():
        if value is not None and not generate:
            raise ConfigError(f"{option}: is for what --generate N writes; say how many, such as --generate 100")
    if answers is None:
        if resume:
            raise ConfigError("--resume: goes on where the file of --answers ends; name it, or leave --resume out")
        return
    check_answers(answers, resume=resume)


def check_written(answers: str | None, generate: int, asked: Sequence[object]) -> None:
    """Raises ConfigError where a file is named and nothing is to be written.

    Args:
        asked: files of questions.
    """
    if answers is not None and not generate and not asked:
        raise ConfigError(
            "--answers: takes what --generate N writes and --choices FILE chooses; give one of them, such as "
            "--generate 100"
        )


def named_metrics(run: SavedRun, named: Sequence[ComponentConfig]) -> dict[str, TextMetric]:
    """Those of the run file, and others. One that is absent is refused before anything is scored, and what goes on
    without it is said."""
    from kosmos.evaluate.answer_scores import text_metrics

    registry, own = run.composition.registry, run.composition.config.evaluate.metrics
    try:
        return text_metrics(registry, own, named)
    except PluginError as error:
        rest = [metric for metric in own if metric.name in registry.specs("metric")]
        if len(rest) == len(own):
            raise
        plain = [{"name": one.name, **one.options} if one.options else one.name for one in rest]
        raise PluginError(f"{error}; to score without it: 'evaluate.metrics={json.dumps(plain)}'") from error


def write_answers(
    run: SavedRun,
    sources: Sequence[Source],
    chosen: Sequence[Chosen],
    wanted: Wanted,
    lines: AnswerLines,
    result: dict[str, Any],
    parallel: Parallel,
    warn: Callable[[str], None],
) -> KosmosError | None:
    """Write what was chosen and what is generated as lines, if they go anywhere, and put its scores into ``result``.

    Args:
        warn: told of metrics that do not get all right answers.

    Returns:
        Why they cannot be written, or which metrics failed, so that what was scored is not lost with them.
    """
    failed: dict[str, None] = {}
    with lines:
        try:
            parallel.main_only(lambda: _write_choices(chosen, lines, wanted.by))
            if wanted.documents:
                result |= _score_each(run, sources, wanted, lines, parallel, warn, failed, result["incidents"])
            parallel.main_only(lines.finish)
        except (ConfigError, DataError, NoRoom) as error:
            return error
    return failure([*failed])


def _write_choices(chosen: Sequence[Chosen], lines: AnswerLines, by: ByValue) -> None:
    """Raises DataError where a row that was scored cannot be read again, as somebody has changed its file meanwhile."""
    if lines.file is None or lines.answered(CHOICES) >= 0:
        return
    try:
        rows = [choice_row(question) for question in chosen]
    except SampleError as error:
        raise DataError(f"--answers {lines.file}: not written, as a question can no more be read: {error}") from error
    lines.write(by.in_lines(rows, by.of_questions(chosen)), CHOICES, 0)


def _score_each(
    run: SavedRun,
    sources: Sequence[Source],
    wanted: Wanted,
    lines: AnswerLines,
    parallel: Parallel,
    warn: Callable[[str], None],
    failed: dict[str, None],
    left_out: Sequence[Incident],
) -> dict[str, Any]:
    """Metrics of really generated answers by source, None where one failed, of which ``failed`` gets what it raised;
    and the sources that have several right answers to a question, where there are such.

    Args:
        left_out: of the scores of documents.
    """
    from kosmos.evaluate.answer_scores import have_several, no_numbers, only_expected, without_several
    from kosmos.evaluate.class_metrics import figures_by_class

    scores: dict[str, dict[str, float | None]] = {}
    several: list[str] = []
    classes: dict[str, Any] = {}
    alone: dict[str, None] = {}
    for number, source in enumerate(sources, start=CHOICES + 1):
        found = _answered(run, source, number, wanted, lines, parallel, warn)
        scores[source.name], errors = parallel.main_only(partial(figures_and_failed, found, wanted.metrics))
        failed |= dict.fromkeys(errors)
        for line in _not_scored(source.name, found, left_out):
            warn(line)
        for line in no_numbers(source.name, scores[source.name]):
            warn(line)
        parallel.main_only(partial(wanted.by.add_answers, source, found, wanted.metrics, wanted.documents))
        alone |= dict.fromkeys(without_several(found, wanted.metrics))
        several += [source.name] if have_several(found) else []
        if (of_classes := parallel.main_only(partial(figures_by_class, found, wanted.metrics))) is not None:
            classes[source.name] = of_classes
    if alone:
        warn(only_expected([*alone]))
    more = {"several_right_answers": several, "by_class": classes}
    return {"generated": scores, **{name: value for name, value in more.items() if value}}


def _not_scored(source: str, answers: Sequence[Generated], left_out: Sequence[Incident]) -> Iterator[str]:
    """A warning of answers to documents that have no loss: two figures of one table are of different documents then."""
    origins = [incident.origin.split("/") for incident in left_out if incident.source == source]
    ends = {"/".join(parts[begin:]) for parts in origins for begin in range(len(parts))}  # answers have no folder
    found = [one.origin for one in answers if one.origin in ends]
    if found:
        yield (
            f"{source}: {len(found):,} of the {len(answers):,} answers that were generated are of documents that the "
            f"table leaves out, as they cannot be scored (the first: {found[0]}); the figures of what is generated "
            "count them, loss and exact match of the table do not (data.tokens_per_pack=N holds longer ones)"
        )


def figures_and_failed(
    answers: Sequence[Generated], metrics: Mapping[str, TextMetric]
) -> tuple[dict[str, float | None], list[str]]:
    """As of ``figures_of``, with None for a metric that fails, and why each did."""
    from kosmos.evaluate.answer_scores import figures_of

    failed: list[PluginError] = []
    figures = figures_of(answers, metrics, failed.append)
    names = dict.fromkeys(["documents", "cut", *(metrics if answers else ())])
    return {**names, **figures}, list(map(str, failed))


def failure(failed: Sequence[str]) -> PluginError | None:
    """What a command ends with once it has told the other figures; None where no metric failed."""
    if not failed:
        return None
    more = f" (and {len(failed) - FAILURES:,} more)" if len(failed) > FAILURES else ""
    return PluginError("; ".join(failed[:FAILURES]) + more)


def _write_group(group: Sequence[Generated], source: Source, number: int, wanted: Wanted, lines: AnswerLines) -> None:
    rows = [answer_row(answer, source.name) for answer in group]
    values = wanted.by.of_answers(source, group, wanted.documents)
    lines.write(wanted.by.in_lines(rows, values), number, group[-1].row)


def _answered(
    run: SavedRun,
    source: Source,
    number: int,
    wanted: Wanted,
    lines: AnswerLines,
    parallel: Parallel,
    warn: Callable[[str], None],
) -> list[Generated]:
    """Really generated answers, with a warning of documents that have none; ``number`` is that of the source in the
    file of answers."""
    from kosmos.data.spread import spread
    from kosmos.evaluate.generated import Writing, answer_documents

    found = [_generated(row) for row in lines.earlier(source.name)]
    earlier, unread, long = len(found), set[int](), LongPrompts(run.composition.planner.max_tokens)
    behind = parallel.main_only(lambda: lines.answered(number))
    for group in answer_documents(
        run.composition, source, device=run.device, dtype=run.dtype, max_documents=wanted.documents,
        how=Writing(max_new_tokens=wanted.max_new_tokens, stop=wanted.stop), behind=behind, parallel=parallel,
        leave_out=lambda row, error: unread.add(row),
    ):  # fmt: skip
        found += group
        long.see(group)
        if lines.file is not None:
            parallel.main_only(partial(_write_group, group, source, number, wanted, lines))
    for line in long.told():
        warn(line)
    even = run.composition.config.evaluate.is_even
    asked = int((spread(len(source), wanted.documents, even=even) > behind).sum())
    if without := asked - len(unread) - (len(found) - earlier):
        media = ", what is learned there holds media" if run.composition.planner.codecs else ""
        warn(
            f"{source.name}: {without:,} of {asked:,} documents have no answer to generate, as nothing is learned at "
            f"their end{media}, or all of them is; kosmos generate --data continues them all the same"
        )
    return found


def _generated(row: Mapping[str, Any]) -> Generated:
    """What an earlier call has written, as far as it is scored."""
    from kosmos.evaluate.answer import Generated

    references = tuple(row.get("references", ()))
    ended = row.get("ended", "")
    return Generated(row["document"], row.get("expected"), row["answer"], ended=ended, references=references)


def generated_lines(generated: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    """Metrics of answers by source, as plain lines."""
    for name, values in generated.items():
        told = (
            f"exact_match {share(values, metric)}" if metric == "exact_match" else f"{metric} {_shown(value)}"
            for metric, value in values.items() if metric != "exact_match_standard_error"
        )  # fmt: skip
        yield f"generated, {name}: {', '.join(told)}"


def several_lines(sources: Sequence[str]) -> Iterator[str]:
    """Why two figures called exact match differ, of sources that have several right answers to a question."""
    if sources:
        have = "have" if len(sources) > 1 else "has"
        yield (
            f"{', '.join(map(in_a_line, sources))}: {have} several right answers; exact match in the table is of the "
            "expected one, that of generated counts any of them"
        )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
