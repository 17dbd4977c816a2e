"""``kosmos plugins``: every plugin with version, distribution, what it brings and what is wrong with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import typer

from kosmos.components import KINDS
from kosmos.errors import PluginError
from kosmos.names import did_you_mean, listed
from kosmos.plugins import PluginRecord, Registry, load_plugins

HEADS = ("plugin", "version", "distribution", "brings")


app = typer.Typer(add_completion=False, rich_markup_mode=None)


# Arguments are read by hand: typer imports pydantic (0.1 s) to convert any declared one, --help too.
@app.command(
    add_help_option=False,
    options_metavar="[NAME] [--json]",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def plugins(context: typer.Context) -> None:
    """List the installed plugins, what each brings, and what is wrong with it.

    With the name of one plugin: its components, one a line. With --json: one JSON object.
    """
    if "--help" in context.args:
        print(context.get_help())
        return
    unknown = [argument for argument in context.args if argument.startswith("-") and argument != "--json"]
    names = [argument for argument in context.args if not argument.startswith("-")]
    if unknown or len(names) > 1:
        context.fail(f"No such option: {unknown[0]}" if unknown else f"Got unexpected extra argument ({names[1]})")
    registry = load_plugins()
    if "--json" in context.args:
        chosen = [_named(registry, names[0])] if names else registry.plugins
        print(json.dumps({"plugins": [as_dict(plugin) for plugin in chosen]}, indent=2))
    elif names:
        print("\n".join(detail(_named(registry, names[0]))))
    elif sys.stdout.isatty():
        _print_table(registry)
    else:
        print("\n".join(plain_table(registry)))


def _named(registry: Registry, name: str) -> PluginRecord:
    found = [plugin for plugin in registry.plugins if plugin.name == name]
    if not found:
        known = [plugin.name for plugin in registry.plugins]
        hint = did_you_mean(name, known) or f"plugins: {listed(known)}"
        raise PluginError(f"plugin {name!r} is not installed; {hint}")
    return found[0]


def as_dict(plugin: PluginRecord) -> dict[str, Any]:
    """A record for machines."""
    return {
        "name": plugin.name,
        "version": plugin.version,
        "distribution": plugin.distribution,
        "module": plugin.module,
        "components": [
            {"kind": spec.kind, "name": spec.name, "target": spec.target, "summary": spec.summary}
            for spec in plugin.components
        ],
        "problems": list(plugin.problems),
    }


def brings(plugin: PluginRecord) -> list[str]:
    """``["encoder: logmel, whisper", "dataset: tones"]``, in the order of the kinds."""
    names = {kind.kind: [spec.name for spec in plugin.components if spec.kind == kind.kind] for kind in KINDS}
    return [f"{kind}: {', '.join(found)}" for kind, found in names.items() if found]


def detail(plugin: PluginRecord) -> list[str]:
    """One plugin in lines: its label, its components with their summaries, its problems."""
    rows = [(f"{spec.kind} {spec.name}", spec.summary) for spec in plugin.components]
    width = max((len(row[0]) for row in rows), default=0)
    lines = [plugin.label, *(f"  {name:<{width}}  {summary}" for name, summary in rows)]
    return lines + [f"  problem: {problem}" for problem in plugin.problems]


def plain_table(registry: Registry) -> list[str]:
    """The table for pipes and files: one line a plugin, then one a problem. Never wrapped."""
    rows = [HEADS, *(_cells(plugin) for plugin in registry.plugins)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    return [*(line.rstrip() for line in lines), *_problem_lines(registry.plugins)]


def _cells(plugin: PluginRecord) -> tuple[str, str, str, str]:
    return plugin.name, plugin.version or "-", plugin.distribution or "-", "; ".join(brings(plugin)) or "-"


def _problem_lines(plugins: Iterable[PluginRecord]) -> list[str]:
    return [f"problem: {plugin.label}: {problem}" for plugin in plugins for problem in plugin.problems]


def _print_table(registry: Registry) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*HEADS, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for plugin in registry.plugins:
        name, version, distribution, _ = _cells(plugin)
        style = "red" if plugin.problems else "bold"
        table.add_row(Text(name, style), Text(version), Text(distribution), Text("\n".join(brings(plugin)) or "-"))
    console = Console(highlight=False)
    console.print(table)
    for line in _problem_lines(registry.plugins):
        console.print(Text(line, "red"), soft_wrap=True)
