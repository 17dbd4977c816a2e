"""What tokenizers that two runs have saved have in common: the ids of tokens, and how text becomes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.data.bytes_tokenizer import BYTES, FILE, saved_byte_marks
from kosmos.data.foreign import first_line, panicked
from kosmos.data.marks import BOS, EOS, PAD
from kosmos.errors import ConfigError
from kosmos.train.order import differences

TOKENIZER = "tokenizer.json"
ADDED = "added tokens"
MATCHED = ("single_word", "lstrip", "rstrip", "normalized")
"""How an added token is looked for in a text. Whether it is special is a matter of what is shown."""
_LONGEST = 80
"""Characters of a value in a message."""


class SavedTokens(NamedTuple):
    """A tokenizer, by the folder of a run."""

    ids: dict[str, int]
    """Tokens by their names, in the order of their ids, added ones and marks among them."""
    spelling: dict[str, Any]
    """By name, what says how text becomes tokens, and which tokens begin, end and fill."""


def same_files(one: Path, other: Path) -> bool:
    """Whether two folders hold the same tokenizer to the byte, which is seen without reading what is in it."""
    return all(_content(one / name) == _content(other / name) for name in (TOKENIZER, FILE))


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def read_tokens(folder: Path) -> SavedTokens:
    """The tokenizer that a run has saved.

    Raises:
        ConfigError: it is not there, or damaged.
    """
    if (marks := saved_byte_marks(folder)) is not None:
        names = [*(f"<0x{byte:02X}>" for byte in range(BYTES)), *marks]
        return SavedTokens({name: place for place, name in enumerate(names)}, {"tokens": "bytes"})
    if not (folder / TOKENIZER).is_file():
        raise ConfigError(
            f"{folder}: no tokenizer is here (no {TOKENIZER}), so that nothing tells which tokens the run has learned; "
            "bring it back"
        )
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(folder / TOKENIZER))
        # As the library writes it today: with defaults that one file states and another leaves out.
        content: dict[str, Any] = json.loads(backend.to_str())
        ids: dict[str, int] = backend.get_vocab(with_added_tokens=True)
        native = json.loads((folder / FILE).read_text(encoding="utf-8"))["names"] if (folder / FILE).is_file() else {}
        native = {f"token for {mark}": native.get(mark, mark) for mark in (BOS, EOS, PAD)}
    except BaseException as error:  # the library raises bare exceptions on what it cannot read, and panics
        if not (isinstance(error, Exception) or panicked(error)):
            raise
        raise ConfigError(f"{folder}: its tokenizer is damaged ({first_line(error)}); bring it back") from error
    ordered = dict(sorted(ids.items(), key=lambda token: token[1]))
    return SavedTokens(ordered, {"tokens": "a vocabulary", **_spelling(content), **native})


def _spelling(content: Mapping[str, Any]) -> dict[str, Any]:
    """Of a ``tokenizer.json`` what has a say in how a run spells text.

    Not the post-processor, which puts special tokens around a text: a run puts its marks there itself. Nor where texts
    are cut and filled up, which a run does not have done.
    """
    model = dict(content["model"])
    kind, vocabulary, merges = (model.pop(name, None) for name in ("type", "vocab", "merges"))
    decoder = content.get("decoder")
    if (
        isinstance(decoder, Mapping) and decoder.get("type") == "ByteLevel"
    ):  # whose options have no effect on what it reads
        decoder = {"type": "ByteLevel"}
    return {
        "model": kind, "vocabulary": vocabulary, "merges": merges, **model, "normalizer": content.get("normalizer"),
        "pre_tokenizer": content.get("pre_tokenizer"), "decoder": decoder,
        ADDED: {token["content"]: {how: bool(token.get(how)) for how in MATCHED} for token in content["added_tokens"]},
    }  # fmt: skip


def difference(there: SavedTokens, here: SavedTokens) -> str | None:
    """What of two tokenizers spells text otherwise, in words; None where all is the same but for added tokens."""
    one, other = there.spelling, here.spelling
    for name in dict.fromkeys([*one, *other]):
        then, now = one.get(name), other.get(name)
        if name == ADDED:  # which may be more
            both = sorted({*(then or ())} & {*(now or ())})
            then, now = ({token: found[token] for token in both} for found in (then or {}, now or {}))
        if then != now:
            if name == "vocabulary" and then and now:
                return _of_vocabularies(_pieces(then), _pieces(now))
            if name == "merges" and then and now:
                return _of_merges(then, now)
            path, then, now = next(differences(then, now, name), (name, then, now))
            return f"{path}: {_shown(then)} there, {_shown(now)} here"
    return None


def _pieces(vocabulary: Any) -> dict[str, Any]:
    """Tokens to their ids, or to their ids and scores."""
    if isinstance(vocabulary, Mapping):
        return dict(vocabulary)
    return {piece: (number, score) for number, (piece, score) in enumerate(vocabulary)}


def _of_vocabularies(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    whats = []
    for where, one, other in (("there", then, now), ("here", now, then)):
        if only := [name for name in one if name not in other]:
            whats.append(f"{len(only):,} only {where}, such as {only[0]!r}")
    if not whats:
        name = next(name for name in then if then[name] != now[name])
        whats.append(f"{name!r} is {_shown(then[name])} there, {_shown(now[name])} here")
    return f"vocabulary: {', '.join(whats)}"


def _of_merges(then: Sequence[Any], now: Sequence[Any]) -> str:
    if len(then) != len(now):
        return f"merges: {len(then):,} there, {len(now):,} here"
    number = next(n for n, (one, other) in enumerate(zip(then, now, strict=True)) if one != other)
    return f"merges: number {number + 1:,} is {_shown(then[number])} there, {_shown(now[number])} here"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
