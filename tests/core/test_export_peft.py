"""``kosmos export --for peft``: the updates of a run's language model as an adapter of the model that they are of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from kosmos import ConfigError, Segments, compose_run, load_run, make_run, save_run, train_model
from kosmos.cli import main
from kosmos.commands.adapter import left_out, write_adapter
from kosmos.model.nf4 import pack, unpack
from support.runs import SMALL, ticks_registry

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
KINDS = {  # rows of the base's embedding, whether it is tied, and the settings of the updates
    "all layers": (400, False, {"rank": 4, "alpha": 6}),
    "some layers": (400, True, {"rank": 2, "alpha": 2.5, "layers": ["q_proj", "layers.1.mlp.up_proj"]}),
    "whole modules": (400, False, {"rank": 2, "whole": ["embed_tokens", "layers.0.mlp", "norm"]}),
    "tied embeddings": (400, True, {"rank": 2, "whole": ["embed_tokens", "layers.1.input_layernorm"]}),
    "grown": (200, False, {"rank": 2}),
    "grown and tied": (200, True, {"rank": 2}),
    "grown and whole": (200, False, {"rank": 2, "whole": ["embed_tokens"]}),
}


def base_at(folder: Path, rows: int = 400, tied: bool = False, seed: int = 0, **shape: Any) -> str:
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(vocab_size=rows, tie_word_embeddings=tied, **SHAPE | shape)).save_pretrained(folder)
    return str(folder)


def trained(output: Path, base: str | None, **over: Any) -> Path:
    (output.parent / "texts.jsonl").write_text('{"text": "The cat sat on the mat."}\n' * 8)
    data = {**SMALL["data"], "sources": [str(output.parent / "texts.jsonl")]}
    backbone = {"name": "hf", "model": base, "lora": {"rank": 2}} | over.pop("backbone", {})
    train = {"steps": 3, "warmup_steps": 0, "precision": "fp32", "learning_rate": 0.05}
    layers = {"data": data, "backbone": backbone, "train": train, "trackers": [], "output": str(output)}
    train_model(make_run(layers, over), registry=ticks_registry())
    return output


def written(run: Path, folder: Path, *options: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    assert main(["export", str(run), str(folder), "--for", "peft", *options]) == 0
    about = json.loads((folder / "adapter_config.json").read_text())
    return load_file(folder / "adapter_model.safetensors"), about


def merged(base: str, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> Any:
    """The model that PEFT's documentation says the files to mean: W + alpha / r B A, and others laid over."""
    model = AutoModelForCausalLM.from_pretrained(base)
    embedding = tensors.get("base_model.model.model.embed_tokens.weight")
    if embedding is not None and len(embedding) != model.config.vocab_size:
        model.resize_token_embeddings(len(embedding), mean_resizing=False)
    state = model.state_dict()
    for name, tensor in tensors.items():
        path = name.removeprefix("base_model.model.")
        if path.endswith(".lora_A.weight"):
            layer = path.removesuffix(".lora_A.weight")
            assert any(f".{layer}".endswith(f".{last}") for last in about["target_modules"])
            b = tensors[name.replace("lora_A", "lora_B")]
            state[f"{layer}.weight"] += about["lora_alpha"] / about["r"] * (b @ tensor)
        elif "lora_B" not in path:
            assert state[path].shape == tensor.shape
            state[path].copy_(tensor)
    return model


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0]


def of_run(run: Path, ids: torch.Tensor) -> torch.Tensor:
    backbone = load_run(run, device="cpu", registry=ticks_registry()).composition.model.backbone
    with torch.no_grad():
        hidden = backbone(backbone.embed(ids), torch.arange(len(ids)), Segments((len(ids),)))
        return hidden @ backbone.output_weight().T


