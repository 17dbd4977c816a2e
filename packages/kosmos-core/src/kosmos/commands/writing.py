"""What ``kosmos generate`` and ``kosmos chat`` share: how a text is sampled, and how a terminal shows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from kosmos.commands.arguments import aside
from kosmos.commands.named_media import files_of
from kosmos.data.document import Document
from kosmos.errors import ConfigError, SampleError
from kosmos.given import MAX_SEED
from kosmos.visible import say, visible

if TYPE_CHECKING:
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.generated import Writing
    from kosmos.train.saved import SavedRun

NewTokens = Annotated[int, typer.Option(min=1, help="Most tokens to write.")]
Temperature = Annotated[float, typer.Option(min=0.0, help="0 takes the most likely token; above 0 samples.")]
TopK = Annotated[int | None, typer.Option(min=1, help="Sample among this many most likely tokens.")]
TopP = Annotated[
    float | None, typer.Option(help="Sample among the fewest most likely tokens whose probabilities sum to this.")
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End a text in front of this one, such as $'\\n' (a line); may be repeated."),
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the sampling.")]


def check_stop(given: Sequence[str] | None) -> None:
    """Raises ConfigError where a value of ``--stop`` is empty."""
    if "" in (given or ()):
        raise ConfigError("--stop: the value is empty (an unset variable?); give a text, or leave the option out")


def hint_at_escapes(given: Sequence[str] | None) -> None:
    """Say of values of ``--stop`` that a shell hands on as they are typed."""
    for text in given or ():
        if "\\n" in text:
            line = "a backslash and an n, as they stand; the end of a line is $'\\n' in bash and zsh"
            say(f"hint: --stop {text!r:.40}: {line}", file=sys.stderr)


class ShownText:
    """A text on a terminal, in pieces as they come."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream  # sys.stdout may be another meanwhile, for what plugins print
        self.text = ""

    def __call__(self, piece: str) -> None:
        self.text += piece
        self._stream.write(visible(piece))
        self._stream.flush()

    def end_line(self) -> None:
        """What comes next stands in a line of its own."""
        self._stream.write("\n")
        self._stream.flush()


def write_behind(
    run: SavedRun, document: Document, how: Writing, on_text: Callable[[str], object] = lambda piece: None
) -> Generated:
    """What the model writes. Raises SampleError, which names the files, where it cannot be asked."""
    from kosmos.evaluate.generated import continue_document

    planner = run.composition.planner
    try:
        with aside():
            if (tokens := len(planner.prompt(document))) > planner.max_tokens:
                rows = f"a row of the run held {planner.max_tokens:,}: it was trained on no document so long"
                say(f"warning: the prompt takes {tokens:,} tokens, and {rows}", file=sys.stderr)
            return continue_document(
                run.composition, document, how, device=run.device, dtype=run.dtype, on_text=on_text
            )
    except SampleError as error:
        raise SampleError(f"{files_of(document) or 'the prompt'}: {error}") from error
