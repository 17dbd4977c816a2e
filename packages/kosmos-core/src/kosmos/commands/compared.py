"""Runs beside each other: the settings in which they differ, and what each came to. Imports no torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kosmos.errors import ConfigError, KosmosError
from kosmos.train.measure import ALL, Measure
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.train.output import RunFolder

RUNS = "run"
ABSENT = "-"


def opened(output: Sequence[str]) -> tuple[list[RunFolder], list[KosmosError]]:
    """The folders of runs, and what is wrong with those that are none. Raises it where no other is named."""
    from kosmos.train.output import RunFolder

    folders, wrong = list[RunFolder](), list[KosmosError]()
    for one in output:
        try:
            folders.append(RunFolder.open(Path(one)))
        except KosmosError as refused:
            wrong.append(refused)
    if not folders:
        raise wrong[0]
    return folders, wrong


def refuse(wrong: Sequence[KosmosError]) -> None:
    """Raises the first error, once the others were told of, too."""
    for error in wrong[1:]:
        say(f"warning: {error}", file=sys.stderr)
    if wrong:
        raise wrong[0]


def settings_of(folder: RunFolder) -> dict[str, Any]:
    """A run's settings, with what this version has for fields that the run's own did not know."""
    from kosmos.run_file import make_run

    written = folder.read_config()
    try:
        return make_run(written).model_dump(mode="json")
    except ConfigError:  # of a version that knew others
        return written


def used_in(folder: RunFolder, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run used where its run file says nothing, by dotted path: the streams that it has without stating them,
    and the components and options that it noted as it began, which runs of older versions did not."""
    from kosmos.config import StreamConfig

    try:
        noted = json.loads(folder.parameters.read_text(encoding="utf-8"))["options"]
        noted = {place: options for place, options in noted.items() if isinstance(options, Mapping)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        noted = {}
    try:
        streams = {of.get("stream") or name for name, of in settings["modalities"].items()}
    except (KeyError, AttributeError):
        streams = set[str]()
    own, plain = dict(flat(settings)), StreamConfig().model_dump(mode="json")
    used = {name: value for stream in streams for name, value in flat(plain, f"streams.{stream}")}
    for place, options in noted.items():
        if own.get(f"{place}.name") in (None, "", options.get("name")):  # else another one has come in its place
            used |= dict(flat(options, place))
    return used


def differences(
    settings: Sequence[Mapping[str, Any]], used: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, list[Any]]:
    """Fields of run files that are not alike in all runs, by dotted path, with the value in each; None where it is not.

    Where the output is says nothing of a run.

    Args:
        used: what ``used_in`` gave of each, which counts where a run file leaves out what that of another run states.
    """
    fields = [dict(flat(one)) for one in settings]
    names = {name: None for one in fields for name in one if name != "output"}  # in the order of the run file
    every = [
        {**more, **{name: value for name, value in one.items() if value != "" or name not in more}}  # of its modality
        for one, more in zip(fields, used or [{}] * len(fields), strict=True)
    ]
    found = {name: [one.get(name) for one in every] for name in names}
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Fields that hold no others, by path."""
    if not isinstance(value, Mapping | list):
        yield path, value
        return
    if path == "modalities" and isinstance(value, Mapping):  # most say nothing but their names
        yield path, ", ".join(map(str, value))
    for name, below in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from flat(below, f"{path}.{name}" if path else str(name))


def beside(
    runs: Sequence[Mapping[str, Any]], settings: Mapping[str, Sequence[Any]], wanted: Sequence[int | None]
) -> list[str]:
    """A table with a column for each run.

    Args:
        runs: what ``report.collect`` gave of each.
        settings: what ``differences`` gave.
        wanted: steps that each was to take.
    """
    rows: dict[str, list[str]] = {RUNS: [run["output"] for run in runs]}
    rows |= {name: [_word(value) for value in values] for name, values in settings.items()}
    columns = [dict(_figures(run, steps)) for run, steps in zip(runs, wanted, strict=True)]
    names = {name: None for column in columns for name in column}
    rows |= {name: [column.get(name, ABSENT) for column in columns] for name in names}
    widths = [max(len(cells[place]) for cells in rows.values()) for place in range(len(runs))]
    head = max(map(len, rows))
    lines = [
        "  ".join([f"{name:<{head}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))])
        for name, cells in rows.items()
    ]
    after = 1 + len(settings)
    return [*lines[:after], *([""] if settings else ()), *lines[after:]]


def _word(value: Any) -> str:
    if value is None:
        return ABSENT
    return str(value).lower() if isinstance(value, bool) else str(value)


def _figures(run: Mapping[str, Any], wanted: int | None) -> Iterator[tuple[str, str]]:
    """What a run came to, a line each; without those that it has no figure of."""
    if run["changes"]:  # what it was begun with stands nowhere above
        yield "settings changed from step", ", ".join(f"{row['step']:,}" for row in run["changes"])
    steps, last, held_out, best = (run[part] for part in ("steps", "last_losses", "held_out", "held_out_best"))
    last_step = steps["last"] if steps else 0
    yield "ended", run["ended"]["how"]
    yield "steps", f"{last_step:,}" + (f" of {wanted:,}" if wanted not in (None, last_step) else "")
    if run["guards"]:
        yield "steps that went wrong", f"{sum(found['steps'] for found in run['guards']):,}"
    if steps:
        if steps["epoch"] is not None:
            yield "epoch", f"{steps['epoch']:,.2f}"
        yield "tokens", f"{steps['tokens']:,}"
        if steps["processes"]:
            yield "processes", ", then ".join(map(str, steps["processes"]))
    if last:
        yield "training loss, last step", _number(last["all"])
    if held_out:
        yield "held out, step", f"{held_out['step']:,}"
        yield "  documents", f"{held_out['overall']['documents']:,}"
        yield from _scores("", held_out["overall"])
        for kind in ("modality", "source"):
            if len(held_out[kind]) > 1:
                for name, score in held_out[kind].items():
                    yield from _scores(f"{kind} {name}, ", score)
    if best:
        measure = Measure.told(best)
        yield measure.best, measure.shown(best[measure.name])
        yield f"  at step{'' if measure == ALL else f', {measure}'}", f"{best['step']:,}"
    if steps and steps["tokens_per_s_recent"]:
        yield "tokens a second, last steps", f"{steps['tokens_per_s_recent']:,.0f}"
    if steps:
        yield from _meters(steps["recent"])
    if run["parameters"]:
        yield "parameters", f"{run['parameters']['parameters']:,}"
        yield "  trained", f"{run['parameters']['trained']:,}"
    if steps and (peak := steps["meters"]["peak_memory_bytes"]) is not None:
        yield "memory, GiB", f"{peak / 2**30:,.2f}"
    if run["goodput"]:
        yield "seconds", f"{run['goodput']['wall_s']:,.1f}"
        yield "goodput", f"{100 * run['goodput']['goodput']:.1f} %"
    yield "bad samples", f"{run['bad_samples']['samples']:,}"
    if run["saves"]["failed"]:
        yield "saves that failed in a row", f"{run['saves']['failed']:,}"


def _meters(recent: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    shares = {
        "MFU": "mfu",
        "  causal attention halved": "mfu_half_causal",
        "data wait": "data_wait_share",
        "fill": "fill",
    }
    for name, field in shares.items():
        if recent[field] is not None:
            yield f"{name}, last steps", f"{100 * recent[field]:.2f} %"
    for stream, ratio in recent["imbalance_by_stream"].items():
        yield f"imbalance of {stream}, last steps", f"{ratio:.2f}"


def _scores(of: str, score: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield f"  {of}loss", _number(score["loss"])
    if score.get("exact_match") is not None:
        yield f"  {of}accuracy", f"{100 * score['exact_match']:.1f} %"


def _number(loss: float | None) -> str:
    return ABSENT if loss is None else f"{loss:.4f}"
