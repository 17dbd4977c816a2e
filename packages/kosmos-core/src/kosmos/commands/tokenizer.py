"""``kosmos tokenizer``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kosmos.commands.arguments import check_above, refuse_empty, short_options
from kosmos.errors import ConfigError
from kosmos.visible import say

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def tokenizer() -> None:
    """Tokenizers of your own."""


@app.command()
def train(
    output: Annotated[str, typer.Argument(help="Folder to write; name it in a run file as tokenizer: FOLDER.")],
    data: Annotated[list[str] | None, typer.Option(help="As in kosmos train; may be repeated.")] = None,
    modalities: Annotated[str, typer.Option(help="Modalities whose rows are read for their text.")] = "text",
    vocab_size: Annotated[int, typer.Option(min=300, help="Most tokens in the vocabulary.")] = 4096,
) -> None:
    """Train a byte-level BPE tokenizer on the texts of your data."""
    from kosmos.data.sources import TextsRead, texts_of
    from kosmos.data.tokenizer import train_tokenizer
    from kosmos.plugins import load_plugins
    from kosmos.run_file import COMMAND_LINE, make_run
    from kosmos.run_sources import open_sources

    if not data:
        raise ConfigError("nothing to learn from: name data with --data")
    config = make_run(short_options(modalities=[modalities], data=data), where=COMMAND_LINE)
    refuse_empty("OUTPUT", output)
    _check_free(Path(output))
    registry = load_plugins()
    for modality in config.modalities:
        registry.get("modality", modality)
    sources = open_sources(config, registry, "train")
    read = TextsRead()
    texts = (text for source in sources for text in texts_of(source, read))
    made = train_tokenizer(texts, vocab_size=vocab_size, folder=Path(output))
    fewer = f" ({vocab_size:,} were asked for, and the text has no more to merge)" if made < vocab_size else ""
    of = f"{read.documents:,} documents with {read.nbytes / 1e6:,.1f} MB of text"
    say(f"{output}: {made:,} tokens{fewer}, of {of}; use it with tokenizer={output}")


def _check_free(folder: Path) -> None:
    """Raises ConfigError, before any text is read, where a tokenizer cannot be written or would replace another."""
    from kosmos.data.bytes_tokenizer import FILE

    check_above(folder)
    if any((folder / name).exists() for name in (FILE, "tokenizer.json", "tokenizer_config.json")):
        raise ConfigError(f"{folder}: holds a tokenizer already; name another folder, or remove it")
