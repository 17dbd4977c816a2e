"""Hugging Face tokenizers: fast ones only, without code of their own, and torch-free where a ``tokenizer.json`` is.

Two things differ from what transformers does with the same files. Text never becomes a special token, whatever
it spells. And no space is put in front of a text (as sentencepiece does): a document's texts are tokenized one
by one, so a space that the data do not hold would stand between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from kosmos.data import unfinished
from kosmos.data.bytes_tokenizer import BYTES, FILE, ByteTokenizer, all_marks, unknown_mark
from kosmos.data.foreign import first_line, panicked
from kosmos.data.marks import BOS, CORE_MARKS, EOS, PAD
from kosmos.data.sources.reach import unreachable_hub
from kosmos.errors import ConfigError, SampleError, unwritable
from kosmos.names import did_you_mean

_NATIVE = {BOS: "bos_token", EOS: "eos_token", PAD: "pad_token"}
_OLDER = ("*tokenizer*", "*vocab*", "*.model", "*.spm", "*.codes", "dict.txt")
"""Files of which transformers makes a tokenizer where there is no ``tokenizer.json``."""


_SPACES = ("\N{LOWER ONE EIGHTH BLOCK}", "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}")
"""How pieces of sentencepiece, and those of bytes, spell a space."""


class HfTokenizer:
    """A fast tokenizer with the marks added as special tokens (a ``Tokenizer``).

    Args:
        content: of a ``tokenizer.json``.
        marks: special tokens to add behind ``CORE_MARKS``; those that are there keep their ids.
        names: ``<s>``, ``</s>`` and ``<pad>`` to the tokenizer's own tokens, where it has them.
        spelled: see ``kosmos.data.tokenizer.load_tokenizer``.
    """

    def __init__(self, content: str, marks: Sequence[str], names: Mapping[str, str], spelled: str = "") -> None:
        self.marks = all_marks(marks)
        self.names = dict(names)
        self.unknown = _unknown_token(content)
        backend = Tokenizer.from_str(content)
        own = [self.names.get(mark, mark) for mark in self.marks]
        added = {token.content: token for token in backend.get_added_tokens_decoder().values()}
        own += [name for name in added if name in spelled and name[0] in "<[" and name[-1] in ">]"]
        # A native token may be added as a plain one: as a special one it keeps its id and is never read from text.
        backend.add_special_tokens([_special_token(name, added.get(name)) for name in dict.fromkeys(own)])
        self._start(backend)

    chat_template = ""
    """Of the model that it belongs to, as its files have it: it is compared, and never run."""

    def _start(self, backend: Tokenizer) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._backend = backend
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(len(vocabulary), max(vocabulary.values()) + 1)
        self._ids = {mark: vocabulary[self.names.get(mark, mark)] for mark in self.marks}
        added = backend.get_added_tokens_decoder()
        self.special_ids = {t.content: i for i, t in added.items() if t.special}
        """Special tokens, its own and the marks, by their names."""
        self.takes_space = {t.content: (t.lstrip, t.rstrip) for t in added.values() if t.lstrip or t.rstrip}
        """Those that in a template take the space in front of them, or behind them."""
        # The token for what the vocabulary cannot say comes from text by right.
        self._special = {i: t.content for i, t in added.items() if t.special and t.content != self.unknown}

    def __getstate__(self) -> dict[str, Any]:
        kept = {"marks": self.marks, "names": self.names, "unknown": self.unknown}
        return {"content": self._backend.to_str(), **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.marks, self.names, self.unknown = state["marks"], state["names"], state["unknown"]
        self._start(Tokenizer.from_str(state["content"]))

    def encode(self, text: str) -> list[int]:
        """Ids of plain text, none of them special.

        Raises:
            SampleError: the tokenizer cannot write this text without a special token.
        """
        ids = self._plain(text)
        if self._special.keys().isdisjoint(ids):
            return ids
        # Unigram vocabularies list special tokens among the pieces of text: never show them one whole.
        ids = list(chain.from_iterable(map(self._plain, self._broken(text))))
        if not self._special.keys().isdisjoint(ids):
            found = next(self._special[i] for i in ids if i in self._special)
            raise SampleError(f"text gives the special token {found!r}, and this tokenizer cannot spell it")
        return ids

    def _plain(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except BaseException as error:
            if not panicked(error):
                raise
            raise SampleError(f"the tokenizer fails at this text ({first_line(error)})") from error
        return ids

    def _broken(self, text: str) -> Iterator[str]:
        """The text in parts, cut behind the first character of each special token that it spells."""
        begin = 0
        for place in sorted({p for token in self._special.values() if len(token) > 1 for p in _places(text, token)}):
            yield text[begin : place + 1]
            begin = place + 1
        yield text[begin:]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens are left out."""
        known = [i for i in ids if 0 <= i < self.vocab_size]
        text: str = self._backend.decode(known, skip_special_tokens=True)
        return text

    def decode_cut(self, ids: Sequence[int]) -> str:
        """As ``decode``, without the beginning of a character at the end, where tokens are of bytes."""
        text = self.decode(ids)
        if not text.endswith("\N{REPLACEMENT CHARACTER}"):
            return text
        decoder: Any = self._backend.decoder
        kinds = b"" if decoder is None else decoder.__getstate__()  # its JSON, alone
        last = [str(self._backend.id_to_token(i)) for i in reversed(ids[-unfinished.LONGEST :])]
        if b'"ByteFallback"' in kinds:  # of which one broken byte breaks all that stand in a row
            count = unfinished.unfinished(unfinished.of_bytes(last))
            return self.decode(ids[: len(ids) - count]) if count else text
        if b'"ByteLevel"' in kinds and unfinished.unfinished(unfinished.of_letters(last)):
            return text[:-1]
        return text

    def vocabulary(self) -> dict[str, int]:
        """Tokens to their ids, those that were added among them."""
        found: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        return found

    def try_out(self) -> None:
        """Raises what the library panics with: some of what is wrong with it shows first in use."""
        with suppress(Exception):  # it may have no way to write this text
            self._backend.encode("a", add_special_tokens=False)

    def mark_id(self, name: str) -> int:
        """Id of a mark. Raises ConfigError where there is no such mark."""
        if name not in self._ids:
            raise unknown_mark(name, self.marks)
        return self._ids[name]

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and what ``load_tokenizer`` and transformers need beside it; makes the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(self._backend.to_str(), encoding="utf-8")
        native = {field: self.names.get(mark, mark) for mark, field in _NATIVE.items()}
        _write_config(folder, native)
        _write_json(folder / FILE, {"kind": "hf", "marks": list(self.marks), "names": self.names})


