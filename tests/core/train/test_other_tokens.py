"""A language model that has learned is warned of where the run's tokens are not those that it knows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken, Tokenizer

from kosmos import make_run
from kosmos.data.tokenizer import load_tokenizer, train_tokenizer
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.train import other_tokens
from kosmos.train.doubts import doubts

TEXTS = {"model": "the cat sat on the mat", "other": "quick brown foxes jump over lazy dogs"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokenizers of as many tokens: ``model``, ``other``, and ``more``, which has 400 beside those of ``model``."""
    folder = tmp_path_factory.mktemp("tokenizers")
    for name, text in TEXTS.items():
        train_tokenizer([f"{text}. "] * 9, vocab_size=275, folder=folder / name)
    shutil.copytree(folder / "model", folder / "more")
    more = Tokenizer.from_file(str(folder / "more" / "tokenizer.json"))
    more.add_tokens([AddedToken(f"<|{number}|>") for number in range(400)])
    more.save(str(folder / "more" / "tokenizer.json"))
    return folder


def said(folders: Path, tokenizer: str, *, grown: int = 0, model: str = "", **over: object) -> list[str]:
    name = str(folders / tokenizer)
    backbone = {"name": "hf", "model": model or str(folders / "model"), **over.pop("backbone", {})}
    config = make_run({"modalities": ["text"], "tokenizer": name, "backbone": backbone}, over)
    found = doubts(
        config, (), resumed=False, tokenizer=load_tokenizer(name), backbone=SimpleNamespace(grown=grown)
    )  # fmt: skip
    return [line for line in found if line.startswith("backbone.model")]


def test_a_tokenizer_of_as_many_other_tokens_is_told(folders: Path) -> None:
    assert said(folders, "model") == said(folders, "more") == []
    assert said(folders, "other") == [
        f"backbone.model {folders}/model has learned tokens of its own, and tokenizer {folders}/other has others under "
        f"most of their numbers: set tokenizer={folders}/model"
    ]


def test_bytes_that_a_folder_holds_are_other_tokens_too(folders: Path) -> None:
    load_tokenizer("bytes").save(folders / "bytes")
    (line,) = said(folders, "bytes")
    assert f"tokenizer {folders}/bytes has others under most" in line


def test_a_tokenizer_that_does_not_tell_its_tokens_is_not_held_to_have_others(folders: Path) -> None:
    class Untold:
        vocab_size = 275
        vocabulary = dict

    backbone = {"name": "hf", "model": str(folders / "model")}
    config = make_run({"modalities": ["text"], "tokenizer": str(folders / "other"), "backbone": backbone})
    silent = Untold(), SimpleNamespace(vocab_size=275)
    for tokenizer in silent:
        assert list(other_tokens.warnings_of(config, tokenizer, SimpleNamespace(grown=0))) == []  # type: ignore[arg-type]
        (line,) = other_tokens.warnings_of(config, tokenizer, SimpleNamespace(grown=9))  # type: ignore[arg-type]
        assert "has no embeddings for 9 of the 275 tokens" in line


def test_weights_that_were_not_read_or_come_of_a_run_have_learned_none_of_them(folders: Path, tmp_path: Path) -> None:
    assert said(folders, "other", backbone={"pretrained": False}) == said(folders, "other", init=str(tmp_path)) == []


def test_an_embedding_that_grew_by_more_than_the_marks_is_told(folders: Path) -> None:
    assert said(folders, "more", grown=7) == []
    (line,) = said(folders, "more", grown=400)
    assert line.startswith(f"backbone.model {folders}/model has no embeddings for 400 of the 675 tokens of tokenizer ")


def test_the_backbone_knows_how_many_embeddings_are_new(tmp_path: Path) -> None:
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    made = HuggingFaceBackbone(20, config={"model_type": "llama", "num_key_value_heads": 1, **small})
    assert made.grown == 0
    made.to_transformers(16).save_pretrained(tmp_path)
    assert [HuggingFaceBackbone(size, model=str(tmp_path)).grown for size in (12, 20, 32)] == [0, 0, 12]


def test_a_model_of_the_hub_is_looked_up_in_what_was_downloaded_and_never_fetched(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"my/model": str(folders / "model" / "tokenizer.json")}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda model, file: there.get(model))
    assert said(folders, "model", model="my/model") == said(folders, "other", model="my/absent") == []
    (line,) = said(folders, "other", model="my/model")
    assert line.endswith("set tokenizer=my/model")


@pytest.mark.parametrize("content", ["{", "[]", '{"model": 3}', '{"model": {"vocab": [3]}}', '{"model": {"vocab": 3}}'])
def test_files_that_do_not_tell_cost_nothing(folders: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    assert said(folders, "other", model=str(tmp_path)) == []


def test_pieces_with_scores_have_the_numbers_of_their_places(tmp_path: Path) -> None:
    whole = {"model": {"vocab": [["<unk>", 0], ["ab", -1.5]]}, "added_tokens": [{"id": 2, "content": "<s>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert other_tokens._vocabulary_of(str(tmp_path)) == {"<unk>": 0, "ab": 1, "<s>": 2}
