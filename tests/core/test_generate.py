"""Text that a model writes, with its cache and in groups."""

from __future__ import annotations

import re

import pytest
import torch

from kosmos import (
    Document,
    Media,
    SampleError,
    Text,
    generate_answers,
    generate_text,
    generate_texts,
    score_answers,
)
from kosmos.compose import compose
from kosmos.data.asked import asked_of, prompt_of
from kosmos.data.marks import END, EOS
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.generated import Writing, answer_documents, continue_documents
from kosmos.generate import generate_ids, generate_together, prompt_batch, ready_prompt
from support.backbones import BACKBONES, SERIES, composed, documents
from support.runs import small_run, ticks_registry
from support.ticks import TicksSource


@pytest.fixture(scope="module", params=BACKBONES)
def parts(request):
    return composed(request.param)


def recomputed(parts, document, count):
    """Greedy, the whole row anew for each token."""
    ids = []
    for _ in range(count):
        batch = prompt_batch(parts, document)
        length = len(batch.token_ids) + len(ids)
        batch.token_ids = torch.cat([batch.token_ids, torch.tensor(ids, dtype=torch.int64)])
        batch.labels = torch.full((length,), -100)
        batch.position_ids = torch.arange(length)
        (info,) = batch.documents
        batch.documents = (type(info)(info.origin, info.source, info.modalities, 0, length),)
        with torch.inference_mode():
            logits = parts.model.hidden(batch)[-1] @ parts.model.backbone.output_weight().T
        ids.append(int(logits.argmax()))
    return ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_documents_that_are_continued_together_get_what_each_gets_alone(parts, dtype):
    given = {"device": torch.device("cpu"), "dtype": dtype}
    prompts = [ready_prompt(parts, document) for document in documents()]
    # 80 tokens: buffers have to grow on the way.
    together = generate_together(parts, prompts, max_new_tokens=80, **given)
    alone = [
        generate_ids(parts, document, max_new_tokens=80, temperature=0.0, seed=0, **given) for document in documents()
    ]
    if dtype == torch.float32:
        assert together == alone
    else:  # products of several rows round in other places; the first token shows what was read of the prompt
        assert [ids[:1] for ids in together] == [ids[:1] for ids in alone]
    assert max(map(len, together)) > 4


def test_answers_are_those_of_each_document_alone_in_its_order(parts, monkeypatch):
    monkeypatch.setattr("kosmos.evaluate.generated.AT_ONCE", 3)
    given = {"device": torch.device("cpu"), "dtype": torch.float32}
    source, how = TicksSource("train", 20), Writing(max_new_tokens=6)
    answers = [a for group in answer_documents(parts, source, max_documents=11, how=how, **given) for a in group]
    assert len(answers) == 11
    by_origin = {document.origin: document for document in map(source.document, range(len(source)))}
    for answer in answers:
        prompt, expected = prompt_of(by_origin[answer.origin])
        assert (answer.expected, answer.text) == (expected, generate_text(parts, prompt, max_new_tokens=6, **given))
        assert len(answer.token_ids) == answer.tokens
        assert parts.tokenizer.decode_cut(answer.token_ids) == answer.text


def test_documents_that_are_sampled_get_what_each_gets_alone(parts):
    given = {"device": torch.device("cpu"), "dtype": torch.float32}
    source, how = TicksSource("train", 6, broken=(2,)), Writing(max_new_tokens=5, temperature=1.0, top_k=9, seed=3)
    bad = []
    (group,) = continue_documents(
        parts, source, (0, 2, 4, 5), asked_of, how, leave_out=lambda *told: bad.append(told), **given
    )
    for row, answer in zip((0, 4, 5), group, strict=True):
        prompt, expected = prompt_of(source.document(row))
        seed = how.seed_of(row)
        alone = generate_text(parts, prompt, max_new_tokens=5, temperature=1.0, top_k=9, seed=seed, **given)
        told = {"tokens": answer.tokens, "ended": answer.ended, "seed": seed}
        assert answer == Generated(f"ticks {row}", expected, alone, prompt="<ticks>", media=(None,), **told)
    assert [(row, str(error)) for row, error in bad] == [(2, "holds values that are no numbers")]


def test_a_text_is_told_piece_by_piece_as_it_is_written(parts):
    pieces, document = [], next(documents())
    text = generate_text(parts, document, max_new_tokens=12, temperature=2.0, on_text=pieces.append)
    assert "".join(pieces) == text == generate_text(parts, document, max_new_tokens=12, temperature=2.0)
    assert len(pieces) > 1

    def stop(piece):
        raise KeyError(piece)

    with pytest.raises(KeyError, match=re.escape(repr(pieces[0]))):
        generate_text(parts, document, max_new_tokens=12, temperature=2.0, on_text=stop)


@pytest.mark.parametrize("how", [{}, {"temperature": 1.5, "top_p": 0.9, "seed": 4}])
def test_texts_are_those_of_one_call_each(parts, how):
    asked = [*documents()] * 2
    texts = generate_texts(parts, asked, max_new_tokens=9, **how)
    assert texts == [generate_text(parts, document, max_new_tokens=9, **how) for document in asked]
    assert generate_texts(parts, []) == generate_texts(parts, [], seed=[]) == []
    broken = Document("third", (Media("ticks", SERIES[:0]),))
    with pytest.raises(SampleError, match=r"documents\[2\] \(third\): .*holds no values"):
        generate_texts(parts, [*asked[:2], broken], max_new_tokens=2, **how)


