"""``kosmos tune``: which settings make a run fastest on this machine, and by how much. Imports no torch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import (
    Data,
    Modalities,
    check_writable,
    one_file,
    refuse_ranks,
    refuse_said_twice,
    short_options,
    split_extra,
)
from kosmos.errors import Interrupted, unwritable
from kosmos.run_file import parse_overrides, read_run_file
from kosmos.selection import plugins_option
from kosmos.visible import say, visible

if TYPE_CHECKING:
    from kosmos.tune.search import Search, Tried
    from kosmos.tune.settings import Settings

OPTIONS = (
    "--modalities", "--data", "--nproc", "--steps", "--rounds", "--thorough", "--write", "--json", "--help",
)  # fmt: skip
HEADS = ("settings", "tokens/s", "times", "data wait", "memory", "note")

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def tune(
    context: typer.Context,
    modalities: Modalities = None,
    data: Data = None,
    nproc: Annotated[int | None, typer.Option(help="Processes on this machine that share the run.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps that each trial counts; by default as many as take ten seconds, 4 to 200."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each setting is tried, in turn with the others.")] = 2,
    thorough: Annotated[bool, typer.Option("--thorough", help="Try also what rarely pays or takes long.")] = False,
    write: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write a run file that is the given one plus what was found, without its comments."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    trial: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Find the fastest settings here: kosmos tune [RUN.yaml] [--data PATH]... [FIELD.PATH=VALUE]...

    Each setting that is worth it (rows at once, their length, compilation, data workers, recomputed activations) trains
    some steps in a process of its own, and leaves nothing. A step keeps its number of tokens; fields that are set on
    the command line stay as they are. What is not 3 % faster in every round is left alone.
    """
    if trial is not None:
        from kosmos.tune.trial import run_trial

        raise typer.Exit(run_trial(Path(trial)))
    refuse_ranks("kosmos tune")
    settings = _settings(context, modalities, data)
    if write is not None:
        check_writable("--write", write)
    from kosmos.runtime.dealing import check_dealing
    from kosmos.runtime.launch import check_nproc
    from kosmos.tune.processes import Trials
    from kosmos.tune.search import Search

    config = settings.config()
    if nproc is not None:
        check_nproc(nproc)
        check_dealing(config.data.lanes, nproc, config.parallel.sharing)
    search: Search | None = None
    try:
        with Trials(nproc) as trials:
            search = Search(settings, trials, rounds=rounds, steps=steps, thorough=thorough, say=_say)
            search.go()
    except KeyboardInterrupt as stop:
        if search is not None and search.base.outcomes:
            _show(search, [], as_json=as_json, interrupted=True)
        name = stop.args[0] if stop.args else "SIGINT"
        raise Interrupted(f"stopped ({name}); nothing was chosen, and nothing is left of the trials") from stop
    try:
        _show(search, _commands(search, context, write), as_json=as_json)
    finally:  # whoever reads the table may have gone
        if write is not None:
            (instead,) = _commands(search, context, None)
            _write(Path(write), settings.text(search.overrides), instead)


def _settings(context: typer.Context, modalities: list[str] | None, data: list[str] | None) -> Settings:
    from kosmos.tune.settings import Settings

    short = short_options(modalities=modalities, data=data)
    overrides, files = split_extra(context.args, OPTIONS)
    file = one_file(files)
    given = parse_overrides(overrides)
    refuse_said_twice(short, given)
    return Settings(file, read_run_file(Path(file)) if file else {}, short, given)


def _say(line: str) -> None:
    say(line, file=sys.stderr, flush=True)


def _write(file: Path, text: str, instead: str) -> None:
    """Raises what ``unwritable`` gives, which says the command that needs no file, where it cannot be written."""
    is_new = False
    try:
        with file.open("x", encoding="utf-8") as new:
            is_new = True
            new.write(text)
    except OSError as error:
        if is_new:
            file.unlink(missing_ok=True)  # it may hold half of it
        raise unwritable(f"--write {file}", error, f"train with: {instead}") from error


def _commands(search: Search, context: typer.Context, write: str | None) -> list[str]:
    """What trains with the settings that were found."""
    from kosmos.tune.settings import written

    given = context.params
    shared = ["--nproc", str(given["nproc"])] if given["nproc"] is not None else []
    shared += plugins_option()
    if write is not None:
        return [shlex.join(["kosmos", "train", write, *shared])]
    short = [part for names in given["modalities"] or () for part in ("--modalities", names)]
    short += [part for path in given["data"] or () for part in ("--data", path)]
    return [shlex.join(["kosmos", "train", *context.args, *short, *shared, *written(search.overrides)])]


