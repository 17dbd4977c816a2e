"""Losses that parts of the model hand on: they are added up as written down, and left out where nothing is learned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kosmos import Document, PluginError, Segments, Text, WithLosses, generate_text, make_run
from kosmos.compose import Composition
from kosmos.data.batch import PackedBatch
from kosmos.model.omni import OmniModel, Stream
from kosmos.testing import BrokenPromise, Conditions, promises_of
from kosmos.train.flops import FlopMeter
from kosmos.train.objective import open_objective
from support import own_losses
from support.own_losses import Committed, Small, composed, gradients
from support.pairs import pairs_of
from support.sharing import documents, row, ticks

NAMES = ["streams.ticks.encoder.mixed", "streams.ticks.encoder.guess", "streams.ticks.connector.size",
         "backbone.places"]  # fmt: skip


def taken(parts: Composition, batch: PackedBatch) -> tuple[Any, dict[str, Tensor]]:
    """Losses of a row and the gradients of their total."""
    parts.model.zero_grad()
    losses = parts.model(batch)
    torch.autograd.backward(losses.total)
    return losses, gradients(parts.model)


def by_hand(parts: Composition, batch: PackedBatch) -> Tensor:
    """The total of a row, from what each part gives."""
    model: Any = parts.model
    stream, media = model.streams["ticks"], batch.media["ticks"]
    cells, of_encoder = stream.encoder(media.values, media.grids)
    slots, of_connector = stream.connector(cells, media.grids)
    x = model.backbone.embed(batch.token_ids).index_copy(0, media.slots, slots)
    hidden, of_backbone = model.backbone(x, batch.position_ids, Segments(batch.lengths))
    logits = (hidden @ model.backbone.output_weight().T)[batch.trained]
    each = torch.nn.functional.cross_entropy(logits, batch.labels[batch.trained], reduction="none")
    own = [*of_encoder.values(), *of_connector.values(), *of_backbone.values()]
    assert len(own) == 4 and all(float(loss.detach()) > 0 for loss in own)
    return (each * batch.weights).sum() + sum(own, torch.zeros(()))


def test_gradients_are_those_of_the_sum_by_hand() -> None:
    parts = composed()
    batch = row(parts, "several")
    losses, found = taken(parts, batch)
    parts.model.zero_grad()
    total = by_hand(parts, batch)
    torch.autograd.backward(total)
    torch.testing.assert_close(losses.total, total, rtol=1e-5, atol=0)
    expected = gradients(parts.model)
    assert all(expected[name].any() for name in ("streams.ticks.encoder.guess.weight", "backbone.places.weight"))
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert list(losses.modules) == NAMES
    assert not any(loss.requires_grad for loss in losses.modules.values())


def test_a_row_is_the_sum_of_its_documents() -> None:
    parts = composed()
    whole, found = taken(parts, parts.pack(documents("several")))
    each = [taken(parts, parts.pack([document])) for document in documents("several")]
    for name in NAMES:
        torch.testing.assert_close(whole.modules[name], sum(one.modules[name] for one, _ in each), rtol=1e-5, atol=0)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, sum(one[name] for _, one in each), rtol=1e-4, atol=1e-5)


def test_they_are_left_out_where_no_gradients_are_taken_and_as_texts_are_written() -> None:
    parts = composed()
    batch = row(parts, "several")
    with torch.no_grad():
        losses = parts.model(batch)
    assert losses.modules == {} and float(losses.total) < float(parts.model(batch).total.detach())
    torch.testing.assert_close(losses.per_token, parts.model(batch).per_token)
    assert isinstance(parts.model.hidden(batch), Tensor) and isinstance(parts.model.embed(batch), Tensor)
    assert isinstance(generate_text(parts, Document("d", (ticks(5), Text("is"))), max_new_tokens=2), str)
    meter = FlopMeter(parts.model, torch.device("cpu"), torch.float32)
    with meter.counting(batch):
        parts.model(batch)
    assert meter.costs["ticks"].unit > 0


def test_beside_an_objective_they_are_added_to_the_sum_over_its_units() -> None:
    parts = composed()
    pairs = [pairs_of("pairs", 2).document(number) for number in range(2)]
    parts.model.learning = open_objective(make_run({"train": {"objective": "orpo"}}), parts.registry)
    losses, found = taken(parts, parts.pack(pairs))
    assert list(losses.modules) == NAMES and found["backbone.places.weight"].any()
    own = float(sum(losses.modules.values()))
    values = parts.model.learning.values(parts.model.learning.judged(losses.per_token, parts.pack(pairs)))
    assert float(losses.total.detach()) == pytest.approx(float(values.sum()) + own, rel=1e-5)


def test_a_part_that_is_frozen_has_those_that_lead_to_what_is_trained() -> None:
    """The connector's lead through it to the encoder, and the head's to all in front of the backbone."""
    both = {"encoder": "committed", "connector": "small"}
    frozen_backbone = {"name": "headed", "freeze": True}
    parts = composed(streams={"ticks": {**both, "freeze": True}}, backbone=frozen_backbone)
    assert list(parts.model(row(parts, "several")).modules) == NAMES[2:]
    parts = composed(streams={"ticks": {**both, "freeze_connector": True}}, backbone=frozen_backbone)
    assert list(parts.model(row(parts, "several")).modules) == NAMES
    parts = composed(streams={"ticks": {**both, "freeze": True, "freeze_connector": True}})
    losses, found = taken(parts, row(parts, "several"))
    assert list(losses.modules) == NAMES[3:] and found["backbone.places.weight"].any()


def test_a_row_without_media_says_zero_and_every_parameter_gets_a_gradient_where_ranks_need_it() -> None:
    parts = composed()
    parts.model.streams["ticks"].touch = parts.model.touch_backbone = True
    losses = parts.model(row(parts, "one token"))
    assert {float(loss) for loss in losses.modules.values()} == {0.0}
    torch.autograd.backward(losses.total)
    assert [name for name, p in parts.model.named_parameters() if p.grad is None] == []


@pytest.mark.filterwarnings("default")  # torch's compiler warns of its own parts
@pytest.mark.parametrize("how", [True, "selective", "compiled"])
def test_recomputation_and_compiled_blocks_change_nothing(how: Any) -> None:
    parts = composed()
    batch = row(parts, "several")
    plain, expected = taken(parts, batch)
    encoder: Any = parts.model.streams["ticks"].encoder
    if how == "compiled":
        for block in encoder.blocks:
            block.compile(backend="aot_eager")
    else:
        encoder.set_gradient_checkpointing(how)
        parts.model.backbone.set_gradient_checkpointing(how)
    losses, found = taken(parts, batch)
    torch.testing.assert_close(losses.modules, plain.modules, rtol=1e-5, atol=0)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cells", [5, 64])  # the second has no padding, and what ranks do is not to differ
def test_padding_is_in_no_loss(cells: int) -> None:
    torch.manual_seed(0)
    encoder, connector = Committed(width=8), Small(8, 32)
    encoder.takes_padding = True
    row = torch.randn(cells, 4), torch.tensor([[cells, 1, 1]])
    with torch.autocast("cpu", torch.bfloat16):
        assert Stream(encoder, connector, width=32).padding(5) == 0
        encoder.own_losses = False
        assert Stream(encoder, connector, width=32).padding(5) == 0  # the connector says it still
        connector.own_losses = False
        silent = Stream(encoder, connector, width=32)
        assert silent.padding(5) == 59
        with pytest.raises(PluginError, match=r"encoder Committed: forward gave losses.*write own_losses = True in"):
            silent(*row)
        with torch.no_grad():
            assert len(silent(*row)) == cells


def test_the_kit_finds_a_part_that_does_not_say_that_it_has_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Small, "own_losses", False)
    promises = promises_of(own_losses.registry(), plugins=["own_losses"], conditions=Conditions())
    [promise] = [p for p in promises if p.component == "connector small" and p.id == "gradient-everywhere"]
    with pytest.raises(BrokenPromise, match="hands on the loss size; write own_losses = True in its class"):
        promise.check()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("name", "forward gave a loss called 'Guess!'; expected a name of a-z, 0-9 and _"),
        ("number", "forward gave float as its loss guess; expected a scalar of floats, its sum"),
        ("vector", r"forward gave float32 \[1\] as its loss guess"),
        ("whole", r"forward gave int64 \[\] as its loss guess"),
        ("list", "forward gave list as losses; expected names and scalars"),
        ("detached", "its loss guess has no gradient; compute it, without detach or no_grad, of what is trained"),
    ],
)
def test_what_is_no_loss_is_refused_with_the_part(fault: str, says: str) -> None:
    streams = {"ticks": {"encoder": {"name": "committed", "fault": fault}, "connector": "small"}}
    parts = composed(streams=streams)
    with pytest.raises(PluginError, match=rf"^streams\.ticks\.encoder: committed \(Committed\): {says}"):
        parts.model(row(parts, "several"))
    with torch.no_grad():
        parts.model(row(parts, "several"))


def test_a_part_that_learns_in_evaluation_mode_has_to_hand_on_a_gradient_too() -> None:
    streams = {"ticks": {"encoder": {"name": "committed", "fault": "detached"}, "connector": "small"}}
    parts = composed(streams=streams)
    encoder: Any = parts.model.streams["ticks"].encoder
    encoder.eval()
    with pytest.raises(PluginError, match="its loss guess has no gradient"):
        parts.model(row(parts, "several"))
    encoder.requires_grad_(False)
    parts.model(row(parts, "several"))


def test_a_loss_of_the_backbone_is_refused_with_it() -> None:
    class Wrong(own_losses.Headed):
        def forward(self, *given: Any) -> WithLosses:
            return super().forward(*given)._replace(losses={"a b": torch.zeros(())})

    parts = composed()
    model = OmniModel(Wrong(parts.planner.tokenizer.vocab_size), {})
    model.title = parts.model.title
    with pytest.raises(PluginError, match=r"^backbone: headed \(Headed\): forward gave a loss called 'a b'"):
        model(row(parts, "one token"))


@pytest.mark.parametrize("component", ["encoder committed", "connector small", "backbone headed"])
def test_the_kit_takes_parts_with_losses(component: str) -> None:
    promises = promises_of(own_losses.registry(), plugins=["own_losses"], conditions=Conditions(), fast=True)
    verdicts = [promise.verdict() for promise in promises if promise.component == component]
    assert [verdict.message for verdict in verdicts if verdict.outcome == "failed"] == []
    assert sum(verdict.outcome == "passed" for verdict in verdicts) > 5


def test_the_kit_finds_a_loss_that_is_a_mean() -> None:
    conditions = Conditions(options={"encoder committed": {"mean": True}})
    promises = promises_of(own_losses.registry(), plugins=["own_losses"], conditions=conditions)
    [promise] = [p for p in promises if p.component == "encoder committed" and p.id == "packed-equals-alone"]
    with pytest.raises(BrokenPromise, match=r"its loss guess is .* for the row and .* one by one; give the sum"):
        promise.check()
