"""Models of transformers as backbones: packed as alone, cached as whole, refused where documents would mix."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from kosmos import Document, Text, generate_text, load_run, resume_run, train_model
from kosmos.errors import ConfigError
from kosmos.model import huggingface_attention
from kosmos.model.attention import attend
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.loss import linear_cross_entropy
from kosmos.model.omni import OmniModel
from kosmos.model.segments import Segments
from kosmos.model.weights import materialize, without_memory
from support.rebuilt import rebuilt
from support.runs import rows_of, small_run, ticks_registry

from .test_decoder import Calls

V = 40
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SHAPE},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True, **SHAPE},
    "qwen3": {"model_type": "qwen3", "head_dim": 8, **SHAPE},
    "gpt2 (learned positions)": {"model_type": "gpt2", **GPT2},
    "gemma (scaled embeddings)": {"model_type": "gemma", "head_dim": 8, **SHAPE},
    "gemma3 (two kinds of layers)": {"model_type": "gemma3_text", "head_dim": 8, "sliding_window": 4, **SHAPE},
    "mistral (window of 5)": {"model_type": "mistral", "sliding_window": 5, **SHAPE},
    "granite (scaled logits)": {"model_type": "granite", "logits_scaling": 4.0, "embedding_multiplier": 3.0, **SHAPE},
}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
built: dict[str, HuggingFaceBackbone] = {}


def backbone(family: str) -> HuggingFaceBackbone:
    """Built once, in fp64 (where transformers computes norms and rotations in fp32)."""
    if family not in built:
        torch.manual_seed(0)
        built[family] = HuggingFaceBackbone(V, config=FAMILIES[family], dtype="float64")
        for parameter in built[family].parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return built[family]


def random_ids(count: int) -> Tensor:
    return torch.randint(V, (count,), generator=torch.Generator().manual_seed(count))


def packed(model: HuggingFaceBackbone, ids: Tensor, lengths: tuple[int, ...]) -> Tensor:
    positions = torch.cat([torch.arange(n) for n in lengths])
    hidden: Tensor = model(model.embed(ids), positions, Segments(lengths))
    return hidden


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=6, deadline=None)
@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4))
def test_packed_loss_and_gradients_equal_those_of_each_document_alone(family: str, lengths: list[int]) -> None:
    model, ids = backbone(family), random_ids(sum(lengths))
    targets = torch.cat([part.roll(1) for part in ids.split(lengths)])
    results = []
    for rows in ([tuple(lengths)], [(n,) for n in lengths]):
        model.zero_grad()
        parts = ids.split([sum(row) for row in rows])
        hidden = torch.cat([packed(model, part, row) for part, row in zip(parts, rows, strict=True)])
        loss = linear_cross_entropy(hidden, model.output_weight(), targets).total
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert len(results[0]) > 10
    for together, alone in zip(*results, strict=True):
        # measured 2.2e-7 of the largest gradient: transformers computes norms and rotations in fp32
        torch.testing.assert_close(together, alone, rtol=0, atol=1e-5 * max(1.0, float(alone.abs().max())))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_a_packed_row_are_those_of_transformers_for_each_document(family: str) -> None:
    model, lengths = backbone(family), (3, 30, 17)
    ids = random_ids(sum(lengths))
    model.eval()
    with torch.no_grad():
        got = packed(model, ids, lengths) @ model.output_weight().T
        model.model.set_attn_implementation("eager")
        expected = [model.model(input_ids=part[None], use_cache=False).logits[0] for part in ids.split(lengths)]
        model.model.set_attn_implementation(huggingface_attention.NAME)
    # measured relative error 2e-7
    assert float((got - torch.cat(expected)).norm() / torch.cat(expected).norm()) < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_with_a_cache_gives_the_hidden_states_of_the_whole_document(family: str) -> None:
    model, ids = backbone(family), random_ids(25)
    model.eval()
    with torch.no_grad():
        cache = model.new_cache()
        steps = [(0, 9), (9, 10), (10, 11), (11, 25)]
        parts = [model(model.embed(ids[a:b]), torch.arange(a, b), Segments((b - a,)), cache) for a, b in steps]
        whole = packed(model, ids, (25,))
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-9)  # measured 1.2e-15


@pytest.mark.parametrize("family", FAMILIES)
def test_documents_that_are_continued_together_have_the_hidden_states_of_each_alone(family: str) -> None:
    model, lengths, more = backbone(family), (3, 1, 17), 70  # buffers have to grow on the way
    model.eval()
    documents, going = [random_ids(length + more) for length in lengths], [0, 1, 2]
    with torch.no_grad():
        alone = [packed(model, document, (len(document),)) for document in documents]
        cache = model.new_batch_cache()
        prompts = torch.cat([d[:n] for d, n in zip(documents, lengths, strict=True)])
        positions = torch.cat([torch.arange(n) for n in lengths])
        model(model.embed(prompts), positions, Segments(lengths), cache)
        for token in range(more):
            if token == 10:
                cache.keep(torch.tensor([1, 2]))
                going = [1, 2]
            places = [lengths[n] + token for n in going]
            ids = torch.stack([documents[n][place] for n, place in zip(going, places, strict=True)])
            hidden = model(model.embed(ids), torch.tensor(places), Segments((1,) * len(going)), cache)
            expected = torch.stack([alone[n][place] for n, place in zip(going, places, strict=True)])
            torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-9)


def test_gradient_checkpointing_keeps_documents_apart() -> None:
    model, ids = backbone("llama"), random_ids(30)
    model.train()
    gradients = []
    for how in (False, True, "selective"):
        model.set_gradient_checkpointing(how)
        model.zero_grad()
        packed(model, ids, (10, 20)).pow(2).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    model.set_gradient_checkpointing(False)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*gradients, strict=True))


def test_selective_checkpointing_computes_no_product_of_experts_again() -> None:
    shape = {**SHAPE, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    model, ids = HuggingFaceBackbone(V, config={"model_type": "mixtral", **shape}).train(), random_ids(30)
    calls = {}
    for how in (False, "selective", True):
        model.set_gradient_checkpointing(how)
        loss = packed(model, ids, (10, 20)).pow(2).sum()
        with Calls() as calls[how]:
            loss.backward()
    none, selective, full = (
        sum(count for name, count in calls[how].of.items() if "grouped_mm" in name)
        for how in (False, "selective", True)
    )
    assert 0 < none == selective < full


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mamba", "hidden_size": 32, "num_hidden_layers": 2}, "linear_attention; documents"),
        ({"model_type": "bloom", "hidden_size": 32, "n_layer": 2, "n_head": 4}, "takes no other attention"),
        ({"model_type": "gemma2", "head_dim": 8, **SHAPE}, "caps its attention logits"),
        ({"model_type": "phi", **SHAPE}, "without a bias"),
        ({"model_type": "gpt_oss", "head_dim": 8, "num_local_experts": 4, **SHAPE}, "s_aux"),
        (
            {"model_type": "llama", **SHAPE, "rope_parameters": DYNAMIC},
            "stretches its positions by the longest document",
        ),
        ({"model_type": "lama"}, "did you mean llama"),
        ({"model_type": "llama", "hiden_size": 3}, "did you mean hidden_size"),
        ({"model_type": "llama", "hidden_size": "wide"}, "expected int"),
        ({"hidden_size": 32}, "needs a model_type"),
    ],
)
def test_models_that_cannot_be_packed_and_wrong_configurations_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        HuggingFaceBackbone(V, config=config)


def test_a_model_whose_documents_would_mix_is_refused_when_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def leak(q: Tensor, k: Tensor, v: Tensor, segments: Segments, **options: Any) -> Tensor:
        return attend(q, k, v, Segments((segments.total,)), **options)

    monkeypatch.setattr(huggingface_attention, "attend", leak)
    with pytest.raises(ConfigError, match="documents mix"):
        HuggingFaceBackbone(V, config=FAMILIES["llama"])


def test_a_layer_that_hides_its_window_is_refused() -> None:
    backbone = HuggingFaceBackbone(V, config=FAMILIES["gemma3 (two kinds of layers)"])
    kinds = backbone.model.config.layer_types
    sliding = next(layer for layer, kind in zip(backbone.blocks, kinds, strict=True) if kind == "sliding_attention")
    cast(Any, sliding).self_attn.sliding_window = None  # as if its code did not hand it on
    ids = torch.arange(6)
    with pytest.raises(ConfigError, match=f"layer {kinds.index('sliding_attention')} .* hides its sliding window"):
        backbone(backbone.embed(ids), ids, Segments((6,)))


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_model_loads_grows_and_keeps_its_rows(tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = HuggingFaceBackbone(V, config={**FAMILIES["llama"], "tie_word_embeddings": tied})
    first.model.save_pretrained(tmp_path)
    second = HuggingFaceBackbone(V + 3, model=str(tmp_path))
    assert second.vocab_size == V + 3
    assert second.output_weight().shape == (V + 3, 32)
    assert (second.output_weight() is second.model.get_input_embeddings().weight) == tied
    assert torch.equal(second.output_weight()[:V], first.output_weight())
    torch.testing.assert_close(second.output_weight()[V], first.output_weight().mean(0))
    assert HuggingFaceBackbone(V - 5, model=str(tmp_path)).vocab_size == V
    anew = HuggingFaceBackbone(V, model=str(tmp_path), pretrained=False)
    assert not torch.equal(anew.output_weight(), first.output_weight())


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    model = HuggingFaceBackbone(V, config=FAMILIES["llama"])
    model.model.config.save_pretrained(tmp_path)
    torch.save(model.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="cannot load"):
        HuggingFaceBackbone(V, model=str(tmp_path))


def test_a_missing_model_is_one_line() -> None:
    with pytest.raises(ConfigError, match="cannot load 'nobody/nothing'") as caught:
        HuggingFaceBackbone(V, model="nobody/nothing")
    assert "\n" not in caught.value.line()


@pytest.mark.parametrize(
    ("model", "why"), [("gpt-nobody", "no such folder, and as an id of the hub: "), ("./no/where", "no such folder; ")]
)
def test_a_model_that_is_not_there_says_what_to_give(model: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot load '{model}': {why}") as caught:
        HuggingFaceBackbone(V, model=model)
    assert caught.value.line().endswith(
        "; give a folder that holds the model (backbone.model=FOLDER), or an id where the hub can be reached"
    )


def test_model_and_config_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="either model"):
        HuggingFaceBackbone(V)


LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0], "factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 1e4,
}  # fmt: skip


def test_longrope_holds_documents_up_to_where_its_frequencies_change() -> None:
    model = HuggingFaceBackbone(V, config={"model_type": "llama", "rope_parameters": LONGROPE, **SHAPE})
    assert model.longest == 32
    together = packed(model, torch.cat([random_ids(32), random_ids(20)]), (32, 20))
    assert torch.allclose(together[32:], packed(model, random_ids(20), (20,)), atol=1e-6)
    with pytest.raises(ConfigError, match="has positions for 32"):
        packed(model, random_ids(33), (33,))


def test_a_frozen_model_recomputes_where_it_is_told_to() -> None:
    def kept(*, recompute: bool) -> tuple[int, Tensor]:
        torch.manual_seed(0)
        model = HuggingFaceBackbone(V, config={"model_type": "gpt2", **GPT2, "resid_pdrop": 0.5})
        model.set_gradient_checkpointing(recompute)
        whole = OmniModel(model, {}, freeze_backbone=True).train()
        x, sizes = torch.randn(64, 32, generator=torch.Generator().manual_seed(1), requires_grad=True), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.nbytes) or t, lambda t: t):
            hidden = model(x, torch.arange(64), Segments((64,)))
        hidden.square().sum().backward()
        whole.eval()
        assert not any(module.training for module in whole.modules())
        return sum(sizes), x.grad

    (few, gradient), (many, expected) = kept(recompute=True), kept(recompute=False)
    assert few < many / 3
    assert torch.allclose(gradient, expected, rtol=1e-5)


def test_the_embedding_of_the_padding_token_is_trained(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(vocab_size=V, pad_token_id=7, eos_token_id=7, **SHAPE)).save_pretrained(tmp_path)
    for pretrained in (True, False):
        model = HuggingFaceBackbone(V + 4, model=str(tmp_path), pretrained=pretrained)
        model.embed(torch.tensor([5, 7])).sum().backward()
        gradient = model.model.get_input_embeddings().weight.grad
        assert gradient[5].abs().sum() > 0 and gradient[7].abs().sum() > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "llama", **SHAPE, "num_attention_heads": 0},
        {"model_type": "llama", **SHAPE, "vocab_size": "abc"},
        {"model_type": "gpt2", **GPT2, "n_positions": 4},
        {"model_type": "dbrx"},
    ],
)
def test_numbers_of_which_no_model_can_be_made_are_one_line(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^hf: ") as caught:
        HuggingFaceBackbone(V, config=fields)
    assert "\n" not in caught.value.line()


def test_a_document_longer_than_the_learned_positions_is_refused() -> None:
    with pytest.raises(ConfigError, match="has positions for 128"):
        packed(backbone("gpt2 (learned positions)"), random_ids(129), (129,))


def assert_same_weights(found: HuggingFaceBackbone, expected: HuggingFaceBackbone) -> None:
    for kind in ("named_parameters", "named_buffers"):
        theirs = dict(getattr(expected, kind)())
        assert list(dict(getattr(found, kind)())) == list(theirs)
        assert [name for name, tensor in getattr(found, kind)() if not torch.equal(tensor, theirs[name])] == []
    same = [m.output_weight() is m.model.get_input_embeddings().weight for m in (found, expected)]
    assert same[0] == same[1]


def at_once_and_later(vocab_size: int, **options: Any) -> list[HuggingFaceBackbone]:
    """The same model with its weights, and without memory for them."""
    made = []
    for context in (nullcontext(), without_memory()):
        torch.manual_seed(1)
        with context:
            made.append(HuggingFaceBackbone(vocab_size, **options))
    assert [all(p.is_meta for p in model.parameters()) for model in made] == [False, True]
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_made_without_memory_and_filled_it_is_the_one_made_at_once(family: str) -> None:
    at_once, later = at_once_and_later(V, config=FAMILIES[family])
    materialize(later, torch.device("cpu"), draw=True)
    assert_same_weights(later, at_once)


@pytest.mark.parametrize("tied", [True, False])
def test_weights_of_a_folder_are_read_when_memory_is_there(tied: bool, tmp_path: Path) -> None:
    HuggingFaceBackbone(V, config={**FAMILIES["llama"], "tie_word_embeddings": tied}).model.save_pretrained(tmp_path)
    at_once, later = at_once_and_later(V + 3, model=str(tmp_path))
    materialize(later, torch.device("cpu"), draw=True)
    assert_same_weights(later, at_once)


@pytest.mark.parametrize("family", FAMILIES)
def test_with_the_weights_of_a_checkpoint_a_models_folder_is_not_needed_again(family: str, tmp_path: Path) -> None:
    HuggingFaceBackbone(V, config=FAMILIES[family]).model.save_pretrained(tmp_path / "base")
    options = {"model": str(tmp_path / "base"), "dtype": "float64"}
    model = HuggingFaceBackbone(V + 3, **options).eval()  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "base")
    again, ids = rebuilt(model, V + 3, **options), random_ids(40)
    with torch.no_grad():
        assert torch.equal(packed(cast(Any, again), ids, (33, 7)), packed(model, ids, (33, 7)))


def test_a_saved_run_is_scored_where_the_folder_of_its_backbone_is_not(tmp_path: Path) -> None:
    HuggingFaceBackbone(300, config=FAMILIES["llama"]).model.save_pretrained(tmp_path / "base")
    run, registry = tmp_path / "run", ticks_registry()
    backbone = {"name": "hf", "model": str(tmp_path / "base"), "freeze": True}
    train_model(small_run(run, backbone=backbone, train={"steps": 2}), registry=registry)
    document = Document("d", (Text("abc"),))
    text = generate_text(load_run(run, device="cpu", registry=registry).composition, document, max_new_tokens=9)
    shutil.rmtree(tmp_path / "base")
    (tmp_path / "elsewhere").mkdir()
    for name in ("run.yaml", "model.yaml", "plugins.lock.json", "tokenizer", "checkpoints"):
        (run / name).rename(tmp_path / "elsewhere" / name)
    saved = load_run(tmp_path / "elsewhere", device="cpu", registry=registry)
    assert generate_text(saved.composition, document, max_new_tokens=9) == text
    assert saved.composition.config.backbone.freeze


def test_a_saved_run_needs_the_configuration_of_its_backbone_and_not_its_weights(tmp_path: Path) -> None:
    HuggingFaceBackbone(300, config=FAMILIES["llama"]).model.save_pretrained(tmp_path / "base")
    run, registry = tmp_path / "run", ticks_registry()
    config = small_run(run, backbone={"name": "hf", "model": str(tmp_path / "base")}, train={"steps": 2})
    train_model(config, registry=registry)
    before = load_run(run, device="cpu", registry=registry).composition.model.state_dict()
    (tmp_path / "base" / "model.safetensors").unlink()
    after = load_run(run, device="cpu", registry=registry).composition.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    resume_run(run, {"train": {"steps": 3}}, registry=registry)
    assert len(rows_of(run / "metrics.jsonl")) == 3
