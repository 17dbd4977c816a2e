"""What ``kosmos eval`` scores of a run: documents and questions that offer several answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kosmos.commands.by_value import ByValue
from kosmos.commands.causes import root_advice
from kosmos.commands.choices import columns_advice, scored_choices
from kosmos.commands.continued import unspaced
from kosmos.commands.named_data import path_of
from kosmos.errors import DataError
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.config import ChoicesConfig, DocumentsConfig
    from kosmos.data.choices import ChoiceSource
    from kosmos.data.document import Source
    from kosmos.evaluate.choices import Chosen
    from kosmos.evaluate.score import Counts, Score
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.saved import SavedRun


def compile_kernels(run: SavedRun) -> None:
    """Of what scores by them, so that a missing compiler is told as commands tell it, and not as Python does."""
    from kosmos.model.kernels_in_use import by_kernels

    parts = run.composition
    with by_kernels(parts.model, parts.config.train.compile, run.device, run.dtype, warn):
        pass


def warnings_of(
    run: SavedRun, data: Sequence[str | DocumentsConfig], choices: Sequence[ChoicesConfig]
) -> Iterator[str]:
    """Of a run before it is scored, and of files that runs which it was begun with were trained on.

    Args:
        data: that are named, as ``choices`` are; of none of both, the run's own are scored.
    """
    from kosmos.train.trained_before import scored_before

    named = {"--data": [*map(path_of, data)], "--choices": [one.path for one in choices]}
    yield from run.warnings()
    yield from scored_before(run.composition.config, named if data or choices else None)


def score_documents(
    run: SavedRun,
    sources: Sequence[Source],
    max_documents: int,
    workers: int,
    result: dict[str, Any],
    parallel: Parallel,
    by: ByValue | None = None,
    counted: Counts = lambda document, tally: None,
) -> None:
    """Put the scores of documents into ``result``, and by value into ``by``.

    Args:
        counted: as of ``score``.
    """
    from kosmos.evaluate.score import score

    value = None if by is None or by.column is None else by.column.of_documents(sources, max_documents)
    scores = score(
        run.composition, sources, device=run.device, dtype=run.dtype, max_documents=max_documents, workers=workers,
        allow_none=True, parallel=parallel, value=value, counted=counted,
    )  # fmt: skip
    for name, found in scores.by_source.items():
        if found.torn:
            warn(_torn(name, found, run.composition.planner.most))
    parts = {"by_modality": scores.by_modality, "by_source": scores.by_source}
    result["overall"] = told_of(scores.overall)
    result |= {name: {key: told_of(one) for key, one in found.items()} for name, found in parts.items()}
    result["incidents"] += scores.incidents
    if by is not None:
        values = scores.by_value.items()
        by.add_documents({name: {key: told_of(one) for key, one in found.items()} for name, found in values})


def _torn(source: str, score: Score, most: int) -> str:
    return (
        f"{source}: {score.torn:,} of {score.documents:,} documents take more than the {most:,} tokens of a row and "
        "are cut, so that their answers do not count; where the backbone has positions for them, "
        "data.tokens_per_pack=N scores them whole"
    )


def told_of(score: Score) -> dict[str, Any]:
    """As plain values."""
    return {**asdict(score), "exact_match_standard_error": score.exact_match_standard_error}


def score_questions(
    run: SavedRun,
    questions: Sequence[ChoiceSource],
    workers: int,
    result: dict[str, Any],
    parallel: Parallel,
) -> list[Chosen]:
    """Every question that was scored."""
    chosen: list[Chosen] = []
    scores, incidents, as_chats = scored_choices(run, questions, workers, chosen.append, parallel)
    result |= {"choices": {name: asdict(found) for name, found in scores.items()}, "asked_as_chats": as_chats}
    result["incidents"] += incidents
    return chosen


def refuse_nothing(
    result: Mapping[str, Any], sources: Sequence[Source], data: Sequence[str], choices: Sequence[str], root: str | None
) -> None:
    """Warns where media were not found.

    Args:
        sources: those of ``data``, where there are any, else of the run.

    Raises:
        DataError: nothing was scored of one that was named, or of the run's own data together.
    """
    named = [*data, *choices]
    documents = [result["by_source"].get(source.name, {}).get("documents", 0) for source in sources if data]
    documents += [found["documents"] for found in result.get("choices", {}).values()]
    if named:
        without = [path for path, count in zip(named, documents, strict=True) if not count]
    else:
        count = sum(documents) + (result["overall"]["documents"] if sources else 0)
        without = [] if count else [result["output"]]
    advice = root_advice(result["incidents"], root) if named else ""
    name_columns = columns_advice(result["incidents"], result.get("choices", ())) if choices else ""
    if without:
        from kosmos.evaluate.score import NONE_SCORED

        raise DataError(f"{', '.join(without)}: {NONE_SCORED}; those left out are named with why{advice}{name_columns}")
    if name_columns:
        warn(f"some questions are left out until columns are named{name_columns}")
    if advice:
        warn(f"some are left out for want of their media{advice}")


def warn(line: str) -> None:
    say(f"warning: {line}", file=sys.stderr)


def sources_of(
    run: SavedRun, output: str, data: Sequence[str | DocumentsConfig], root: str | None, *, alone: bool
) -> list[Source]:
    """Of ``data``, or what the run holds out. Raises DataError where that is nothing, and there is nothing else."""
    sources = _named(run, data, root) if data else _held_out(run)
    if alone and not sources:
        raise DataError(f"{output}: its data have no held-out part; name documents with --data")
    return sources


def _held_out(run: SavedRun) -> list[Source]:
    """What the run holds out, with a warning where its data are others now."""
    from kosmos.run_sources import following, open_both
    from kosmos.train.older_rules import rules_of

    with following(**rules_of(run.order or None)):
        sources, held_out = open_both(run.composition.config, run.composition.registry)
    run.as_begun([*sources, *held_out])
    for line in (*run.other_data(sources), *unspaced(run, held_out)):
        warn(line)
    return held_out


def _named(run: SavedRun, data: Sequence[str | DocumentsConfig], root: str | None) -> list[Source]:
    from kosmos.data.place_tags import doubtful_places
    from kosmos.data.sources.blind import blind_of
    from kosmos.data.sources.remarks import remarks_of
    from kosmos.run_overlap import named_and_trained, trained_sources
    from kosmos.run_sources import open_named
    from kosmos.train.older_rules import rules_of

    composition = run.composition
    folder = Path(root) if root else None
    sources = open_named(
        composition.config, composition.registry, data, warn,
        root=folder, own=run.as_begun, **rules_of(run.order or None),
    )  # fmt: skip
    how = "--data '{path: FILE, columns: ...}' names them"
    blind = (line for source in sources for line in blind_of(source, composition.config.modalities, how))
    trained = trained_sources(composition.config, composition.registry)
    known = named_and_trained(composition.config, sources, data, trained)
    tags = doubtful_places(sources, composition.config.modalities)
    for line in (*chain.from_iterable(map(remarks_of, sources)), *blind, *tags, *unspaced(run, sources), *known):
        warn(line)
    return sources
