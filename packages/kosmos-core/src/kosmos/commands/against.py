"""``kosmos eval OUTPUT --against OUTPUT``: two runs, or two checkpoints of one, on the same documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kosmos.commands.arguments import as_step, refuse_empty
from kosmos.commands.causes import incident_lines
from kosmos.commands.choices import opened_choices
from kosmos.commands.differences import difference_lines
from kosmos.commands.named_data import path_of
from kosmos.commands.scoring import (
    compile_kernels,
    refuse_nothing,
    score_documents,
    score_questions,
    sources_of,
    warn,
    warnings_of,
)
from kosmos.commands.several import loaded_by_all, shared
from kosmos.data.ledger_codes import document_of
from kosmos.errors import ConfigError
from kosmos.own_output import aside
from kosmos.visible import in_a_line, say

if TYPE_CHECKING:
    from kosmos.config import ChoicesConfig, DocumentsConfig
    from kosmos.data.batch import DocumentInfo
    from kosmos.evaluate.choices import Chosen
    from kosmos.evaluate.paired import Counted, Key
    from kosmos.evaluate.score import Tally
    from kosmos.runtime.parallel import Parallel

Against = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OUTPUT[@STEP]",
        help="Compare with this run, or with another checkpoint, on the same documents: by how much the two differ, "
        "and how sure that is. STEP is a number or best, by default as of --step. May be repeated.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """What is scored of each run."""

    data: Sequence[str | DocumentsConfig]
    choices: Sequence[ChoicesConfig]
    root: str | None
    max_documents: int
    workers: int | None
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class _Scored:
    """A run, as far as it is compared."""

    name: str
    """With its step."""
    result: dict[str, Any]
    counted: dict[Key, Counted]
    unread: set[Key]


def check_against(against: Sequence[str] | None, others: Mapping[str, object]) -> None:
    """Raises ConfigError where something else is asked for beside a comparison.

    Args:
        others: options, each None where it is not given.
    """
    for one in against or ():
        refuse_empty("--against", one)
        if option := next((name for name, value in others.items() if value is not None), None):
            raise ConfigError(
                f"--against and {option}: what is compared is losses, exact match and choices; leave one of the two out"
                " (answers that are written compare by: kosmos score ONE.jsonl --against OTHER.jsonl)"
            )


def compare(output: str, against: Sequence[str], step: str | None, asked: Asked, *, as_json: bool) -> None:
    """Score each run once, and tell how the first differs from each of the others.

    Raises:
        ConfigError: two are one checkpoint.
        DataError: nothing was scored, or they have not scored the same documents.
    """
    from kosmos.evaluate.paired import differences, paired

    wanted = [(output, as_step(step)), *(_run_and_step(one, step) for one in against)]
    with shared() as parallel, aside():
        first, *others = _scored_each(wanted, asked, parallel)
        told = []
        for other in others:
            unread = first.unread | other.unread
            pairs = paired(first.counted, other.counted, unread, (first.name, other.name))
            told.append((other, len(pairs.pairs), pairs.left_out, differences(pairs)))
    if not parallel.is_main:
        return
    if as_json:
        from kosmos.train.json_lines import printed_json

        runs = [one.result | {"incidents": [*map(asdict, one.result["incidents"])]} for one in (first, *others)]
        rows = [
            {"output": other.result["output"], "step": other.result["step"], "documents": count, "left_out": left_out,
             "differences": [asdict(one) for one in found]}
            for other, count, left_out, found in told
        ]  # fmt: skip
        print(printed_json({"runs": runs, "against": rows}))
        return
    for other, count, left_out, found in told:
        less = f", and {left_out:,} left out that one of them could not score" if left_out else ""
        say(f"first {in_a_line(first.name)}, second {in_a_line(other.name)}: {count:,} scored by both{less}")
        say("\n".join(difference_lines(found)))
    for one in (first, *others):
        for line in incident_lines(one.result["incidents"], f"left out of {one.name}"):
            say(line)


def _run_and_step(text: str, step: str | None) -> tuple[str, int | Literal["best"] | None]:
    """A folder, of which a name with @ is one too, and the step behind it."""
    folder, at, its = text.rpartition("@")
    if not at or Path(text).is_dir():
        return text, as_step(step)
    try:
        return folder, as_step(its)
    except ConfigError as error:
        raise ConfigError(f"--against {text}: {str(error).removeprefix('--step: ')} behind the @") from error


def _scored_each(
    wanted: Sequence[tuple[str, int | Literal["best"] | None]], asked: Asked, parallel: Parallel
) -> list[_Scored]:
    found: dict[tuple[Path, int], _Scored] = {}
    for output, step in wanted:
        # One after the other: only one model is held at a time.
        own = _scored(output, step, asked, parallel, found)
        found[Path(output).resolve(), own.result["step"]] = own
    return list(found.values())


def _scored(
    output: str,
    step: int | Literal["best"] | None,
    asked: Asked,
    parallel: Parallel,
    known: Mapping[tuple[Path, int], _Scored],
) -> _Scored:
    """Raises ConfigError where the checkpoint is known already."""
    from kosmos.runtime.cores import helpers_of_rank

    workers = helpers_of_rank(parallel.local_world_size) if asked.workers is None else asked.workers
    run = loaded_by_all(parallel, output, step, asked.fields)
    name = f"{output}, step {run.step:,}"
    if (Path(output).resolve(), run.step) in known:
        raise ConfigError(f"--against {output}: {name} is there already; name another step, as {output}@STEP")
    for line in warnings_of(run, asked.data, asked.choices):
        warn(f"{output}: {line}")
    compile_kernels(run)
    own = [] if asked.data or asked.choices else run.composition.config.evaluate.choices
    is_asked = bool(asked.choices or own)
    questions = opened_choices(run, asked.choices, asked.root, asked.max_documents) if is_asked else []
    wants_documents = asked.data or not asked.choices
    sources = sources_of(run, output, asked.data, asked.root, alone=not own) if wants_documents else []
    result: dict[str, Any] = {"output": output, "step": run.step, "incidents": []}
    counted: dict[Key, Counted] = {}
    if questions:
        for question in score_questions(run, questions, workers, result, parallel):
            counted[_key(question)] = _of_question(question)
    if sources:
        of_rank: dict[Key, Counted] = {}
        score_documents(
            run, sources, asked.max_documents, workers, result, parallel,
            counted=lambda document, tally: _add(of_rank, _of_document(document, tally)),
        )  # fmt: skip
        for theirs in parallel.gather(of_rank):
            for one in theirs.items():
                _add(counted, one)
    named = [one.path for one in asked.choices]
    refuse_nothing(result, sources, [path_of(one) for one in asked.data], named, asked.root)
    return _Scored(name, result, counted, set(_unread(result)))


def _add(found: dict[Key, Counted], one: tuple[Key, Counted]) -> None:
    key, counted = one
    if key in found:
        found[key].add(counted)
    else:
        found[key] = counted


def _of_document(document: DocumentInfo, tally: Tally) -> tuple[Key, Counted]:
    from kosmos.evaluate.paired import Counted

    figures: dict[str, tuple[float, float]] = {"loss": (tally.loss, tally.targets)}
    if tally.text_bytes and not tally.units and not tally.media:
        figures["bits_per_byte"] = (tally.loss / math.log(2), tally.text_bytes)
    if tally.answers:
        figures["exact_match"] = (tally.right, tally.answers)
    key = ("source", document.source, document_of(document.origin))
    return key, Counted(figures, document.modalities, tally.text_bytes)


def _key(question: Chosen) -> Key:
    rows = question.source
    return "choices", rows.name, rows.source.origin(rows.rows[question.place])


def _of_question(question: Chosen) -> Counted:
    from kosmos.evaluate.paired import Counted

    values = {"accuracy": question.log_probabilities, "accuracy_by_length": question.by_length}
    return Counted({name: (float(question.is_right(each)), 1.0) for name, each in values.items()})


def _unread(result: Mapping[str, Any]) -> Iterator[Key]:
    """What was left out, be it a document or a question, an answer of which tells as much."""
    from kosmos.data.choices import ANSWER

    for incident in result["incidents"]:
        yield "source", incident.source, document_of(incident.origin)
        yield "choices", incident.source, incident.origin
        yield "choices", incident.source, incident.origin.rpartition(ANSWER)[0]
