"""``kosmos plugin new`` writes a plugin that works; ``kosmos plugin test`` says which promises one keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos.commands.arguments import refuse_empty
from kosmos.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from kosmos.testing import Promise, ScoreCard

EXTRA = "pip install 'kosmos-core[testing]>=26.11'"

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False,
    help="Write a plugin, and test what it promises.",
)  # fmt: skip


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the modality, such as depth.")],
    defaults: Annotated[bool, typer.Option("--defaults", help="Ask nothing.")] = False,
    output: Annotated[str, typer.Option(help="Folder in which kosmos-NAME is made.")] = ".",
) -> None:
    """Make ./kosmos-NAME: a complete plugin that installs, keeps its promises and trains at once."""
    from kosmos.plugins import load_plugins
    from kosmos.templates import make_plugin

    refuse_empty("--output", output)
    made = make_plugin(name, Path(output), ask=not defaults, registry=load_plugins())
    print(f"made {made}. Now:")
    place = made if made.is_absolute() else f"./{made}"
    for line in (
        f"pip install -e '{place}[test]'",
        f"kosmos train --modalities {name}",
        f"kosmos plugin test {made.name}",
    ):
        print(f"  {line}")


@app.command("test")
def check(
    distribution: Annotated[str, typer.Argument(help="An installed distribution, such as kosmos-depth.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Leave out what starts trainings or compilers.")] = False,
) -> None:
    """Check every promise of a plugin and print the score card. Exit status 1 where one is broken."""
    from kosmos.testing.installed import plugins_of

    try:
        plugins_of(distribution)
    except PluginError as error:
        raise ConfigError(str(error)) from error
    try:
        from kosmos.testing import check_distribution
    except ModuleNotFoundError as error:
        raise PluginError(f"kosmos plugin test needs {error.name}: {EXTRA}") from error
    try:
        card = check_distribution(distribution, fast=fast, watch=_silent if as_json else _say)
    except PluginError as error:
        raise ConfigError(str(error)) from error
    if as_json:
        print(card.to_json())
    else:
        _print(card)
    raise typer.Exit(1 if card.failed else 0)


def _silent(promise: Promise) -> None:
    """Nobody watches."""


def _say(promise: Promise) -> None:
    """What is being checked, on a line that the next one overwrites."""
    if sys.stderr.isatty():
        print(f"\r\033[K{promise.component}: {promise.says}"[:120], end="", file=sys.stderr, flush=True)


def _print(card: ScoreCard) -> None:
    from rich.console import Console
    from rich.text import Text

    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    console = Console(highlight=False)
    console.print(card.table())
    for outcome in ("skipped", "failed"):
        for verdict in card.verdicts:
            if verdict.outcome == outcome:
                line = f"{outcome}: {verdict.message}"
                if outcome == "skipped":
                    line = f"skipped: {verdict.component} {verdict.id}: {verdict.message}"
                console.print(Text(line, "red" if outcome == "failed" else ""), soft_wrap=True)
    console.print(Text(card.summary, "bold"), soft_wrap=True)
