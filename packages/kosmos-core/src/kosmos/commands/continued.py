"""``kosmos generate OUTPUT --data PATH``: what the model writes behind each document of a file or folder."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kosmos.commands.answers import AnswerLines, as_line
from kosmos.commands.causes import incident_lines, root_advice
from kosmos.commands.named_data import path_of, settings_of
from kosmos.commands.unfinished import made_by
from kosmos.commands.writing import LongPrompts
from kosmos.data.chat import chat_prompt
from kosmos.data.document import Document, Source, Text
from kosmos.data.foreign import calling
from kosmos.data.mixture import origin_of
from kosmos.data.quarantine import Incident
from kosmos.data.sources.chosen import others_left_out
from kosmos.data.sources.folders import counts_files
from kosmos.data.sources.joined import ClassFolderTable, Rooted
from kosmos.data.sources.textfiles import TextTable
from kosmos.data.turns import is_chat
from kosmos.errors import DataError, SampleError
from kosmos.evaluate.answer_rows import answer_row
from kosmos.names import listed
from kosmos.own_output import aside
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.commands.written_files import WrittenFiles
    from kosmos.config import DocumentsConfig
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.generated import Writing
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.saved import SavedRun


@dataclass(frozen=True)
class Asking:
    """What is asked of each document: what stands before its answer, and what the command line says behind that."""

    typed: tuple[Text, ...]
    chat: bool
    """Whether it is the turn of a user."""
    system: str | None
    """Of the turn in front of it; its text makes it a chat."""

    def settings(self) -> dict[str, Any]:
        """What answers depend on, as plain values."""
        return {"prompts": [text.text for text in self.typed], "chat": self.chat, "system": self.system}

    def __call__(self, document: Document) -> tuple[Document, str | None]:
        """What to continue, and what is expected. Raises SampleError where a chat is to be asked something else."""
        from kosmos.data.asked import asked_of

        prompt, expected = asked_of(document)
        if is_chat(prompt):
            if self.typed or self.system is not None:
                option = "--prompt" if self.typed else "--system"
                raise SampleError(f"a chat says itself what is asked; continue it without {option}")
            return prompt, expected
        content: list[Any] = [Text(part.text) if isinstance(part, Text) else part for part in prompt.segments]
        content += self.typed
        if self.chat or self.system is not None:
            return chat_prompt(content, system=self.system or "", origin=document.origin), expected
        return Document(document.origin, tuple(content)), expected


def continue_data(
    run: SavedRun,
    named: Sequence[str | DocumentsConfig],
    root: str | None,
    asking: Asking,
    how: Writing,
    *,
    answers: str | None,
    resume: bool,
    max_documents: int | None,
    as_json: bool,
    parallel: Parallel,
    files: WrittenFiles,
) -> None:
    """Write a line for each document, in their order, and name those that cannot be used.

    Args:
        named: paths, and entries as of ``evaluate.sources``.
        resume: go on where the file of answers ends, if there is one.
        as_json: say as JSON how many there are, where they are in a file.
        parallel: the processes that share the documents; the first of them writes.
        files: where media go that the model writes.

    Raises:
        ConfigError: the answers cannot be written.
        TrainingError: the disk is full.
        DataError: the data cannot be opened, or none of the documents could be used.
    """
    from kosmos.data.sources.remarks import remarks_of
    from kosmos.evaluate.generated import continue_documents
    from kosmos.run_sources import open_asked
    from kosmos.train.older_rules import rules_of

    config, registry = run.composition.config, run.composition.registry
    incidents: list[Incident] = []
    long = LongPrompts(run.composition.planner.max_tokens)
    paths = [path_of(one) for one in named]
    places: list[tuple[int, int]] = []
    """Source and row of each of them, in their order."""
    with AnswerLines(answers, resume=resume) as lines, aside():
        place = Path(root) if root else None
        sources = open_asked(config, registry, named, root=place, own=run.as_begun, **rules_of(run.order or None))
        _say(line for source in sources for line in passed_over(source, list(config.modalities)))
        _say(line for source in sources for line in _of_texts(source))
        _say(f"warning: {line}" for source in sources for line in remarks_of(source))
        _hint_at_chats(run, sources, asking)
        _say(line for source in sources if asking.typed for line in _of_folders(source))
        settings = (
            {"command": "generate", "max_documents": max_documents, **how.settings()}
            | asking.settings()
            | settings_of(named)
        )
        parallel.main_only(lambda: lines.begin(made_by(run, sources, paths, settings), paths))
        before = lines.left_out
        try:
            for number, source in enumerate(sources):
                last = len(source) if max_documents is None else min(max_documents, len(source))
                behind = parallel.main_only(partial(lines.answered, number))
                for group in continue_documents(
                    run.composition, source, range(last), asking, how, device=run.device, dtype=run.dtype,
                    leave_out=partial(_note, incidents, places, source, number), behind=behind, parallel=parallel,
                ):  # fmt: skip
                    long.see(group)
                    row = group[-1].row
                    left_out = before + bisect_right(places, (number, row))
                    make = partial(_rows, group, source.name, number, files)
                    parallel.main_only(partial(_write, lines, make, number, row, left_out))
            parallel.main_only(lines.finish)
        finally:  # who stops it wants to know too
            _say(incident_lines(incidents, "left out", ""))
            _say(f"warning: {line}" for line in long.told())
    count = parallel.main_only(lambda: lines.count)
    if not count:
        advice = root_advice(incidents, root)
        raise DataError(
            f"{', '.join(paths)}: no document could be continued; those left out are named with why{advice}"
        )
    if answers is not None:
        told = {"answers": answers, "documents": count, "left_out": before + len(incidents)}
        print(as_line(told, sys.stdout) if as_json else f"{count:,} answers in {answers}")


def _write(lines: AnswerLines, make: Callable[[], list[dict[str, Any]]], source: int, row: int, left_out: int) -> None:
    lines.write(make(), source, row, left_out=left_out)


def _rows(group: Sequence[Generated], name: str, source: int, files: WrittenFiles) -> list[dict[str, Any]]:
    """Lines of answers to a source, the files of media that they hold written before."""
    return [{**answer_row(answer, name), **files.column(answer, f"{source + 1}-{answer.row + 1}")} for answer in group]


def _say(lines: Iterator[str]) -> None:
    for line in lines:
        say(line, file=sys.stderr)


def _note(
    incidents: list[Incident],
    places: list[tuple[int, int]],
    source: Source,
    number: int,
    row: int,
    error: SampleError,
) -> None:
    places.append((number, row))
    origin = origin_of(source, row)
    incidents.append(Incident(origin, source.name, error.code, str(error).removeprefix(f"{origin}: ")))


def passed_over(source: Source, modalities: Sequence[str]) -> Iterator[str]:
    """What opening the source has left out."""
    for what, count in others_left_out(getattr(source, "left_out", {})).items():
        if counts_files(what):
            yield f"left out: {source.name}: {count:,} {'file' if count == 1 else 'files'} ({what})"
        else:
            has, hold = listed(modalities) if modalities else "text alone", "row holds" if count == 1 else "rows hold"
            yield f"left out: {source.name}: {count:,} {hold} {what}; the run has {has}"


def _of_texts(source: Source) -> Iterator[str]:
    """What was taken of text files, which say nothing of where a prompt ends."""
    table, count = getattr(source, "table", None), len(source)
    if isinstance(table, TextTable) and table.one_a_line:
        yield f"hint: {source.name}: {count:,} {'prompt' if count == 1 else 'prompts'}, one a line"
    elif isinstance(table, TextTable):
        taken = f"{count:,} {'piece' if count == 1 else 'pieces'} of text, cut as in training"
        yield f"hint: {source.name}: {taken}; of a file alone each line is a prompt"


def _of_folders(source: Source) -> Iterator[str]:
    """Of media in folders, by the names of which the answers to a question of somebody's own are no right ones."""
    table = getattr(source, "table", None)
    table = table.table if isinstance(table, Rooted) else table
    if isinstance(table, ClassFolderTable) and table.named and len(table):
        yield (
            f"hint: {source.name}: expected is the name of each file's folder (such as "
            f"{table.files[0].split('/')[-2]}), as nothing else says what is right; metrics are of use where --prompt "
            "asks for these names"
        )


