"""Runs as rows of a CSV file, and in the order of their scores. Imports no torch."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kosmos.commands.compared import flat
from kosmos.errors import ConfigError, unwritable
from kosmos.files import replacing
from kosmos.names import listed
from kosmos.train.json_lines import rounded
from kosmos.train.measure import Measure
from kosmos.visible import visible

LEFT_OUT = ("answers", "changes", "checkpoints", "guards", "saves")
"""Of what ``report.collect`` gives: lists and texts, of which a row would have a column for each entry."""
STANDARD_OUTPUT = Path("-")
OF_STEPS = ("meters", "recent", "processes")


def best_first(runs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Numbers of runs in the order of their best scores; those without one are last.

    Args:
        runs: what ``report.collect`` gave of each.

    Raises:
        ConfigError: the best is not that of one measure in all.
    """
    scores = {number: best for number, run in enumerate(runs) if (best := run["held_out_best"])}
    measures = {number: Measure.told(best) for number, best in scores.items()}
    if len(names := {str(measure) for measure in measures.values()}) > 1:
        raise ConfigError(
            f"--best-first: the runs are scored by {listed(sorted(names))} (evaluate.best); name those of one"
        )
    costs = {number: measure.cost(scores[number][measure.name]) for number, measure in measures.items()}
    return sorted(range(len(runs)), key=lambda number: costs.get(number, math.inf))


def write_csv(
    file: Path, runs: Sequence[Mapping[str, Any]], settings: Mapping[str, Sequence[Any]], wanted: Sequence[int | None]
) -> None:
    """A row for each run: its folder, the settings in which they differ, and figures by their paths in ``--json``.

    Args:
        file: which is replaced as a whole; ``-`` is standard output.
        runs: what ``report.collect`` gave of each.
        settings: what ``differences`` gave.
        wanted: steps that each was to take.

    Raises:
        ConfigError: the file cannot be written there, or is within the folder of a run; TrainingError where the disk is
            full.
    """
    rows = []
    for number, (run, steps) in enumerate(zip(runs, wanted, strict=True)):
        told = {name: value for name, value in run.items() if name not in LEFT_OUT}
        told["steps"] = {name: value for name, value in (run["steps"] or {}).items() if name not in OF_STEPS}
        told["steps"] |= {"peak_memory_bytes": run["steps"] and run["steps"]["meters"]["peak_memory_bytes"]}
        told["bad_samples"] = {"samples": run["bad_samples"]["samples"]}
        own = {name: values[number] for name, values in settings.items()}
        rows.append({"output": run["output"], **own, "train.steps": steps, **dict(flat(rounded(told)))})
    columns = {name: None for row in rows for name in row}
    text = io.StringIO()
    table = csv.DictWriter(text, list(columns), lineterminator="\n")
    table.writeheader()
    table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    written = text.getvalue().encode("utf-8", errors="backslashreplace")  # folders may have any name
    if file == STANDARD_OUTPUT:
        print(visible(written.decode()), end="")
    else:
        _put(file, written, [Path(run["output"]) for run in runs])


def _put(file: Path, written: bytes, folders: Sequence[Path]) -> None:
    place = Path(os.path.realpath(file))
    for folder in folders:
        if place.is_relative_to(folder.resolve()):
            raise ConfigError(f"--csv {file}: is within the run {folder}, whose files are its own; name another --csv")
    try:
        if file.exists() and not file.is_file():  # a device or a pipe stays what it is
            file.write_bytes(written)
        else:
            with replacing(place) as new:
                new.write(written)
    except OSError as error:
        raise unwritable(file, error, "name another --csv") from error


def _cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
