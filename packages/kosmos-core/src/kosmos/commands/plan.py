"""``kosmos plan``: what a run comes to, before anything is trained or allocated."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos import collector
from kosmos.commands.arguments import (
    Data,
    Epochs,
    Modalities,
    one_file,
    refuse_empty,
    refuse_ranks,
    refuse_said_twice,
    short_options,
    split_extra,
)
from kosmos.errors import ConfigError
from kosmos.own_output import aside
from kosmos.run_file import COMMAND_LINE, lay_over, parse_overrides, read_run_file
from kosmos.visible import say, visible

if TYPE_CHECKING:
    from kosmos.train.forecast.whole import Forecast

OPTIONS = ("--modalities", "--data", "--steps", "--epochs", "--nproc", "--processes", "--device", "--json", "--help")
NUMBERS = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
"""Prefixes of thousands."""
Cells = Sequence[str]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def plan(
    context: typer.Context,
    modalities: Modalities = None,
    data: Data = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    epochs: Epochs = None,
    nproc: Annotated[
        int | None, typer.Option(min=1, help="Processes of a machine; without --processes those of the run.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes of the run on all its machines; 1 by default.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="GPU of each process, such as H100 or A100-40GB; by default this machine's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Tell what a run comes to: kosmos plan [RUN.yaml] [--processes 64] [--device H100] [FIELD.PATH=VALUE]...

    Parts and their parameters, memory of a process, tokens, rows and passes over the data, operations, and the time
    that a GPU would take. The first rows are planned by headers; nothing is trained, decoded or written, and neither
    the processes nor the GPUs have to be here.
    """
    refuse_ranks("kosmos plan")
    refuse_empty("--device", device)
    overrides, files = split_extra(context.args, OPTIONS)
    file = one_file(files)
    short = short_options(modalities=modalities, data=data, steps=steps, epochs=epochs)
    base = read_run_file(Path(file)) if file else {}
    given = parse_overrides(overrides)
    refuse_said_twice(short, given)
    config = lay_over([base], [short, given], where=file or COMMAND_LINE, over=COMMAND_LINE)
    world = processes or nproc or 1
    if world % (nproc or world):
        raise ConfigError(f"--processes {world}: expected a multiple of --nproc, the {nproc} processes of a machine")

    from kosmos.plugins import load_plugins
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.forecast.devices import device_here, device_named
    from kosmos.train.forecast.whole import forecast
    from kosmos.train.json_lines import printed_json as one_line

    collector.imported()
    collector.go_on()
    with aside():
        precision = "bf16" if config.train.weights == "bf16" else config.train.precision
        gpu = device_named(device, precision) if device else device_here(config.train.device, precision)
        ranks = Parallel(world_size=world, local_world_size=nproc or world)
        config = config.model_copy(update={"profile": None})  # of no use to a plan, whatever steps and ranks it names
        found = forecast(config, load_plugins(config.plugins), ranks, device=gpu, report=say)
    if as_json:
        print(one_line(found.as_row()))
    else:
        _print(found)


def _print(found: Forecast) -> None:
    row = found.as_row()
    _table(
        ("model", "component", "parameters", "trained", "how", "type"), list(_part_rows(row["model"])), numbers={2, 3}
    )
    say("\n".join(_memory_lines(found, row["memory"])))
    say()
    heads = ("data", "documents", "tokens, about", "share", "passes, about", "longer than a row")
    _table(heads, [_source_cells(one) for one in row["data"]], numbers={1, 2, 3, 4, 5})
    say("\n".join(_row_lines(row)))
    say()
    _table(("work", "operations of a step", "share"), list(_work_rows(row["work"])), numbers={1, 2})
    say("\n".join([*_time_lines(row), *(f"warning   {line}" for line in row["warnings"])]))


def _part_rows(model: dict[str, Any]) -> Iterator[Cells]:
    for part in model["parts"]:
        counts = f"{part['parameters']:,}", f"{part['trained']:,}"
        yield part["place"], part["component"], *counts, part["how"], ", ".join(part["types"])
    yield "total", "", f"{model['parameters']:,}", f"{model['trained']:,}", "", ""


def _memory_lines(found: Forecast, memory: dict[str, Any]) -> Iterator[str]:
    names = memory["optimizer_bytes_by_name"]
    kept = ", ".join(f"{name} {_size(size)}" for name, size in names.items() if 1000 * size > found.memory.state.total)
    unknown = memory["optimizer_bytes"] is None
    state = "unknown" if unknown else _size(memory["optimizer_bytes"]) + (f" ({kept})" if kept else "")
    held = f"weights {_size(memory['weights_bytes'])}, gradients {_size(memory['gradients_bytes'])}"
    if beside := memory["reference_bytes"]:
        held += f", the model to compare with {_size(beside)}"
    shared = found.layout["shared"]
    whose = f"the largest of {shared}" if shared else "a process"
    where = ", in host memory" if memory["offloaded"] else ""
    yield f"memory    {_size(memory['held_bytes'])}{where} ({whose}): {held}, optimizer state {state}"
    gathered = memory["gathered_bytes"]
    more = f"what is gathered of shards while they compute ({_size(gathered)}), " if gathered else ""
    if found.config.train.release_gradients:
        yield "          gradients are those of the largest parameter: each is freed at once"
    yield f"          not in it: {more}activations of a row, which depend on kernels, and buffers"


