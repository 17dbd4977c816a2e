"""Runs that train low-rank updates: the base stays, a run goes on exactly, and what was learned goes elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kosmos import SavedRun, load_run, make_run, open_sources, resume_run, score, train_model
from kosmos.cli import main
from kosmos.compose import compose
from kosmos.config import ParallelConfig
from kosmos.errors import CheckpointError, ConfigError
from kosmos.model.lora import updates_among
from kosmos.train.doubts import doubts, learns_nothing
from kosmos.train.sharding import check_types
from support.runs import SMALL, rows_of, small_run, ticks_registry

LLAMA = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 48}  # fmt: skip
BACKBONE = {"name": "hf", "config": LLAMA, "lora": {"rank": 4, "whole": "embed_tokens"}}
ENCODER = {"ticks": {"lora": {"rank": 2, "alpha": 6}}}
STEPS = 4


def lora_run(output: Path | None, **over: Any) -> Any:
    base = {**SMALL, "backbone": BACKBONE, "streams": ENCODER, "checkpoint": {"every_steps": 2}}
    return make_run(base, {"train": {"steps": STEPS}}, {"output": str(output)} if output else {}, over)


def tensors(output: Path, **more: Any) -> dict[str, torch.Tensor]:
    run = load_run(output, device="cpu", registry=ticks_registry(), **more)
    return dict(run.composition.model.state_dict())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora") / "run"
    train_model(lora_run(folder), registry=ticks_registry())
    return folder


def test_updates_and_whole_modules_learn_and_the_base_stays(run: Path) -> None:
    fresh = compose(lora_run(None), ticks_registry()).model.state_dict()
    trained = tensors(run)
    moved = {name for name, tensor in trained.items() if not torch.equal(tensor, fresh[name])}
    learns = {name for name in fresh if "low_rank" in name or ".connector." in name or "embed_tokens" in name}
    assert moved == learns
    assert {name.partition(".low_rank")[0] for name in learns if name.startswith("streams.ticks.encoder")}


def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(run: Path, tmp_path: Path) -> None:
    train_model(lora_run(tmp_path / "run", train={"steps": 2}), registry=ticks_registry())
    resume_run(tmp_path / "run", {"train": {"steps": STEPS}}, registry=ticks_registry())
    losses = [[row["loss"] for row in rows_of(of / "metrics.jsonl")] for of in (run, tmp_path / "run")]
    assert losses[0] == losses[1]
    assert same(tensors(run), tensors(tmp_path / "run"))


def test_dropout_of_updates_is_of_training_alone_and_goes_on_exactly(run: Path, tmp_path: Path) -> None:
    drops = over_all(0.5)
    for name, steps in (("whole", STEPS), ("two", 2)):
        train_model(lora_run(tmp_path / name, train={"steps": steps}, **drops), registry=ticks_registry())
    resume_run(tmp_path / "two", {"train": {"steps": STEPS}}, registry=ticks_registry())
    first, second, without = ([row["loss"] for row in rows_of(of / "metrics.jsonl")] for of in (
        tmp_path / "whole", tmp_path / "two", run
    ))  # fmt: skip
    assert first == second
    assert first[0] == without[0] and first[1:] != without[1:]  # the first step is of updates that are zero
    trained = tensors(tmp_path / "whole")
    assert same(trained, tensors(tmp_path / "two")) and not same(trained, tensors(run))
    merged, beside = (
        scored(load_run(tmp_path / "whole", device="cpu", registry=ticks_registry(), merge=merge))
        for merge in (True, False)
    )
    assert merged == pytest.approx(beside, abs=1e-5)
    again = resume_run(tmp_path / "two", {**over_all(0.0), "train": {"steps": STEPS + 1}}, registry=ticks_registry())
    assert again.step == STEPS + 1  # as another learning rate would do


def over_all(dropout: float) -> dict[str, Any]:
    return {"backbone": {"lora": {"dropout": dropout}}, "streams": {"ticks": {"lora": {"dropout": dropout}}}}


def scored(saved: SavedRun) -> float:
    parts = saved.composition
    return score(parts, open_sources(parts.config, parts.registry, "held_out"), max_documents=8).overall.loss


@pytest.mark.parametrize("over", [{"backbone": {"lora": {"alpha": 5}}}, {"streams": {"ticks": {"lora": {"alpha": 5}}}}])
def test_a_run_goes_on_with_the_updates_that_it_has(run: Path, over: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"was made with (backbone|streams\.ticks)\.lora\.alpha .*, the run now"):
        resume_run(run, {**over, "train": {"steps": 9}}, registry=ticks_registry())


def test_an_export_has_the_updates_in_its_weights(run: Path, tmp_path: Path, capsys) -> None:
    assert main(["export", str(run), str(tmp_path / "model.safetensors")]) == 0
    exported, merged = load_file(tmp_path / "model.safetensors"), tensors(run, merge=True)
    without = compose(lora_run(None, backbone={"lora": None}, streams={"ticks": {"lora": None}}), ticks_registry())
    assert exported.keys() <= merged.keys() == without.model.state_dict().keys()
    assert all(torch.equal(tensor, merged[name]) for name, tensor in exported.items())
    name = "backbone.model.model.layers.0.self_attn.q_proj"
    kept = tensors(run)
    change = kept[f"{name}.low_rank_b"] @ kept[f"{name}.low_rank_a"]
    torch.testing.assert_close(merged[f"{name}.weight"], kept[f"{name}.weight"] + 8 * change)


@pytest.mark.parametrize("lora", [None, {"rank": 3}])
def test_another_run_begins_with_the_model_that_updates_have_made(run: Path, tmp_path: Path, lora: Any) -> None:
    backbone = {"name": "hf", "config": LLAMA, "lora": lora}
    still = {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}
    over = {"output": str(tmp_path / "second"), "init": str(run), "backbone": backbone, "train": still}
    train_model(make_run({**SMALL, "backbone": backbone}, over), registry=ticks_registry())
    before, after = tensors(run, merge=True), tensors(tmp_path / "second", merge=True)
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


def test_a_part_cannot_be_frozen_and_updated() -> None:
    for place in ("backbone", "streams.ticks"):
        over = {"freeze": True, "lora": 4}
        config = small_run(None, **({"backbone": over} if place == "backbone" else {"streams": {"ticks": over}}))
        with pytest.raises(ConfigError, match=rf"^{place}\.lora: {place}\.freeze trains nothing of it; leave one"):
            compose(config, ticks_registry())


@pytest.mark.parametrize("said", [{"rank": 0}, {"ranks": 2}, 0, "much", False])
def test_wrong_settings_are_told_at_their_place(said: Any) -> None:
    with pytest.raises(ConfigError, match=r"backbone\.lora"):
        small_run(None, backbone={"lora": said})


def test_a_rank_alone_and_what_is_laid_over_it_are_both_heeded() -> None:
    for short, rank in ((8, 8), (True, 16)):
        config = make_run({"backbone": {"name": "decoder", "lora": short}}, {"backbone": {"lora": {"alpha": 3}}})
        assert (config.backbone.lora.rank, config.backbone.lora.alpha) == (rank, 3)


def test_a_tensor_that_is_only_called_like_an_update_is_the_parts_own() -> None:
    scales = {"backbone": 2.0}
    names = ["backbone.q.weight", "backbone.q.low_rank_a", "backbone.low_rank_a", "streams.x.encoder.q.low_rank_a"]
    assert updates_among([*names, "streams.x.encoder.q.weight"], scales) == {"backbone.q.low_rank_a"}
    assert updates_among(names, {}) == set()


@pytest.mark.parametrize("strategy", ["auto", "hsdp"])
def test_shards_of_two_types_are_refused_before_the_run_begins(strategy: Any) -> None:
    backbone = {**BACKBONE, "dtype": "bfloat16", "lora": {"rank": 2, "whole": "input_layernorm"}}
    model = compose(lora_run(None, backbone=backbone), ticks_registry()).model
    two = SimpleNamespace(world_size=2)
    said = r"^parallel\.strategy: shards of LlamaDecoderLayer are trained in one type, and .* is in bfloat16"
    with pytest.raises(ConfigError, match=said):
        check_types(model, ParallelConfig(strategy=strategy), two)
    check_types(model, ParallelConfig(strategy="ddp"), two)
    outside = {**backbone, "lora": {"rank": 2, "whole": "embed_tokens"}}
    check_types(compose(lora_run(None, backbone=outside), ticks_registry()).model, ParallelConfig(), two)


def test_updates_of_weights_that_were_drawn_are_doubted_and_of_layers_that_were_not_called_too() -> None:
    config = small_run(None, backbone={"lora": True})
    model = compose(config, ticks_registry()).model
    said = list(doubts(config, [], resumed=False, backbone=model.backbone, streams=model.streams.items()))
    assert [line.split(":")[0] for line in said if "only updates" in line] == ["backbone.lora"]
    (line,) = learns_nothing(model)  # of a run in which nothing was trained yet
    assert line.startswith("backbone.lora: in 5 steps these layers had no gradient") and "and 3 more" in line
