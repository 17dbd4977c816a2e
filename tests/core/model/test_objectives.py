"""Objectives: the gradients are those of the function, whatever else is in the row, and nothing is held of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kosmos import Composition, Document, Judged, PluginError, Text, compose_run, make_run
from kosmos.data.batch import DocumentInfo
from kosmos.model.objectives import Learning, Unit
from kosmos.train.preferences import DPO, ORPO, SimPO
from support.pairs import pairs_of

PAIRS = [DPO(), DPO(loss="ipo"), DPO(loss="hinge", sft=0.5), DPO(label_smoothing=0.1), SimPO(), SimPO(sft=1), ORPO()]


@pytest.fixture(scope="module")
def composition() -> Composition:
    return compose_run(make_run({"backbone": {"width": 32, "layers": 2, "heads": 2, "ffn_width": 48}}))


@pytest.fixture(autouse=True)
def none_stays(composition: Composition) -> Any:
    yield
    composition.model.learning = None
    composition.model.zero_grad()


def gradients(composition: Composition) -> dict[str, Tensor]:
    found = {n: p.grad.clone() for n, p in composition.model.named_parameters() if p.grad is not None}
    composition.model.zero_grad()
    return found


def squares(judged: Judged) -> Tensor:
    return judged.losses.square()


def by_document(judged: Judged) -> Tensor:
    return judged.of_documents(judged.losses) / judged.learned


@pytest.mark.parametrize(
    ("objective", "unit"),
    [*((one, "pair") for one in PAIRS), (by_document, "document"), (squares, "token")],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_gradients_are_those_of_the_function(
    composition: Composition, objective: Any, unit: Unit, weight: float
) -> None:
    source = pairs_of("pairs", 4)
    documents = [source.document(number) for number in range(4)]
    documents[1] = Document("heavy", documents[1].segments, rejected=documents[1].rejected, weight=weight)
    if unit != "pair":
        documents = [Document(d.origin, d.segments, weight=d.weight) for d in documents]
    row, model = composition.pack(documents), composition.model
    row.reference = torch.rand(row.num_targets, generator=torch.Generator().manual_seed(1)) + 5
    learning = Learning(objective, unit, isinstance(objective, DPO))

    model.learning = learning
    found = model(row)
    found.total.backward()
    ours = gradients(composition)

    model.learning = None
    logits = model.hidden(row)[row.trained] @ model.backbone.output_weight().T
    judged = learning.judged(torch.nn.functional.cross_entropy(logits, row.labels[row.trained], reduction="none"), row)
    units = {"pair": 4, "document": 4, "token": row.num_targets}[unit]
    times = torch.ones(units)
    times[_unit_of(learning, row, judged) == 1] = weight
    total = (learning.values(judged) * times).sum()
    total.backward()

    torch.testing.assert_close(found.total, total)
    torch.testing.assert_close(ours, gradients(composition), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(found.per_token, judged.losses.detach())


def _unit_of(learning: Learning, row: Any, judged: Judged) -> Tensor:
    """Number of the document, of those that were given, that each unit is of."""
    if learning.unit == "token":
        return judged.owner
    return torch.arange(len(learning.documents_of(row.documents, judged.owner)))


def test_a_row_without_units_has_no_loss_and_gradients_of_zeros(composition: Composition) -> None:
    row = composition.pack([Document("alone", (Text("nothing of a pair "), Text("here", train=True)))])
    composition.model.learning = Learning(SimPO(), "pair", False)
    found = composition.model(row)
    found.total.backward()
    assert float(found.total.detach()) == 0
    assert all(not grad.any() for grad in gradients(composition).values())


def test_gains_of_long_answers_are_not_lost_in_rounding(composition: Composition) -> None:
    """Both sums are large, and their difference is not."""
    count = 20_000
    losses = torch.rand(count, generator=torch.Generator().manual_seed(0)) * 5
    reference = losses + 1e-3 * torch.randn(count, generator=torch.Generator().manual_seed(1))
    whole = DocumentInfo("long", "made", ("text",), 0, count + 1)
    found = Judged(losses, torch.zeros(count, dtype=torch.int64), (whole,), reference).gains
    exact = (reference.double() - losses.double()).sum()
    assert found.item() == pytest.approx(exact.item(), abs=1e-4)


def test_an_objective_that_asked_for_no_reference_is_told(composition: Composition) -> None:
    row = composition.pack([pairs_of("pairs", 1).document(0)])
    composition.model.learning = Learning(DPO(), "pair", False, "mine")
    with pytest.raises(PluginError, match=r"mine raised .*ObjectiveSpec\(reference=True\)"):
        composition.model(row)


def test_what_is_asked_is_no_part_of_a_log_probability(composition: Composition) -> None:
    pair = pairs_of("pairs", 1).document(0)
    row = composition.pack([pair])
    with torch.no_grad():
        losses = composition.model(row).per_token
    judged = Learning(SimPO(), "pair", False).judged(losses, row)
    learned = len(pair.segments[-1].text) + 1  # and its end
    assert judged.learned.tolist() == [learned, len(pair.rejected[-1].text) + 1]
    torch.testing.assert_close(judged.log_probs[0], -losses[:learned].sum())


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        (lambda judged: judged.losses, "expected floats [2], one a pair"),
        (lambda judged: judged.losses.detach()[:2], "without a gradient"),
        (lambda judged: [1.0, 2.0], "gave list"),
        (lambda judged: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_an_objective_that_gives_something_else_is_named(composition: Composition, objective: Any, says: str) -> None:
    row = composition.pack([pairs_of("pairs", 2).document(number) for number in range(2)])
    composition.model.learning = Learning(objective, "pair", False, "mine")
    with pytest.raises(PluginError, match=r"train\.objective: mine") as raised:
        composition.model(row)
    assert says in str(raised.value)
