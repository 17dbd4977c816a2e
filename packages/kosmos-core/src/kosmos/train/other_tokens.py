"""Whether the tokens of a run are those that its language model has learned, as far as local files tell."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kosmos.config import RunConfig
from kosmos.config_weights import InitConfig
from kosmos.data.bytes_tokenizer import ByteTokenizer
from kosmos.data.tokenizer import Tokenizer

FILE = "tokenizer.json"


def warnings_of(config: RunConfig, tokenizer: Tokenizer | None, backbone: object | None) -> Iterator[str]:
    """Warnings of a run whose backbone has read weights: of tokens that mean other things to it, and of many new ones.

    Args:
        tokenizer: the run's own; None is not known.
        backbone: its language model.
    """
    model = str(config.backbone.options.get("model") or "")
    if not model or not config.backbone.options.get("pretrained", True):
        return
    name = config.tokenizer.name
    learned = f"backbone.model {model} has learned tokens of its own"
    if name == "bytes":
        yield f"{learned}, and tokenizer is bytes, whose tokens mean other things to it: {_set_its_own(model)}"
    elif tokenizer is None or _same_place(name, model) or InitConfig.gives(config.init, "backbone"):
        return  # else its weights know the run's own
    elif _has_others(tokenizer, model):
        yield f"{learned}, and tokenizer {name} has others under most of their numbers: {_set_its_own(model)}"
    elif (grown := getattr(backbone, "grown", 0)) > len(marks := getattr(tokenizer, "marks", ())):
        yield (
            f"backbone.model {model} has no embeddings for {grown:,} of the {tokenizer.vocab_size:,} tokens of "
            f"tokenizer {name}, {len(marks)} of which may be marks, so they begin as the mean of the others; unless "
            f"that is meant, {_set_its_own(model)}"
        )


def _has_others(tokenizer: Tokenizer, model: str) -> bool:
    """Whether it has other tokens than a model, where both are known: one of code of one's own need not tell them."""
    if isinstance(tokenizer, ByteTokenizer):
        return bool(_vocabulary_of(model))
    ours: dict[str, int] = getattr(tokenizer, "vocabulary", dict)()
    return bool(ours and (theirs := _vocabulary_of(model)) and not _are_alike(ours, theirs))


def _set_its_own(model: str) -> str:
    """What to do for the tokenizer of a model, by folder or hub id."""
    if os.path.isdir(model) and not os.path.isfile(os.path.join(model, FILE)):
        return f"set tokenizer to the one that belongs to the model; its folder has no {FILE}"
    return f"set tokenizer={model}"


def _same_place(one: str, other: str) -> bool:
    return one == other or (os.path.isdir(one) and Path(one).resolve() == Path(other).resolve())


def _vocabulary_of(model: str) -> dict[str, int]:
    """The tokens of a model, by folder or hub id; none where no file here tells. Nothing is fetched."""
    file = Path(model, FILE)
    if not Path(model).is_dir():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            found = try_to_load_from_cache(model, FILE)
        except HFValidationError:
            return {}
        if not isinstance(found, str):
            return {}
        file = Path(found)
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
        vocabulary: Any = whole["model"]["vocab"]
        if isinstance(vocabulary, list):  # of Unigram: pieces with their scores
            vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
        return {**vocabulary, **{token["content"]: token["id"] for token in whole.get("added_tokens") or ()}}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _are_alike(ours: Mapping[str, int], theirs: Mapping[str, int]) -> bool:
    """Whether most tokens of the smaller of two vocabularies have the same number in the other.

    Letters and bytes do not count where there are longer tokens: those stand in front in all that one program trains.
    """
    few, many = sorted((ours, theirs), key=len)
    longer = {token: number for token, number in few.items() if len(token) > 1} or few
    return 2 * sum(many.get(token) == number for token, number in longer.items()) >= max(len(longer), 1)
