"""Tokenizers of Hugging Face: trained, loaded, and never reading a special token from text."""

from __future__ import annotations

import base64
import json
import pickle
import string
import struct
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from kosmos.data.marks import CORE_MARKS
from kosmos.data.text_stream import REPLACEMENT, TextStream
from kosmos.data.tokenizer import load_tokenizer, train_tokenizer
from kosmos.errors import ConfigError, SampleError

MARKS = ("<image>", "</image>", "<audio>")
TEXTS = ["The cat sat on the mat. <s> 12 <image> times, said the cat.", "Ein Hut, ein Stock. été\n"] * 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    train_tokenizer(iter(TEXTS), vocab_size=290, folder=folder)
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    return load_tokenizer(str(folder), MARKS)


def llama_like(folder):
    """BPE with byte fallback, a prefix space, native <s>, </s>, <unk> and a native chat mark: as Llama 2 is."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_tokens([AddedToken("<|user|>", special=False)])
    tokenizer.enable_truncation(4)
    return write(folder, tokenizer, bos_token="<s>", eos_token={"content": "</s>", "__type": "AddedToken"})


def unigram(folder):
    """Unigram whose pieces of text include its special tokens: as T5 is."""
    letters = sorted({*string.printable, "▁"} - {" "})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((c, -5.0) for c in letters)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return write(folder, tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def gpt2_like(folder):
    """Byte-level BPE with one native token for everything, and a prefix space."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return write(folder, tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def write(folder, tokenizer, **config):
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, **config})
    )
    return load_tokenizer(str(folder), MARKS)


@pytest.fixture(params=[llama_like, unigram, gpt2_like])
def native(request, tmp_path):
    return request.param(tmp_path / "native")


def pieces_of(tokenizer, ids):
    pieces = []
    stream = TextStream(tokenizer, pieces.append)
    for token in ids:
        stream.add(token)
    stream.end()
    return pieces


def special_ids(tokenizer):
    return {tokenizer.mark_id(mark) for mark in (*CORE_MARKS, *MARKS)}


@given(st.text())
def test_text_comes_back(trained, text):
    assert trained.decode(trained.encode(text)) == text


SPELLINGS = st.lists(st.sampled_from([*CORE_MARKS, *MARKS, "<", "|", ">", "a", " ", "\n"]), max_size=8).map("".join)


@given(SPELLINGS)
def test_forged_marks_stay_text(trained, text):
    ids = trained.encode(text)
    assert not special_ids(trained) & set(ids)
    assert trained.decode(ids) == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.text(max_size=12))
def test_a_text_comes_in_pieces_of_whole_characters(native, text):
    with suppress(SampleError):  # Unigram cannot spell all of them
        ids = native.encode(text)
        assert "".join(pieces := pieces_of(native, ids)) == native.decode(ids)
        assert text.count(REPLACEMENT) == sum(piece.count(REPLACEMENT) for piece in pieces)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(SPELLINGS)
def test_forged_marks_of_other_tokenizers_stay_text(native, text):
    ids = native.encode(text)
    assert not special_ids(native) & set(ids)
    assert native.decode(ids) == text


def test_native_special_tokens_stay_text(tmp_path):
    for make, spelled in (
        (gpt2_like, "<|endoftext|>"),
        (llama_like, "</s>"),
        (llama_like, "<|user|>"),
        (unigram, "</s>"),
    ):
        tokenizer = make(tmp_path / make.__name__)
        ids = tokenizer.encode(f"a{spelled}b")
        assert not special_ids(tokenizer) & set(ids)
        assert tokenizer.decode(ids) == f"a{spelled}b"


class Watched(str):
    """A text that counts how often it is compared at a place, or searched."""

    asked = 0

    def startswith(self, *given):
        Watched.asked += 1
        return super().startswith(*given)

    def find(self, *given):
        Watched.asked += 1
        return super().find(*given)


def test_a_long_text_that_spells_a_special_token_is_searched_once_for_each_of_them(tmp_path, monkeypatch):
    tokenizer = unigram(tmp_path / "unigram")
    text = "x" * 5000 + "</s>" + "y" * 5000
    monkeypatch.setattr(Watched, "asked", 0)
    ids = tokenizer.encode(Watched(text))
    assert tokenizer.decode(ids) == text
    assert 0 < Watched.asked < 50


