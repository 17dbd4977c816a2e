"""The mean and std of colours that weights were trained with, by the ``config.json`` that timm writes beside them.

Another tag of a model may have others: ``vit_small_patch16_224`` takes 0.5, and its tag ``dino`` ImageNet's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kosmos import ConfigError
from kosmos_vision.timm_build import HUB

FIELDS = ("mean", "std")
OVERLAY = "pretrained_cfg_overlay"
"""Argument of ``timm.create_model``: what goes before what timm knows of a model by its name."""


def with_stated_colours(options: dict[str, Any], weights: str | None) -> dict[str, Any]:
    """Options of a timm model, with the mean and std that stand beside its weights, unless they say their own.

    Raises:
        ConfigError: the file beside local weights is damaged, or holds other than three numbers for each.
    """
    stated = {} if weights is None else _stated(weights)
    return {**options, OVERLAY: {**stated, **(options.get(OVERLAY) or {})}} if stated else options


def _stated(weights: str) -> dict[str, list[float]]:
    if weights.startswith(HUB):
        return _checked(_config_on_the_hub(weights.removeprefix(HUB)), weights)
    path = Path(weights)
    file = (path if path.is_dir() else path.parent) / "config.json"
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"weights {weights}: {file} cannot be read: {error}") from error
    # Older files have the fields beside the name of the architecture.
    return _checked(content.get("pretrained_cfg", content) if isinstance(content, dict) else None, str(file))


def _config_on_the_hub(name: str) -> Any:
    from huggingface_hub.errors import EntryNotFoundError
    from timm.models import load_model_config_from_hf

    try:
        return load_model_config_from_hf(name)[0]
    except (
        OSError,
        ValueError,
        KeyError,
        EntryNotFoundError,
    ):  # no such file: the repository says nothing; no network: its weights fail
        return None


def _checked(config: Any, where: str) -> dict[str, list[float]]:
    """Both fields of the configuration of a timm model; none of them where it is of something else."""
    if not isinstance(config, dict) or any(field not in config for field in FIELDS):
        return {}
    for field in FIELDS:
        numbers = config[field]
        if not isinstance(numbers, list | tuple) or len(numbers) != 3 or not all(map(_is_number, numbers)):
            raise ConfigError(f"{where}: {field}: expected three numbers, got {numbers!r:.80}")
    return {field: [float(number) for number in config[field]] for field in FIELDS}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
