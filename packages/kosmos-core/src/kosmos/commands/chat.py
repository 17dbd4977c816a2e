"""``kosmos chat``."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import Step, as_step, refuse_empty, refuse_ranks, split_extra
from kosmos.commands.elsewhere import GENERATE
from kosmos.commands.named_media import named_medium
from kosmos.commands.writing import (
    NewTokens,
    Seed,
    ShownText,
    Stop,
    Temperature,
    TopK,
    TopP,
    check_stop,
    hint_at_escapes,
    write_behind,
)
from kosmos.commands.written_files import Written, WrittenFiles
from kosmos.data.chat import chat_prompt
from kosmos.data.document import Codes, Document, Media, Text
from kosmos.errors import ConfigError, KosmosError, SampleError
from kosmos.given import MAX_SEED
from kosmos.interrupts import answered
from kosmos.names import did_you_mean, listed
from kosmos.own_output import aside
from kosmos.run_file import parse_overrides
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.generated import Writing
    from kosmos.train.saved import SavedRun

OPTIONS = (
    "--system",
    "--step",
    "--max-new-tokens",
    "--temperature",
    "--top-k",
    "--top-p",
    "--seed",
    "--stop",
    "--written",
    "--help",
)
SAID = ("new", "undo", "help", "exit")
"""What stands behind a slash, beside the modalities of the run."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def chat(
    context: typer.Context,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder of a run.")],
    system: Annotated[str, typer.Option(help="Text of the system's turn in front of the chat.")] = "",
    step: Step = None,
    max_new_tokens: NewTokens = 256,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    stop: Stop = None,
    written: Written = None,
) -> None:
    """Talk with a model that has learned from chats, a line a turn.

    /MODALITY FILE puts a medium into the turn that is being written: /image photo.png, or an object as rows hold it,
    such as {"path": "a.npy", "rate_hz": 100}. /new begins anew, /undo takes
    the last turn back, /exit or Ctrl-D ends, and /help says all this. A line that ends in a backslash goes on in the
    next. Ctrl-C stops an answer, which then counts as far as it came. FIELD.PATH=VALUE is as of kosmos generate.
    """
    refuse_ranks("kosmos chat")
    _refuse_media(context.args)
    overrides, rest = split_extra(context.args, OPTIONS, GENERATE)
    if rest:
        raise ConfigError(f"{rest[0]}: belongs to no option; what is asked is typed once the model is loaded")

    from kosmos.evaluate.generated import Writing
    from kosmos.generate import check_sampling
    from kosmos.run_sources import chats_among
    from kosmos.train.saved import opened_run

    check_sampling(temperature, top_k, top_p)
    check_stop(stop)
    hint_at_escapes(stop)
    refuse_empty("--written", written)
    with aside():
        run = opened_run(Path(output), step=as_step(step), overrides=parse_overrides(overrides))
    warnings = run.warnings()
    if chats_among(run.composition.config.data.sources) is None:
        warnings.append("no chats are found among the run's data; kosmos generate --prompt continues a text as it is")
    for line in warnings:
        say(f"warning: {line}", file=sys.stderr)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is no text is refused line by line
    how = Writing(max_new_tokens, temperature, top_k, top_p, seed, tuple(stop or ()))
    talk = Talk(run, system, how, WrittenFiles(run.composition, written))
    _hold(talk, typed=sys.stdin.isatty())


