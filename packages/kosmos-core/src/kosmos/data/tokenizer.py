"""Tokenizers: bytes (built in), or any Hugging Face tokenizer by folder or id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

BOS, EOS, PAD = "<s>", "</s>", "<pad>"
SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
CORE_MARKS = (PAD, BOS, EOS, SYSTEM, USER, ASSISTANT, END)
"""Special tokens that every run has; modalities add their own."""


class Tokenizer(Protocol):
    """Text to token ids and back. Picklable, torch-free."""

    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: what looks like a special token in it stays plain text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens are left out."""
        ...

    def mark_id(self, name: str) -> int:
        """Id of a special token, of ``CORE_MARKS`` or a modality's."""
        ...

    def save(self, folder: Path) -> None:
        """Write what ``load_tokenizer`` needs to give the same ids again."""
        ...
