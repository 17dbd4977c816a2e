"""``kosmos eval``."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import refuse_empty
from kosmos.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kosmos.data.document import Source
    from kosmos.train.saved import SavedRun


def evaluate(
    output: Annotated[str, typer.Argument(help="Folder of a run.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Score these instead of the run's held-out part; may be repeated. Of data that the run was trained "
            "on, the part that it held out; of other data, the part that they state as held out, or all of them."
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Of which checkpoint; the newest whole one by default.")
    ] = None,
    max_documents: Annotated[int, typer.Option(min=1, help="Most documents of each source.")] = 1_000_000,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that decode; 0 decodes in this one; by default by the number of cores."),
    ] = None,
    generate: Annotated[
        int, typer.Option(min=0, help="Also write out the answers of so many documents of each source, and score them.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Score a trained run: loss, perplexity and exact match of the answers, by modality and source."""
    from kosmos.compose import open_held_out, open_named
    from kosmos.evaluate.score import score
    from kosmos.runtime.cores import helpers_of_rank
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.output import as_json as one_line
    from kosmos.train.saved import load_run

    _check_data(data or ())
    run = load_run(Path(output), step=step)
    for line in run.warnings():
        _warn(line)
    composition = run.composition
    config, registry = composition.config, composition.registry
    sources = open_named(config, registry, data, _warn) if data else open_held_out(config, registry)
    if not sources:
        raise DataError(f"{output}: its data have no held-out part; name documents with --data")
    scores = score(
        composition, sources, device=run.device, dtype=run.dtype, max_documents=max_documents,
        workers=helpers_of_rank(Parallel()) if workers is None else workers,
    )  # fmt: skip
    result = {"output": output, "step": run.step, **asdict(scores)}
    if generate:
        result["generated"] = _generated(run, sources, generate)
    print(one_line(result) if as_json else "\n".join(table(result)))


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)


def _check_data(paths: Sequence[str]) -> None:
    for path in paths:
        refuse_empty("--data", path)
        if paths.count(path) > 1:
            raise ConfigError(f"--data {path}: is given twice; give each source once")


def _generated(run: SavedRun, sources: Sequence[Source], count: int) -> dict[str, dict[str, float]]:
    """Metrics of really generated answers, by source."""
    from kosmos.evaluate.generated import generate_answers, score_answers, text_metrics

    composition = run.composition
    metrics = text_metrics(composition.registry, composition.config.evaluate.metrics)
    answers = {
        source.name: generate_answers(composition, source, device=run.device, dtype=run.dtype, max_documents=count)
        for source in sources
    }
    return {name: {"documents": len(found), **score_answers(found, metrics)} for name, found in answers.items()}


def table(result: dict[str, Any]) -> list[str]:
    """The scores as plain lines."""
    lines = [f"{'':<20} {'documents':>9} {'loss':>9} {'perplexity':>11} {'exact match':>12}"]
    groups = {
        "all": result["overall"],
        **result["by_modality"],
        **{f"  {n}": s for n, s in result["by_source"].items()},
    }
    for name, s in groups.items():
        exact = "-" if s["exact_match"] is None else f"{100 * s['exact_match']:.2f} %"
        loss, perplexity = ("-" if math.isnan(s[key]) else f"{s[key]:.4f}" for key in ("loss", "perplexity"))
        lines.append(f"{name:<20} {s['documents']:>9} {loss:>9} {perplexity:>11} {exact:>12}")
    for name, values in result.get("generated", {}).items():
        lines.append(f"generated, {name}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in values.items()))
    for incident in result["incidents"]:
        lines.append(f"left out: {incident['origin']}: {incident['cause']}")
    return lines
