"""Texts that the model really generates for the documents of a source, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kosmos.compose import Composition
from kosmos.data.asked import text_answer_of
from kosmos.data.batch import ReadyDocument
from kosmos.data.document import Document, Source
from kosmos.data.foreign import calling
from kosmos.data.spread import spread
from kosmos.data.text_stream import StoppedText, before_stop
from kosmos.errors import SampleError
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.called import called, shown
from kosmos.evaluate.dealt import LeaveOut, chunks, dealt
from kosmos.evaluate.references import all_right
from kosmos.generate import (
    Look,
    generate_alone,
    generate_together,
    pass_over,
    ready_prompt,
    room_behind,
    why_ended,
)
from kosmos.given import MAX_SEED
from kosmos.model.choosing import GREEDY_BELOW
from kosmos.runtime.parallel import Parallel

APART = 0x9E3779B1
"""Odd, so that rows have seeds of their own; far from small, so that seeds that follow one another share none."""
AT_ONCE = 32
"""Documents at most that are continued together, where the backbone can."""

Ask = Callable[[Document], tuple[Document, str | None] | None]
"""What to continue of a document, and what is expected, where something is; None passes over it."""


ShouldStop = Callable[[], bool]


def go_on() -> bool:
    """For ``should_stop``: nobody stops it."""
    return False


@dataclass(frozen=True)
class Writing:
    """How documents are continued: arguments of ``generate_text``."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    """What the seed of each document follows from, unless each has one of its own."""
    stop: tuple[str, ...] = ()
    """Texts that end what is written in front of them."""

    def seed_of(self, row: int) -> int:
        """That of a row of a source, of the first one ``seed`` itself: none hangs on those before it, and no two rows
        are drawn alike."""
        return (self.seed + row * APART % 2**32) % (MAX_SEED + 1)

    def settings(self) -> dict[str, Any]:
        """As plain values; without ``stop`` where there is none, as calls of earlier versions noted them."""
        told = asdict(self)
        return told if self.stop else {name: value for name, value in told.items() if name != "stop"}

    @property
    def sampling(self) -> dict[str, Any]:
        """Arguments of ``generate_alone`` and ``generate_together``, but for seeds."""
        return {name: value for name, value in asdict(self).items() if name not in ("seed", "stop")}


@dataclass(frozen=True)
class _Asked:
    """A prompt, and the answer that is still without its text."""

    prompt: Document
    answer: Generated
    seed: int

    def written(self, composition: Composition, prompt: ReadyDocument, ids: list[int], how: Writing) -> Generated:
        """With the tokens that the model wrote behind it."""
        ended = _why_ended(composition, prompt, ids, how)
        seed = None if how.temperature < GREEDY_BELOW else self.seed
        decode = composition.tokenizer.decode if ended == "end" else composition.tokenizer.decode_cut
        written = decode(ids)
        text = before_stop(written, how.stop)
        ended = ended if text == written else "stop"
        answer = replace(self.answer, text=text, ended=ended, seed=seed, prompt_tokens=len(prompt.plan))
        return replace(answer, tokens=len(ids), token_ids=tuple(ids))


def _why_ended(composition: Composition, prompt: ReadyDocument, ids: list[int], how: Writing) -> str:
    return why_ended(composition.model.backbone, len(prompt.plan), len(ids), how.max_new_tokens)


def answer_documents(
    composition: Composition,
    source: Source,
    *,
    device: torch.device,
    dtype: torch.dtype,
    max_documents: int,
    how: Writing,
    ask: Ask = text_answer_of,
    behind: int = -1,
    parallel: Parallel | None = None,
    should_stop: ShouldStop = go_on,
    leave_out: LeaveOut = lambda row, error: None,
    look: Look = pass_over,
) -> Iterator[list[Generated]]:
    """Continuations of the documents that end in an answer; at most ``max_documents``, which are those that are scored
    where these are as many, and are drawn like them.

    Documents that cannot be read are left out: ``score`` names them. Arguments are those of ``continue_documents``.
    """
    rows = spread(len(source), max_documents, even=composition.config.evaluate.is_even).tolist()
    return continue_documents(
        composition, source, rows, ask, how,
        device=device, dtype=dtype, behind=behind, parallel=parallel, should_stop=should_stop, leave_out=leave_out,
        look=look,
    )  # fmt: skip


def continue_documents(
    composition: Composition,
    source: Source,
    rows: Sequence[int],
    ask: Ask,
    how: Writing,
    *,
    device: torch.device,
    dtype: torch.dtype,
    leave_out: LeaveOut = lambda row, error: None,
    seed_of: Callable[[int], int] | None = None,
    behind: int = -1,
    parallel: Parallel | None = None,
    should_stop: ShouldStop = go_on,
    look: Look = pass_over,
) -> Iterator[list[Generated]]:
    """What the model writes behind what is asked of documents, in their order and in groups, each as it is finished.

    Groups, and so the texts, are the same whatever the number of processes, and wherever an earlier call ended.

    Args:
        rows: of ``source``, ascending.
        leave_out: told of each row that cannot be used, before the group behind it.
        seed_of: the seed of a row, where it does not follow from that of ``how``.
        behind: the last row that is answered already.
        parallel: the processes that share the rows. All of them call this, and get all groups.
        should_stop: asked at every token; where it says so the texts end there, and are of no use.
        look: told of each prompt before it is decoded; a SampleError of its leaves it out.

    Raises:
        ConfigError: whatever ``ask`` raises.
        TrainingError: as ``generate_text``.
    """

    def asked(row: int) -> _Asked | None:
        return _read(source, row, ask, (seed_of or how.seed_of)(row))

    def of_chunk(chunk: Sequence[int], leave_out: LeaveOut) -> Iterator[list[Generated]]:
        return _continue_chunk(
            composition, chunk, asked, how,
            device=device, dtype=dtype, leave_out=leave_out, should_stop=should_stop, look=look,
        )  # fmt: skip

    parts = chunks(rows, AT_ONCE, behind)
    return dealt(parts, of_chunk, leave_out, parallel or Parallel())


def _continue_chunk(
    composition: Composition,
    rows: Sequence[int],
    read: Callable[[int], _Asked | None],
    how: Writing,
    *,
    device: torch.device,
    dtype: torch.dtype,
    leave_out: LeaveOut,
    should_stop: ShouldStop,
    look: Look,
) -> Iterator[list[Generated]]:
    """As ``continue_documents``, of rows that one process continues."""
    together = hasattr(composition.model.backbone, "new_batch_cache")
    group: list[tuple[_Asked, ReadyDocument]] = []
    watched = bool(how.stop) or should_stop is not go_on

    def write_out() -> list[Generated]:
        prompts = [prompt for _, prompt in group]
        ends = [_end_of(composition, how, should_stop) for _ in prompts] if watched else []
        seeds = [asked.seed for asked, _ in group]
        written = generate_together(
            composition, prompts, **how.sampling, device=device, dtype=dtype, seeds=seeds, written=ends
        )
        found = [
            asked.written(composition, prompt, ids, how) for (asked, prompt), ids in zip(group, written, strict=True)
        ]
        group.clear()
        return found

    for row in rows:
        if should_stop():
            break
        try:
            if (asked := read(row)) is None:
                continue
            prompt = ready_prompt(composition, asked.prompt, look)
            room_behind(composition.model.backbone, len(prompt.plan), how.max_new_tokens)
        except SampleError as error:
            leave_out(row, error)
            continue
        if not together:
            end = _end_of(composition, how, should_stop)
            ids = generate_alone(
                composition, prompt, **how.sampling, device=device, dtype=dtype, seed=asked.seed, written=end
            )
            yield [asked.written(composition, prompt, ids, how)]
            continue
        # No more tokens at once than memory sufficed for in training.
        tokens = sum(len(other.plan) for _, other in group) + len(prompt.plan)
        if group and tokens > composition.planner.max_tokens:
            yield write_out()
        group.append((asked, prompt))
    if group:
        yield write_out()


def _end_of(composition: Composition, how: Writing, should_stop: ShouldStop) -> Callable[[int], object]:
    """What is told each token of a text, and says where it ends."""
    told = StoppedText(composition.tokenizer, how.stop, pass_over).add if how.stop else pass_over
    if should_stop is go_on:
        return told
    return lambda token: should_stop() or told(token)


def continue_document(
    composition: Composition,
    document: Document,
    how: Writing,
    *,
    device: torch.device,
    dtype: torch.dtype,
    on_text: Callable[[str], object] = pass_over,
    look: Look = pass_over,
) -> Generated:
    """What the model writes behind one document, whose media are called as they are named. Arguments and errors are
    those of ``generate_text``."""
    prompt = ready_prompt(composition, document, look)
    media = tuple(str(medium.source) if isinstance(medium.source, Path) else None for medium in document.media)
    asked = _Asked(document, Generated(document.origin, None, "", prompt=shown(document), media=media), how.seed)
    text = StoppedText(composition.tokenizer, how.stop, on_text)
    told = pass_over if on_text is pass_over and not how.stop else text.add
    ids = generate_alone(composition, prompt, **how.sampling, device=device, dtype=dtype, seed=how.seed, written=told)
    text.end(cut=_why_ended(composition, prompt, ids, how) != "end")
    return asked.written(composition, prompt, ids, how)


def _read(source: Source, row: int, ask: Ask, seed: int) -> _Asked | None:
    """What is asked of a row, and all that is known of its answer. Raises SampleError where it cannot be used."""
    with calling(source, "document"):
        document = source.document(row)
    if (parts := ask(document)) is None:
        return None
    asked, expected = parts
    origin, identity, prompt, media = called(source, row, asked)
    right = all_right(expected, document.references)
    answer = Generated(origin, expected, "", prompt=prompt, media=media, id=identity, row=row, references=right)
    return _Asked(asked, answer, seed)