def _hint_at_chats(run: SavedRun, sources: Sequence[Source], asking: Asking) -> None:
    """Where the run learned from chats and the documents, by the first of each source, are none."""
    from kosmos.run_sources import chats_among, is_asked_as_learned

    config = run.composition.config
    learned = None if asking.chat or asking.system is not None else chats_among(config.data.sources)
    first = [document for source in sources if (document := _first(source)) is not None] if learned else []
    if any(not is_chat(document) and not is_asked_as_learned(config, asking(document)[0]) for document in first):
        say(f"hint: {learned} holds chats; with --chat the run is asked as they ask", file=sys.stderr)


def _first(source: Source) -> Document | None:
    """The first document, if it can be read."""
    try:
        with calling(source, "document"):
            return source.document(0)
    except SampleError:
        return None


def unspaced(run: SavedRun, sources: Sequence[Source]) -> Iterator[str]:
    """Where the run's templates have a space in front of each answer and documents, by the first of each source, none.

    A line for each source. Tokens that begin with a space are mostly others than those that do not.
    """
    from kosmos.data.asked import prompt_of
    from kosmos.run_sources import spaced_answers

    if not spaced_answers(run.composition.config, run.composition.registry):
        return
    encode = run.composition.tokenizer.encode
    for source in sources:
        try:
            with calling(source, "document"):
                document = source.document(0)
        except SampleError:
            continue
        parts = None if is_chat(document) else prompt_of(document)
        before = parts[0].segments[-1] if parts else None
        if parts is None or not isinstance(before, Text) or before.text.endswith("\n") or parts[1][:1].strip() == "":
            continue
        answer, text = parts[1], before.text
        if [*encode(text), *encode(answer)] != [*encode(text.rstrip(" ")), *encode(f" {answer}")]:
            yield (
                f"{source.name}: answers begin without a space, and those that the run learned by its template begin "
                "with one, so that their first tokens are others; end each prompt without a space and begin each "
                f"answer with one ({f' {answer}'!r:.40})"
            )