def test_text_that_cannot_be_spelt_without_a_special_token_costs_its_sample(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "x": 1, "a": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["x"])
    found = write(tmp_path / "words", tokenizer, unk_token="[UNK]")
    assert found.encode("a a") == [2, 2]
    with pytest.raises(SampleError, match="text gives the special token 'x'"):
        found.encode("a x")


def test_native_tokens_stand_for_the_core_marks(tmp_path):
    llama, gpt2 = llama_like(tmp_path / "llama"), gpt2_like(tmp_path / "gpt2")
    assert [llama.mark_id(mark) for mark in ("<s>", "</s>")] == [1, 2]
    assert (
        gpt2.mark_id("<s>")
        == gpt2.mark_id("</s>")
        == json.loads((tmp_path / "gpt2" / "tokenizer.json").read_text())["added_tokens"][0]["id"]
    )
    assert unigram(tmp_path / "unigram").mark_id("<pad>") == 0
    with pytest.raises(ConfigError, match="no mark '<video>'"):
        llama.mark_id("<video>")


def test_marks_are_different_tokens_behind_the_vocabulary(native):
    added = [native.mark_id(mark) for mark in MARKS]
    assert len(set(added)) == len(MARKS)
    assert max(special_ids(native)) == native.vocab_size - 1


def test_no_space_is_added_between_texts_and_nothing_is_truncated(native):
    whole = "The cat sat on the mat"
    parts = ["The cat", " sat on", " the mat"]
    assert native.decode([i for part in parts for i in native.encode(part)]) == whole
    assert native.decode(native.encode(whole)) == whole
    assert native.decode(native.encode(" the")) == " the"


def test_decode_leaves_special_and_unknown_ids_out(native):
    ids = [native.mark_id("<s>"), *native.encode("cat"), native.mark_id("<image>"), native.vocab_size + 7, -1]
    assert native.decode([*ids, native.mark_id("</s>")]) == "cat"


def test_saved_tokenizer_gives_the_same_ids(native, tmp_path):
    native.save(tmp_path / "saved")
    again = load_tokenizer(str(tmp_path / "saved"), ["<video>"])
    for mark in (*CORE_MARKS, *MARKS):
        assert again.mark_id(mark) == native.mark_id(mark)
    text = "The cat sat <s> on 12 mats."
    assert again.encode(text) == native.encode(text)
    assert again.mark_id("<video>") == native.vocab_size == again.vocab_size - 1


