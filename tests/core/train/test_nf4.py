"""Runs whose frozen weights are in 4 bits: they go on exactly, are exported, and begin with and for other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kosmos import load_run, make_run, resume_run, train_model
from kosmos.cli import main
from kosmos.compose import compose
from kosmos.errors import ConfigError
from kosmos.model.nf4 import pack, unpack, values_in
from kosmos.model.quantize import packed_of
from support.runs import SMALL, Listener, rows_of, ticks_registry

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 96}  # fmt: skip
LORA = {"rank": 4, "quantize": "nf4"}
LAYER = "backbone.model.model.layers.0.self_attn.q_proj"
ODD = "backbone.model.model.layers.0.mlp.down_proj"  # of 96 features
STEPS = 4


def nf4_run(output: Path | None, lora: Any = LORA, **over: Any) -> Any:
    backbone = {"name": "hf", "config": LLAMA, "lora": lora}
    base = {
        **SMALL,
        "backbone": backbone,
        "checkpoint": {"every_steps": 2},
        "train": {**SMALL["train"], "steps": STEPS},
    }
    return make_run(base, {"output": str(output)} if output else {}, over)


def tensors(output: Path, **more: Any) -> dict[str, torch.Tensor]:
    return dict(load_run(output, device="cpu", registry=ticks_registry(), **more).composition.model.state_dict())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nf4") / "run"
    train_model(nf4_run(folder), registry=ticks_registry())
    return folder


def test_what_is_kept_is_rounded_once_and_updates_learn(run: Path) -> None:
    before = compose(nf4_run(None, {"rank": 4}), ticks_registry()).model.state_dict()
    kept = tensors(run)
    assert f"{LAYER}.weight" not in kept and torch.equal(kept[f"{LAYER}.weight_nf4"], pack(before[f"{LAYER}.weight"]))
    assert torch.equal(kept[f"{ODD}.weight"], before[f"{ODD}.weight"])
    assert bool(kept[f"{LAYER}.low_rank_b"].any()) and bool(kept[f"{ODD}.low_rank_b"].any())
    losses = [row["loss"] for row in rows_of(run / "metrics.jsonl")]
    assert losses[-1] < losses[0]


def test_a_run_that_goes_on_is_the_run_that_was_never_stopped(run: Path, tmp_path: Path) -> None:
    train_model(nf4_run(tmp_path / "run", train={"steps": 2}), registry=ticks_registry())
    resume_run(tmp_path / "run", {"train": {"steps": STEPS}}, registry=ticks_registry())
    losses = [[row["loss"] for row in rows_of(of / "metrics.jsonl")] for of in (run, tmp_path / "run")]
    assert losses[0] == losses[1]
    one, other = tensors(run), tensors(tmp_path / "run")
    assert one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_an_export_is_whole_with_updates_in_it(run: Path, tmp_path: Path) -> None:
    assert main(["export", str(run), str(tmp_path / "model.safetensors")]) == 0
    exported, merged, kept = load_file(tmp_path / "model.safetensors"), tensors(run, merge=True), tensors(run)
    assert exported.keys() <= merged.keys() and not any("nf4" in name or "low_rank" in name for name in merged)
    assert all(torch.equal(tensor, merged[name]) for name, tensor in exported.items())
    change = kept[f"{LAYER}.low_rank_b"] @ kept[f"{LAYER}.low_rank_a"]
    rounded = unpack(kept[f"{LAYER}.weight_nf4"], torch.float32)
    torch.testing.assert_close(merged[f"{LAYER}.weight"], rounded + 8 * change)


def second(run: Path, output: Path, lora: Any) -> Path:
    still = {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}
    train_model(nf4_run(output, lora, init=str(run), train=still), registry=ticks_registry())
    return output


def test_a_run_without_begins_with_what_was_rounded_and_learned(run: Path, tmp_path: Path) -> None:
    before, after = tensors(run, merge=True), tensors(second(run, tmp_path / "second", None))
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


def test_a_run_with_it_rounds_what_another_has_learned(run: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    train_model(nf4_run(whole, None), registry=ticks_registry())
    for of in (whole, run):
        before, after = tensors(of, merge=True), tensors(second(of, tmp_path / f"after {of.name}", LORA))
        assert torch.equal(after[f"{LAYER}.weight_nf4"], pack(before[f"{LAYER}.weight"]))
        torch.testing.assert_close(after[f"{ODD}.weight"], before[f"{ODD}.weight"], rtol=0, atol=1e-6)


def test_a_second_stage_goes_on_with_updates_and_rounds_nothing_again(run: Path, tmp_path: Path) -> None:
    still = {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}
    init, heard = {"path": str(run), "keep_updates": True}, Listener()
    train_model(nf4_run(tmp_path / "kept", init=init, train=still), registry=ticks_registry(), reporter=heard)
    before, after = tensors(run), tensors(tmp_path / "kept")
    assert all(torch.allclose(before[name].float(), after[name].float(), atol=1e-6) for name in before)
    assert torch.equal(before[f"{LAYER}.weight_nf4"], after[f"{LAYER}.weight_nf4"])
    assert any("low-rank updates as they are" in line for line in heard.said)
    assert not any("rounded" in line for line in heard.said)


def test_updates_that_are_rounded_with_their_weights_are_warned_of(run: Path, tmp_path: Path) -> None:
    heard = Listener()
    still = {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}
    train_model(nf4_run(tmp_path / "again", init=str(run), train=still), registry=ticks_registry(), reporter=heard)
    assert any(line.startswith("rounded to 4 bits: 6 weights, such as backbone.model.") for line in heard.said)
    assert any(line.startswith("warning: init.keep_updates: what updates had learned beside 6") for line in heard.said)


def test_values_of_updates_come_from_one_place(run: Path, tmp_path: Path) -> None:
    both = nf4_run(None, init={"path": str(run), "keep_updates": True})
    lora = both.backbone.lora.model_copy(update={"adapter": tmp_path})
    config = both.model_copy(update={"backbone": both.backbone.model_copy(update={"lora": lora})})
    with pytest.raises(ConfigError, match=r"init\.keep_updates: both .* have values of the same updates"):
        compose(config, ticks_registry())


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ({**LORA, "rank": 3}, r"low_rank_a is \[4, 96\] and counts 8 times there, here it is \[3, 96\]"),
        ({**LORA, "alpha": 8}, r"counts 8 times there, here it is \[4, 96\] and counts 2 times; give both the same"),
        ({**LORA, "layers": ["q_proj"]}, r"has an update of .*, and this run has none there; give it the backbone"),
    ],
)
def test_updates_are_kept_by_the_same_settings_alone(run: Path, tmp_path: Path, lora: Any, said: str) -> None:
    init = {"path": str(run), "keep_updates": True}
    with pytest.raises(ConfigError, match=rf"init\.keep_updates: .*{said}"):
        train_model(nf4_run(tmp_path / "kept", lora, init=init), registry=ticks_registry())


def test_there_have_to_be_updates_to_be_kept(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    train_model(nf4_run(whole, None, train={"steps": 1}), registry=ticks_registry())
    init = {"path": str(whole), "keep_updates": True}
    with pytest.raises(ConfigError, match=r"init\.keep_updates: .* has no low-rank updates of this run's parts"):
        train_model(nf4_run(tmp_path / "kept", init=init), registry=ticks_registry())


def test_weights_that_another_run_has_rounded_are_taken_as_they_are(run: Path, tmp_path: Path) -> None:
    """Where nothing was learned beside them: rounded again they might be others."""
    still = tmp_path / "still"
    train_model(nf4_run(still, {**LORA, "layers": ["down_proj"]}, train={"steps": 1}), registry=ticks_registry())
    after = tensors(second(still, tmp_path / "second", LORA))
    assert torch.equal(after[f"{LAYER}.weight_nf4"], tensors(still)[f"{LAYER}.weight_nf4"])


def test_what_the_run_tells_of_its_size_counts_weights() -> None:
    with_it, without = (compose(nf4_run(None, lora), ticks_registry()).model for lora in (LORA, {"rank": 4}))
    assert sum(map(values_in, with_it.parameters())) == sum(p.numel() for p in without.parameters())
    assert len(packed_of(with_it)) == 6


def test_weights_that_a_run_draws_and_other_kinds_are_refused() -> None:
    drawn = make_run({**SMALL, "backbone": {"name": "decoder", "lora": LORA}})
    with pytest.raises(ConfigError, match=r"backbone\.lora\.quantize: Decoder draws its weights"):
        compose(drawn, ticks_registry())
    with pytest.raises(ConfigError, match=r"backbone\.lora\.quantize"):
        nf4_run(None, {**LORA, "quantize": "int4"})
