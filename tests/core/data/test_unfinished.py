"""A limit on tokens may cut through a character: of it nothing is shown, of other broken bytes U+FFFD."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kosmos.data.bytes_tokenizer import ByteTokenizer
from kosmos.data.hf_tokenizer import of_bytes
from kosmos.data.text_stream import StoppedText
from kosmos.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer

BYTES = ByteTokenizer()


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    folder = tmp_path_factory.mktemp("bpe")
    train_tokenizer(["a👨 b é中"] * 3, vocab_size=275, folder=folder)
    return [BYTES, of_bytes(BYTES), load_tokenizer(str(folder))]


@given(text=st.text("ab é中👨\N{REPLACEMENT CHARACTER}", max_size=6), kept=st.integers(0, 24))
@example(text="a👨", kept=4)
def test_what_a_limit_leaves_is_whole_characters_and_so_is_the_stream(
    tokenizers: list[Tokenizer], text: str, kept: int
) -> None:
    for tokenizer in tokenizers:
        ids = tokenizer.encode(text)[:kept]
        cut, told = tokenizer.decode_cut(ids), list[str]()
        if tokenizer is tokenizers[1]:  # which shows all bytes in a row as broken where one is
            assert cut == bytes(ids).decode(errors="ignore")
        else:
            assert text.startswith(cut) and tokenizer.decode(ids) in (cut, f"{cut}\N{REPLACEMENT CHARACTER}")
        stream = StoppedText(tokenizer, (), told.append)
        for token in ids:
            stream.add(token)
        stream.end(cut=True)
        assert "".join(told) == cut


@pytest.mark.parametrize(
    ("written", "shown"),
    [(b"a\x80", "a\ufffd"), (b"\xf0\x9fb", "\ufffdb"), (b"\x80\xf0\x9f", "\ufffd"), ("a\ufffd".encode(), "a\ufffd")],
)
def test_bytes_that_nothing_can_mend_stay_in_sight(written: bytes, shown: str) -> None:
    assert BYTES.decode_cut(list(written)) == shown
