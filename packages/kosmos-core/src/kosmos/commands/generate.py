"""``kosmos generate``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from kosmos.commands.answers import Resume, as_line
from kosmos.commands.arguments import (
    Step,
    as_step,
    check_given_once,
    refuse_empty,
    refuse_ranks,
    split_fields,
)
from kosmos.commands.elsewhere import GENERATE, called_elsewhere
from kosmos.commands.fields import SUCH_AS
from kosmos.commands.named_data import named_data
from kosmos.commands.named_media import files_of, named_medium
from kosmos.commands.several import Nproc, in_several, loaded_by_all, shared
from kosmos.commands.unfinished import check_answers
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
from kosmos.components import ModalitySpec
from kosmos.data.chat import chat_prompt
from kosmos.data.document import Document, Media, Text
from kosmos.errors import ConfigError
from kosmos.evaluate.answer_rows import answer_row
from kosmos.names import did_you_mean, listed
from kosmos.own_output import aside
from kosmos.run_file import parse_overrides
from kosmos.runtime.launch import is_launched, said_once
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.evaluate.generated import Writing
    from kosmos.train.saved import SavedRun

OPTIONS = (
    "max-new-tokens", "temperature", "top-k", "top-p", "seed", "stop", "step", "chat", "system", "data", "root",
    "answers", "resume", "max-documents", "nproc", "written",
)  # fmt: skip

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class _FolderFirst(TyperCommand):
    """Says in its usage line what the parser needs: a value would be taken for the folder if it stood in front."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        options, *arguments = super().collect_usage_pieces(ctx)
        return [*arguments, options]


Continued = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH",
        help="Continue each document of a file or folder: what stands before its answer, or all of it. A path, or "
        f"fields as of evaluate.sources such as {SUCH_AS}; may be repeated. A --prompt follows each.",
    ),
]


@app.command(cls=_FolderFirst, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def generate(
    context: typer.Context,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder of a run.")],
    data: Continued = None,
    root: Annotated[
        str | None, typer.Option(help="Folder of the media that rows of --data name; by default that of each file.")
    ] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="New file of JSON lines for what --data gives; by default standard output gets them."
        ),
    ] = None,
    resume: Resume = False,
    nproc: Nproc = None,
    max_documents: Annotated[
        int | None, typer.Option(min=1, help="Most documents of each --data: its first. By default all.")
    ] = None,
    chat: Annotated[
        bool,
        typer.Option("--chat", help="Ask as a user and let the assistant answer: for models that learned from chats."),
    ] = False,
    system: Annotated[str | None, typer.Option(help="Text of the system's turn in front of a chat.")] = None,
    step: Step = None,
    max_new_tokens: NewTokens = 256,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = 0,
    stop: Stop = None,
    written: Written = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object on standard output; of --data one for each document, as always."),
    ] = False,
) -> None:
    """Generate text: kosmos generate OUTPUT --image x.png --audio y.flac --prompt "..."

    Media (--MODALITY FILE) and prompts (--prompt TEXT, or - for standard input) are read in the order given. In place
    of FILE may stand an object as rows hold it: '{"path": "a.npy", "rate_hz": 100, "clip": [0, 2]}'. With --chat they
    are the turn of a user, laid out with the marks of turns as in training on messages. With --data each document of a
    file or folder is continued. FIELD.PATH=VALUE says where what the run file names is now, how media are shown, or
    where to compute, such as train.device=cpu.
    """
    with said_once():
        how = _writing(output, max_new_tokens, temperature, top_k, top_p, seed, stop)
        _check_text("--system", system or "")
        of_data = {"--root": root, "--answers": answers, "--max-documents": max_documents, "--nproc": nproc}
        _check_data(data or (), of_data, resume=resume)
        refuse_empty("--written", written)
        named = named_data(data or ())
    if not data:
        refuse_ranks("kosmos generate without --data")
    if nproc is not None and not is_launched():
        raise typer.Exit(in_several("generate", context, nproc))

    from kosmos.commands.continued import Asking, continue_data

    overrides, arguments = split_fields(context.args)
    with shared() as parallel:
        if answers is not None:
            parallel.main_only(partial(check_answers, answers, resume=resume))
        with aside():
            run = loaded_by_all(parallel, output, as_step(step), parse_overrides(overrides))
        for line in run.warnings():
            say(f"warning: {line}", file=sys.stderr)
        hint_at_escapes(stop)
        files = WrittenFiles(run.composition, written, over=resume)
        modalities = list(run.composition.planner.routes)
        installed: dict[str, Any] = run.composition.registry.specs("modality")
        segments = parallel.main_only(lambda: read_segments(arguments, modalities, installed=installed))
        if data:
            asking = Asking(_texts_alone(segments), chat, system)
            continue_data(
                run, named, root, asking, how, answers=answers, resume=resume, max_documents=max_documents,
                as_json=as_json, parallel=parallel, files=files,
            )  # fmt: skip
            return
    _check_asked(segments, modalities)
    _hint(run, segments, chat=chat, system=system)
    _answer(run, prompt_document(segments, chat=chat, system=system), how, files, as_json=as_json)


def _writing(
    output: str,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    stop: Sequence[str] | None,
) -> Writing:
    """How documents are continued. Raises ConfigError where it cannot be done so, or an option stands for the run."""
    from kosmos.evaluate.generated import Writing
    from kosmos.generate import check_sampling

    if output.startswith("-"):
        option = output.partition("=")[0]
        raise ConfigError(f"{option}: the run's folder comes first: kosmos generate OUTPUT {option} ...")
    check_sampling(temperature, top_k, top_p)
    check_stop(stop)
    return Writing(max_new_tokens, temperature, top_k, top_p, seed, tuple(stop or ()))