def test_pickled_tokenizer_works_in_another_process_without_torch(trained, tmp_path):
    (tmp_path / "tokenizer.pickle").write_bytes(pickle.dumps(trained))
    program = (
        f"import pickle, sys; t = pickle.load(open({str(tmp_path / 'tokenizer.pickle')!r}, 'rb'))\n"
        "heavy = [m for m in ('torch', 'transformers') if m in sys.modules]\n"
        "print(t.encode('The cat <s>'), t.mark_id('<audio>'), heavy)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == f"{trained.encode('The cat <s>')} {trained.mark_id('<audio>')} []\n"


def test_trained_tokenizer_is_one_of_transformers(folder, trained):
    transformers = pytest.importorskip("transformers")
    found = transformers.AutoTokenizer.from_pretrained(folder)
    assert found.encode("The cat", add_special_tokens=False) == trained.encode("The cat")
    assert (found.bos_token, found.eos_token, found.pad_token) == ("<s>", "</s>", "<pad>")
    assert len(found) == trained.vocab_size - len(MARKS) == 290


def test_folder_without_tokenizer_json_is_read_by_transformers(trained, folder, tmp_path):
    pytest.importorskip("transformers")
    content = json.loads((folder / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(content["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in content["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges + "\n")
    config = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = load_tokenizer(str(tmp_path), MARKS)
    assert found.encode("The cat sat <s>") == trained.encode("The cat sat <s>")
    assert found.mark_id("<s>") == trained.mark_id("<s>")


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./nowhere", "nobody/nothing", "a/b/c"])
def test_missing_tokenizer_is_one_line(name):
    with pytest.raises(ConfigError, match=f"tokenizer '{name}'") as caught:
        load_tokenizer(name, [])
    assert "\n" not in caught.value.line()


def test_a_name_that_may_be_a_folder_or_an_id_is_said_to_be_neither(monkeypatch):
    monkeypatch.setattr("kosmos.data.hf_tokenizer.unreachable_hub", lambda: None)  # as where HF_HUB_OFFLINE is set
    with pytest.raises(ConfigError, match="'nobody/nothing': no such folder, and as an id of the hub: "):
        load_tokenizer("nobody/nothing", [])


def test_a_file_is_said_to_be_no_folder(folder, tmp_path):
    with pytest.raises(ConfigError, match=rf"json': is a file; .* is named by its folder.* \(tokenizer: {folder}\)$"):
        load_tokenizer(str(folder / "tokenizer.json"), [])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"is a file; .* by its folder, in which the file is tokenizer.json$"):
        load_tokenizer(str(tmp_path / "other.json"), [])


def test_a_folder_without_a_tokenizer_is_said_to_have_none(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"no tokenizer is in this folder \(no tokenizer.json\); give a folder that"):
        load_tokenizer(str(tmp_path), [])


def test_what_transformers_makes_no_tokenizer_of_is_said_to_its_end(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"from one of: .*serialization file") as caught:
        load_tokenizer(str(tmp_path), [])
    assert "\n" not in str(caught.value)


def test_a_tokenizer_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file: cannot write \(File exists\); name another"):
        train_tokenizer(TEXTS, vocab_size=290, folder=tmp_path / "file")


def test_damaged_tokenizer_is_one_line(tmp_path):
    for content in ("{", "{}", '{"model": 3}'):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(ConfigError, match=r"tokenizer.json cannot be used") as caught:
            load_tokenizer(str(tmp_path), [])
        assert "\n" not in caught.value.line()


BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "b\U0001f642": 3}, "merges": []}
AMISS = {
    "pre_tokenizer": {"type": "FixedLength", "length": 0},
    "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="},
    "model": {**BPE, "merges": ["a b"], "continuing_subword_prefix": "\U0001f642"},
}


def of_parts(folder, **parts):
    """A tokenizer of a and b, with these parts."""
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    content = {"version": "1.0", "added_tokens": [], **empty, "model": BPE, **parts}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return load_tokenizer(str(folder), [])


@pytest.mark.parametrize("part", AMISS)
def test_a_tokenizer_at_which_the_library_panics_is_one_line(tmp_path, part, monkeypatch):
    monkeypatch.setenv("RUST_BACKTRACE", "0")  # it takes seconds
    with pytest.raises(ConfigError, match=r"tokenizer.json cannot be used \(PanicException: ") as caught:
        of_parts(tmp_path, **{part: AMISS[part]})
    assert "\n" not in caught.value.line()


def test_a_text_at_which_the_library_panics_costs_its_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("RUST_BACKTRACE", "0")
    ascii_alone = base64.b64encode(struct.pack("<I", 512) + bytes(512)).decode()
    of_ascii = of_parts(tmp_path, normalizer={"type": "Precompiled", "precompiled_charsmap": ascii_alone})
    assert of_ascii.encode("ab") == [0, 1]
    with pytest.raises(SampleError, match=r"the tokenizer fails at this text \(PanicException: index out of bounds"):
        of_ascii.encode("\u00e9")


def test_training_tells_how_many_tokens_there_are(tmp_path):
    assert train_tokenizer(["aa"], vocab_size=4000, folder=tmp_path / "few") == 264  # bytes, marks and "aa"
    assert train_tokenizer(TEXTS, vocab_size=290, folder=tmp_path / "all") == 290


def test_training_needs_room_and_text(tmp_path):
    with pytest.raises(ConfigError, match="vocab_size: expected at least 263"):
        train_tokenizer(["x"], vocab_size=262, folder=tmp_path)
    with pytest.raises(ConfigError, match="there is no text to train on"):
        train_tokenizer(["", ""], vocab_size=300, folder=tmp_path)
