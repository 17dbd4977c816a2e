"""The language model of a folder that holds a whole one: as the backbone of a run, and the way back."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from kosmos.errors import ConfigError
from kosmos.model.huggingface_loading import OF_FILES, check_type, fields_of, fields_read
from kosmos.model.model_folder import CONFIG, ModelFolder

_BOUNDED = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size",
)  # fmt: skip
"""Fields by which a model grows: none is larger than all that its tensors hold."""
_COUNTED = re.compile(r"(moe_)?(num|n)_.*(experts|layers?)|(en|de)coder_layers|zero_expert_num")
"""Further ones, each of which is a number of parts, or the first dimension of a tensor of them all."""
_FEW = 1024
"""Parts that are built at once, be they there or not: models without experts may state some all the same."""
_MORE_VALUES = 2**24
"""Beyond twice those of the tensors, among which an output projection that is the embedding may be once."""
_NAMES = (  # of files that are published, and of those that hold the model by its own names
    (re.compile(r"language_model\.(model\..+|lm_head\..+)"), r"\1"),
    (re.compile(r"(?:model\.)?language_model\.(.+)"), r"model.\1"),
    (re.compile(r"(lm_head\..+)"), r"\1"),
)


def backbone_of(config: Mapping[str, Any], *, tied: bool, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Settings of a backbone ``hf`` that is a causal language model of transformers, without its weights.

    Args:
        config: of the language model, as in a ``text_config``.
        tied: whether its output projection is its embedding of tokens.
        shapes: of its tensors in the folder, by the names that transformers has for them.

    Raises:
        ConfigError: it is none, wants code of its own, or is far larger than its tensors.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise ConfigError(f"text_config: model_type {kind!r:.60}: transformers has no such language model")
    if "auto_map" in config:
        raise ConfigError(
            "text_config: auto_map: the model wants code of its own, which is never run; give one without"
        )
    plain = {name: value for name, value in config.items() if name not in OF_FILES and name[:1] != "_"}
    stated = {**fields_read(kind, plain), "tie_word_embeddings": tied}
    del stated["model_type"]
    try:
        made = CONFIG_MAPPING[kind](**stated)
    except Exception as error:  # of wrong values it raises whatever comes of them
        raise ConfigError(f"text_config: {' '.join(str(error).split())[:200]}") from error
    check_type("text_config", made)
    _check_sizes(made, shapes)
    _check_memory(made, shapes)
    if (fields := fields_of(made)) is None:
        raise ConfigError(f"text_config: fields of {kind} that a backbone hf cannot be built of again")
    return {"name": "hf", "config": {name: value for name, value in fields.items() if name not in OF_FILES}}


def _check_sizes(config: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ConfigError where a model is stated that would be built for hours, whose tensors are not there."""
    most = sum(prod(shape) for shape in shapes.values())
    for name in _BOUNDED:
        limit = len(shapes) if name == "num_hidden_layers" else most
        if (value := getattr(config, name, None)) is not None and not (type(value) is int and 1 <= value <= limit):
            raise ConfigError(
                f"text_config: {name}: expected a whole number from 1 to {limit:,}, as its tensors are of {most:,} "
                f"values, got {value!r:.40}"
            )
    parts = max(len(shapes), _FEW, *(max(shape) for shape in shapes.values() if shape))
    for name in filter(_COUNTED.fullmatch, vars(config)):
        value = getattr(config, name)
        for number in value if isinstance(value, list | tuple) else [value]:
            if isinstance(number, int | float) and not 0 <= number <= parts:
                raise ConfigError(
                    f"text_config: {name}: expected at most {parts:,}, since its tensors have no more parts, got "
                    f"{value!r:.40}"
                )


def _check_memory(config: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ConfigError where a model is stated that takes far more memory than its tensors, before it takes any: its
    sizes multiply, each of which may be that of a tensor."""
    there = sum(prod(shape) for shape in shapes.values())
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(copy.deepcopy(config), trust_remote_code=False)
        stated: float = sum(parameter.numel() for parameter in model.parameters())
    except Exception as error:  # some look at values as they are built, and find none here
        if "overflow" not in str(error):
            return
        stated = float("inf")
    if stated > 2 * there + _MORE_VALUES:
        raise ConfigError(f"text_config: tells of a model of {stated:,} values, and its tensors are of {there:,}")


def language_name(name: str) -> str | None:
    """What transformers calls a tensor in a causal language model alone, by its name in a folder that holds one beside
    encoders: ``language_model.model.norm.weight`` and ``model.language_model.norm.weight`` are ``model.norm.weight``.
    None where it is of another part."""
    for pattern, own in _NAMES:
        if found := pattern.fullmatch(name):
            return found.expand(own)
    return None


def is_tied(folder: ModelFolder, names: Mapping[str, str], *configs: Mapping[str, Any]) -> bool:
    """Whether output projection and embedding of a language model are one: where there is no projection, and where the
    configuration says so and both have the same values, since transformers then reads both, whatever is said.

    Args:
        names: of its tensors in the folder, by those of ``language_name``.
        configs: of the whole model, and of its language model, which may say ``tie_word_embeddings``; where they
            contradict each other and both tensors are there, the first counts.

    Raises:
        ConfigError: there is no projection, and none says that it is the embedding.
    """
    said = [bool(config["tie_word_embeddings"]) for config in configs if "tie_word_embeddings" in config]
    head, table = (names.get(f"{part}.weight") for part in ("lm_head", "model.embed_tokens"))
    if head is None and not any(said):
        raise ConfigError(
            f"{folder.path / CONFIG}: tie_word_embeddings: expected true, since there is no lm_head.weight; bring it, "
            "or say so if the embedding of tokens is meant"
        )
    if head is None or table is None:
        return head is None
    return bool(said) and said[0] and torch.equal(folder.tensor(head), folder.tensor(table))


def language_tensors(model: Any) -> dict[str, Tensor]:
    """Parameters and buffers of a model of transformers that are saved, by its names, tied ones once."""
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    seen: dict[tuple[int, tuple[int, ...]], str] = {}
    return {
        name: tensor
        for name, tensor in own.items()
        if seen.setdefault((tensor.data_ptr(), tuple(tensor.shape)), name) == name
    }