def _special_token(name: str, old: AddedToken | None) -> AddedToken:
    sides = {} if old is None else {"lstrip": old.lstrip, "rstrip": old.rstrip}
    return AddedToken(name, special=True, normalized=False, **sides)


def _places(text: str, part: str) -> Iterator[int]:
    """Where ``part`` begins in a text; such places may overlap."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


def load_hf_tokenizer(name: str, marks: Sequence[str], spelled: str = "") -> HfTokenizer:
    """A tokenizer by folder or hub id. See ``kosmos.data.tokenizer.load_tokenizer``.

    Raises:
        ConfigError: no such tokenizer, or a slow one, or one that would need remote code.
    """
    folder = Path(name)
    if (folder / "tokenizer.json").is_file():
        content, native, saved = _read_folder(folder)
    else:
        content, native = _by_transformers(name, folder)
        saved = {}
    template = native.pop("chat_template", "")
    names = saved.get("names") or {mark: native[field] for mark, field in _NATIVE.items() if native.get(field)}
    try:
        tokenizer = HfTokenizer(without_prefix_space(content), (*saved.get("marks", ()), *marks), names, spelled)
        tokenizer.try_out()
    except BaseException as error:  # the library raises bare exceptions on what it cannot read, and panics
        if not (isinstance(error, Exception) or panicked(error)):
            raise
        raise ConfigError(f"tokenizer {name!r}: tokenizer.json cannot be used ({first_line(error)})") from error
    tokenizer.chat_template = template
    return tokenizer


def _read_folder(folder: Path) -> tuple[str, dict[str, str], dict[str, Any]]:
    """``tokenizer.json``, the native special tokens by field, and what ``HfTokenizer.save`` wrote."""
    config = {**_read_json(folder / "special_tokens_map.json"), **_read_json(folder / "tokenizer_config.json")}
    native = {field: token for field in (*_NATIVE.values(), "chat_template") if (token := _token(config.get(field)))}
    try:
        if (template := folder / "chat_template.jinja").is_file():
            native["chat_template"] = template.read_text(encoding="utf-8")
        content = (folder / "tokenizer.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"tokenizer {folder}: tokenizer.json cannot be read ({error})") from error
    return content, native, _read_json(folder / FILE)


def _by_transformers(name: str, folder: Path) -> tuple[str, dict[str, str]]:
    """``tokenizer.json`` of a hub id or of older files, and the native special tokens by field."""
    if folder.is_file():
        raise ConfigError(
            f"tokenizer {name!r}: is a file; a tokenizer is named by its folder, in which the file is tokenizer.json"
            + (f" (tokenizer: {folder.parent})" if folder.name == "tokenizer.json" else "")
        )
    if not folder.is_dir():
        if name.count("/") > 1 or name.startswith((".", "/", "~")):
            raise ConfigError(f"tokenizer {name!r}: no such folder")
        if (reason := unreachable_hub()) is not None:
            raise ConfigError(f"tokenizer {name!r}: no such folder, and as an id of the hub: {reason}{_meant(name)}")
    elif not any(file for pattern in _OLDER for file in folder.glob(pattern)):
        raise ConfigError(
            f"tokenizer {name!r}: no tokenizer is in this folder (no tokenizer.json); give a folder that "
            "'kosmos tokenizer train' or transformers wrote"
        )
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
    except BaseException as error:  # whatever the library raises
        if not (isinstance(error, Exception) or panicked(error)):
            raise
        place = "" if folder.is_dir() else "no such folder, and as an id of the hub: "
        raise ConfigError(f"tokenizer {name!r}: {place}{first_line(error)}{_meant(name)}") from error
    if not getattr(found, "is_fast", False):
        raise ConfigError(f"tokenizer {name!r}: {type(found).__name__} is a slow tokenizer; a fast one is needed")
    fields = (*_NATIVE.values(), "chat_template")
    native = {field: str(token) for field in fields if (token := getattr(found, field, None))}
    return found.backend_tokenizer.to_str(), native


def _meant(name: str) -> str:
    """The end of a message about a name that the hub does not know."""
    said = did_you_mean(name, ["bytes"])
    return f"; {said}" if said else ""


def _unknown_token(content: str) -> str | None:
    """What a ``tokenizer.json`` writes for text that its vocabulary cannot say."""
    model = json.loads(content)["model"]
    if model.get("unk_id") is not None:  # Unigram names it by number
        return str(model["vocab"][model["unk_id"]][0])
    return _token(model.get("unk_token"))


def _token(value: Any) -> str | None:
    """A special token as configurations write it: a string, or an object with its content."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) and content else None


