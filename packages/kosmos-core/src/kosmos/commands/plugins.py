"""``kosmos plugins``: every plugin with version, distribution, what it brings and what is wrong with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import typer

from kosmos.components import KINDS
from kosmos.discovery import CORE
from kosmos.enabled import config_file, read_disabled, write_disabled
from kosmos.errors import PluginError
from kosmos.plugins import PluginRecord, Registry, load_plugins
from kosmos.requirements import unmet
from kosmos.selection import check_installed

HEADS = ("plugin", "version", "distribution", "brings")
FLAGS = ("--json", "--lock")


app = typer.Typer(add_completion=False, rich_markup_mode=None)


# Arguments are read by hand: typer imports pydantic (0.1 s) to convert any declared one, --help too.
@app.command(
    add_help_option=False,
    options_metavar="[NAME] [--json] [--lock]",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def plugins(context: typer.Context) -> None:
    """List the installed plugins, what each brings, and what is wrong with it.

    With the name of one plugin: its components, one a line. With --json: one JSON object.

    kosmos plugins disable NAME...: not imported any more, by any command of this user; enable NAME... takes it
    back. KOSMOS_PLUGINS=A,B in the environment goes before what is disabled.

    With --lock: JSON with name, version and the SHA-256 of each file of each plugin.
    """
    if "--help" in context.args:
        print(context.get_help())
        return
    flags = [argument for argument in context.args if argument.startswith("-")]
    names = [argument for argument in context.args if not argument.startswith("-")]
    switch = names[0] if names[:1] in (["enable"], ["disable"]) else None
    unknown = [flag for flag in flags if switch or flag not in FLAGS] + flags[1:]
    if unknown or (len(names) > 1 and not switch):
        see = "see 'kosmos plugins --help'"
        context.fail(f"{unknown[0]}: not expected here; {see}" if unknown else f"{names[1]}: not expected; {see}")
    if switch and len(names) < 2:
        context.fail(f"{switch}: the name of a plugin is missing; see 'kosmos plugins'")
    registry = load_plugins()
    if switch:
        print("\n".join(_switch(registry, names[1:], on=switch == "enable")))
        return
    _show(registry, [_named(registry, name) for name in names], "".join(flags))


def _show(registry: Registry, named: Sequence[PluginRecord], form: str) -> None:
    if form == "--lock":
        from kosmos.lock import lock_of

        print(lock_of(registry, {plugin.name for plugin in named} or None).text(), end="")
    elif form == "--json":
        chosen = checked(named or (*registry.plugins, *registry.off))
        print(json.dumps({"plugins": [as_dict(plugin) for plugin in chosen]}, indent=2))
    elif named:
        print("\n".join(detail(checked(named)[0])))
    elif sys.stdout.isatty():
        _print_table(registry)
    else:
        print("\n".join(plain_table(registry)))


def _switch(registry: Registry, names: Sequence[str], *, on: bool) -> list[str]:
    """Enable or disable plugins in the user's file; a line about each."""
    installed = {plugin.name: plugin for plugin in (*registry.off, *registry.plugins)}
    file = config_file()
    disabled = read_disabled(file)
    check_installed((name for name in names if not (on and name in disabled)), installed)
    for name in names:
        if name == CORE:
            raise PluginError("core cannot be disabled; it is what loads the others")
        if on:
            disabled.pop(name, None)
        elif name not in disabled:
            disabled[name] = tuple(f"{spec.kind} {spec.name}" for spec in installed[name].components)
    write_disabled(file, disabled)
    state = "enabled" if on else "disabled"
    return [f"{installed[name].label if name in installed else name} is {state} ({file})" for name in names]


def _named(registry: Registry, name: str) -> PluginRecord:
    every = (*registry.plugins, *registry.off)
    check_installed([name], (plugin.name for plugin in every))
    return next(plugin for plugin in every if plugin.name == name)


def checked(plugins: Sequence[PluginRecord], *, once: bool = False) -> list[PluginRecord]:
    """With what their distributions require and lack among their problems. Only here: other commands start faster.

    Args:
        once: of a distribution that brings several plugins, the first alone has it.
    """
    names = ["" if plugin.off else plugin.distribution or "" for plugin in plugins]
    lacks = {name: unmet(name) for name in dict.fromkeys(filter(None, names))}
    found = []
    for plugin, name in zip(plugins, names, strict=True):
        of_it = lacks.pop(name, []) if once else lacks.get(name, [])
        found.append(replace(plugin, problems=(*plugin.problems, *of_it)))
    return found


def as_dict(plugin: PluginRecord) -> dict[str, Any]:
    """A record for machines."""
    return {
        "name": plugin.name,
        "version": plugin.version,
        "distribution": plugin.distribution,
        "module": plugin.module,
        "off": plugin.off.why if plugin.off else None,
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
    """One plugin in lines: its label, its components with their summaries, its problems, or why it is not loaded."""
    rows = [(f"{spec.kind} {spec.name}", spec.summary) for spec in plugin.components]
    width = max((len(row[0]) for row in rows), default=0)
    lines = [plugin.label, *(f"  {name:<{width}}  {summary}" for name, summary in rows)]
    lines += [f"  {plugin.off.why}; {plugin.off.remedy}"] if plugin.off else []
    return lines + [f"  problem: {problem}" for problem in plugin.problems]


def plain_table(registry: Registry) -> list[str]:
    """The table for pipes and files: one line a plugin, then one a problem. Never wrapped."""
    plugins = checked(registry.plugins, once=True)
    rows = [HEADS, *(_cells(plugin) for plugin in (*plugins, *registry.off))]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    return [*(line.rstrip() for line in lines), *_problem_lines(plugins)]


def _cells(plugin: PluginRecord) -> tuple[str, str, str, str]:
    return plugin.name, plugin.version or "-", plugin.distribution or "-", "; ".join(_brings_or_off(plugin))


def _brings_or_off(plugin: PluginRecord) -> list[str]:
    return [f"{plugin.off.why}; {plugin.off.remedy}"] if plugin.off else brings(plugin) or ["-"]


def _problem_lines(plugins: Iterable[PluginRecord]) -> list[str]:
    return [f"problem: {plugin.label}: {problem}" for plugin in plugins for problem in plugin.problems]


def _print_table(registry: Registry) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*HEADS, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    plugins = checked(registry.plugins, once=True)
    for plugin in (*plugins, *registry.off):
        name, version, distribution, _ = _cells(plugin)
        style = "red" if plugin.problems else "dim" if plugin.off else "bold"
        table.add_row(Text(name, style), Text(version), Text(distribution), Text("\n".join(_brings_or_off(plugin))))
    console = Console(highlight=False)
    console.print(table)
    for line in _problem_lines(plugins):
        console.print(Text(line, "red"), soft_wrap=True)