def _source_cells(one: dict[str, Any]) -> Cells:
    if one["tokens"] is None:
        return one["name"], f"{one['documents']:,}", "none can be used", "-", "-", "-"
    from kosmos.train.length import give_or_take

    longer = f"{one['longer_than_a_row']:,} of {one['looked_at']:,} looked at"
    about = give_or_take(one["tokens_error"] / one["tokens"])
    counts = f"{one['documents']:,}", f"{_count(one['tokens'])}{about}"
    return one["name"], *counts, _percent(one["share"]), _short(one["passes"]), longer


def _row_lines(row: dict[str, Any]) -> Iterator[str]:
    layout, rows = row["layout"], row["rows"]
    processes = layout["processes"]
    each = layout["rows_of_a_process"]
    whose = "process" if layout["groups"] == processes else f"group of {processes // layout['groups']} processes"
    dealt = f"{processes:,} process{'es' * (processes > 1)}, {each:,} row{'s' * (each > 1)} a {whose}"
    yield f"step      {layout['lanes']:,} lane{'s' * (layout['lanes'] > 1)}; {dealt}"
    every, steps = rows["rows"], rows["steps"]
    whole = f"{steps:,} whole step{'s' * (steps > 1)}" if steps else "not a whole step"
    yield f"rows      {every:,} planned ({whole}), {_percent(rows['fill'])} full"
    yield (
        f"          of each {rows['text_tokens_per_row']:,.0f} tokens are text and {rows['media_tokens_per_row']:,.0f} "
        f"media, in {rows['documents_per_row']:,.1f} documents"
    )
    for name, cells in rows["cells_by_stream"].items():
        uneven = rows["imbalance_by_stream"].get(name)
        told = f"; the most of a step's rows is {uneven:.2f} times their mean" if uneven else ""
        yield f"cells     {name}: {cells['mean']:,.1f} a row, {cells['most']:,} at most{told}"
    if rows["incidents"]:
        yield f"          {rows['incidents']:,} documents on the way could not be used: see kosmos data --check"
    tokens = f"{_count(row['tokens_of_step'])} tokens a step, {_count(row['tokens'])} in all"
    yield f"run       {row['steps']:,} step{'s' * (row['steps'] > 1)}: about {tokens}"
    if row["counted"]:
        yield f"          {row['counted']}"


def _work_rows(work: dict[str, Any]) -> Iterator[Cells]:
    total = work["flops_of_step"]
    for name, flops in work["flops_by_module"].items():
        yield name, _flop(flops), _percent(flops / total if total else 0.0)
    yield "total", _flop(total), ""


def _time_lines(row: dict[str, Any]) -> Iterator[str]:
    work, device, processes = row["work"], row["device"], row["layout"]["processes"]
    half = f"{_flop(work['flops_of_step_half_causal'])} with what a causal mask leaves of attention"
    yield f"estimate  {_flop(work['flops_of_step'])} a step ({half}); {_flop(work['flops'])} in all"
    if device is None:
        yield "time      no GPU is here to tell it of: name one with --device"
    elif device["peak_flops"] is None:
        yield f"time      no peak of {device['name']} in {device['type']} is known"
    else:
        gpus = f"{processes:,} {device['name']}" if processes > 1 else device["name"]
        yield f"time      {gpus}, {_flop(device['peak_flops'])}/s each at most in {device['type']}:"
    for time in row["times"]:
        run = f"{_duration(3600 * time['run_hours'])} in all, {_short(time['gpu_hours'])} GPU hours"
        yield f"          at {_percent(time['of_peak'])} of it {_duration(time['step_s'])} a step, {run}"


def _table(heads: Cells, rows: Sequence[Cells], *, numbers: set[int]) -> None:
    """For a terminal as wide as it is; else one line a row, never wrapped. ``numbers``: columns that end together."""
    rows = [tuple(map(visible, row)) for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column, head in enumerate(heads):
            table.add_column(head, justify="right" if column in numbers else "left")
        for row in rows:
            table.add_row(*(Text(cell, "bold" if column == 0 else "") for column, cell in enumerate(row)))
        Console(highlight=False).print(table)
        return
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row in (heads, *rows):
        cells = zip(row, widths, range(len(row)), strict=True)
        print("  ".join(c.rjust(w) if column in numbers else c.ljust(w) for c, w, column in cells).rstrip())


def _size(number: float) -> str:
    unit, name = next(
        ((2**power, name) for power, name in ((30, "GiB"), (20, "MiB")) if number >= 2**power), (2**10, "KiB")
    )
    return f"{number / unit:,.2f} {name}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 1e6 else _prefixed(number)


def _flop(number: float) -> str:
    return f"{_prefixed(number)}FLOP"


def _prefixed(number: float) -> str:
    """``"1.23 T"`` for 1.23e12."""
    power = 0
    while number >= 1000 and power < len(NUMBERS) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g} {NUMBERS[power]}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _duration(seconds: float) -> str:
    for least, unit, name in ((172_800, 86_400, "days"), (7200, 3600, "h"), (120, 60, "min"), (1, 1, "s")):
        if seconds >= least:
            return f"{seconds / unit:,.3g} {name}"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