def _read_json(path: Path) -> dict[str, Any]:
    """An object of JSON; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: damaged ({error})") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected an object")
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_config(folder: Path, native: Mapping[str, str]) -> None:
    """What transformers needs beside ``tokenizer.json``."""
    content = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **native}
    _write_json(folder / "tokenizer_config.json", content)


def puts_space(content: str, behind: str) -> bool:
    """Whether a ``tokenizer.json`` as it is puts a space in front of a text that stands behind a special token, as
    sentencepiece does; False where it cannot be used, which is told where it is loaded."""
    try:
        made = Tokenizer.from_str(content)
        tokens: list[str] = made.encode(f"{behind}\n", add_special_tokens=False).tokens
    except BaseException as error:
        if not (isinstance(error, Exception) or panicked(error)):
            raise
        return False
    return behind in tokens and "".join(tokens[tokens.index(behind) + 1 :]).startswith(_SPACES)


def without_prefix_space(content: str) -> str:
    """A ``tokenizer.json`` that adds no space in front of a text, and takes none off when it decodes."""
    parsed = json.loads(content)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        parsed[part] = _plain_part(parsed.get(part), part)
    return json.dumps(parsed, ensure_ascii=False)


def _plain_part(part: Any, where: str) -> Any:
    """One normalizer, pre-tokenizer or decoder; None where nothing is left of it."""
    if not isinstance(part, dict):
        return part
    for key in ("normalizers", "pretokenizers", "decoders"):
        if isinstance(part.get(key), list):
            kept = [p for item in part[key] if (p := _plain_part(item, where)) is not None]
            return {**part, key: kept} if kept else None
    kind = part.get("type")
    if kind == "Prepend" or (kind == "Strip" and where == "decoder"):
        return None
    if kind == "Metaspace":
        plain = {k: v for k, v in part.items() if k != "add_prefix_space"}
        return {**plain, "prepend_scheme": "never"}
    return {**part, "add_prefix_space": False} if kind == "ByteLevel" and where != "decoder" else part


def of_bytes(tokenizer: ByteTokenizer) -> HfTokenizer:
    """The byte tokenizer in the form of transformers, with the same ids."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(BYTES)}
    backend = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return HfTokenizer(backend.to_str(), tokenizer.marks, {})


def train_bpe(texts: Iterable[str], *, vocab_size: int, folder: Path) -> int:
    """Byte-level BPE. See ``kosmos.data.tokenizer.train_tokenizer``."""
    least = BYTES + len(CORE_MARKS)
    if vocab_size < least:
        raise ConfigError(f"vocab_size: expected at least {least} (256 bytes and the marks), got {vocab_size}")
    texts = iter(texts)
    first = next((text for text in texts if text), None)
    if first is None:
        raise ConfigError("tokenizer: there is no text to train on")
    backend = Tokenizer(models.BPE())
    # Marks mix letters and punctuation, which this pre-tokenizer parts: no merge can ever spell one.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(CORE_MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(chain([first], texts), trainer=trainer)
    made = HfTokenizer(backend.to_str(), (), {})
    try:
        made.save(folder)
    except OSError as error:
        raise unwritable(f"tokenizer {folder}", error, "name another folder") from error
    return made.vocab_size