def _answer(run: SavedRun, asked: Document, how: Writing, files: WrittenFiles, *, as_json: bool) -> None:
    """Write what the model writes behind one document to standard output."""
    if as_json:
        answer = write_behind(run, asked, how)
        print(as_line({**answer_row(answer), **files.column(answer, "answer")}, sys.stdout))
        return
    if sys.stdout.isatty():
        shown = ShownText(sys.stdout)
        try:
            answer = write_behind(run, asked, how, shown)
        finally:
            shown.end_line()
    else:  # a model writes what its data hold; a file or a pipe gets it as it is
        answer = write_behind(run, asked, how)
        print(answer.text)
    files.say(files.column(answer, "answer"), alone=True)


def _hint(run: SavedRun, segments: Sequence[Text | Media], *, chat: bool, system: str | None) -> None:
    """At a placeholder in a prompt, and where the run learned from chats and is not asked as they ask."""
    from kosmos.run_sources import chats_among, is_asked_as_learned

    for name in placeholders_among(segments, list(run.composition.planner.routes)):
        say(f"hint: <{name}> in a prompt is read as letters; --{name} FILE stands where it belongs", file=sys.stderr)
    config = run.composition.config
    learned = None if chat or system is not None else chats_among(config.data.sources)
    if learned and not is_asked_as_learned(config, prompt_document(segments, chat=chat, system=system)):
        say(f"hint: {learned} holds chats; with --chat the run is asked as they ask", file=sys.stderr)


def _check_asked(segments: Sequence[Text | Media], modalities: Sequence[str]) -> None:
    if not segments:
        media = f" or a medium, such as --{modalities[0]} FILE" if modalities else ""
        raise ConfigError(f"nothing to continue: give --prompt TEXT{media}")


def _check_data(paths: Sequence[str], of_data: Mapping[str, str | int | None], *, resume: bool) -> None:
    """Raises ConfigError where an option is empty, or goes without that which it is for."""
    check_given_once(paths)
    for option, value in of_data.items():
        if value is not None and not paths:
            raise ConfigError(f"{option}: is for the documents of --data PATH; name some, or leave it out")
        refuse_empty(option, None if value is None else str(value))
    if resume and of_data["--answers"] is None:
        raise ConfigError("--resume: goes on where the file of --answers ends; name it, or leave --resume out")


def _texts_alone(segments: Sequence[Text | Media]) -> tuple[Text, ...]:
    """Prompts that stand behind each document. Raises ConfigError where a medium is among them."""
    for segment in segments:
        if isinstance(segment, Media):
            raise ConfigError(
                f"--{segment.modality}: beside --data the media are those of the documents; leave one of them out"
            )
    return tuple(segment for segment in segments if isinstance(segment, Text))


def placeholders_among(segments: Sequence[Text | Media], modalities: Sequence[str]) -> list[str]:
    """Modalities that a prompt names as rows of data do (``<image>``), where they stand for a medium."""
    texts = [segment.text for segment in segments if isinstance(segment, Text)]
    return [name for name in modalities if any(f"<{name}>" in text for text in texts)]


def prompt_document(segments: Sequence[Text | Media], *, chat: bool, system: str | None) -> Document:
    """What to continue: the segments as they are, or as a user's turn (a system's text makes it a chat)."""
    if chat or system is not None:
        return chat_prompt(segments, system=system or "", origin="command line")
    document = Document("command line", tuple(segments))
    return replace(document, origin=files_of(document) or document.origin)


def read_segments(
    arguments: Sequence[str], modalities: Sequence[str], *, installed: Mapping[str, ModalitySpec] | None = None
) -> list[Text | Media]:
    """``--prompt TEXT`` and ``--MODALITY FILE`` in the order given.

    Args:
        modalities: those of the run.
        installed: what is known of modalities, also of those that other runs may have.

    Raises:
        ConfigError: an unknown flag, one without its value, a value without its flag, or a prompt that is no text.
        SampleError: a file is not there, or an object is none that a row may hold.
    """
    segments: list[Text | Media] = []
    installed = installed or {}
    pending = iter(arguments)
    for argument in pending:
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("-"):
            named = listed(f"--{modality} FILE" for modality in modalities)
            media = f"a medium is named as {named}, and " if modalities else ""
            raise ConfigError(f"{argument}: belongs to no option; {media}a prompt of several words needs quotes")
        if not argument.startswith("--") or name not in ("prompt", *modalities):
            if name in installed:
                has = listed(modalities) if modalities else "text alone"
                raise ConfigError(f"--{name}: the run was not trained on {name}; it has {has}")
            known = [f"--{k}" for k in ("prompt", *modalities, *OPTIONS)]
            hint = called_elsewhere(name, GENERATE) or did_you_mean(f"--{name}", known) or f"options: {listed(known)}"
            raise ConfigError(f"{argument}: unknown option; {hint}")
        if not equals and (found := next(pending, None)) is None:
            raise ConfigError(f"--{name}: needs a value")
        value = value if equals else str(found)
        if name == "prompt":
            value = _standard_input() if value == "-" else value
            _check_text("--prompt", value)
            segments.append(Text(value))
        else:
            segments.append(named_medium(name, value, installed.get(name), option=f"--{name}"))
    return segments


def _standard_input() -> str:
    """What is piped in, without the end of its last line. Raises ConfigError where it is no text."""
    if sys.stdin.isatty():
        raise ConfigError("--prompt -: takes the prompt from standard input, such as a pipe; there is none")
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--prompt -: not UTF-8 text, from byte {error.start + 1} on; convert it first") from error


def _check_text(option: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:  # bytes of the command line that are no UTF-8
        raise ConfigError(f"{option}: not UTF-8 text, from character {error.start + 1} on; convert it first") from error
