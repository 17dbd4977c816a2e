"""Log-probabilities of what is learned, with gradients, document by document."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kosmos import ConfigError, Document, Text, log_probs, score
from kosmos.compose import compose
from kosmos.model import log_probs as module
from kosmos.run_sources import open_sources
from support.runs import small_run, ticks_registry

CONFIG, REGISTRY = small_run(None, data={"sources": ["ticks", "sums"]}), ticks_registry()
COMPOSED = compose(CONFIG, REGISTRY)
SOURCES = open_sources(CONFIG, REGISTRY, "train")
ASKED = Document("nothing is learned", (Text("What now?"),))
DOCUMENTS = [source.document(n) for source in SOURCES for n in (0, 1)]


def gradients(loss):
    COMPOSED.model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: p.grad.clone() for name, p in COMPOSED.model.named_parameters() if p.grad is not None}


def test_they_are_those_of_the_losses_document_by_document() -> None:
    found = log_probs(COMPOSED.model, COMPOSED.pack([DOCUMENTS[0], ASKED, *DOCUMENTS[1:]]))
    assert len(found) == 5 and len(found[1]) == 0
    told = {}
    for source in SOURCES:
        score(COMPOSED, [source], workers=0, told=lambda document, losses: told.update({document.origin: losses}))
    for document, own in zip(DOCUMENTS, [found[0], *found[2:]], strict=True):
        torch.testing.assert_close(-own.double(), torch.from_numpy(told[document.origin]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 7, 512])
def test_gradients_are_those_of_the_loss_and_weights_have_no_part(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", rows)
    batch = COMPOSED.pack([replace(document, weight=weight) for weight, document in enumerate(DOCUMENTS)])
    own = gradients(sum(n * part.sum() for n, part in enumerate(log_probs(COMPOSED.model, batch))))
    by_loss = gradients(COMPOSED.model(batch).total)
    assert own.keys() == by_loss.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(-gradient, by_loss[name], rtol=1e-4, atol=1e-4)


def test_under_autocast_softmax_is_exact_and_nothing_is_held_where_no_gradient_is_taken() -> None:
    batch = COMPOSED.pack(DOCUMENTS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = torch.cat(log_probs(COMPOSED.model, batch))
        assert found.dtype == torch.float32 and not found.requires_grad
        torch.testing.assert_close(-found, COMPOSED.model(batch).per_token, rtol=0.02, atol=0.02)


def test_a_row_of_which_nothing_is_learned_has_none() -> None:
    assert [len(own) for own in log_probs(COMPOSED.model, COMPOSED.pack([ASKED]))] == [0]


def test_what_is_no_model_or_no_row_is_refused_in_a_line() -> None:
    with pytest.raises(ConfigError, match=r"expected the model of a Composition and a row of its pack, got Linear and"):
        log_probs(torch.nn.Linear(1, 1), COMPOSED.pack(DOCUMENTS))
    with pytest.raises(ConfigError, match=r"got OmniModel and list"):
        log_probs(COMPOSED.model, DOCUMENTS)  # type: ignore[arg-type]


def test_a_compiled_model_is_taken_and_one_that_ddp_wraps_is_refused() -> None:
    row = COMPOSED.pack(DOCUMENTS)
    compiled = log_probs(torch.compile(COMPOSED.model, backend="eager"), row)
    assert all(torch.equal(*pair) for pair in zip(compiled, log_probs(COMPOSED.model, row), strict=True))
    wrapped = torch.nn.Module()
    wrapped.module = COMPOSED.model  # as DistributedDataParallel and DataParallel hold it
    with pytest.raises(
        ConfigError, match=r"exchanges gradients in its own forward alone, .* a module whose forward ca"
    ):
        log_probs(wrapped, row)