def _refuse_media(arguments: Sequence[str]) -> None:
    """Raises ConfigError where a medium is named as ``kosmos generate`` takes it."""
    from kosmos.plugins import load_plugins

    named = [argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--")]
    if (name := next((name for name in named if name in load_plugins().specs("modality")), None)) is not None:
        raise ConfigError(
            f"--{name}: unknown option; a medium is put into a turn as it is typed: /{name} FILE (options: "
            f"{listed(OPTIONS)})"
        )


class Talk:
    """A chat: its turns, and what the next turn of the user holds so far."""

    def __init__(self, run: SavedRun, system: str, how: Writing, files: WrittenFiles) -> None:
        self._run, self._system, self._how, self._files = run, system, how, files
        self.modalities = tuple(run.composition.planner.routes)
        self._turns: list[tuple[list[Text | Media], str | list[Text | Codes]]] = []
        self._content: list[Text | Media] = []
        self._asked = 0

    def say(self, line: str) -> bool:
        """Take a line. Returns whether the chat goes on.

        Raises:
            SampleError: a medium cannot be used, or the chat is longer than the model has positions for.
            ConfigError: a word behind a slash that means nothing.
        """
        if line.startswith("/"):
            return self._do(*line[1:].partition(" ")[::2])
        if line.strip():
            self._content.append(Text(line))
        if self._content:
            self._ask()
        return True

    def _do(self, word: str, rest: str) -> bool:
        if word in self.modalities:
            self._content.append(self._medium(word, rest))
        elif word == "new":
            self._turns, self._content = [], []
        elif word == "undo":
            if self._content:
                self._content = []
            elif self._turns:
                self._turns.pop()
            else:
                say("there is no turn to take back", file=sys.stderr)
        elif word == "help":
            say(self._help(), file=sys.stderr)
        elif word != "exit":
            known = [f"/{name}" for name in (*self.modalities, *SAID)]
            hint = did_you_mean(f"/{word}", known) or f"there are {listed(known)}"
            raise ConfigError(f"/{word}: unknown; {hint}; a space in front makes it a text")
        return word != "exit"

    def _help(self) -> str:
        media = "".join(f"/{name} FILE  put one into your next turn\n" for name in self.modalities)
        return f"{media}/new  begin anew\n/undo  take the last turn back\n/exit  end, as Ctrl-D does"

    def _medium(self, modality: str, path: str) -> Media:
        """A medium that the model can read: now, and not once the question is typed."""
        from kosmos.generate import ready_prompt

        name = _named(path)
        refuse_empty(f"/{modality}", name)
        specs: dict[str, Any] = self._run.composition.registry.specs("modality")
        medium = named_medium(modality, name, specs.get(modality), option=f"/{modality}")
        try:
            with aside():
                ready_prompt(self._run.composition, Document(name, (medium,)))
        except SampleError as error:
            raise SampleError(f"{name}: {error}") from error
        return medium

    def _ask(self) -> None:
        """Let the model answer, and keep both. What cannot be asked is as if it had not been said."""
        from kosmos.evaluate.written import said_parts

        content, self._content = self._content, []
        prompt = chat_prompt(content, system=self._system, history=self._turns)
        how = replace(
            self._how, seed=(self._how.seed + self._asked) % (MAX_SEED + 1)
        )  # asked again, it may answer otherwise
        shown = ShownText(sys.stdout)
        self._asked += 1
        answer: str | list[Text | Codes]
        written: Generated | None = None
        try:
            written = write_behind(self._run, prompt, how, shown)
            answer = said_parts(self._run.composition, written)
        except KeyboardInterrupt:
            answered()
            if not (answer := shown.text):
                return
        finally:
            shown.end_line()
        self._turns.append((content, answer))
        if written is not None:
            self._files.say(self._files.column(written, f"{self._asked}"))


def _named(path: str) -> str:
    """A file as a shell would read its name, or an object as it is typed."""
    if path.lstrip().startswith("{"):
        return path.strip()
    try:
        (name,) = shlex.split(path)
    except ValueError:  # none, several, or an open quote
        name = path.strip()
    return str(Path(name).expanduser()) if name else name


def _hold(talk: Talk, *, typed: bool) -> None:
    """Until it is ended. What is typed amiss is said, and the chat goes on; what a pipe says amiss ends the command."""
    if typed:
        say("/help says what may be said; Ctrl-D ends", file=sys.stderr)
    for line in _typed() if typed else _piped():
        try:
            line.encode()
            if not talk.say(line):
                return
        except UnicodeEncodeError as error:
            problem: KosmosError = SampleError(f"not UTF-8 text, from character {error.start + 1} on")
            if not typed:
                raise problem from error
            say(problem.line(), file=sys.stderr)
        except (SampleError, ConfigError) as error:
            if not typed:
                raise
            say(error.line(), file=sys.stderr)


def _typed() -> Iterator[str]:
    with suppress(ImportError):
        import readline  # noqa: F401  arrow keys and earlier lines
    try:
        while True:
            yield _whole(input("> "), lambda: input("  "))
    except EOFError:
        print()


def _piped() -> Iterator[str]:
    for line in sys.stdin:
        yield _whole(line.rstrip("\r\n"), lambda: next(sys.stdin, "").rstrip("\r\n"))


def _whole(line: str, more: Callable[[], str]) -> str:
    """A line with those that it goes on in."""
    while line.endswith("\\"):
        line = f"{line[:-1]}\n{more()}"
    return line