def exported(kind: str, folder: Path) -> tuple[str, Path, int]:
    """A base, a run that began with it, and the number of the base's rows."""
    rows, tied, lora = KINDS[kind]
    base = base_at(folder / "base", rows, tied)
    return base, trained(folder / "run", base, backbone={"lora": lora}), rows


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_files_mean_is_the_trained_model(kind: str, tmp_path: Path, capsys: Any) -> None:
    base, run, rows = exported(kind, tmp_path)
    capsys.readouterr()
    tensors, about = written(run, tmp_path / "adapter")
    said = capsys.readouterr()
    assert ("resize_token_embeddings(" in said.err) == (rows < 256)
    assert said.out.endswith(f" of step 3; for PeftModel.from_pretrained, beside {base}\n")
    lora = KINDS[kind][2]
    assert about["peft_type"] == "LORA" and about["task_type"] == "CAUSAL_LM" and about["bias"] == "none"
    assert (about["r"], about["lora_alpha"]) == (lora["rank"], lora.get("alpha", 32))
    assert about["base_model_name_or_path"] == base
    ids = torch.randint(rows, (30,))
    found = logits(merged(base, tensors, about), ids)
    assert torch.allclose(found, of_run(run, ids), atol=1e-5)
    before = logits(AutoModelForCausalLM.from_pretrained(base), ids)
    assert not torch.allclose(found[:, :rows], before, atol=1e-3)
    assert main(["export", str(run), str(tmp_path / "merged"), "--for", "transformers"]) == 0
    assert torch.allclose(found, logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"), ids), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_peft_reads_the_same_model(kind: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base, run, rows = exported(kind, tmp_path)
    written(run, tmp_path / "adapter")
    ids = torch.randint(rows, (30,))
    expected = of_run(run, ids)
    model = AutoModelForCausalLM.from_pretrained(base)
    if rows < 256:
        model.resize_token_embeddings(expected.shape[1], mean_resizing=False)
    model = peft.PeftModel.from_pretrained(model, tmp_path / "adapter").eval()
    assert torch.allclose(logits(model, ids), expected, atol=1e-5)


def refused(run: Path, capsys: Any, *options: str) -> str:
    capsys.readouterr()
    folder = run.parent / "adapter"
    assert main(["export", str(run), str(folder), "--for", "peft", *options]) == 2
    assert not folder.exists()
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_updates_beside_weights_in_4_bits_belong_to_the_model_that_was_rounded(tmp_path: Path) -> None:
    base, ids = base_at(tmp_path / "base", hidden_size=64), torch.arange(3, 40)
    run = trained(tmp_path / "run", base, backbone={"lora": {"rank": 2, "quantize": "nf4"}})
    tensors, about = written(run, tmp_path / "adapter")
    rounded = AutoModelForCausalLM.from_pretrained(base)
    for layer in rounded.model.modules():
        if isinstance(layer, torch.nn.Linear) and layer.in_features % 64 == 0:
            layer.weight.data = unpack(pack(layer.weight), torch.float32)
    rounded.save_pretrained(tmp_path / "rounded")
    expected = of_run(run, ids)
    torch.testing.assert_close(logits(merged(str(tmp_path / "rounded"), tensors, about), ids), expected)
    still = {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}
    lora = {"adapter": str(tmp_path / "adapter"), "quantize": "nf4"}
    again = trained(tmp_path / "again", base, backbone={"lora": lora}, train=still)
    torch.testing.assert_close(of_run(again, ids), expected)


@pytest.mark.parametrize(("dtype", "train"), [("bfloat16", {}), ("float32", {"weights": "bf16", "precision": "bf16"})])
def test_in_4_bits_the_base_of_a_second_stage_is_the_export_of_the_first(
    dtype: str, train: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    backbone = {"dtype": dtype, "lora": {"rank": 2, "quantize": "nf4"}}
    base = base_at(tmp_path / "base", hidden_size=64)
    first = trained(tmp_path / "first", base, backbone={**backbone, "lora": 2})
    one = trained(tmp_path / "one", base, backbone=dict(backbone), train=train)
    tensors, _ = written(one, tmp_path / "adapter of one")
    second = trained(tmp_path / "second", base, backbone=dict(backbone), init=str(first))
    assert "init.keep_updates" in refused(second, capsys)
    assert main(["export", str(first), str(tmp_path / "merged"), "--for", "transformers"]) == 0
    others, _ = written(second, tmp_path / "adapter", "--base", str(tmp_path / "merged"))
    assert tensors.keys() == others.keys()


@pytest.mark.parametrize("shape", [{"num_hidden_layers": 1}, {"hidden_size": 32}, {"intermediate_size": 64}])
def test_a_base_of_another_shape_than_weights_in_4_bits_is_one_line(
    shape: dict[str, int], tmp_path: Path, capsys: Any
) -> None:
    base = base_at(tmp_path / "base", hidden_size=64, intermediate_size=128)
    run = tmp_path / "run"
    given = {"name": "hf", "model": base, "lora": {"rank": 2, "quantize": "nf4"}}
    save_run(compose_run(make_run({"backbone": given})), run, step=1)
    other = base_at(tmp_path / "other", **{"hidden_size": 64, "intermediate_size": 128, **shape})
    assert "is not what the updates of the run stand beside" in refused(run, capsys, "--base", other)


def test_exports_of_one_checkpoint_are_the_same_bytes_and_hold_the_tokenizer(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", base_at(tmp_path / "base"), backbone={"lora": {"rank": 2, "whole": "norm"}})
    files = []
    for name in ("one", "two"):
        written(run, tmp_path / name)
        files.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert files[0] == files[1]
    assert {"adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"} <= files[0].keys()
    assert len({file.stat().st_mode for file in (tmp_path / "one").iterdir()}) == 1
    ids = AutoTokenizer.from_pretrained(tmp_path / "one")("The cat")["input_ids"]
    tokenizer = load_run(run, device="cpu").composition.tokenizer
    assert ids == [tokenizer.mark_id("<s>"), *tokenizer.encode("The cat")]


def test_updates_of_encoders_are_left_out_and_said_so(tmp_path: Path) -> None:
    streams = {"ticks": {"lora": {"rank": 2}}}
    run = trained(
        tmp_path / "run", base_at(tmp_path / "base"), modalities=["ticks"], data=SMALL["data"], streams=streams
    )
    saved = load_run(run, device="cpu", registry=ticks_registry())
    write_adapter(saved, tmp_path / "adapter", None)
    assert {name.split(".")[2] for name in load_file(tmp_path / "adapter" / "adapter_model.safetensors")} == {"model"}
    line = left_out(saved.composition.config)
    assert line.startswith(
        "encoders and connectors (ticks) are not in the adapter, the updates of streams.ticks.lora am"
    )
    alone = trained(
        tmp_path / "alone", base_at(tmp_path / "base"), modalities=["ticks"], data=SMALL["data"], streams=streams,
        backbone={"lora": None},
    )  # fmt: skip
    with pytest.raises(
        ConfigError, match=r"the run has updates of encoders alone \(streams\.ticks\.lora\), and an adapt"
    ):
        write_adapter(load_run(alone, device="cpu", registry=ticks_registry()), tmp_path / "none", None)


@pytest.mark.parametrize(
    ("backbone", "line"),
    [
        ({"lora": None}, "the run has no low-rank updates (backbone.lora), of which an adapter consists; write the "),
        ({"name": "decoder", "model": ..., **SMALL["backbone"]}, "backbone decoder: an adapter of PEFT belongs to a "),
        (
            {"model": ..., "config": {"model_type": "llama", **SHAPE}},
            "backbone.model: the run file names no model that",
        ),
    ],
)
def test_a_run_of_which_no_adapter_can_be_made_is_refused(
    backbone: dict[str, Any], line: str, tmp_path: Path, capsys: Any
) -> None:
    given = {"name": "hf", "model": base_at(tmp_path / "base"), "lora": {"rank": 2}, **backbone}
    given = {name: value for name, value in given.items() if value is not ...}
    run = tmp_path / "run"
    save_run(compose_run(make_run({"backbone": given})), run, step=1)
    assert refused(run, capsys).startswith(f"error[config]: {line}")


def test_weights_that_the_base_has_not_are_refused_and_the_right_base_may_be_named(tmp_path: Path, capsys: Any) -> None:
    base = base_at(tmp_path / "base")
    first = trained(tmp_path / "first", base)
    run = trained(tmp_path / "run", base, init=str(first))
    said = refused(run, capsys)
    assert said.startswith(
        f"error[config]: {base}: model.layers.0.mlp.down_proj.weight is not what the updates of the "
    )
    assert main(["export", str(first), str(tmp_path / "merged"), "--for", "transformers"]) == 0
    tensors, about = written(run, tmp_path / "adapter", "--base", str(tmp_path / "merged"))
    assert about["base_model_name_or_path"] == str(tmp_path / "merged")
    ids = torch.randint(256, (30,))
    assert torch.allclose(logits(merged(str(tmp_path / "merged"), tensors, about), ids), of_run(run, ids), atol=1e-5)


def test_a_base_that_is_gone_is_one_line_that_says_how_to_name_it(tmp_path: Path, capsys: Any) -> None:
    run = trained(tmp_path / "run", base_at(tmp_path / "base"))
    (tmp_path / "base").rename(tmp_path / "moved")
    assert refused(run, capsys).endswith("--base names another place of it")
    _, about = written(run, tmp_path / "adapter", "--base", str(tmp_path / "moved"))
    assert about["base_model_name_or_path"] == str(tmp_path / "moved")


def test_a_base_is_of_an_adapter_alone(tmp_path: Path, capsys: Any) -> None:
    assert main(["export", str(tmp_path), str(tmp_path / "x"), "--base", "m"]) == 2
    assert "--base: an adapter alone belongs to another model; add --for peft" in capsys.readouterr().err
