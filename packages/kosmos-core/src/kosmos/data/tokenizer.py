"""Tokenizers: bytes (built in), or any Hugging Face tokenizer by folder or id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kosmos.data.bytes_tokenizer import ByteTokenizer, saved_byte_marks


class Tokenizer(Protocol):
    """Text to token ids and back. Picklable, torch-free."""

    vocab_size: int

    @property
    def special_ids(self) -> Mapping[str, int]:
        """Special tokens, its own and the marks, by their names."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: what looks like a special token in it stays plain text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens are left out."""
        ...

    def decode_cut(self, ids: Sequence[int]) -> str:
        """As ``decode``, of ids behind which more would have come: without the bytes at their end that begin a
        character and do not end it."""
        ...

    def mark_id(self, name: str) -> int:
        """Id of a special token, of ``CORE_MARKS`` or a modality's."""
        ...

    def save(self, folder: Path) -> None:
        """Write what ``load_tokenizer`` needs to give the same ids again."""
        ...


def load_tokenizer(name: str, marks: Sequence[str] = (), *, spelled: str = "") -> Tokenizer:
    """The tokenizer ``name``, with ``CORE_MARKS`` and ``marks`` as special tokens.

    Args:
        name: ``bytes``, a folder (saved by ``Tokenizer.save`` or by transformers), or an id of the hub.
        marks: special tokens of the modalities, such as ``<image>``. A saved tokenizer keeps the ids of its own
            and takes new ones at the end.
        spelled: around turns of chats. What it holds of tokens that were added to the vocabulary is special from then
            on, so that no text becomes one.

    Raises:
        ConfigError: no such tokenizer, or one that would need remote code.
    """
    if name == "bytes":
        return ByteTokenizer(tuple(marks))
    if (saved := saved_byte_marks(Path(name))) is not None:
        return ByteTokenizer((*saved, *marks))
    from kosmos.data.hf_tokenizer import load_hf_tokenizer

    return load_hf_tokenizer(name, marks, spelled)


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, folder: Path) -> int:
    """Train byte-level BPE on ``texts`` and write it to ``folder``, in the form of transformers.

    Args:
        texts: any number of stretches of text; read once.
        vocab_size: tokens at most, ``CORE_MARKS`` included; at least 256 and the marks.
        folder: made where it is not there.

    Returns:
        Tokens of the vocabulary: fewer than ``vocab_size`` where the texts have no more to merge.

    Raises:
        ConfigError: ``vocab_size`` is too small, or there is no text.
    """
    from kosmos.data.hf_tokenizer import train_bpe

    return train_bpe(texts, vocab_size=vocab_size, folder=folder)
