"""Data that are tokenized already: numbers that mean something to another tokenizer alone, and are not read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kosmos.data.sources.file_names import suffix_of

FILES = (".bin", ".idx")
"""Suffixes of files of token numbers, as nanoGPT and Megatron write them."""
OF_TOKENIZERS = ("input_ids", "token_ids")
"""Columns of token numbers, as transformers and others call them."""
DECODE = "Kosmos reads text, which it tokenizes itself: decode them with the tokenizer that made them"


def are_token_numbers(values: Sequence[Any], what: str) -> bool:
    """Whether a list is the tokens of a text, by its name: other lists of numbers may be what is to be learned.

    Args:
        what: its column or nested path.
    """
    named = what.rpartition(".")[2] in OF_TOKENIZERS
    return named and all(type(value) is int for value in values)  # a bool is an int, too


def told_of_columns(columns: Collection[str]) -> str:
    """The end of a message on a table without a text, which may hold token numbers; empty where none seems to."""
    if found := next((name for name in OF_TOKENIZERS if name in columns), None):
        return f"; {found!r} are token numbers of another tokenizer, and {DECODE}"
    if "tokens" in columns:
        return f"; if 'tokens' are token numbers of another tokenizer: {DECODE}"
    return ""


def told_of_files(files: Collection[str]) -> str:
    """What to say of files in the place of data; empty where none of them seems to hold token numbers."""
    found = next((name for name in files if suffix_of(name) in FILES), None)
    if found is None:
        return ""
    suffix = suffix_of(found)
    return f"{suffix} files hold token numbers of another tokenizer (nanoGPT, Megatron), which are not read; {DECODE}"
