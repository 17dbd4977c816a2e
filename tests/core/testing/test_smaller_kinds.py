"""Connectors, backbones, optimizers, schedules, metrics, trackers, observers and commands, and their mutants."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import pytest
import torch

from kosmos import Judged
from kosmos.testing import BrokenPromise, check_plugin, promises_of
from support import smaller, smaller_plugin


class Mutant(NamedTuple):
    """A name of ``smaller`` (of a class in it, after a dot) and what stands there instead."""

    at: str
    instead: Any
    component: str
    broken: str
    says: str


def crash(*args: Any, **options: Any) -> Any:
    raise KeyError("loss")


def by_rank(steps: int, warmup_steps: int) -> Any:
    return lambda step: 1.0 if step >= warmup_steps else -0.5


def no_warmup(steps: int, warmup_steps: int) -> Any:
    return lambda step: 1.0


def endless(steps: int, warmup_steps: int) -> Any:
    return lambda step: math.nan if step == steps - 1 else 0.5 * (step + 1) / steps


def one_group(groups: list[dict[str, Any]], learning_rate: float) -> Any:
    return torch.optim.SGD([p for group in groups for p in group["params"]], lr=learning_rate)


def made_of(kind: Any) -> Any:
    return lambda groups, learning_rate: kind([{"params": g["params"], "lr": g["lr"]} for g in groups], learning_rate)


def changes_rows() -> Any:
    return lambda row: row.pop("loss")


def changes_inside() -> Any:
    return lambda row: row["loss_by_modality"].clear()


def sorts(predictions: list[str], references: list[str]) -> float:
    predictions.sort()
    return sum(p == r for p, r in zip(predictions, references, strict=True)) / len(references)


def several(of_one: float | None) -> object:
    """A metric that of one right answer each gives something else than its call, or of several none."""

    def score(predictions: list[str], references: list[str]) -> float:
        return float(predictions == references)

    def of_several(predictions: list[str], references: list[list[str]]) -> float | None:
        return of_one if len(references[0]) > 1 or of_one is not None else 0.0

    score.of_several = of_several
    return score


class CountsAll:
    """An objective that tells one figure of a whole row."""

    def __call__(self, judged: Judged) -> torch.Tensor:
        return -judged.log_probs

    def figures(self, judged: Judged) -> dict[str, torch.Tensor]:
        return {"count": torch.tensor(len(judged.documents))}


def words_found(predictions: list[str], references: list[str]) -> float:
    """Divides by the words of each reference."""
    pairs = zip(map(str.split, predictions), map(str.split, references), strict=True)
    return sum(len({*p} & {*r}) / len(r) for p, r in pairs) / len(references)


def changes_the_run(self: Any, output: Any, run: dict[str, Any]) -> None:
    run["train"]["steps"] = 1
    self.file = (output / "rows.txt").open("w")


def late_draw(self: Any) -> None:
    """Values that depend on when it is drawn."""
    for parameter in self.parameters():
        torch.nn.init.normal_(parameter)


def noisy_slots(self: Any, features: torch.Tensor, grids: torch.Tensor) -> Any:
    return self.linear(features[: len(grids)]) + random.random()


def noisy_tokens(self: Any, tokens: torch.Tensor) -> Any:
    return self.embedding(tokens) + random.random()


def other_weights(self: Any) -> None:
    for parameter in self.parameters():
        torch.nn.init.constant_(parameter, random.random())


MUTANTS = [
    Mutant("Mean.counted", 2, "connector average", "slots-as-counted", "slots counts [2, 32]"),
    Mutant("Mean.counted", 1.0, "connector average", "slots-as-counted", "slots counts 1.0 for an item of"),
    Mutant("Mean.crosses", True, "connector average", "packed-equals-alone", "slots differ"),
    Mutant("Mean.dead", True, "connector average", "gradient-everywhere", "linear.weight"),
    Mutant("Mean.spoils", True, "connector average", "given-stays", "forward changed grids"),
    Mutant("Mean.elsewhere", True, "connector average", "gpu", "at smaller.py:"),
    Mutant("Mean.stores", True, "connector average", "threads", "keep nothing of a row on self"),
    Mutant("Small.stores", True, "backbone little", "threads", "keep nothing of a row on self"),
    Mutant("Small.crosses", 0, "backbone little", "packed-equals-alone", "document 2"),
    Mutant("Small.crosses", 300, "backbone little", "packed-equals-alone", "document 2 of a row of (65, 63, 1,"),
    Mutant("Small.peeks", 0, "backbone little", "causal", "changes those before it"),
    Mutant("Small.peeks", 129, "backbone little", "causal", "token 64 of 259 changes those before it"),
    Mutant("Small.forgets", 0, "backbone little", "cache-changes-nothing", "token 6 of 12, given in pieces of 5, 1,"),
    Mutant("Small.forgets", 250, "backbone little", "cache-changes-nothing", "token 255 of 259, given in"),
    Mutant("Small.ends_at", 100, "backbone little", "packed-equals-alone", "states how many in `longest`"),
    Mutant("Small.mixes", True, "backbone little", "together-equals-alone", "a prompt of 7, 4 documents together"),
    Mutant("Small.keeps", True, "backbone little", "together-equals-alone", "3 documents together, differs"),
    Mutant(
        "Small.new_batch_cache", lambda self: smaller.OtherInOneShape(), "backbone little", "together-equals-alone",
        "4 documents together in rows of one shape (capturable), differs",
    ),
    Mutant(
        "Small.new_batch_cache", lambda self: object(), "backbone little", "together-equals-alone",
        "its new_batch_cache gives no KeyValueBatch",
    ),
    Mutant("Small.draw_weights", late_draw, "backbone little", "drawn-later", "embedding.weight has other values"),
    Mutant("Small.looks", True, "backbone little", "drawn-later", "norm is a module of another class"),
    Mutant("Small.elsewhere", True, "backbone little", "gpu", "at smaller.py:"),
    Mutant("Mean.forward", noisy_slots, "connector average", "draws-by-seed", "gives something else when it runs"),
    Mutant("Small.embed", noisy_tokens, "backbone little", "draws-by-seed", "gives something else when it runs"),
    Mutant("Small.draw_weights", other_weights, "backbone little", "weights-by-seed", "has other values when"),
    Mutant("descent", made_of(smaller.Ascent), "optimizer momentum", "lowers-a-loss", "the loss went from"),
    Mutant("descent", made_of(smaller.OwnRate), "optimizer momentum", "obeys-the-rate", "parameters moved"),
    Mutant("descent", one_group, "optimizer momentum", "obeys-the-rate", "keeps 1 groups of parameters"),
    Mutant("descent", made_of(smaller.Counting), "optimizer momentum", "state-round-trips", "after loading"),
    Mutant("descent", made_of(smaller.Counted), "optimizer momentum", "state-round-trips", "self.taken is 5 after loa"),
    Mutant("descent", made_of(smaller.Mapped), "optimizer momentum", "state-round-trips", "keeps own in its groups"),
    Mutant("descent", made_of(smaller.Told), "optimizer momentum", "state-round-trips", "its state_dict() has taken"),
    Mutant("descent", made_of(smaller.InGroups), "optimizer momentum", "steps-alone", "w is off by"),
    Mutant("stairs", by_rank, "schedule stairs", "share-of-the-peak", "-0.5 at step 0"),
    Mutant("stairs", endless, "schedule stairs", "share-of-the-peak", "nan at step"),
    Mutant("stairs", no_warmup, "schedule stairs", "warms-up", "at step 9"),
    Mutant("same_length", lambda: lambda p, r: 1.0, "metric same_length", "tells-right-from-wrong", "both score 1.0"),
    Mutant("same_length", lambda: lambda p, r: 1, "metric same_length", "tells-right-from-wrong", "a finite float"),
    Mutant(
        "same_length", lambda: lambda p, r: sum(len(a) / len(b) for a, b in zip(r, p, strict=True)),
        "metric same_length", "empty-texts", "ZeroDivisionError",
    ),
    Mutant("same_length", lambda: words_found, "metric same_length", "empty-texts", "ZeroDivisionError"),
    Mutant(
        "same_length", lambda: lambda p, r: words_found(p, r) if any(r) else math.nan,
        "metric same_length", "empty-texts", "ZeroDivisionError",
    ),
    Mutant(
        "same_length", lambda: lambda p, r: float(p == r) if "".join(r).strip() else math.nan,
        "metric same_length", "empty-texts", "references ['']: nan",
    ),
    Mutant("same_length", lambda: several(2.0), "metric same_length", "several-answers", "gives 2.0, and the call 0.0"),
    Mutant("same_length", lambda: several(None), "metric same_length", "several-answers", "three right answers each"),
    Mutant("same_length", lambda: sorts, "metric same_length", "given-stays", "it changed predictions: ['', 'one',"),
    Mutant("squares", lambda: lambda j: j.losses, "objective squares", "loss-of-each-unit", "one a document"),
    Mutant("squares", lambda: lambda j: j.learned, "objective squares", "loss-of-each-unit", "without a gradient"),
    Mutant("squares", lambda: lambda j: j.log_probs / 0, "objective squares", "loss-of-each-unit", "is not finite"),
    Mutant("squares", lambda: lambda j: 0 * j.log_probs, "objective squares", "loss-of-each-unit", "other than 0"),
    Mutant(
        "squares", lambda: lambda j: j.log_probs - j.log_probs.mean(), "objective squares", "packed-equals-alone",
        "is another one alone",
    ),
    Mutant("squares", lambda: CountsAll(), "objective squares", "figures-of-each-unit", "figure count of squares is"),
    Mutant("Lines.log", lambda self, row: row.clear(), "tracker lines", "given-stays", "['held_out', 'step'] of a row"),
    Mutant("Lines.__init__", changes_the_run, "tracker lines", "given-stays", "['train'] of the run"),
    Mutant("Lines.log", lambda self, row: row["loss"] + 0, "tracker lines", "logs-and-closes", "KeyError: 'loss'"),
    Mutant("Lines.log_answers", lambda self, rows: rows[0].clear(), "tracker lines", "given-stays", "of a row of answ"),
    Mutant("Lines.close", lambda self: crash(self.file.close()), "tracker lines", "logs-and-closes", "KeyError"),
    Mutant("watch", changes_rows, "observer watch", "sees-rows", "['loss']"),
    Mutant("watch", changes_inside, "observer watch", "sees-rows", "['loss_by_modality']"),
    Mutant("watch", lambda: lambda row: torch.manual_seed(1), "observer watch", "sees-rows", "it seeds or draws"),
    Mutant("watch", lambda: crash, "observer watch", "sees-rows", "KeyError"),
    Mutant("show", 3, "command show", "has-help", ""),
]  # fmt: skip


def test_the_good_plugin_keeps_every_promise() -> None:
    card = check_plugin(smaller_plugin)
    assert card.failed == []
    assert {v.outcome for v in card.verdicts if v.id != "licence-declared"} == {"passed"}
    assert {v.component.split()[0] for v in card.verdicts} == {
        *(
            "plugin",
            "connector",
            "backbone",
            "optimizer",
            "schedule",
            "objective",
            "metric",
            "tracker",
            "observer",
            "command",
        )
    }


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.at} {mutant.broken}")
def test_a_mutant_is_caught_by_the_promise_that_it_breaks(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"support.smaller.{mutant.at}", mutant.instead)
    promises = promises_of(smaller_plugin)
    (promise,) = (p for p in promises if p.component == mutant.component and p.id == mutant.broken)
    with pytest.raises(BrokenPromise) as broken:
        promise.check()
    assert mutant.says in str(broken.value)
