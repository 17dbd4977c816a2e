"""Texts that a model writes, for Python: of documents one names, and of those of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch

from kosmos.compose import Composition, check_composition
from kosmos.data.asked import asked_of, text_answer_of
from kosmos.data.document import Document, Source
from kosmos.data.in_memory import Documents
from kosmos.errors import ConfigError, DataError, SampleError
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.generated import Writing, answer_documents, continue_document, continue_documents
from kosmos.evaluate.given_sources import check_source
from kosmos.evaluate.prompt_lengths import told_lengths
from kosmos.generate import check_document, check_sampling, pass_over, texts_of, warn_of_answers
from kosmos.given import MAX_SEED, seeds_of, whole
from kosmos.runtime.devices import apart_from_autocast, check_dtype, device_of, each_apart_from_autocast


@apart_from_autocast()
def generate_text(
    composition: Composition,
    document: Document,
    *,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    stop: Sequence[str] = (),
    on_text: Callable[[str], object] | None = None,
    on_end: Callable[[Generated], object] | None = None,
    max_prompt_tokens: int | None = None,
) -> str:
    """Continue ``document`` until an end token.

    Args:
        document: text and media in any order; nothing is appended to it. One that ends in an answer, as rows to train
            on do, is continued behind that, of which a warning tells.
        temperature: 0 takes the most likely token; above, samples.
        top_k: samples among so many most likely tokens at most.
        top_p: samples among the fewest most likely tokens whose probabilities sum to so much (arXiv 1904.09751). With
            ``top_k``, among those that both leave.
        device: None and ``auto`` are where the model is.
        dtype: of matrix products.
        seed: of the sampling, from 0 to 2**64 - 1.
        stop: texts such as ``"\\n"``: the first that the model writes ends the text, which is what stands before it.
        on_text: told each piece of the text as soon as the model has written it. What it raises ends the writing.
        on_end: told in the end what became of the document: why the text ended, and how many tokens the prompt and the
            text have.
        max_prompt_tokens: the most that the prompt may have, media among them, which is seen before they are decoded.
            None takes any, and warns of one that is longer than a row of the run was.

    Returns:
        The text; of a character that ``max_new_tokens`` has cut through, nothing.

    Raises:
        ConfigError: an argument is something else than its type says, ``max_new_tokens``, ``top_k`` or
            ``max_prompt_tokens`` is not from 1 on, the temperature or the seed no number from 0 on, ``top_p`` is not in
            (0, 1], or ``stop`` has an empty text.
        SampleError: a medium is unusable, or the document is longer than ``max_prompt_tokens`` or than the backbone has
            positions for.
        TrainingError: the model gives no token a probability, as its weights are not finite.
    """
    check_composition(composition)
    check_dtype(dtype)
    check_document(document)
    warn_of_answers([document])
    max_new_tokens = whole("max_new_tokens", max_new_tokens, least=1)
    seed = whole("seed", seed, least=0, most=MAX_SEED)
    check_sampling(temperature, top_k, top_p)
    _check_told("on_text", on_text, "a text")
    _check_told("on_end", on_end, "what was generated")
    how = Writing(max_new_tokens, temperature, top_k, top_p, seed, texts_of("stop", stop))
    answer = continue_document(
        composition, document, how, device=device_of(device, composition.model), dtype=dtype,
        on_text=on_text or pass_over, look=told_lengths(composition, max_prompt_tokens),
    )  # fmt: skip
    if on_end is not None:
        on_end(answer)
    return answer.text


def _check_told(name: str, given: object, what: str) -> None:
    if given is not None and not callable(given):
        raise ConfigError(f"{name}: expected a function that takes {what}, got {given!r:.60}")


@apart_from_autocast()
def generate_texts(
    composition: Composition,
    documents: Sequence[Document],
    *,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int | Sequence[int] = 0,
    stop: Sequence[str] = (),
    on_end: Callable[[Generated], object] | None = None,
    max_prompt_tokens: int | None = None,
) -> list[str]:
    """Continue each of ``documents`` as ``generate_text`` does, with its arguments, up to 32 at once.

    In fp32 the texts are those of one call each. In less, products of several rows round differently, and a text may
    differ.

    Args:
        seed: of all documents, each of which begins anew with it, or one for each: ``[document] * 4`` with
            ``range(4)`` gives four texts of one document.
        on_end: told what became of each document, in their order and as soon as those beside it are finished too.
        max_prompt_tokens: as of ``generate_text``; the warning is of the first that is longer than a row.

    Raises:
        ConfigError, TrainingError: as ``generate_text``.
        SampleError: likewise; it names the document.
    """
    check_composition(composition)
    check_dtype(dtype)
    if isinstance(documents, Document) or not isinstance(documents, Sequence):
        raise ConfigError(f"documents: expected a list of Document, got {documents!r:.60}")
    for number, document in enumerate(documents):
        check_document(document, f"documents[{number}]")
    warn_of_answers(documents)
    _check_told("on_end", on_end, "what was generated")
    new_tokens, seeds = whole("max_new_tokens", max_new_tokens, least=1), seeds_of(seed, len(documents))
    check_sampling(temperature, top_k, top_p)
    device = device_of(device, composition.model)

    def refuse(number: int, error: SampleError) -> None:
        raise SampleError(f"documents[{number}] ({documents[number].origin}): {error}") from error

    how = Writing(new_tokens, temperature, top_k, top_p, stop=texts_of("stop", stop))
    groups = continue_documents(
        composition, Documents("documents", documents), range(len(documents)), lambda document: (document, None), how,
        device=device, dtype=dtype, leave_out=refuse, seed_of=seeds.__getitem__,
        look=told_lengths(composition, max_prompt_tokens),
    )  # fmt: skip
    texts: list[str] = []
    for answer in chain.from_iterable(groups):
        texts.append(answer.text)
        if on_end is not None:
            on_end(answer)
    return texts


def generate_answers(
    composition: Composition,
    source: Source,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
    max_documents: int = 512,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop: Sequence[str] = (),
    max_prompt_tokens: int | None = None,
) -> Iterator[Generated]:
    """What the model writes for the documents that end in an answer, greedily those of ``kosmos eval --generate``, or
    have nothing that is learned, such as ``chat_prompt`` gives.

    Documents that cannot be read are left out: ``score`` names them. ``score_answers`` scores what was written, and
    ``answered`` makes documents of it to learn from.

    Args:
        source: such as ``open_sources`` and ``open_held_out`` give.
        device: None and ``auto`` are where the model is.
        dtype: of matrix products.
        max_documents: taken at most, those that ``score`` takes of as many.
        temperature: as of ``generate_text``.
        top_k: likewise.
        top_p: likewise.
        seed: of what is sampled; what each document begins with follows from it and its row, and is the ``seed`` of
            its answer.
        stop: as of ``generate_text``.
        max_prompt_tokens: likewise; documents whose prompts are longer are left out. None takes all, and warns of the
            first that is longer than a row of the run was.

    Raises:
        ConfigError: an argument is something else than its type says, or a number is out of its range.
        DataError: some documents cannot be read, and no other is asked.
        TrainingError: as ``generate_text``.
    """
    check_composition(composition)
    check_dtype(dtype)
    check_source(source)
    max_documents = whole("max_documents", max_documents, least=1)
    new_tokens, (seed,) = whole("max_new_tokens", max_new_tokens, least=1), seeds_of(seed, 1)
    check_sampling(temperature, top_k, top_p)
    how = Writing(new_tokens, temperature, top_k, top_p, seed, texts_of("stop", stop))
    where = device_of(device, composition.model)
    look = told_lengths(composition, max_prompt_tokens)
    return _all_answers(composition, source, device=where, dtype=dtype, max_documents=max_documents, how=how, look=look)


def _all_answers(composition: Composition, source: Source, **given: Any) -> Iterator[Generated]:
    bad: list[SampleError] = []
    groups = answer_documents(composition, source, ask=_asked, leave_out=lambda _, error: bad.append(error), **given)
    count = 0
    for answer in chain.from_iterable(each_apart_from_autocast(groups)):
        count += 1
        yield answer
    if bad and not count:
        raise DataError(
            f"{source.name}: none of its documents can be asked; {len(bad):,} left out, the first: {bad[0]}"
        )


def _asked(document: Document) -> tuple[Document, str | None] | None:
    learned = any(getattr(segment, "train", False) for segment in document.segments)
    return text_answer_of(document) if learned else asked_of(document)
