"""Our attention under a name that transformers' models can be switched to.

The lengths of the documents travel through the model's keyword arguments rather than a context variable, because
gradient checkpointing runs blocks again long after the forward pass.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from kosmos.errors import ConfigError
from kosmos.model.attention import attend, attend_cached, attend_within, takes
from kosmos.model.caches import KeyValueBatch

NAME = "kosmos_packed"
"""What ``set_attn_implementation`` is given."""
SEGMENTS = "kosmos_segments"
"""Keyword argument of the model: a ``Segments``, a ``KeyValueBatch``, or None where its own cache is in use."""
BOUNDS = "kosmos_bounds"
"""Keyword argument of the model: the segments once more, as ``bounds_of`` has them, for compiled layers."""
SLIDES = "kosmos_slides"
"""Attribute of attention: whether the configuration gives its layer a window."""
KERNELS = "kosmos_by_kernels"
"""Keyword argument of the model: see ``kosmos.model.attention.attend``."""


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """query [1, H, T, d], key and value [1, G, S, d] -> [1, T, H, d].

    Raises:
        ConfigError: the model asks for something that this attention does not do.
    """
    _refuse(module, attention_mask, options)
    q, k, v = (part.squeeze(0).transpose(0, 1) for part in (query, key, value))
    window = _window(module, sliding_window)
    segments, bounds, ours = options[SEGMENTS], options.get(BOUNDS), options.get(KERNELS, False)
    if takes(bounds, q, v):
        out = attend_within(q, k, v, bounds, causal=True, scale=scaling, window=window or 0)
    elif isinstance(segments, KeyValueBatch):
        out = segments.attend(_number(module), q, k, v, scale=scaling, window=window, by_kernels=ours)
    elif segments is None:
        out = attend_cached(q, k, v, scale=scaling, window=window, by_kernels=ours)
    else:
        out = attend(q, k, v, segments, causal=True, scale=scaling, window=window, by_kernels=ours)
    return out[None], None


def _refuse(module: nn.Module, attention_mask: Tensor | None, options: dict[str, Any]) -> None:
    kind = type(module).__name__
    if SEGMENTS not in options:
        raise ConfigError(f"hf: {kind} does not hand the documents' lengths to its attention; documents would mix")
    if attention_mask is not None:
        raise ConfigError(f"hf: {kind} makes an attention mask of its own, which packed rows cannot keep")
    for name in ("softcap", "s_aux", "position_bias", "cache"):
        if options.get(name) is not None:
            raise ConfigError(f"hf: {kind} uses {name} in its attention, which packed rows do not support")
    causal = options.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        raise ConfigError(f"hf: {kind} is not causal")


def _window(module: nn.Module, given: int | None) -> int | None:
    """The layer's window; refuses a layer that has one by its configuration but does not say so."""
    if given is None and getattr(module, SLIDES, False):
        raise ConfigError(f"hf: layer {_number(module)} ({type(module).__name__}) hides its sliding window")
    return given


def note_windows(model: nn.Module) -> None:
    """Note of layers whether they have a window by the model's configuration: compiled, one that looks at its number
    would be a program of its own."""
    for module in model.modules():
        kinds = getattr(getattr(module, "config", None), "layer_types", None)
        number = getattr(module, "layer_idx", None)
        if kinds and number is not None:
            setattr(module, SLIDES, kinds[number] == "sliding_attention")


def _number(module: nn.Module) -> int:
    """Of the layer, by which transformers' caches know it as well."""
    return cast(int, module.layer_idx)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, lambda *arguments, **options: None)
