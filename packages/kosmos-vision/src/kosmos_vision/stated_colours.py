"""The mean and std of colours that weights were trained with, by what lies beside them: the ``config.json`` of timm, or
the ``preprocessor_config.json`` of transformers.

Another tag of a model may have others: ``vit_small_patch16_224`` takes 0.5, and its tag ``dino`` ImageNet's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kosmos import ConfigError
from kosmos_vision import transformers_names
from kosmos_vision.timm_build import HUB, build

FILE = "config.json"
FIELDS = ("mean", "std")
OVERLAY = "pretrained_cfg_overlay"
"""Argument of ``timm.create_model``: what goes before what timm knows of a model by its name."""


def with_stated_colours(model: str, options: dict[str, Any], weights: str | None) -> dict[str, Any]:
    """Options of a timm model, with the mean and std that stand beside its weights, unless they say their own.

    Raises:
        ConfigError: the file beside the weights is damaged, holds other than three numbers for each, or is on the hub
            and cannot be had.
    """
    own = options.get(OVERLAY) or {}
    if weights is None or all(field in own for field in FIELDS):
        return options
    if weights.startswith(HUB):
        stated = _on_the_hub(weights, options.get("cache_dir"))
    else:
        stated = _beside(Path(weights), model, options)
    return {**options, OVERLAY: {**stated, **own}} if stated else options


def _beside(weights: Path, model: str, options: Mapping[str, Any]) -> dict[str, list[float]]:
    """What local weights have beside them; nothing where the file is of another model or of no timm model at all."""
    file = (weights if weights.is_dir() else weights.parent) / FILE
    content = _read(file, f"weights {weights}") if file.is_file() else {}
    stated = content.get("architecture")
    if not stated and (theirs := transformers_names.stated_colours(weights)):
        return _checked(theirs, f"weights {weights}: preprocessor_config.json")
    if not stated or (stated != model.split(".")[0] and stated != _architecture(model, options)):
        return {}
    return _checked(content, str(file))


def _architecture(model: str, options: Mapping[str, Any]) -> Any:
    """What timm calls a model that is named by a former name, or by a place on the hub."""
    with torch.device("meta"):
        built = build(model, pretrained=False, weights=None, options=options)
    return getattr(built, "pretrained_cfg", {}).get("architecture")


def _on_the_hub(weights: str, cache_dir: Any) -> dict[str, list[float]]:
    """What the repository of the weights has beside them: it holds one model, whose file it is."""
    file = _fetched(weights, cache_dir)
    content = {} if file is None else _read(file, f"weights {weights}")
    return _checked(content, f"{weights}: {FILE}") if content.get("architecture") else {}


def _fetched(weights: str, cache_dir: Any) -> Path | None:
    """The file of a repository, from the hub or its cache; None where the repository is known to have none."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    repository, _, revision = weights.removeprefix(HUB).partition("@")
    place: dict[str, Any] = {"cache_dir": cache_dir, "revision": revision or None}
    try:
        return Path(hf_hub_download(repository, FILE, **place))
    except Exception as error:  # the hub's client raises its own kinds, and those of the network below it
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return None
        if isinstance(error, LocalEntryNotFoundError):
            kept = try_to_load_from_cache(repository, FILE, **place)
            if kept is not None and not isinstance(kept, str):  # the cache's note that the repository has none
                return None
        reason = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
        raise ConfigError(
            f"weights {weights}: their {FILE}, which states the colours they were trained with, cannot be read "
            f"({reason:.200}); download it once with a network, or state both in "
            f"model_options.{OVERLAY}: {{mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}"
        ) from error


def _read(file: Path, of: str) -> dict[str, Any]:
    """The content of a file; empty where it is no object, and so of something else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{of}: {file} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _checked(content: dict[str, Any], where: str) -> dict[str, list[float]]:
    """Both fields of what timm wrote; none of them where it wrote neither."""
    config = content.get("pretrained_cfg", content)  # older files have them beside the name of the architecture
    if not isinstance(config, dict) or any(field not in config for field in FIELDS):
        return {}
    for field in FIELDS:
        numbers = config[field]
        if not isinstance(numbers, list | tuple) or len(numbers) != 3 or not all(map(_is_number, numbers)):
            raise ConfigError(f"{where}: {field}: expected three numbers, got {numbers!r:.80}")
    return {field: [float(number) for number in config[field]] for field in FIELDS}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
