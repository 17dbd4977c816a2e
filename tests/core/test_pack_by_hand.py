"""A row of documents put together by hand, to look at what the model makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kosmos import ConfigError, Document, Media, SampleError, Text
from kosmos.compose import compose
from support.runs import small_run, ticks_registry


@pytest.fixture(scope="module")
def composition():
    return compose(small_run(), ticks_registry())


def ticks(composition, number):
    return composition.registry.build("dataset", "ticks", "train").document(number)


def test_losses_of_a_row_are_those_of_its_documents_alone(composition):
    documents = [ticks(composition, number) for number in range(3)]
    together = composition.model(composition.pack(documents))
    alone = [composition.model(composition.pack([document])).per_token for document in documents]
    # at most 9.5e-7 apart, over ten seeds
    torch.testing.assert_close(together.per_token, torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_a_row_has_a_gradient_for_every_part(composition):
    mine = Document("mine", (Text("one "), Text("two", train=True)))
    batch = composition.pack([ticks(composition, 0), mine]).to("cpu")
    assert [document.origin for document in batch.documents][1] == "mine"
    assert composition.model.hidden(batch).shape == (len(batch.token_ids), 32)
    composition.model.zero_grad()
    composition.model(batch).total.backward()
    assert {name.split(".")[0] for name, p in composition.model.named_parameters() if p.grad is not None} == {
        "backbone",
        "streams",
    }


def test_a_row_is_told_in_a_line(composition):
    batch = composition.pack([ticks(composition, 0)])
    assert repr(batch).startswith(
        f"PackedBatch({len(batch.token_ids)} tokens, 1 documents, {batch.num_targets} learned"
    )
    assert "MediaArrays(1 items, values [" in repr(batch) and len(repr(batch)) < 200


@pytest.mark.parametrize("given", [[], Document("d", (Text("a"),)), ["a"], None, "a", iter(()), np.array([1, 2])])
def test_what_are_no_documents_is_no_row(composition, given):
    with pytest.raises(ConfigError, match="documents: expected a list of Document, got "):
        composition.pack(given)


def test_documents_may_come_one_by_one(composition):
    documents = [Document(name, (Text(name, train=True),)) for name in ("a", "b")]
    assert len(composition.pack(iter(documents)).documents) == len(composition.pack(documents).documents) == 2


def test_a_document_that_cannot_be_used_is_named(composition):
    with pytest.raises(SampleError):
        composition.pack([Document("bad", (Media("ticks", b"nonsense"), Text("a", train=True)))])
