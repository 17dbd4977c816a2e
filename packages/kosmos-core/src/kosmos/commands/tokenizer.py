"""``kosmos tokenizer``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kosmos.errors import ConfigError

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def tokenizer() -> None:
    """Tokenizers of your own."""


@app.command()
def train(
    output: Annotated[str, typer.Argument(help="Folder to write; name it in a run file as tokenizer: FOLDER.")],
    data: Annotated[list[str] | None, typer.Option(help="As in kosmos train; may be repeated.")] = None,
    modalities: Annotated[str, typer.Option(help="Modalities whose rows are read for their text.")] = "text",
    vocab_size: Annotated[int, typer.Option(min=300, help="Tokens at most.")] = 4096,
) -> None:
    """Train a byte-level BPE tokenizer on the texts of your data."""
    from kosmos.compose import open_sources
    from kosmos.data.sources import texts_of
    from kosmos.data.tokenizer import train_tokenizer
    from kosmos.plugins import load_plugins
    from kosmos.run_file import make_run

    if not data:
        raise ConfigError("nothing to learn from: name data with --data")
    config = make_run({"modalities": modalities, "data": {"sources": list(data)}}, where="command line")
    sources = open_sources(config, load_plugins(), "train")
    train_tokenizer((t for s in sources for t in texts_of(s)), vocab_size=vocab_size, folder=Path(output))
    print(f"{output}: written; use it with tokenizer={output}")
