"""Weights of the wav2vec 2.0 family as the library transformers names them, by torchaudio's names: the tensors are the
same, but for queries, keys and values of WavLM, which torchaudio holds as one."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_FIRST = re.compile(r"(.*?)feature_projection\.projection\.weight")
"""What each of them has: behind it, what names begin with. Torchaudio's is in the encoder."""
_THREE = re.compile(r"(encoder\.transformer\.layers\.\d+\.attention\.)([qkv])_proj\.(weight|bias)")
_OUT = re.compile(r"(encoder\.transformer\.layers\.\d+\.attention\.)(out_proj\.(?:weight|bias))")
_NORMED = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
"""Names of a weight by its norm and its direction, as older versions of torch have saved them."""


def as_torchaudio(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by torchaudio's names, where they have those of transformers; others as they are.

    Args:
        state: of a model, or of one that holds it, whose other tensors are left aside.
        own: those of the model that is to take them.
    """
    found = next((match[1] for key in state if (match := _FIRST.fullmatch(key))), None)
    if found is None or found.endswith("encoder."):
        return dict(state)
    renamed = {}
    for key, tensor in state.items():
        inner = key.removeprefix(found)
        if key.startswith(f"{found}encoder."):
            renamed["encoder.transformer." + inner.removeprefix("encoder.")] = tensor
        elif key.startswith(f"{found}feature_projection."):
            renamed["encoder." + inner] = tensor
        elif key.startswith(f"{found}feature_extractor."):
            renamed[inner] = tensor
    return _joined(_by_norm(renamed, own), own)


def _by_norm(state: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Both parts of a weight under the names that the model has for them."""
    for old, new in _NORMED.items():
        for key in [key for key in state if key.endswith((f".{old}", f".{new}")) and key not in own]:
            begin, other = (key.removesuffix(old), new) if key.endswith(old) else (key.removesuffix(new), old)
            state[begin + other] = state.pop(key)
    return state


def _joined(state: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values as one tensor, where the model has them so."""
    three: dict[str, dict[str, Tensor]] = {}
    for key in list(state):
        if (part := _THREE.fullmatch(key)) and f"{part[1]}attention.in_proj_{part[3]}" in own:
            three.setdefault(f"{part[1]}attention.in_proj_{part[3]}", {})[part[2]] = state.pop(key)
        elif (out := _OUT.fullmatch(key)) and key not in own:
            state[f"{out[1]}attention.{out[2]}"] = state.pop(key)
    return state | {name: torch.cat([parts[which] for which in "qkv"]) for name, parts in three.items()}
