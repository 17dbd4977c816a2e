"""What ``kosmos generate`` and ``kosmos chat`` share: how a text is sampled, and how a terminal shows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from kosmos.commands.named_media import files_of
from kosmos.data.document import Document
from kosmos.errors import ConfigError, SampleError
from kosmos.given import MAX_SEED
from kosmos.own_output import aside
from kosmos.visible import say, visible

if TYPE_CHECKING:
    from kosmos.data.document_plan import DocumentPlan
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
    run: SavedRun, document: Document, how: Writing, on_text: Callable[[str], object] | None = None
) -> Generated:
    """What the model writes. Raises SampleError, which names the files, where it cannot be asked."""
    from kosmos.evaluate.generated import continue_document
    from kosmos.generate import pass_over

    longest = run.composition.planner.max_tokens

    def look(plan: DocumentPlan) -> None:
        if len(plan) > longest:
            say(f"warning: the prompt takes {len(plan):,} tokens, and {_of_rows(longest)}", file=sys.stderr)

    try:
        with aside():
            return continue_document(
                run.composition, document, how, device=run.device, dtype=run.dtype, on_text=on_text or pass_over,
                look=look,
            )  # fmt: skip
    except SampleError as error:
        raise SampleError(f"{files_of(document) or 'the prompt'}: {error}") from error


def _of_rows(longest: int) -> str:
    return f"a row of the run held {longest:,}: it was trained on no document so long"


class LongPrompts:
    """Counts the prompts of answers that are longer than a row of the run, and names the first of them."""

    def __init__(self, longest: int) -> None:
        """
        Args:
            longest: tokens of a row.
        """
        self._longest = longest
        self._first: Generated | None = None
        self._count = 0

    def see(self, answers: Iterable[Generated]) -> None:
        """Look at answers in their order."""
        for answer in answers:
            if answer.prompt_tokens > self._longest:
                self._first = self._first or answer
                self._count += 1

    def told(self) -> Iterator[str]:
        """A warning, where there are some."""
        if self._first is None:
            return
        origin, tokens = self._first.origin, f"{self._first.prompt_tokens:,}"
        if self._count == 1:
            yield f"{origin}: the prompt takes {tokens} tokens, and {_of_rows(self._longest)}"
        else:
            rows = f"a row of the run held ({self._longest:,}): it was trained on no document so long"
            yield f"{self._count:,} prompts take more tokens than {rows}; the first is {origin}, with {tokens}"
