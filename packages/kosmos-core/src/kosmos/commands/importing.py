"""``kosmos import``: a published model of several parts as a run to generate with, to score, and to begin with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kosmos import collector
from kosmos.commands.arguments import check_free_folder, refuse_empty, refuse_ranks
from kosmos.visible import say


def import_model(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of the model, as its library has saved it.")],
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder to make, which is then a run's.")],
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Layout that the folder has, such as llava; by default the one that knows it."
        ),
    ] = None,
) -> None:
    """Make a run of a published model, with its encoder, connector, language model and tokenizer.

    Nothing is downloaded, run or unpickled. A model of which a run could not give back everything is refused.
    """
    refuse_ranks("kosmos import")
    refuse_empty("--layout", layout)
    check_free_folder("OUTPUT", output)
    from kosmos.own_output import aside
    from kosmos.plugins import load_plugins
    from kosmos.train.importing import import_folder

    collector.imported()
    registry = load_plugins()
    with aside():
        found = import_folder(Path(folder), Path(output), registry, layout)
    values = sum(parameter.numel() for parameter in found.composition.model.parameters())
    say(
        f"{output}: {found.layout}, {values:,} values; train it further by kosmos train {output}/run.yaml "
        f"--data DATA --output NEW"
    )
    for hint in found.hints:
        say(f"hint: {hint}", file=sys.stderr)
    if not found.spells:
        say(
            "hint: chats would be laid out between marks of Kosmos, which the model has not learned; say how it has "
            f"learned turns (tokenizer.turns in {output}/run.yaml, chatml, llama-3, gemma or texts of your own)",
            file=sys.stderr,
        )
