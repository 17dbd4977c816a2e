"""The language model of a folder that holds a whole one: as the backbone of a run, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import CONFIG_MAPPING

from kosmos.errors import ConfigError
from kosmos.model.huggingface_loading import OF_FILES, check_type, fields_of, fields_read


def backbone_of(config: Mapping[str, Any], *, tied: bool) -> dict[str, Any]:
    """Settings of a backbone ``hf`` that is a causal language model of transformers, without its weights.

    Args:
        config: of the language model, as in a ``text_config``.
        tied: whether its output projection is its embedding of tokens.

    Raises:
        ConfigError: it is none, or its weights are in few bits.
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
    if (fields := fields_of(made)) is None:
        raise ConfigError(f"text_config: fields of {kind} that a backbone hf cannot be built of again")
    return {"name": "hf", "config": {name: value for name, value in fields.items() if name not in OF_FILES}}


def language_tensors(model: Any) -> dict[str, Tensor]:
    """Parameters and buffers of a model of transformers that are saved, by its names, tied ones once."""
    own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    seen: dict[tuple[int, tuple[int, ...]], str] = {}
    return {
        name: tensor
        for name, tensor in own.items()
        if seen.setdefault((tensor.data_ptr(), tuple(tensor.shape)), name) == name
    }
