"""Build timm models: by name, from scratch or from weights, without what features do not need."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from kosmos import ConfigError, prefix_of, read_weights
from kosmos_vision.lean_timm import timm
from kosmos_vision.transformers_names import as_timm, refuse_another, told_of

HUB = "hf-hub:"
"""Prefix of names that timm fetches from the Hugging Face hub."""
STATISTICS = (".running_mean", ".running_var", ".num_batches_tracked")
"""How the names of what a BatchNorm keeps end."""
_OWN = "model."
"""What the names of a timm model begin with in its encoder."""
_INSTEAD = {
    "pretrained": "it is an option of the encoder itself",
    "checkpoint_path": "take the encoder's option weights, which names a file or a folder",
    "num_classes": "leave it out: features are taken, without a classifier",
}
"""Arguments of ``timm.create_model`` that are no options of a model here, and what to do."""


def build(
    name: str,
    *,
    pretrained: bool,
    weights: str | None,
    options: Mapping[str, Any],
    layer: int | None = None,
    spare: Collection[str] = (),
) -> nn.Module:
    """A timm model without classifier.

    Args:
        name: of ``timm.list_models()``, or ``hf-hub:owner/model``.
        pretrained: load the weights that timm names for the model, from the hub or its cache.
        weights: a file, a folder that holds one, or ``hf-hub:owner/model``.
        options: further arguments of the model.
        layer: whose output is taken as it is, counted from 0, or from -1 backwards; those behind it and the last norm
            are taken out. None keeps all.
        spare: tensors of the model that weights may lack, as nothing is made of them.

    Raises:
        ConfigError: no such model, option, layer or weights, or weights that do not fit.
    """
    if fault := unknown_model(name):
        raise ConfigError(fault)
    for option in sorted(_INSTEAD.keys() & options.keys()):
        raise ConfigError(f"model_options.{option}: not an option of a timm model; {_INSTEAD[option]}")
    is_fetched = weights is not None and weights.startswith(HUB)
    arguments = _fetching(options, weights) if weights is not None and is_fetched else options
    try:
        model: nn.Module = timm.create_model(name, pretrained=pretrained or is_fetched, num_classes=0, **arguments)
    except Exception as error:  # options are the model's own, and so are the ways in which it refuses them
        reason = str(error) or type(error).__name__
        raise ConfigError(f"timm model {name} cannot be built with {dict(options)}: {reason}") from error
    own = weights is not None and not is_fetched
    absent = load_weights(model, Path(str(weights)), name=name, spare=spare) if own else []
    if layer is not None:
        _end_at(model, layer, name)
    if lacking := [key for key in absent if key in model.state_dict()]:
        is_grouped = all(key.endswith(STATISTICS) for key in lacking)
        advice = "; norm: group takes weights without statistics of batches" if is_grouped else ""
        raise _unfit(Path(str(weights)), name, f"lack {len(lacking)} tensors, first {lacking[0]}{advice}")
    return model


def _end_at(model: nn.Module, layer: int, name: str) -> None:
    prune: Any = getattr(model, "prune_intermediate_layers", None)
    if prune is None:
        raise ConfigError(f"layer {layer}: timm model {name} gives the features of its last layer alone; leave it out")
    try:
        prune([layer], prune_norm=True)
    except Exception as error:  # each model has its own way to prune, and to refuse
        count = len(getattr(model, "feature_info", ()))
        known = f"expected 0 to {count - 1}, or -1 to {-count}" if count else str(error)
        raise ConfigError(f"layer {layer}: timm model {name}: {known}") from error


def unknown_model(name: str) -> str:
    """What to say of a name that timm does not know; empty where it does. The hub is not asked."""
    if name.startswith(HUB) or timm.is_model(name.split(".")[0]):
        return ""
    near = get_close_matches(name.split(".")[0], timm.list_models(), n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"timm has no model {name}{hint} (timm.list_models() shows all)"


def _fetching(options: Mapping[str, Any], weights: str) -> dict[str, Any]:
    """The options with a place on the hub to look at: with no url and no file, it is the only one."""
    place = {"hf_hub_id": weights.removeprefix(HUB), "url": "", "file": None}
    return {**options, "pretrained_cfg_overlay": {**(options.get("pretrained_cfg_overlay") or {}), **place}}


def load_weights(model: nn.Module, path: Path, *, name: str, spare: Collection[str] = ()) -> list[str]:
    """Load a local file, as ``kosmos.read_weights`` reads it, with timm's conversion of foreign names
    and ours of those of transformers.

    Returns:
        Tensors of the model that it lacks, but for those to ``spare``.

    Raises:
        ConfigError: no such file, not weights, or weights of another model: nothing but a classifier may be left over.
    """
    stored = read_weights(path)
    if all(key.startswith(_OWN) for key in stored):  # as of an encoder that a run has trained
        stored = {key.removeprefix(_OWN): tensor for key, tensor in stored.items()}
    state = as_timm(stored, model)
    refuse_another(path, model, name)
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    try:
        found: dict[str, Tensor] = state if convert is None else convert(state, model)
        result = model.load_state_dict(found, strict=False)
    except Exception as error:  # timm's conversion stumbles over foreign files, torch over other shapes
        raise _unfit(path, name, f"{error}{_within(model, stored)}") from error
    classifier = _classifiers(model)
    extra = [key for key in result.unexpected_keys if not key.startswith(classifier)]
    lacking = [key for key in result.missing_keys if key not in spare]
    if extra:
        kind, keys = ("lack", lacking) if lacking else ("have no place for", extra)
        raise _unfit(path, name, f"{kind} {len(keys)} tensors, first {keys[0]}{_within(model, stored)}")
    return lacking


def _unfit(path: Path, name: str, what: str) -> ConfigError:
    return ConfigError(f"weights {path} do not fit timm model {name}{told_of(path)}: {what}")


def _within(model: nn.Module, stored: Collection[str]) -> str:
    """Where a file of a whole model holds this one, and how it is had alone; empty where it does not."""
    ends = {key[place + 1 :] for key in stored for place, letter in enumerate(key) if letter == "."}
    known = [key for key in model.state_dict() if key in ends]  # others are pruned, or not used
    under = prefix_of(known, stored)[:-1] if 3 * len(known) > len(model.state_dict()) else ""
    return f"; it holds them under {under}: kosmos export RUN FILE --part {under} writes them alone" if under else ""


def resized_positions(model: nn.Module, name: str, stored: Tensor, size_px: tuple[int, ...]) -> Tensor | None:
    """Absolute position embeddings [1, tokens, width], or [1, height, width, D], brought to the shape of a model's own.

    Tokens in front of the grid, such as the class token, stay as they are.

    Args:
        name: of the tensor in the model.
        size_px: (height, width) of the pictures that they were for; empty where it is not known.

    Returns:
        None where it is another tensor, or its width or number of tokens does not fit.
    """
    if name.rpartition(".")[2] != "pos_embed":
        return None
    own, embed = model.state_dict().get(name), getattr(model, "patch_embed", None)
    if own is None or own.ndim != stored.ndim or own.shape[-1] != stored.shape[-1]:
        return None
    if own.ndim == 4:  # NaFlex models
        whole = F.interpolate(stored.permute(0, 3, 1, 2).float(), own.shape[1:3], mode="bicubic", antialias=True)
        return whole.permute(0, 2, 3, 1).to(stored.dtype)
    grid, patch = (getattr(embed, field, None) for field in ("grid_size", "patch_size"))
    if not grid or not patch or len(size_px) != 2:
        return None
    before = [size // side for size, side in zip(size_px, patch, strict=True)]
    prefix = own.shape[1] - grid[0] * grid[1]
    if stored.shape[1] != before[0] * before[1] + prefix:
        return None
    from timm.layers import resample_abs_pos_embed

    resampled: Tensor = resample_abs_pos_embed(stored, list(grid), before, num_prefix_tokens=prefix)
    return resampled


def drop(model: nn.Module, unused: tuple[str, ...]) -> None:
    """Take out modules whose parameters are all unused; freeze unused parameters of the others."""
    for name, child in list(model.named_children()):
        keys = {f"{name}.{key}" for key, _ in child.named_parameters()}
        if keys and keys <= set(unused):
            setattr(model, name, nn.Identity())
    for key, parameter in model.named_parameters():
        if key in unused:
            parameter.requires_grad_(False)


def _classifiers(model: nn.Module) -> tuple[str, ...]:
    named = getattr(model, "pretrained_cfg", {}).get("classifier") or ()
    return tuple(f"{name}." for name in ((named,) if isinstance(named, str) else named))
