"""``kosmos eval OUTPUT --choices FILE``: how often the right one of several answers is the likeliest."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import check_given_once
from kosmos.commands.continued import passed_over
from kosmos.commands.fields import yaml_of
from kosmos.errors import DataError
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.config import ChoicesConfig
    from kosmos.data.choices import ChoiceSource
    from kosmos.data.quarantine import Incident
    from kosmos.evaluate.choices import ChoiceScore, Chosen
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.saved import SavedRun


SUCH_AS = "'{path: FILE, columns: {answer: truth}}'"
Choices = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Questions that offer several answers: score how often the right one is the likeliest. A file, or fields "
        f"as of evaluate.choices such as {SUCH_AS}; may be repeated. Without --data nothing else is scored.",
    ),
]


def named_choices(given: Sequence[str]) -> list[ChoicesConfig]:
    """What each ``--choices`` names, as an entry of ``evaluate.choices`` would.

    Raises:
        ConfigError: one is no such entry, or stands there twice.
    """
    from kosmos.run_choices import entry_of

    check_given_once(given, "--choices")
    found = []
    for text in given:
        value: Any = text
        if text.lstrip().startswith("{") and not os.path.lexists(text):
            value = yaml_of("--choices", text, f"a file, or fields as {SUCH_AS}")
        found.append(entry_of(f"--choices {text}", value))
    return found


READ = "numbered media, hints, right answers of whole files"
"""How questions are read, as it is now: answers that were begun when they were read otherwise are not gone on with."""


def columns_of(entries: Sequence[ChoicesConfig]) -> dict[str, Any]:
    """What answers depend on beside the names of files of questions, as plain values: nothing where there are none."""
    named = [entry.columns for entry in entries]
    shots = [(entry.shots, entry.shots_from and Path(entry.shots_from).name) for entry in entries]
    options = [entry.options.model_dump(mode="json", exclude_defaults=True) for entry in entries]
    return (
        ({"choices_read": READ} if entries else {})
        | ({"choices_columns": named} if any(named) else {})
        | ({"choices_shots": shots} if any(count for count, _ in shots) else {})
        | ({"choices_options": options} if any(options) else {})
    )


def opened_choices(
    run: SavedRun, entries: Sequence[ChoicesConfig], root: str | None, max_documents: int
) -> list[ChoiceSource]:
    """Questions that offer several answers, of which what is passed over is told.

    Args:
        entries: their files; none are those of the run (``evaluate.choices``).

    Raises:
        ConfigError: two of them have one name.
        DataError: one cannot be opened.
    """
    from kosmos.data.place_tags import doubtful_places
    from kosmos.data.sources.blind import blind_of
    from kosmos.data.sources.remarks import remarks_of
    from kosmos.run_choices import open_choices, open_own_choices
    from kosmos.run_overlap import asked_and_trained, trained_sources
    from kosmos.run_sources import following
    from kosmos.train.older_rules import rules_of

    config, registry = run.composition.config, run.composition.registry
    folder = Path(root) if root else None
    encode = run.composition.planner.tokenizer.encode
    if entries:
        with _saying_how():
            sources = open_choices(config, registry, entries, root=folder, max_rows=max_documents, encode=encode)
    else:
        with following(**rules_of(run.order or None)):
            sources = open_own_choices(config, registry, (), encode=encode, max_rows=max_documents)
        run.as_begun(sources)
    for source in sources:
        for line in passed_over(source.source, list(config.modalities)):
            say(line, file=sys.stderr)
        for line in (*remarks_of(source), *blind_of(source, config.modalities, _SAY if entries else "")):
            say(f"warning: {line}", file=sys.stderr)
    for line in doubtful_places([source.source for source in sources], config.modalities):
        say(f"warning: {line}", file=sys.stderr)
    paths = [entry.path for entry in entries or config.evaluate.choices]
    for line in asked_and_trained(config, sources, paths, trained_sources(config, registry)):
        say(f"warning: {line}", file=sys.stderr)
    return sources


_NAMES_COLUMNS = "columns: {"
"""Words of errors that advise to name columns."""
_SAY = f"on the command line columns are named as --choices {SUCH_AS}"


@contextmanager
def _saying_how() -> Iterator[None]:
    """Errors that advise to name columns say how ``--choices`` names them."""
    try:
        yield
    except DataError as error:
        if _NAMES_COLUMNS not in str(error):
            raise
        raise type(error)(f"{error}; {_SAY}") from error


def columns_advice(incidents: Sequence[Incident], sources: Collection[str]) -> str:
    """What to do, behind a message, where questions are left out until columns are named.

    Args:
        sources: names of those of ``--choices``.
    """
    found = any(_NAMES_COLUMNS in incident.cause and incident.source in sources for incident in incidents)
    return f"; {_SAY}" if found else ""


def scored_choices(
    run: SavedRun,
    sources: Sequence[ChoiceSource],
    workers: int,
    chosen: Callable[[Chosen], None],
    parallel: Parallel,
) -> tuple[dict[str, ChoiceScore], tuple[Incident, ...], bool]:
    """Scores by source, what was left out, and whether questions were asked as chats: the run learned from such.

    Args:
        sources: as ``opened_choices`` gives them.
        chosen: told of each question.
        parallel: the processes that share the questions.
    """
    from kosmos.evaluate.choices import score_choices
    from kosmos.run_sources import chats_among

    scores = score_choices(
        run.composition, sources, device=run.device, dtype=run.dtype, workers=workers, chosen=chosen, parallel=parallel
    )
    return *scores, chats_among(run.composition.config.data.sources) is not None


def choice_lines(scores: Mapping[str, Mapping[str, Any]], *, chat: bool) -> Iterator[str]:
    """The scores as plain lines."""
    head = f"choices, {'as chats' if chat else 'as text'}"
    yield f"{head:<20} {'questions':>9} {'accuracy':>16} {'by length':>16} {'chance':>9}"
    for name, score in scores.items():
        shares = [share(score, key) for key in ("accuracy", "accuracy_by_length")]
        chance = "-" if score["chance"] is None else f"{100 * score['chance']:.2f} %"
        yield f"  {name:<18} {score['documents']:>9} {shares[0]:>16} {shares[1]:>16} {chance:>9}"


def share(score: Mapping[str, Any], key: str) -> str:
    """A share of documents with its standard error, such as ``62.50 ± 4.84 %``; a dash where there is none."""
    if score[key] is None:
        return "-"
    return f"{100 * score[key]:.2f} ± {100 * score[f'{key}_standard_error']:.2f} %"
