"""``kosmos plugin new`` writes a plugin that works; ``kosmos plugin test`` says which promises one keeps."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos.commands.arguments import refuse_empty
from kosmos.errors import ConfigError, PluginError
from kosmos.names import listed
from kosmos.visible import visible

if TYPE_CHECKING:
    from kosmos.testing import ScoreCard, Verdict
    from kosmos.testing.apart import Stated

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
    limit_s: Annotated[
        float, typer.Option("--limit-s", min=1.0, help="Seconds that a promise may take, but for slow ones.")
    ] = 300.0,
) -> None:
    """Check every promise of a plugin and print the score card. Exit status 1 where one is broken."""
    from kosmos.testing.installed import plugins_of

    try:
        plugins_of(distribution)
    except PluginError as error:
        raise ConfigError(str(error)) from error
    from kosmos.testing.apart import check_apart

    try:
        if as_json:
            card = check_apart(distribution, fast=fast, limit_s=limit_s)
            print(card.to_json())
        else:
            rows = _Rows()
            card = check_apart(
                distribution, fast=fast, limit_s=limit_s, begin=rows.open, watch=rows.begin, done=rows.end
            )
            _print_messages(card)
    except ModuleNotFoundError as error:
        raise PluginError(f"kosmos plugin test needs {error.name}: {EXTRA}") from error
    except PluginError as error:
        raise ConfigError(str(error)) from error
    raise typer.Exit(1 if card.failed else 0)


class _Rows:
    """The score card as it grows: a row as soon as there is a verdict, and on a terminal what is being checked."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False)
        self.widths: list[int] = []

    def open(self, promises: Sequence[Stated]) -> None:
        """Print the heads of columns as wide as these need."""
        self.widths = [
            max(map(len, [head, *names])) + 2
            for head, names in (
                ("component", [promise.component for promise in promises]),
                ("promise", [promise.id for promise in promises]),
                ("outcome", []),
            )
        ]
        self._print("component", "promise", "outcome", "s")

    def begin(self, promise: Stated) -> None:
        """Say what is being checked, on a line that the next one overwrites."""
        if sys.stderr.isatty():
            line = f"{promise.component} {promise.id}: {promise.says}"[: shutil.get_terminal_size().columns - 1]
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def end(self, verdict: Verdict) -> None:
        from kosmos.testing.scorecard import STYLES

        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self._print(
            verdict.component, verdict.id, verdict.outcome, f"{verdict.seconds:.1f}", style=STYLES[verdict.outcome]
        )

    def _print(self, *cells: str, style: str = "bold") -> None:
        from rich.text import Text

        row = Text()
        for number, (cell, width) in enumerate(zip(cells, [*self.widths, 0], strict=True)):
            row.append(cell.ljust(width), style if number == 2 or style == "bold" else "")
        self.console.print(row, soft_wrap=True)


def _print_messages(card: ScoreCard) -> None:
    """Why what was skipped was, what is broken, and the sum."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    together: dict[tuple[str, str], list[str]] = {}  # what one reason keeps from being checked
    for verdict in card.having("skipped"):
        together.setdefault((verdict.component, verdict.message), []).append(verdict.id)
    for (component, why), ids in together.items():
        console.print(Text(visible(f"skipped: {component} {listed(ids, at_most=3)}: {why}")), soft_wrap=True)
    for verdict in card.failed:
        console.print(Text(visible(f"failed: {verdict.message}"), "red"), soft_wrap=True)
    console.print(Text(card.summary, "bold"), soft_wrap=True)