def test_answers_of_a_source_are_scored_by_metrics_of_ones_own(parts):
    source = TicksSource("train", 9, broken=(2,))
    answers = list(generate_answers(parts, source, max_documents=9, max_new_tokens=4))
    assert [answer.origin for answer in answers] == [f"ticks {row}" for row in range(9) if row != 2]
    length = score_answers(answers, {"length": lambda texts, expected: sum(map(len, texts)) / len(expected)})
    assert length == {"length": sum(len(answer.text) for answer in answers) / 8}


def test_cached_greedy_generation_equals_the_whole_row_anew_for_each_token(parts):
    for document in documents():
        cached = generate_ids(
            parts, document, max_new_tokens=24, temperature=0.0, device=torch.device("cpu"), dtype=torch.float32, seed=0
        )
        anew = recomputed(parts, document, 24)
        ends = [i for i, token in enumerate(anew) if token in marks(parts)]
        assert cached == anew[: ends[0] if ends else None]
        assert len(cached) > 4


def test_a_model_in_training_writes_as_in_evaluation_and_goes_on_training() -> None:
    parts = compose(
        small_run(backbone={"name": "decoder", "width": 32, "layers": 1, "heads": 2, "dropout": 0.5}), ticks_registry()
    )
    prompt = Document("asked", (Text("2 + 2 = "),))

    def written() -> list[str]:
        found = generate_texts(parts, [prompt] * 2, max_new_tokens=8)
        return [generate_text(parts, prompt, max_new_tokens=8), *found]

    expected = (parts.model.eval(), written())[1]
    parts.model.train()
    assert written() == expected and parts.model.training and parts.model.backbone.training


def test_tokens_that_the_tokenizer_lacks_are_not_written(parts, monkeypatch):
    """A pretrained backbone may have rows for more; here they would be the most likely."""
    given = {"device": torch.device("cpu"), "dtype": torch.float32, "max_new_tokens": 8}
    document = next(documents())
    expected = generate_ids(parts, document, temperature=0.0, seed=0, **given)
    weight = parts.model.backbone.output_weight()
    monkeypatch.setattr(parts.model.backbone, "output_weight", lambda: torch.cat([weight, 9 * weight]))
    assert generate_ids(parts, document, temperature=0.0, seed=0, **given) == expected
    assert generate_together(parts, [ready_prompt(parts, document)], **given) == [expected]
    assert max(generate_ids(parts, document, temperature=9.0, seed=0, **given)) < parts.tokenizer.vocab_size


def marks(parts):
    return {parts.tokenizer.mark_id(name) for name in (EOS, END)}


def test_no_more_tokens_than_allowed_are_written(parts):
    for count in (1, 2, 5):
        ids = generate_ids(
            parts,
            next(documents()),
            max_new_tokens=count,
            temperature=1.0,
            device=torch.device("cpu"),
            dtype=torch.float32,
            seed=0,
        )
        assert len(ids) <= count


def test_the_order_of_media_and_text_matters(parts):
    a, b = Media("ticks", SERIES), Media("ticks", -SERIES)
    hidden = []
    for segments in ((a, b, Text("x")), (b, a, Text("x")), (Text("x"), a, b)):
        with torch.inference_mode():
            hidden.append(parts.model.hidden(prompt_batch(parts, Document("d", segments)))[-1])
    assert not torch.allclose(hidden[0], hidden[1], atol=1e-4)
    assert not torch.allclose(hidden[0], hidden[2], atol=1e-4)


def test_a_broken_medium_is_a_sample_error(parts):
    with pytest.raises(SampleError, match="holds no values"):
        generate_text(parts, Document("d", (Media("ticks", SERIES[:0]),)))
    with pytest.raises(SampleError, match="neither text nor media"):
        generate_text(parts, Document("d", ()))


GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 40}


def test_generation_ends_where_the_backbone_has_no_more_positions():
    parts = compose(small_run(backbone={"name": "hf", "config": GPT2}), ticks_registry())
    parts.model.eval()
    given = {"max_new_tokens": 200, "temperature": 2.0, "device": torch.device("cpu"), "dtype": torch.float32}
    longest = max(len(generate_ids(parts, Document("p", (Text("abc"),)), seed=seed, **given)) for seed in range(5))
    assert longest == 40 - 4 + 1  # the last needs no position of its own
    with pytest.raises(SampleError, match="takes 51 tokens and the backbone has positions for 40"):
        generate_ids(parts, Document("p", (Text("x" * 50),)), seed=0, **given)


def test_documents_longer_than_the_backbones_positions_are_cut_or_put_aside():
    parts = compose(small_run(backbone={"name": "hf", "config": GPT2}), ticks_registry())
    pieces = parts.planner.plan(Document("t", (Text("x" * 100, train=True),)))
    assert [len(piece) for piece in pieces] == [40, 40, 24]
    with pytest.raises(
        SampleError, match=r"takes .* tokens and the backbone has positions for 40; make its media smaller"
    ):
        parts.planner.plan(Document("t", (Media("ticks", SERIES), Text("x" * 60, train=True))))


def test_who_lets_an_answer_be_continued_is_told() -> None:
    composition = compose(small_run(), ticks_registry())
    rows = [Document(f"row {n}", (Text("1 + 1 = "), Text("2", train=True))) for n in range(2)]
    with pytest.warns(
        UserWarning, match=r"^row 0: ends in an answer that is learned, .* let generate_answers ask"
    ) as told:
        generate_text(composition, rows[0], max_new_tokens=1)
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match=r"^row 0 and 1 more: ends in an answer") as told:
        generate_texts(composition, rows, max_new_tokens=1)
    assert told[0].filename == __file__
    cut = Document("cut", rows[0].segments, goes_on=True)
    learned = Document("text", (Text("Once upon a", train=True),))
    generate_texts(composition, [cut, learned], max_new_tokens=1)
