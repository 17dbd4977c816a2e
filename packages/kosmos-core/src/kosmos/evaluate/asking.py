"""Texts that a model writes, for Python: of documents one names, and of those of a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch

from kosmos.compose import Composition, check_composition
from kosmos.data.asked import asked_of, prompt_of
from kosmos.data.document import Document, Source
from kosmos.data.in_memory import Documents
from kosmos.errors import ConfigError, DataError, SampleError
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.generated import Writing, answer_documents, continue_documents
from kosmos.evaluate.score import check_source
from kosmos.generate import check_document, check_sampling, texts_of, warn_of_answers
from kosmos.given import seeds_of, whole
from kosmos.runtime.devices import apart_from_autocast, check_dtype, device_of, each_apart_from_autocast


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
) -> list[str]:
    """Continue each of ``documents`` as ``generate_text`` does, with its arguments, up to 32 at once.

    In fp32 the texts are those of one call each. In less, products of several rows round differently, and a text may
    differ.

    Args:
        seed: of all documents, each of which begins anew with it, or one for each: ``[document] * 4`` with
            ``range(4)`` gives four texts of one document.

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
    new_tokens, seeds = whole("max_new_tokens", max_new_tokens, least=1), seeds_of(seed, len(documents))
    check_sampling(temperature, top_k, top_p)
    device = device_of(device, composition.model)

    def refuse(number: int, error: SampleError) -> None:
        raise SampleError(f"documents[{number}] ({documents[number].origin}): {error}") from error

    how = Writing(new_tokens, temperature, top_k, top_p, stop=texts_of("stop", stop))
    groups = continue_documents(
        composition, Documents("documents", documents), range(len(documents)), lambda document: (document, None), how,
        device=device, dtype=dtype, leave_out=refuse, seed_of=seeds.__getitem__,
    )  # fmt: skip
    return [answer.text for group in groups for answer in group]


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
    return _all_answers(composition, source, device=where, dtype=dtype, max_documents=max_documents, how=how)


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
    return prompt_of(document) if learned else asked_of(document)
