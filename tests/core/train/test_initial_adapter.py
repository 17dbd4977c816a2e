"""A run that begins with an adapter of PEFT: its updates, its settings, and what is refused of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from kosmos import CheckpointError, ConfigError, Segments, compose_run, load_run, make_run, resume_run, train_model
from kosmos.cli import main
from kosmos.data.tokenizer import train_tokenizer
from support.runs import SMALL, Listener, assert_same_tensors, rows_of, ticks_registry

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
PREFIX = "base_model.model."
STILL = {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}


def base_at(folder: Path, rows: int = 400, tied: bool = False) -> Path:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=rows, tie_word_embeddings=tied, **SHAPE)).save_pretrained(folder)
    return folder


def adapter_at(folder: Path, base: Path, more: dict[str, torch.Tensor] | None = None, **stated: Any) -> Path:
    """An adapter with updates of q_proj and down_proj, as PEFT writes it."""
    folder.mkdir()
    rank = stated.get("r", 4)
    torch.manual_seed(1)
    tensors = dict(more or {})
    for layer in (0, 1):
        for name, width, out in (("self_attn.q_proj", 32, 32), ("mlp.down_proj", 48, 32)):
            path = f"{PREFIX}model.layers.{layer}.{name}"
            tensors[f"{path}.lora_A.weight"] = torch.randn(rank, width) * 0.3
            tensors[f"{path}.lora_B.weight"] = torch.randn(out, rank) * 0.3
    save_file(tensors, folder / "adapter_model.safetensors")
    usual = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 6, "lora_dropout": 0.0, "bias": "none",
        "target_modules": ["q_proj", "down_proj"], "base_model_name_or_path": str(base),
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(usual | stated))
    return folder


def begun(output: Path | None, base: Path, lora: Any, **over: Any) -> Any:
    (base.parent / "texts.jsonl").write_text('{"text": "The cat sat on the mat."}\n' * 8)
    data = {**SMALL["data"], "sources": [str(base.parent / "texts.jsonl")]}
    layers = {"data": data, "backbone": {"name": "hf", "model": str(base), "lora": lora}, "trackers": []}
    train = {"train": {"steps": 4, "warmup_steps": 1, "precision": "fp32"}, "checkpoint": {"every_steps": 2}}
    return make_run(layers, train, {"output": str(output)} if output else {}, over)


def logits_of(run: Path, ids: torch.Tensor) -> torch.Tensor:
    backbone = load_run(run, device="cpu").composition.model.backbone
    with torch.no_grad():
        hidden = backbone(backbone.embed(ids), torch.arange(len(ids)), Segments((len(ids),)))
        return hidden @ backbone.output_weight().T


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0]


def merged(base: Path, adapter: Path, scale: float) -> Any:
    model, tensors = AutoModelForCausalLM.from_pretrained(base), load_file(adapter / "adapter_model.safetensors")
    state = model.state_dict()
    for name, a in tensors.items():
        if name.endswith("lora_A.weight"):
            weight = name.removeprefix(PREFIX).replace("lora_A.weight", "weight")
            state[weight] += scale * (tensors[name.replace("lora_A", "lora_B")] @ a)
    return model


@pytest.mark.parametrize(
    ("stated", "scale", "lora"),
    [
        ({}, 1.5, {"rank": 4, "alpha": 6, "layers": ["down_proj", "q_proj"]}),
        ({"use_rslora": True}, 3.0, {"rank": 4, "alpha": 12}),
        ({"target_modules": r".*\.(q|down)_proj", "lora_dropout": 0.25}, 1.5, {"dropout": 0.25}),
        ({"layers_to_transform": [0, 1], "init_lora_weights": "gaussian"}, 1.5, {"whole": []}),
    ],
)
def test_a_run_begins_with_the_model_of_an_adapter(
    stated: dict[str, Any], scale: float, lora: dict[str, Any], tmp_path: Path
) -> None:
    base = base_at(tmp_path / "base")
    adapter = adapter_at(tmp_path / "adapter", base, **stated)
    config = begun(tmp_path / "run", base, {"adapter": str(adapter)}, train=STILL)
    assert config.backbone.lora.model_dump(include=set(lora)) == lora
    train_model(config)
    ids = torch.randint(256, (30,))
    expected = logits(merged(base, adapter, scale), ids)
    assert torch.allclose(logits_of(tmp_path / "run", ids), expected, atol=1e-5)
    assert not torch.allclose(logits(AutoModelForCausalLM.from_pretrained(base), ids), expected, atol=1e-2)


def test_a_run_goes_on_exactly_once_its_adapter_is_gone_and_with_no_other(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base")
    adapter = adapter_at(tmp_path / "adapter", base)
    train_model(begun(tmp_path / "whole", base, {"adapter": str(adapter)}))
    train_model(begun(tmp_path / "two", base, {"adapter": str(adapter)}, train={"steps": 2}))
    other = adapter.rename(tmp_path / "other")
    with pytest.raises(
        ConfigError, match=r"backbone\.lora\.adapter: the run in .* goes on with its own updates; leave"
    ):
        resume_run(tmp_path / "two", {"backbone": {"lora": {"adapter": str(other)}}, "train": {"steps": 4}})
    resume_run(tmp_path / "two", {"train": {"steps": 4}})
    losses = [[row["loss"] for row in rows_of(tmp_path / run / "metrics.jsonl")] for run in ("whole", "two")]
    assert losses[0] == losses[1] and len(losses[0]) == 4
    assert_same_tensors(tmp_path / "whole", tmp_path / "two")
    with pytest.raises(CheckpointError, match=r"was made with backbone\.lora\.alpha"):
        resume_run(tmp_path / "two", {"backbone": {"lora": {"alpha": 5}}, "train": {"steps": 5}})


def test_what_was_exported_is_begun_with_again(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base", rows=200)  # to which rows of tokens are added
    train_model(begun(tmp_path / "first", base, {"rank": 2, "whole": ["embed_tokens"]}))
    adapter = tmp_path / "adapter"
    assert main(["export", str(tmp_path / "first"), str(adapter), "--for", "peft"]) == 0
    train_model(begun(tmp_path / "second", base, {"adapter": str(adapter)}, train=STILL))
    ids = torch.randint(256, (30,))
    assert torch.allclose(logits_of(tmp_path / "first", ids), logits_of(tmp_path / "second", ids), atol=1e-5)
    assert main(["export", str(tmp_path / "second"), str(tmp_path / "again"), "--for", "peft"]) == 0
    one, other = (load_file(folder / "adapter_model.safetensors") for folder in (adapter, tmp_path / "again"))
    assert one.keys() == other.keys() and all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_rows_of_new_tokens_are_the_mean_of_those_of_the_adapter(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base", rows=200)
    table = torch.randn(200, 32)
    more = {f"{PREFIX}model.embed_tokens.weight": table}
    adapter = adapter_at(tmp_path / "adapter", base, more, modules_to_save=["embed_tokens"])
    train_model(begun(tmp_path / "run", base, {"adapter": str(adapter)}, train=STILL))
    found = load_run(tmp_path / "run", device="cpu").composition.model.backbone.token_table()
    assert len(found) > 256 and torch.allclose(found[:200], table)
    assert torch.allclose(found[200:], table.mean(0).expand(len(found) - 200, 32), atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("stated", [{}, {"use_rslora": True}, {"modules_to_save": ["norm", "embed_tokens"]}])
def test_what_peft_has_written_is_read_as_peft_reads_it(stated: dict[str, Any], tied: bool, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = base_at(tmp_path / "base", tied=tied)
    ties = {"ensure_weight_tying": True} if tied and stated.get("modules_to_save") else {}
    config = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM", **stated, **ties
    )
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(tmp_path / "adapter")
    train_model(begun(tmp_path / "run", base, {"adapter": str(tmp_path / "adapter")}, train=STILL))
    ids = torch.randint(256, (30,))
    expected = logits(model, ids)
    assert torch.allclose(logits_of(tmp_path / "run", ids), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("stated", "line"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; read are adapters of 'LORA'"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS'; read are adapters of 'CAUSAL_LM', None"),
        ({"bias": "lora_only"}, "bias is 'lora_only'; read are adapters of 'none', None"),
        ({"use_dora": True}, "use_dora is True, which is not read; merge the adapter into its model with peft (merge"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern is {'q_proj': 8}, which is not read; merge"),
        ({"alpha_pattern": {"q_proj": 8}}, "alpha_pattern is {'q_proj': 8}, which is not read; merge"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'; read are"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True, which is not read"),
        ({"of_tomorrow": 1}, "of_tomorrow is 1, which is not read"),
        ({"r": "much"}, "r: expected a number, got 'much'"),
        ({"r": float("inf")}, "r: expected a number, got inf"),
        ({"lora_alpha": float("nan")}, "lora_alpha: expected a number, got nan"),
        ({"base_model_name_or_path": 5}, "base_model_name_or_path: expected names, got 5"),
        ({"modules_to_save": {"a": 1}}, "modules_to_save: expected names, got {'a': 1}"),
        ({"target_modules": [1, None]}, "target_modules: expected names, got [1, None]"),
    ],
)
def test_a_kind_that_is_not_read_is_one_line(stated: dict[str, Any], line: str, tmp_path: Path) -> None:
    adapter = adapter_at(tmp_path / "adapter", tmp_path / "base")
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | stated))
    with pytest.raises(ConfigError, match=r"backbone\.lora") as caught:
        begun(None, tmp_path / "base", {"adapter": str(adapter)})
    assert f"adapter: {file}: {line}" in str(caught.value)


def changed(adapter: Path, tensors: dict[str, Any]) -> None:
    """With other tensors; None leaves one out."""
    file = adapter / "adapter_model.safetensors"
    found = load_file(file) | tensors
    save_file({name: tensor for name, tensor in found.items() if tensor is not None}, file)


Q = f"{PREFIX}model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("tensors", "line"),
    [
        ({f"{Q}.lora_magnitude_vector": torch.ones(32)}, "q_proj.lora_magnitude_vector: expected of updates lora_A"),
        ({f"{Q}.lora_B.weight": None}, f"lacks {Q}.lora_B.weight"),
        (
            {f"{Q}.lora_B.weight": torch.ones(32, 3)},
            "q_proj.lora_B.weight: is [32, 3], and adapter_config.json says r=4",
        ),
        (
            {"transformer.h.0.weight": torch.ones(2)},
            "transformer.h.0.weight: expected names that begin with base_model.",
        ),
    ],
)
def test_tensors_that_are_no_plain_updates_are_refused(tensors: dict[str, Any], line: str, tmp_path: Path) -> None:
    adapter = adapter_at(tmp_path / "adapter", tmp_path / "base")
    changed(adapter, tensors)
    with pytest.raises(ConfigError) as caught:
        begun(None, tmp_path / "base", {"adapter": str(adapter)})
    assert line in str(caught.value)


def test_a_pickle_is_refused_and_so_is_a_folder_without_an_adapter(tmp_path: Path) -> None:
    adapter = adapter_at(tmp_path / "adapter", tmp_path / "base")
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    for folder, line in (
        (adapter, "adapter_model.bin: a pickle, which may run code"),
        (tmp_path, "no adapter is here"),
    ):
        with pytest.raises(ConfigError, match=line):
            begun(None, tmp_path / "base", {"adapter": str(folder)})


@pytest.mark.parametrize(
    ("lora", "tensors", "line"),
    [
        (
            {"rank": 8},
            {},
            r"^backbone\.lora: rank 8 and alpha 6, and the adapter .* has rank 4 and alpha 6; leave them out",
        ),
        (
            {"layers": ["q_proj"]},
            {},
            r"^backbone\.lora\.layers: .* has an update of model\.layers\.0\.mlp\.down_proj, and ",
        ),
        (
            {},
            {f"{Q}.lora_A.weight": torch.ones(4, 8)},
            r"is of another model: .*q_proj\.lora_A\.weight is \[4, 8\] there, \[",
        ),
        (
            {},
            {f"{PREFIX}model.score.weight": torch.ones(2, 2)},
            "is of another model: it has model.score.weight, which",
        ),
        (
            {},
            {f"{PREFIX}model.embed_tokens.weight": torch.ones(500, 32)},
            "rows of 500 tokens in .*, and the run 400: it",
        ),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    lora: dict[str, Any], tensors: dict[str, Any], line: str, tmp_path: Path
) -> None:
    base = base_at(tmp_path / "base")
    adapter = adapter_at(tmp_path / "adapter", base)
    changed(adapter, tensors)
    with pytest.raises(ConfigError, match=line):
        train_model(begun(tmp_path / "run", base, {"adapter": str(adapter), **lora}))


def test_rows_of_unknown_or_other_tokens_are_refused(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base", rows=200)
    table = {f"{PREFIX}model.embed_tokens.weight": torch.randn(230, 32)}
    adapter = adapter_at(tmp_path / "adapter", base, table)
    with pytest.raises(
        ConfigError, match=r"has rows of 230 tokens, 30 more than its model, and no tokenizer\.json that"
    ):
        train_model(begun(tmp_path / "run", base, {"adapter": str(adapter)}))
    train_tokenizer(["The cat sat."], vocab_size=280, folder=tmp_path / "other")
    (tmp_path / "other" / "tokenizer.json").rename(adapter / "tokenizer.json")
    with pytest.raises(ConfigError, match=r"has rows of other tokens than the run: .*; give the run its tokenizer"):
        train_model(begun(tmp_path / "run", base, {"adapter": str(adapter)}))


def test_one_of_two_tied_matrices_cannot_be_another(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base", tied=True)
    more = {f"{PREFIX}model.embed_tokens.weight": torch.randn(400, 32)}
    adapter = adapter_at(tmp_path / "adapter", base, more, modules_to_save=["embed_tokens"])
    with pytest.raises(ConfigError, match="are matrices of their own, which are one in the model"):
        train_model(begun(tmp_path / "run", base, {"adapter": str(adapter)}))


def test_an_adapter_is_of_a_model_of_transformers_and_of_no_encoder(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base")
    adapter = {"adapter": str(adapter_at(tmp_path / "adapter", base))}
    decoder = {**SMALL["backbone"], "lora": {**adapter, "layers": []}}
    config = begun(tmp_path / "run", base, 2).model_dump(mode="json") | {"backbone": decoder}
    with pytest.raises(
        ConfigError, match=r"is of a model of transformers \(backbone hf\), and backbone decoder is none"
    ):
        train_model(make_run(config))
    with pytest.raises(ConfigError, match=r"^streams\.ticks\.lora\.adapter: adapters are of a language model alone"):
        compose_run(make_run(SMALL, {"streams": {"ticks": {"lora": adapter}}}), registry=ticks_registry())
    with pytest.warns(UserWarning, match=r"backbone\.lora\.adapter: the values of .* are not loaded here; train_model"):
        compose_run(begun(None, base, adapter))


def test_an_adapter_of_another_base_is_warned_of(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base")
    adapter = adapter_at(tmp_path / "adapter", base, base_model_name_or_path="org/other")
    listener = Listener()
    train_model(begun(tmp_path / "run", base, {"adapter": str(adapter)}, train=STILL), reporter=listener)
    told = f"warning: backbone.lora.adapter: {adapter} was trained beside org/other, and this run has {base}; with"
    assert [line for line in listener.said if line.startswith(told)]


def test_an_adapter_in_the_place_of_a_run_or_a_model_is_told_where_it_belongs(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base")
    adapter = adapter_at(tmp_path / "adapter", base)
    with pytest.raises(ConfigError, match=r"^init: .*; an adapter of PEFT is backbone\.lora: \{adapter: .*adapter\}"):
        train_model(begun(tmp_path / "run", base, 2, init=str(adapter)))
    with pytest.raises(ConfigError, match=r"an adapter without its model; name that as backbone\.model and this"):
        compose_run(begun(None, adapter, 2))


def test_an_adapter_of_which_a_part_is_lost_or_not_finite_is_refused(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base")
    adapter = adapter_at(tmp_path / "adapter", base)
    file = adapter / "adapter_model.safetensors"
    whole, path = load_file(file), f"{PREFIX}model.layers.0.self_attn.q_proj"
    save_file({name: tensor for name, tensor in whole.items() if not name.startswith(path)}, file)
    with pytest.raises(ConfigError, match=r"has no update of model\.layers\.0\.self_attn\.q_proj, which target"):
        train_model(begun(tmp_path / "lost", base, {"adapter": str(adapter)}))
    save_file({**whole, f"{path}.lora_B.weight": torch.full((32, 4), torch.inf)}, file)
    with pytest.raises(ConfigError, match=r"q_proj\.lora_B\.weight holds NaN or infinity"):
        train_model(begun(tmp_path / "infinite", base, {"adapter": str(adapter)}))
    assert not (tmp_path / "lost").exists() and not (tmp_path / "infinite").exists()


def test_embeddings_that_peft_wrote_three_times_are_taken_once(tmp_path: Path) -> None:
    """As of embeddings that were resized and are in ``modules_to_save``."""
    base = base_at(tmp_path / "base")
    table, before = torch.randn(400, 32), torch.randn(400, 32)
    name = f"{PREFIX}model.embed_tokens"
    more = {f"{name}.weight": table, f"{name}.modules_to_save.weight": table.clone()}
    more[f"{name}.original_module.weight"] = before
    adapter = adapter_at(tmp_path / "adapter", base, more, modules_to_save=["embed_tokens"])
    train_model(begun(tmp_path / "run", base, {"adapter": str(adapter)}, train=STILL))
    found = load_run(tmp_path / "run", device="cpu").composition.model.backbone.token_table()
    assert torch.allclose(found, table, atol=1e-5)
    other = {**more, f"{name}.modules_to_save.weight": before.clone()}
    unlike = adapter_at(tmp_path / "unlike", base, other, modules_to_save=["embed_tokens"])
    with pytest.raises(ConfigError, match=r"modules_to_save\.weight and .* differ, and one of them is a copy"):
        train_model(begun(tmp_path / "no run", base, {"adapter": str(unlike)}))


def test_an_adapter_of_the_projection_to_the_vocabulary_is_refused_by_its_name(tmp_path: Path) -> None:
    base = base_at(tmp_path / "base")
    adapter = adapter_at(tmp_path / "adapter", base, target_modules=["q_proj", "down_proj", "lm_head"])
    said = r"backbone\.lora\.adapter: what is taken from .*adapter does not fit: .*'lm_head'.*merge_and_unload"
    with pytest.raises(ConfigError, match=said):
        train_model(begun(tmp_path / "run", base, {"adapter": str(adapter)}))
