"""``kosmos eval --generate`` and ``--answers``: what is generated or chosen as lines of a file, and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kosmos.commands.answers import AnswerLines, answer_row
from kosmos.commands.arguments import refuse_empty
from kosmos.commands.unfinished import check_answers
from kosmos.errors import ConfigError

if TYPE_CHECKING:
    from kosmos.data.document import Source
    from kosmos.evaluate.generated import Generated
    from kosmos.evaluate.metrics import TextMetric
    from kosmos.train.saved import SavedRun

FIRST = 1
"""Number of the first source in a file of answers, behind what was chosen."""


def check_options(
    answers: str | None, generate: int, choices: Sequence[str], *, resume: bool, of_generate: Mapping[str, object]
) -> None:
    """Raises ConfigError where an option goes without that which it is for, or the answers cannot be written."""
    for option, value in of_generate.items():
        if value is not None and not generate:
            raise ConfigError(f"{option}: is for what --generate N writes; say how many, such as --generate 100")
    if answers is None:
        if resume:
            raise ConfigError("--resume: goes on where the file of --answers ends; name it, or leave --resume out")
        return
    check_answers(answers, resume=resume)
    if not generate and not choices:
        raise ConfigError(
            "--answers: takes what --generate N writes and --choices FILE chooses; give one of them, such as "
            "--generate 100"
        )


def named_metrics(run: SavedRun, named: Sequence[str]) -> dict[str, TextMetric]:
    """Those of the run file, and others by name. One that is absent is refused before anything is scored."""
    from kosmos.evaluate.generated import text_metrics

    for name in named:
        refuse_empty("--metric", name)
    return text_metrics(run.composition.registry, run.composition.config.evaluate.metrics, named)


def scored_answers(
    run: SavedRun,
    sources: Sequence[Source],
    count: int,
    max_new_tokens: int,
    metrics: Mapping[str, TextMetric],
    lines: AnswerLines,
) -> dict[str, dict[str, float]]:
    """Metrics of really generated answers, by source; the answers themselves as lines of a file, if there is one."""
    from kosmos.evaluate.generated import answer_documents, score_answers
    from kosmos.evaluate.meters import standard_error

    scores: dict[str, dict[str, float]] = {}
    for number, source in enumerate(sources, start=FIRST):
        found = [_generated(row) for row in lines.earlier(source.name)]
        for group in answer_documents(
            run.composition, source, device=run.device, dtype=run.dtype, max_documents=count,
            max_new_tokens=max_new_tokens, behind=lines.answered(number),
        ):  # fmt: skip
            found += group
            if lines.file is not None:
                lines.write([answer_row(answer, source.name) for answer in group], number, group[-1].row)
        scores[source.name] = {"documents": len(found), **score_answers(found, metrics)}
        if (error := standard_error(scores[source.name].get("exact_match"), len(found))) is not None:
            scores[source.name]["exact_match_standard_error"] = error
    return scores


def _generated(row: Mapping[str, Any]) -> Generated:
    """What an earlier call has written, as far as it is scored."""
    from kosmos.evaluate.generated import Generated

    return Generated(row["document"], row.get("expected"), row["answer"])
