"""A stage with other modalities than the first: rows of tokens are taken by name, those of new marks drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos import load_run, train_model
from kosmos.checkpoint.tensors import OPTIMIZER, read_whole
from kosmos.compose import compose
from kosmos.data.marks import CORE_MARKS
from kosmos.data.tokenizer import load_tokenizer, train_tokenizer
from kosmos.errors import ConfigError
from kosmos.train.initial_tokens import moved_tokens, token_rows
from kosmos.train.progress import ConsoleReporter
from kosmos.train.saved import open_checkpoint
from support.backbones import BACKBONES
from support.runs import small_run, ticks_registry

STILL = {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0, "seed": 5}
TEXTS = {"modalities": [], "data": {"sources": ["sums"]}}


def trained(output: Path, **over: object) -> Path:
    train_model(small_run(output, **over), registry=ticks_registry(), reporter=ConsoleReporter())
    return output


def tensors(run: Path) -> dict[str, torch.Tensor]:
    found = load_run(run, device="cpu", registry=ticks_registry(), merge=True)
    return dict(found.composition.model.state_dict())


def rows_by_token(run: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Of each tensor with a row for each token."""
    found = load_run(run, device="cpu", registry=ticks_registry()).composition
    names = [name for name, t in found.model.state_dict().items() if len(t) == found.tokenizer.vocab_size]
    ids = {**{f"byte {i}": i for i in range(256)}, **found.tokenizer.special_ids}
    return {n: {token: found.model.state_dict()[n][i] for token, i in ids.items()} for n in names}


@pytest.mark.parametrize("backbone", ["decoder", "tied", "hf", "lora"])
def test_a_text_model_takes_a_modality_and_lets_it_go(tmp_path: Path, backbone: str, capsys) -> None:
    own = {"tied": {"tie_embeddings": True}, "hf": BACKBONES["hf"], "lora": {"lora": 4}}.get(backbone, {})
    texts = trained(tmp_path / "texts", backbone=own, **TEXTS)
    capsys.readouterr()
    more = trained(tmp_path / "more", backbone=own, init=str(texts), train=STILL)
    told = " ".join(capsys.readouterr().err.split())
    before, after = rows_by_token(texts), rows_by_token(more)
    assert before.keys() == after.keys() and before
    new = {token for rows in after.values() for token in rows} - {token for rows in before.values() for token in rows}
    assert new and all(name in told for name in new) and "begin as the mean of the others: the rows of " in told
    for name, rows in before.items():
        assert all(torch.allclose(after[name][token], row, atol=1e-6) for token, row in rows.items())
        mean = torch.stack(list(rows.values())).mean(0)
        assert all(torch.allclose(after[name][token], mean, atol=1e-5) for token in new)
    again = trained(tmp_path / "again", backbone=own, init=str(more), train=STILL, **TEXTS)
    assert "left there: the rows of " in " ".join(capsys.readouterr().err.split())
    for name, tensor in tensors(again).items():
        assert torch.allclose(tensor, tensors(texts)[name], atol=1e-6)


def test_what_has_other_rows_begins_without_a_state_of_the_optimizer(tmp_path: Path) -> None:
    texts = trained(tmp_path / "texts", **TEXTS)
    train = {"steps": 1, "optimizer": {"name": "lion", "betas": [0.9, 1.0]}}
    more = trained(tmp_path / "more", init={"path": str(texts), "optimizer": True}, train=train)
    state = read_whole(open_checkpoint(more)[1].tensors, OPTIMIZER)
    assert not state["backbone.embedding.weight/exp_avg"].any()
    assert any(tensor.any() for name, tensor in state.items() if name.startswith("backbone.blocks"))


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer") / "bpe"
    train_tokenizer(["one two three four"] * 9, vocab_size=280, folder=folder)
    return folder


def saved(folder: Path, name: str, marks: tuple[str, ...]) -> Path:
    load_tokenizer(name, marks).save(folder)
    return folder


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_tokens_are_found_by_their_names_in_any_order(tmp_path: Path, bpe: Path, kind: str) -> None:
    name = "bytes" if kind == "bytes" else str(bpe)
    old = saved(tmp_path / "old", name, ("<a>", "<b>", "<c>"))
    new = saved(tmp_path / "new", name, ("<c>", "<d>", "<a>"))
    assert moved_tokens(old, saved(tmp_path / "same", name, ("<a>", "<b>", "<c>")), tmp_path) is None
    found = moved_tokens(old, new, tmp_path)
    assert found is not None and ([*found.new], found.left) == (["<d>"], ("<b>",))
    there, here = (load_tokenizer(str(folder)) for folder in (old, new))
    ids = {int(i): int(j) for i, j in zip(found.there, found.here, strict=True)}
    assert all(ids[there.mark_id(mark)] == here.mark_id(mark) for mark in (*CORE_MARKS, "<a>", "<c>"))
    assert len(ids) == there.vocab_size - 1 and all(ids[i] == i for i in range(256))
    taken = found.taken(torch.full((here.vocab_size,), -1.0), torch.arange(there.vocab_size).float())
    assert taken[here.mark_id("<c>")] == there.mark_id("<c>")
    assert taken[here.mark_id("<d>")] == pytest.approx(float(found.there.float().mean()))


def test_another_vocabulary_is_refused(tmp_path: Path, bpe: Path) -> None:
    train_tokenizer(["five six seven eight"] * 9, vocab_size=280, folder=tmp_path / "other")
    for name in ("bytes", str(tmp_path / "other")):
        with pytest.raises(ConfigError, match=r"init: the tokens of .* are others: .*; give this run the same "):
            moved_tokens(saved(tmp_path / "old", str(bpe), ()), saved(tmp_path / name[-5:], name, ()), tmp_path)


def test_where_as_many_tokens_are_others_only_the_tables_of_tokens_are_theirs() -> None:
    tokens = compose(small_run(), ticks_registry()).tokenizer.vocab_size
    composed = compose(small_run(backbone={"ffn_width": tokens}), ticks_registry())
    shapes = {name: tuple(t.shape) for name, t in composed.model.named_parameters() if name.startswith("backbone")}
    alike = [name for name, shape in shapes.items() if shape == (tokens, 32)]
    tables = ["backbone.embedding.weight", "backbone.head.weight"]
    assert token_rows(composed.model, shapes, shapes) == tables and set(tables) < set(alike)


GPT2 = {"model_type": "gpt2", "vocab_size": 512, "n_positions": 512, "n_embd": 32, "n_layer": 1, "n_head": 2}


def test_a_table_of_as_many_positions_stays_as_it_is(tmp_path: Path) -> None:
    own = {"name": "hf", "config": GPT2}
    before = tensors(trained(tmp_path / "texts", backbone=own, **TEXTS))
    after = tensors(trained(tmp_path / "more", backbone=own, init=str(tmp_path / "texts"), train=STILL))
    (positions,) = [name for name, tensor in before.items() if name.endswith("wpe.weight")]
    assert len(before[positions]) == 512 and torch.allclose(after[positions], before[positions], atol=1e-6)
