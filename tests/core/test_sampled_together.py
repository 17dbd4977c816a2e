"""Texts that are sampled together, each by a seed of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from kosmos import DataError, Documents, SampleError, chat_prompt, generate_answers, generate_text, generate_texts
from kosmos.data.asked import asked_of
from kosmos.data.text_stream import StoppedText
from kosmos.evaluate.generated import Writing, continue_documents
from kosmos.generate import generate_alone, generate_together, pass_over, ready_prompt
from support.backbones import BACKBONES, composed, documents
from support.ticks import TicksSource

FP32: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}


@pytest.fixture(scope="module", params=BACKBONES)
def parts(request):
    return composed(request.param)


@pytest.mark.parametrize("stop", [(), ("e", "ab", "\N{SNOWMAN}")])
@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 1.0},
        {"temperature": 4.0},
        {"temperature": 2.0, "top_k": 3},
        {"temperature": 1.5, "top_p": 0.9},
        {"temperature": 9.0, "top_k": 50, "top_p": 0.5},
        {"temperature": 0.0},
    ],
    ids=str,
)
def test_each_text_is_that_of_its_document_and_seed_alone(parts, how, stop):
    prompts = [ready_prompt(parts, document) for document in [*documents()] * 4]
    seeds = [7, *range(len(prompts) - 1)]
    how |= {"max_new_tokens": 80, **FP32}

    def ends():
        return StoppedText(parts.tokenizer, stop, pass_over).add

    together = generate_together(parts, prompts, seeds=seeds, written=[ends() for _ in prompts], **how)
    assert together == [
        generate_alone(parts, prompt, seed=seed, written=ends(), **how)
        for prompt, seed in zip(prompts, seeds, strict=True)
    ]
    if how["temperature"] in (4.0, 9.0):  # some end while others go on
        assert len(set(map(len, together))) > 3


def test_each_document_may_have_a_seed_of_its_own(parts):
    document, how = next(documents()), {"max_new_tokens": 20, "temperature": 2.0}
    alone = [generate_text(parts, document, seed=seed, **how) for seed in (5, 6, 7, 8)]
    assert len(set(alone)) > 1
    for seeds in (range(5, 9), [5, 6, 7, 8], np.arange(5, 9), torch.arange(5, 9)):
        assert generate_texts(parts, [document] * 4, seed=seeds, **how) == alone
    for seed in (6, np.int64(6)):
        assert generate_texts(parts, [document] * 3, seed=seed, **how) == [alone[1]] * 3
    greedy = generate_text(parts, document, max_new_tokens=20)
    assert generate_texts(parts, [document] * 2, seed=(1, 2), max_new_tokens=20) == [greedy] * 2


def test_an_answer_says_its_seed(parts, monkeypatch):
    source, how = TicksSource("train", 7), Writing(max_new_tokens=5, temperature=1.0)
    for can in (True, False):  # a backbone that continues one at a time does it too
        if not can:
            monkeypatch.delattr(type(parts.model.backbone), "new_batch_cache")
        groups = [*continue_documents(parts, source, range(7), asked_of, how, seed_of=lambda row: 10 + row, **FP32)]
        assert [len(group) for group in groups] == ([7] if can else [1] * 7)
        answers = [answer for group in groups for answer in group]
        assert [answer.seed for answer in answers] == [*range(10, 17)]
        for answer in answers:
            prompt, _ = asked_of(source.document(answer.row))
            given = {"max_new_tokens": 5, "temperature": 1.0, "seed": answer.seed}
            assert answer.text == generate_text(parts, prompt, **given)


def test_several_answers_to_each_document_of_a_source_are_those_of_their_seeds():
    parts, source, how = composed("decoder"), TicksSource("train", 6), {"max_new_tokens": 16, "temperature": 2.0}
    every = []
    for seed in (3, 4):
        found = list(generate_answers(parts, source, seed=seed, **how))
        assert sorted(answer.row for answer in found) == [*range(6)]
        for answer in found:
            asked, expected = asked_of(source.document(answer.row))
            assert answer.expected == expected
            assert answer.text == generate_text(parts, asked, seed=answer.seed, **how)
        every += [answer.seed for answer in found]
    assert len(set(every)) == 12 and every[:6] == [a.seed for a in generate_answers(parts, source, seed=3, **how)]


def test_documents_that_are_alike_are_not_answered_alike():
    parts, how = composed("decoder"), {"max_new_tokens": 16, "temperature": 2.0}
    asked = Documents("asked", [chat_prompt("Why?", origin=f"{n}") for n in range(6)])
    found = list(generate_answers(parts, asked, **how))
    assert [answer.expected for answer in found] == [None] * 6
    assert len({answer.text for answer in found}) == 6


class Broken:
    name = "broken"

    def __len__(self):
        return 3

    def document(self, index):
        raise SampleError(f"no {index}")


def test_a_source_of_which_nothing_can_be_asked_is_no_empty_list():
    with pytest.raises(DataError, match=r"broken: none of its documents can be asked; 3 left out, the first: .*no \d"):
        list(generate_answers(composed("decoder"), Broken()))