def _show(search: Search, commands: Sequence[str], *, as_json: bool, interrupted: bool = False) -> None:
    if as_json:
        from kosmos.train.json_lines import printed_json as one_line

        print(one_line(result_of(search, commands, interrupted=interrupted)), flush=True)
        return
    _print_table([_cells(search, one) for one in _rows(search)])
    if not interrupted:
        say("\n".join(_conclusion(search, commands)), flush=True)


def _rows(search: Search) -> list[Tried]:
    return [*search.lacking, search.base, *search.tried]


def _cells(search: Search, one: Tried) -> tuple[str, ...]:
    from kosmos.tune.outcome import waiting
    from kosmos.tune.settings import written

    name = " ".join(written(one.candidate.overrides)) or "as it is"
    if one.failed or not one.outcomes:
        return (name, "-", "-", "-", "-", _note(search, one))
    times = "1.00" if one is search.base else f"{one.times:.2f}" if one.times is not None else "-"
    return (
        name, f"{one.speed:,.0f}", times, f"{100 * waiting(one.outcomes):.1f} %",
        f"{max(outcome.peak_memory_bytes for outcome in one.outcomes) / 2**30:.2f} GiB", _note(search, one),
    )  # fmt: skip


def _note(search: Search, one: Tried) -> str:
    from kosmos.tune.search import line_of

    if (failed := one.failed) is not None:
        line = line_of(failed)
        return "out of memory" if failed.out_of_memory and "out of memory" in line else f"not possible: {line}"
    if not one.outcomes:
        return "not tried"
    short = any(outcome.is_short for outcome in one.outcomes)
    cut = "memory does not suffice: fewer rows at once are computed, or parts of them" if short else ""
    seldom = f"slower in round {len(one.outcomes)}" if one is not search.base and not one.is_ahead else ""
    changed = one.candidate.note if one is search.base or one.is_ahead else ""
    return "; ".join(filter(None, (cut, seldom, one.pays, changed)))


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    rows = [tuple(map(visible, row)) for row in rows]
    if not sys.stdout.isatty():
        print("\n".join(plain_table(rows)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*HEADS, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def plain_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The table for pipes and files: a line a row, never wrapped."""
    every = [HEADS, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(HEADS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every]


def _conclusion(search: Search, commands: Sequence[str]) -> list[str]:
    told = _cold(search)
    if search.is_crowded:
        told.append("other programs used the cores meanwhile: try again once they have ended, to be sure")
    if not search.overrides:
        return [*told, "nothing tried is faster by 3 %: keep it as it is"]
    if search.chosen is None:
        return [*told, "nothing else tried is faster by 3 %; so that the run fits into memory:", *commands]
    return [*told, f"{search.chosen.times:.2f} times as fast:", *commands]


def _cold(search: Search) -> list[str]:
    """What can be told only of the first trial: the others find its files in memory."""
    from kosmos.tune.candidates import WAITS
    from kosmos.tune.outcome import waiting

    if search.first is None or (first := waiting([search.first])) < max(WAITS, 2 * waiting(search.base.outcomes)):
        return []
    return [
        f"the first trial waited {100 * first:.0f} % of its time for rows, as its files were not in memory yet; a run "
        "on more data than fit there may wait so all the time, and gain from more data.workers"
    ]


def result_of(search: Search, commands: Sequence[str], *, interrupted: bool = False) -> dict[str, Any]:
    """All figures, as ``--json`` prints them."""
    from dataclasses import asdict

    from kosmos.tune.outcome import tokens_per_s, waiting

    def row(one: Tried) -> dict[str, Any]:
        known = [outcome for outcome in one.outcomes if not outcome.error]
        return {
            "overrides": dict(one.candidate.overrides),
            "why": one.candidate.why,
            "tokens_per_s": one.speed or None,
            "tokens_per_s_by_round": [tokens_per_s([outcome]) for outcome in known],
            "times": 1.0 if one is search.base else one.times,
            "is_faster": one is not search.base and one.is_faster,
            "data_wait": waiting(known) if known else None,
            "peak_memory_bytes": max((outcome.peak_memory_bytes for outcome in known), default=None),
            "compile_s": max((outcome.compile_s for outcome in known), default=None),
            "note": _note(search, one),
        }

    facts = search.facts
    return {
        "facts": asdict(facts) if facts is not None else None,
        "tried": [row(one) for one in _rows(search)],
        "overrides": search.overrides,
        "times": search.chosen.times if search.chosen is not None else None,
        "commands": list(commands),
        "is_crowded": search.is_crowded,
        "interrupted": interrupted,
    }
