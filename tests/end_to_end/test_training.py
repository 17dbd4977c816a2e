"""What the settings of a run do to its weights and losses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kosmos import ConfigError, make_run, train_model
from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, model_tensors, read_whole
from kosmos.compose import compose, make_feed
from kosmos.data.batch import to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.errors import QuarantineFull
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run
from support.runs import SMALL, rows_of, small_run, ticks_registry

CONSTANT = {"schedule": "constant", "warmup_steps": 0, "weight_decay": 0.0}
"""Every step of Lion then moves a parameter by its learning rate, or not at all."""


def weights(output: Path) -> dict[str, Tensor]:
    return read_whole(load_newest(output / "checkpoints").tensors, MODEL)


def moves(tmp_path: Path, **over: object) -> dict[str, float]:
    """The largest move of each parameter in one step."""
    config = small_run(tmp_path / "run", train={**CONSTANT, "steps": 1, **over.pop("train", {})}, **over)  # type: ignore[dict-item]
    before = model_tensors(compose(config, ticks_registry()).model)
    train_model(config, registry=ticks_registry())
    after = weights(tmp_path / "run")
    return {name: float((after[name] - tensor.detach()).abs().max()) for name, tensor in before.items()}


def test_a_frozen_encoder_stays_as_it_was_to_the_bit_while_its_connector_moves(tmp_path: Path) -> None:
    moved = moves(tmp_path, streams={"ticks": {"freeze": True}}, train={"weight_decay": 0.5})
    assert {moved[n] for n in moved if n.startswith("streams.ticks.encoder")} == {0.0}
    assert all(moved[n] > 0 for n in moved if n.startswith("streams.ticks.connector"))


def test_a_frozen_connector_stays_as_it_was_while_its_encoder_moves(tmp_path: Path) -> None:
    moved = moves(tmp_path, streams={"ticks": {"freeze_connector": True}}, train={"weight_decay": 0.5})
    assert {moved[n] for n in moved if n.startswith("streams.ticks.connector")} == {0.0}
    assert all(moved[n] > 0 for n in moved if n.startswith("streams.ticks.encoder"))


def test_a_frozen_backbone_stays_as_it_was_while_the_stream_moves(tmp_path: Path) -> None:
    moved = moves(tmp_path, backbone={"freeze": True}, train={"weight_decay": 0.5})
    assert {moved[n] for n in moved if n.startswith("backbone")} == {0.0}
    assert all(moved[n] > 0 for n in moved if n.startswith("streams.ticks"))


def test_stream_and_backbone_move_by_learning_rates_of_their_own(tmp_path: Path) -> None:
    moved = moves(
        tmp_path,
        train={"learning_rate": 1e-3},
        streams={"ticks": {"learning_rate": 1e-4}},
        backbone={"learning_rate": 1e-2},
    )
    for name, step in moved.items():  # measured: 2e-8, the rounding of a weight near 1
        assert step == pytest.approx(1e-4 if name.startswith("streams.") else 1e-2, abs=1e-7), name
    (row,) = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert row["learning_rate_by_part"] == {"backbone": 1e-2, "streams.ticks": 1e-4}
    norms = row["grad_norm_by_part"]
    assert norms.keys() == {"backbone", "streams.ticks"} and all(norm > 0 for norm in norms.values())
    assert sum(norm**2 for norm in norms.values()) ** 0.5 == pytest.approx(row["grad_norm"])


def test_the_loss_of_a_step_is_the_sum_over_its_lanes_divided_by_all_their_targets(tmp_path: Path) -> None:
    config = small_run(tmp_path / "run", data={"lanes": 4, "tokens_per_pack": 128}, train={**CONSTANT, "steps": 1})
    train_model(config, registry=ticks_registry())
    (row,) = rows_of(tmp_path / "run" / "metrics.jsonl")
    parts = compose(config, ticks_registry())
    feed = make_feed(parts, open_sources(config, parts.registry, "train"))
    batches = [to_tensors(r.arrays) for r in open_feeder(feed, range(4), workers=0).next_step()]
    targets = sum(batch.num_targets for batch in batches)
    totals = [parts.model(batch).total for batch in batches]
    torch.autograd.backward(sum(totals) / targets)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parts.model.parameters() if p.grad is not None])
    assert len(batches) == 4
    assert len({batch.num_targets for batch in batches}) > 1  # a mean of means would differ
    assert row["target_tokens"] == targets
    assert row["tokens"] == sum(len(batch.token_ids) for batch in batches)
    assert row["loss"] == pytest.approx(sum(float(t.detach()) for t in totals) / targets, rel=1e-6)  # measured: 3e-8
    assert row["grad_norm"] == pytest.approx(float(norm), rel=1e-5)  # measured: 0


@pytest.mark.parametrize(
    "over",
    [
        {"modalities": "image,audio", "data": {"tokens_per_pack": 256}},
        {"modalities": [], "backbone": {"layers": 3}},
        {
            "modalities": [],
            "backbone": {
                "name": "hf",
                "config": {
                    "model_type": "llama",
                    "hidden_size": 32,
                    "intermediate_size": 48,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 2,
                },
            },
        },
    ],
    ids=["image,audio", "decoder", "hf"],
)
def test_recomputed_activations_give_the_same_losses_and_gradients(tmp_path: Path, over: dict[str, object]) -> None:
    rows = []
    small = {key: value for key, value in SMALL.items() if key != "modalities"}
    for recompute in (False, True):
        settings = {"steps": 2, "gradient_checkpointing": recompute}
        layer = {"train": settings, "output": str(tmp_path / str(recompute)), "evaluate": {"max_documents": 1}}
        train_model(make_run(small, layer, over), registry=load_plugins())
        rows.append(rows_of(tmp_path / str(recompute) / "metrics.jsonl"))
    for kept, recomputed in zip(*rows, strict=True):
        assert recomputed["loss"] == pytest.approx(kept["loss"], rel=1e-6)  # measured: 0
        assert recomputed["grad_norm"] == pytest.approx(kept["grad_norm"], rel=1e-5)  # measured: 0


def test_a_part_that_cannot_recompute_its_activations_says_so(tmp_path: Path) -> None:
    config = small_run(tmp_path / "run", train={"gradient_checkpointing": True})
    with pytest.raises(ConfigError, match=r"streams.ticks.encoder \(TicksEncoder\) cannot recompute"):
        train_model(config, registry=ticks_registry())


class Saying(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


def test_a_run_whose_held_out_loss_falls_no_more_stops_and_goes_on_no_further(tmp_path: Path) -> None:
    config = small_run(
        tmp_path / "run",
        train={**CONSTANT, "steps": 9, "learning_rate": 1e-30},
        evaluate={"every_steps": 1, "patience": 2, "max_documents": 4},
    )
    reporter = Saying()
    result = train_model(config, registry=ticks_registry(), reporter=reporter)
    assert (result.step, len(rows_of(tmp_path / "run" / "metrics.jsonl"))) == (2, 2)
    assert any("the held-out loss was lowest before the first step" in line for line in reporter.said)
    again = resume_run(tmp_path / "run", registry=ticks_registry())
    assert again.step == 2


def test_a_source_of_which_nothing_can_be_used_is_named_by_its_scores_and_ends_the_run(tmp_path: Path) -> None:
    for name, text in (("good", "some text"), ("dead", None)):
        rows = [{"text": text, "split": "test" if number < 4 else "train"} for number in range(200)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = [
        {"path": str(tmp_path / f"{name}.jsonl"), "weight": weight} for name, weight in (("good", 3), ("dead", 1))
    ]
    data = {"tokens_per_pack": 32, "lanes": 1, "workers": 0, "sources": sources}
    reporter = Saying()
    with pytest.raises(
        QuarantineFull, match=r"dead: none of the first \d+ samples can be used; the last: .*dead\.jsonl:\d+: "
    ):
        train_model(small_run(tmp_path / "run", modalities=[], train={"steps": 300}, data=data), reporter=reporter)
    warned = next(line for line in reporter.said if line.startswith("warning: no held-out document of dead could be"))
    assert re.search(r"nothing of it; the first of 4: .*dead\.jsonl:\d: text: expected text, got null$", warned)


@pytest.mark.parametrize("waits", [{"evaluate": {"best": "dead"}}, {"checkpoint": {"keep_best": True}}])
def test_a_run_that_waits_for_scores_of_what_cannot_be_read_is_refused_before_its_first_step(
    tmp_path: Path, waits: dict[str, Any]
) -> None:
    (tmp_path / "good.jsonl").write_text('{"text": "some text"}\n' * 4)
    (tmp_path / "dead.jsonl").write_text('{"text": null}\n' * 3)
    data = {"tokens_per_pack": 32, "lanes": 1, "workers": 0, "sources": [str(tmp_path / "good.jsonl")], "held_out": 0}
    evaluate = {"every_steps": 1, "sources": [str(tmp_path / "dead.jsonl")], **waits.get("evaluate", {})}
    config = small_run(tmp_path / "run", **{**waits, "modalities": [], "data": data, "evaluate": evaluate})
    with pytest.raises(ConfigError, match=r": no held-out document.* the first of 3: .*dead\.jsonl:1: text: expected"):
        train_model(config, reporter=Saying())
    assert not (tmp_path / "run").exists()


def test_a_run_of_whose_held_out_documents_none_can_be_read_says_so_at_its_end(tmp_path: Path) -> None:
    bad = [{"text": None, "split": "test"}] * 2
    rows = [{"text": "some text"}, {"text": "and more"}, *bad]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"tokens_per_pack": 32, "lanes": 1, "workers": 0, "sources": [str(tmp_path / "rows.jsonl")]}
    config = small_run(tmp_path / "run", modalities=[], train={**CONSTANT, "steps": 1}, data=data)
    for train in (lambda r: train_model(config, reporter=r), lambda r: resume_run(tmp_path / "run", reporter=r)):
        reporter = Saying()
        train(reporter)
        assert "no held-out document could be read" in reporter.said[-1]
