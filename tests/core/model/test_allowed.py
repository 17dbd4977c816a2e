"""A model that writes media writes whole ones, and no codes elsewhere, whatever its weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kosmos import Document, PluginError, Registry, SampleError, Text, generate_text, make_run, written_media
from kosmos.compose import Composition, compose
from kosmos.data.document import Codes
from kosmos.data.writer import Writer, code_marks
from kosmos.evaluate.answer import Generated
from kosmos.model.allowed import Allowed, Tokens
from kosmos.model.choosing import choose
from support import spoken_ticks, ticks
from support.runs import SMALL

TEXTS = 4
"""Tokens 0 to 3 are texts'; then one modality of two books of two codes, and another of three codes."""
MEDIA = (Tokens(4, 5, (6, 7, 8, 9), 2), Tokens(10, 11, (14, 13, 12), length=3))
V = 16


def follow(ids: list[int]) -> None:
    """Fails where something stands that may not."""
    of, count = None, 0
    for token in ids:
        if of is None:
            assert token in (*range(TEXTS), 4, 10, 15)
            of, count = next((one for one in MEDIA if one.begin == token), None), 0
        elif token == of.end:
            assert count and count % of.books == 0 and of.length in (None, count)
            of = None
        else:
            stretch = len(of.codes) // of.books
            book = count % of.books
            assert count != of.length and token in of.codes[book * stretch : (book + 1) * stretch]
            count += 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), documents=st.integers(1, 4))
def test_nothing_else_is_written(seed: int, documents: int) -> None:
    allowed = Allowed(MEDIA, V, documents, torch.device("cpu"))
    random = torch.Generator().manual_seed(seed)
    ids: list[list[int]] = [[] for _ in range(documents)]
    for step in range(40):
        going = [document for document in range(documents) if (document + step) % 3 or documents == 1]
        if not going:
            continue
        logits = 3 * torch.randn(len(going), V, generator=random)
        tokens = choose(allowed(logits, going), 1.0, None, None, [random] * len(going))
        for document, token in zip(going, tokens, strict=True):
            allowed.add(document, token)
            ids[document].append(token)
    for one in ids:
        follow(one)


def test_without_media_logits_are_as_they_were() -> None:
    logits = torch.randn(2, V)
    assert Allowed((), V, 2, torch.device("cpu"))(logits, [0, 1]) is logits


def composed(**codec: object) -> Composition:
    run = make_run(SMALL, {"modalities": {"ticks": {"codec": {"name": "steps", "size": 8, **codec}}}})
    return compose(run, Registry.from_modules({"ticks": ticks, "spoken": spoken_ticks}))


def writer_of(composition: Composition) -> Writer:
    writer = composition.planner.routes["ticks"].writer
    assert writer is not None
    return writer


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", "")


@pytest.mark.parametrize("length", [None, 6])
def test_a_model_that_has_learned_nothing_writes_whole_media(length: int | None) -> None:
    composition = composed(books=2, length=length)
    writer, answers = writer_of(composition), list[Generated]()
    for seed in range(20):
        generate_text(
            composition, Document("one", (Text("up"),)),
            max_new_tokens=250, temperature=1.0, seed=seed, on_end=answers.append,
        )  # fmt: skip
    found = [medium for answer in answers for medium in written_media(composition, answer)]
    faults = {medium.fault for medium in found}
    assert found and all(not fault or fault.startswith("it has no end") for fault in faults), faults
    assert length is None or all(len(medium.codes) == length for medium in found if not medium.fault)
    codes = {writer.begin, writer.end, *writer.code_ids}
    for answer in answers:
        inside = False
        for token in answer.token_ids:
            assert inside == (token in codes) or token == writer.begin
            inside = token != writer.end if inside else token == writer.begin


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ([0, 4, 1], "it has 3 codes, expected 2 for each stretch"),
        ([0, 4, 5, 1], "code 5 stands at place 2, where one of another book belongs"),
    ],
)
def test_codes_out_of_turn_are_none(codes: list[int], says: str) -> None:
    composition = composed(books=2)
    writer = writer_of(composition)
    begin, end, *ids = map(composition.tokenizer.mark_id, code_marks("ticks", 8))
    (medium,) = writer.written([begin, *(ids[code] for code in codes), end])
    assert medium.fault == says
    with pytest.raises(SampleError, match=says):
        writer.tokens(Codes("ticks", np.array(codes)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"books": 0}, "books: expected a whole number that divides its size"),
        ({"books": 3}, "books: expected a whole number that divides its size"),
        ({"length": 0}, "length: expected a whole number from 1 on, got 0"),
        ({"books": 2, "length": 3}, "length: expected a whole number from 1 on, a multiple of its 2 books, got 3"),
    ],
)
def test_what_a_codec_says_of_its_codes_fits(options: dict[str, object], says: str) -> None:
    with pytest.raises(PluginError, match=says):
        composed(**options)


def test_another_number_of_codes_than_all_have_is_none() -> None:
    writer = writer_of(composed(length=4))
    with pytest.raises(SampleError, match="it has 3 codes, expected 4"):
        writer.tokens(Codes("ticks", np.array([1, 2, 3])))
