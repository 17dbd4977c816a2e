"""Which tokenizers of two runs are the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kosmos import train_model
from kosmos.data.tokenizer import load_tokenizer, train_tokenizer
from kosmos.errors import ConfigError
from kosmos.train.initial_tokens import moved_tokens
from support.runs import small_run

TEXTS = {"modalities": [], "data": {"sources": ["sums"]}, "train": {"steps": 1}}


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer") / "bpe"
    train_tokenizer(["one two three four"] * 9, vocab_size=280, folder=folder)
    return folder


def changed(bpe: Path, folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy whose ``tokenizer.json`` was changed."""
    shutil.copytree(bpe, folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def test_one_that_transformers_saved_again_is_the_same_and_may_have_grown(bpe: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    again = AutoTokenizer.from_pretrained(str(bpe))
    again.save_pretrained(tmp_path / "again")
    again.add_tokens(["one two"])
    again.save_pretrained(tmp_path / "grown")
    for name in ("again", "grown"):  # as runs save what they were given
        load_tokenizer(str(tmp_path / name)).save(tmp_path / f"of-{name}")
    written = json.loads((tmp_path / "of-again" / "tokenizer.json").read_text())
    assert written["post_processor"] != json.loads((bpe / "tokenizer.json").read_text())["post_processor"]
    assert moved_tokens(bpe, tmp_path / "of-again", tmp_path) is None
    found = moved_tokens(bpe, tmp_path / "of-grown", tmp_path)
    assert found is not None and [*found.new] == ["one two"] and not found.left


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(padding={"strategy": "BatchLongest", "direction": "Right", "pad_id": 0,
                                                "pad_type_id": 0, "pad_token": "<pad>", "pad_to_multiple_of": None}),
        lambda content: content.update(truncation={"max_length": 8, "strategy": "LongestFirst", "stride": 0,
                                                   "direction": "Right"}),
        lambda content: content["pre_tokenizer"].pop("use_regex"),
        lambda content: [content["model"].pop(name) for name in ("dropout", "fuse_unk", "ignore_merges")],
        lambda content: content["decoder"].update(add_prefix_space=False),
        lambda content: content["model"].update(merges=[" ".join(pair) for pair in content["model"]["merges"]]),
    ],
)  # fmt: skip
def test_what_has_no_say_in_ids_makes_no_difference(bpe: Path, tmp_path: Path, change) -> None:
    assert moved_tokens(bpe, changed(bpe, tmp_path / "other", change), tmp_path) is None


def without_last_merge(content: dict[str, Any]) -> None:
    content["model"]["merges"].pop()


def one_token_more(content: dict[str, Any]) -> None:
    content["model"]["vocab"]["zz"] = len(content["model"]["vocab"])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda content: content.update(normalizer={"type": "NFC"}), r'normalizer: null there, {"type": "NFC"} here'),
        (
            lambda content: content["pre_tokenizer"].update(use_regex=False),
            r"pre_tokenizer\.use_regex: true there, false here",
        ),
        (lambda content: content["model"].update(byte_fallback=True), "byte_fallback: false there, true here"),
        (without_last_merge, r"merges: \d+ there, \d+ here"),
        (
            lambda content: content["added_tokens"][0].update(lstrip=True),
            r"added tokens\..*\.lstrip: false there, true here",
        ),
        (one_token_more, "vocabulary: 1 only here, such as 'zz'"),
    ],
)
def test_what_spells_text_otherwise_is_named(bpe: Path, tmp_path: Path, change, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"^init: the tokens of RUN are others: {what}.*; give this run the same "):
        moved_tokens(bpe, changed(bpe, tmp_path / "other", change), Path("RUN"))


def test_other_tokens_that_begin_and_end_texts_are_named(bpe: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(bpe, tmp_path / "other"))
    file = other / "kosmos_tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "names": {"</s>": "<|end|>"}}))
    with pytest.raises(ConfigError, match=r"are others: token for </s>: </s> there, <\|end\|> here; "):
        moved_tokens(bpe, other, tmp_path)


def test_a_run_that_has_lost_its_tokenizer_or_half_of_it_is_refused(bpe: Path, tmp_path: Path) -> None:
    train_model(small_run(tmp_path / "first", tokenizer=str(bpe), **TEXTS))
    lost = tmp_path / "first" / "tokenizer"
    (lost / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match=rf"^init: {lost}: its tokenizer is damaged \(.*\); bring it back$"):
        train_model(small_run(tmp_path / "second", init=str(tmp_path / "first"), tokenizer=str(bpe), **TEXTS))
    shutil.rmtree(lost)
    with pytest.raises(ConfigError, match=rf"^init: {lost}: no tokenizer is here \(no tokenizer\.json\), so that "):
        train_model(small_run(tmp_path / "second", init=str(tmp_path / "first"), tokenizer=str(bpe), **TEXTS))
    assert not (tmp_path / "second").exists()
