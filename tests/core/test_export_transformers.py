"""``kosmos export --for transformers``: what transformers reads there is the run's language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from kosmos import Document, Segments, Text, chat_prompt, compose_run, load_run, make_run, save_run
from kosmos.cli import main
from kosmos.data.bytes_tokenizer import ByteTokenizer
from kosmos.data.hf_tokenizer import of_bytes
from kosmos.data.tokenizer import train_tokenizer
from kosmos.errors import ConfigError
from kosmos.model.decoder import Decoder
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.train.run import train_model
from support.full_disk import room_for

SHAPE = {"width": 32, "layers": 2, "heads": 4, "ffn_width": 48}
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
BACKBONES = {
    "llama": SHAPE,
    "qwen-lora": {**SHAPE, "qk_norm": True, "lora": {"rank": 2}},
    "hf": {"name": "hf", "config": {"model_type": "llama", **SMALL}},
}
CHAT = [("system", "Be brief."), ("user", "The cat"), ("assistant", "sat"), ("user", "on")]


def logits(backbone: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        hidden = backbone(backbone.embed(ids), torch.arange(len(ids)), Segments((len(ids),)))
        return hidden @ backbone.output_weight().T


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "LlamaForCausalLM"),
        ({"kv_heads": 2, "tie_embeddings": True, "rope_base": 500_000.0}, "LlamaForCausalLM"),
        ({"bias": True, "preset": "small"}, "LlamaForCausalLM"),
        ({"qk_norm": True, "kv_heads": 1}, "Qwen3ForCausalLM"),
        ({"qk_norm": True, "tie_embeddings": True}, "Qwen3ForCausalLM"),
    ],
)
def test_the_decoder_is_a_model_of_transformers(options: dict[str, Any], kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    decoder = Decoder(50, **{**SHAPE, **options}).eval()
    with torch.no_grad():
        for weight in decoder.parameters():  # norms and biases begin as ones and zeros
            weight.add_(torch.randn_like(weight) * 0.1)
    made = decoder.to_transformers(64)
    made.save_pretrained(tmp_path)
    read = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(read).__name__ == kind and read.config.max_position_embeddings == 64
    ids = torch.randint(50, (40,))
    for model in (made, read):
        with torch.no_grad():
            assert torch.allclose(model(input_ids=ids[None]).logits[0], logits(decoder, ids), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"preset": "kosmos-1"}, "norm=layer, activation=gelu, positions=xpos, sub_ln=True"),
        ({"qk_norm": True, "bias": True}, "qk_norm with bias"),
    ],
)
def test_a_decoder_that_transformers_does_not_have_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"backbone decoder with {named}: no model of transformers computes the same"):
        Decoder(50, **{**SHAPE, **options}).to_transformers(64)


@given(st.text())
def test_bytes_have_the_same_ids_in_the_form_of_transformers(text: str) -> None:
    ours = ByteTokenizer(("<image>",))
    theirs = of_bytes(ours)
    ids = ours.encode(text)
    assert theirs.encode(text) == ids and theirs.decode(ids) == text == ours.decode(ids)
    assert theirs.special_ids == ours.special_ids and theirs.vocab_size == ours.vocab_size


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_run_is_read_with_its_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backbone: str, tokenizer: str
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "The cat sat on the mat."}\n' * 8)
    if tokenizer == "bpe":
        tokenizer = str(tmp_path / "tokenizer")
        train_tokenizer(["The cat sat on the mat."], vocab_size=280, folder=Path(tokenizer))
    layers = {"data": {"sources": [str(tmp_path / "texts.jsonl")], "workers": 0}, "backbone": BACKBONES[backbone]}
    run = {"tokenizer": tokenizer, "train": {"steps": 3, "warmup_steps": 0, "precision": "fp32"}, "trackers": []}
    train_model(make_run(layers, run, {"output": str(tmp_path / "run")}))
    folder = tmp_path / "hf" / "model"  # of which none is there yet
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), f"{folder}/", "--for", "transformers"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{folder}: ") and " of step 3; " in said.out and not said.err
    trained, ids_of = load_run(tmp_path / "run", device="cpu").composition, AutoTokenizer.from_pretrained(folder)
    ids = ids_of("<s>The cat sät", add_special_tokens=False)["input_ids"]
    assert ids == trained.planner.prompt(Document("here", (Text("The cat sät"),))).token_ids.tolist()
    assert ids_of("The cat sät")["input_ids"] == ids  # as whoever does not think of it tokenizes
    chat = [{"role": role, "content": content} for role, content in CHAT]
    spelled = ids_of.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    asked = chat_prompt([Text("on")], system="Be brief.", history=[([Text("The cat")], "sat")])
    expected = trained.planner.prompt(asked).token_ids.tolist()
    assert ids_of(spelled, add_special_tokens=False)["input_ids"] == expected
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        found = model(input_ids=torch.tensor([ids])).logits[0]
    assert torch.allclose(found, logits(trained.model.backbone, torch.tensor(ids)), atol=1e-5)
    assert set(model.generation_config.eos_token_id) == trained.planner.stops
    own = trained.tokenizer.mark_id
    assert (model.config.bos_token_id, model.config.eos_token_id) == (own("<s>"), own("</s>"))
    assert len({file.stat().st_mode for file in folder.iterdir()}) == 1
    assert sorted(p.name for p in folder.parent.iterdir()) == ["model"]


def test_a_folder_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["export", str(tmp_path), f"{tmp_path}/mine/", "--for", "transformers"]) == 2
    assert "mine: exists already; name another folder, or remove it" in capsys.readouterr().err
    assert main(["export", str(tmp_path), f"{tmp_path}/x", "--for", "gguf"]) == 2
    assert "gguf" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    composition = compose_run(make_run({"modalities": [], "backbone": SHAPE}))
    save_run(composition, tmp_path / "run", step=1)
    with room_for(20_000):  # the tokenizer has room
        assert main(["export", str(tmp_path / "run"), str(tmp_path / "model"), "--for", "transformers"]) == 4
    line = "cannot write (File too large); nothing is left there; name another folder"
    assert capsys.readouterr().err.splitlines()[-1] == f"error[training]: {tmp_path}/model: {line}"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_bf16_weights_stay_bf16_and_another_folder_under_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "The cat sat."}\n' * 8)
    data = {"sources": [str(tmp_path / "texts.jsonl")], "workers": 0}
    train = {"steps": 1, "warmup_steps": 0, "weights": "bf16", "optimizer": {"name": "lion", "master": "bits16"}}
    layers = {"data": data, "backbone": SHAPE, "train": train, "trackers": [], "output": str(tmp_path / "run")}
    train_model(make_run(layers))
    other = tmp_path / ".partial-model"
    other.mkdir()
    (other / "mine").write_text("kept")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "model"), "--for", "transformers"]) == 0
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "weights")]) == 0
    assert {t.dtype for t in load_file(tmp_path / "model" / "model.safetensors").values()} == {torch.bfloat16}
    assert {t.dtype for t in load_file(tmp_path / "weights").values()} == {torch.bfloat16}
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "model").dtype == torch.bfloat16
    assert (other / "mine").read_text() == "kept"
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "run").stat().st_mode


@pytest.mark.parametrize("recompute", [False, True])
def test_a_model_of_transformers_runs_by_itself_beside_the_backbone_that_has_its_weights(recompute: bool) -> None:
    backbone = HuggingFaceBackbone(50, config={"model_type": "qwen2", **SMALL, "num_key_value_heads": 1}).eval()
    if recompute:
        backbone.set_gradient_checkpointing(True)
        backbone.train()
    ids = torch.randint(50, (12,))
    before = logits(backbone, ids)
    plain = backbone.to_transformers(64)
    with torch.no_grad():
        assert torch.allclose(plain(input_ids=ids[None]).logits[0], before, atol=1e-5)
    plain.eval()
    assert plain.generate(ids[None], max_new_tokens=3, do_sample=False, pad_token_id=0).shape == (1, 15)
    assert torch.equal(logits(backbone, ids), before)  # its documents still go apart
    assert {p.data_ptr() for p in plain.parameters()} == {p.data_ptr() for p in backbone.parameters()}


def test_of_a_tokenizer_that_autotokenizer_reads_as_another_the_export_warns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "In 2024."}\n' * 8)
    train_tokenizer(["In 2024 and 2024."] * 9, vocab_size=290, folder=tmp_path / "own")  # Qwen2's has single digits
    config = {"model_type": "qwen2", **SMALL, "num_key_value_heads": 1}
    data = {"sources": [str(tmp_path / "texts.jsonl")], "workers": 0}
    layers = {"data": data, "tokenizer": str(tmp_path / "own"), "backbone": {"name": "hf", "config": config}}
    train = {"steps": 1, "warmup_steps": 0}
    train_model(make_run(layers, {"train": train, "trackers": [], "output": str(tmp_path / "run")}))
    capsys.readouterr()
    folder = tmp_path / "model"
    assert main(["export", str(tmp_path / "run"), str(folder), "--for", "transformers"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {folder}: AutoTokenizer makes a Qwen2Tokenizer of the tokenizer, with other tok")
    assert line.endswith(f"; load it by PreTrainedTokenizerFast.from_pretrained('{folder}')")
    ids = PreTrainedTokenizerFast.from_pretrained(folder)("In 2024.", add_special_tokens=False)["input_ids"]
    assert ids == load_run(tmp_path / "run", device="cpu").composition.tokenizer.encode("In 2024.")
