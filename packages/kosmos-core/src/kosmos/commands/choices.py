"""``kosmos eval OUTPUT --choices FILE``: how often the right one of several answers is the likeliest."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kosmos.commands.continued import passed_over
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.data.choices import ChoiceSource
    from kosmos.data.quarantine import Incident
    from kosmos.evaluate.choices import ChoiceScore, Chosen
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.saved import SavedRun


def opened_choices(run: SavedRun, paths: Sequence[str], root: str | None, max_documents: int) -> list[ChoiceSource]:
    """Questions that offer several answers, of which what is passed over is told.

    Args:
        paths: of their files; none are those of the run (``evaluate.choices``).

    Raises:
        ConfigError: two of ``paths`` have one name.
        DataError: one cannot be opened.
    """
    from kosmos.run_sources import open_choices, open_own_choices

    config, registry = run.composition.config, run.composition.registry
    folder = Path(root) if root else None
    encode = run.composition.planner.tokenizer.encode
    if paths:
        sources = open_choices(config, registry, paths, root=folder, max_rows=max_documents, encode=encode)
    else:
        sources = open_own_choices(config, registry, (), encode=encode, max_rows=max_documents)
    for line in (line for source in sources for line in passed_over(source.source, list(config.modalities))):
        say(line, file=sys.stderr)
    return sources


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
