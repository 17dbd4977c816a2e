"""Adapters as PEFT writes them: a folder with tensors of low-rank updates, and what they are, of a model elsewhere.

Imports no torch: settings of a run are read from one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from kosmos.errors import ConfigError
from kosmos.names import listed

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
"""The files of an adapter; the last is one that is not read."""
PREFIX = "base_model.model."
"""What stands in front of a name of the model's in an adapter."""
LORA_A, LORA_B = ".lora_A.weight", ".lora_B.weight"
"""What stands behind the name of a layer."""
SAVED, BEFORE = ".modules_to_save.", ".original_module."
"""Within a name of what PEFT holds of a module that it trains whole: the module, and what it was before."""
_LONGEST_HEADER = 100_000_000
"""Bytes of what a file of safetensors says of itself: more its library does not read either."""
_INITS = (True, False, "gaussian", "eva", "orthogonal", None)
"""How updates may have begun; others change the weights that they stand beside."""
_ANY = (
    "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config", "exclude_modules",
    "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha", "lora_dropout",
    "megatron_core", "modules_to_save", "peft_version", "qalora_group_size", "r", "revision", "runtime_config",
    "target_modules", "use_rslora",
)  # fmt: skip
"""Fields that may say anything: they are heeded, or the tensors tell what comes of them."""
_ONE_OF: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none", None),
    "init_lora_weights": _INITS,
}


class Adapter(NamedTuple):
    """What an adapter says of itself."""

    folder: Path
    rank: int
    alpha: float
    """An update counts ``alpha / rank`` times."""
    dropout: float
    targets: str | tuple[str, ...] | None
    """Layers with updates, as they are stated; None where the tensors alone tell them in our terms."""
    saved: tuple[str, ...]
    """Names, or ends of names, of modules that were trained whole, apart from modules that are tied to them."""
    keeps_ties: bool
    base: str | None
    """The model that it is of."""
    shapes: dict[str, tuple[int, ...]]
    """Of its tensors, by the names that its model has for them; those of updates end with ``LORA_A`` and ``LORA_B``."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that have an update."""
        return tuple(sorted(name.removesuffix(LORA_A) for name in self.shapes if name.endswith(LORA_A)))

    def settings(self) -> dict[str, Any]:
        """Fields of ``lora`` of a run that goes on with it."""
        targets = self.targets
        layers = [] if targets == "all-linear" else [*targets] if isinstance(targets, tuple) else [*self.layers]
        return {
            "rank": self.rank, "alpha": self.alpha, "dropout": self.dropout, "layers": layers, "whole": [*self.saved],
        }  # fmt: skip


def open_adapter(folder: Path) -> Adapter:
    """What the files of an adapter say, without the values of its tensors.

    Raises:
        ConfigError: there is none, it is of a kind that is not read, or its files do not fit each other.
    """
    stated = _stated(folder)
    for field, allowed in _ONE_OF.items():
        if (value := stated.get(field)) not in allowed:
            raise ConfigError(
                f"{folder / CONFIG}: {field} is {value!r:.60}; read are adapters of {listed(map(repr, allowed))}"
            )
    for field, value in stated.items():
        if value and field not in _ANY and field not in _ONE_OF:
            raise ConfigError(
                f"{folder / CONFIG}: {field} is {value!r:.60}, which is not read; merge the adapter into its "
                "model with peft (merge_and_unload, then save_pretrained), and name that as backbone.model"
            )
    rank, alpha, dropout = (_number(folder, stated, *of) for of in (("r", 8), ("lora_alpha", 8), ("lora_dropout", 0)))
    if stated.get("use_rslora"):  # counts alpha / sqrt(rank) times
        alpha = alpha * math.sqrt(rank)
    targets, names = stated.get("target_modules"), _names(folder, stated, "target_modules")
    base = _names(folder, stated, "base_model_name_or_path")
    rules = stated.get("layers_to_transform") is not None or stated.get("exclude_modules")
    every = targets if targets == "all-linear" else None  # a pattern, too, is told by the tensors
    meant = tuple(sorted(names)) if isinstance(targets, list) else every
    return Adapter(
        folder, int(rank), float(alpha), float(dropout),
        None if rules else meant,
        _names(folder, stated, "modules_to_save"), bool(stated.get("ensure_weight_tying")),
        base[0] if base else None, _shapes(folder, int(rank)),
    )  # fmt: skip


def _number(folder: Path, stated: Mapping[str, Any], name: str, usual: int) -> float:
    value = stated.get(name, usual)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (name == "r" and (value != int(value) or value < 1)):
        raise ConfigError(f"{folder / CONFIG}: {name}: expected a number, got {value!r:.60}")
    return cast(float, value)


def _names(folder: Path, stated: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """Of a field that has one name, several or none."""
    value = stated.get(field)
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(name, str) for name in found):
        raise ConfigError(f"{folder / CONFIG}: {field}: expected names, got {value!r:.60}")
    return tuple(found)


def _stated(folder: Path) -> Mapping[str, Any]:
    file = folder / CONFIG
    if not file.is_file():
        raise ConfigError(f"{folder}: no adapter is here (no {CONFIG}); give a folder that PEFT has written")
    try:
        stated = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read as JSON: {error}") from error
    if not isinstance(stated, dict):
        raise ConfigError(f"{file}: expected fields, got {type(stated).__name__}")
    return stated


def _shapes(folder: Path, rank: int) -> dict[str, tuple[int, ...]]:
    """Raises ConfigError where a tensor is of no update, and of no weight."""
    file = folder / WEIGHTS
    if not file.is_file():
        if (folder / PICKLED).is_file():
            raise ConfigError(
                f"{folder / PICKLED}: a pickle, which may run code, and only safetensors are read; load the adapter "
                "with peft and write it again (save_pretrained)"
            )
        raise ConfigError(f"{folder}: the adapter has no tensors ({WEIGHTS})")
    found = {}
    for key, shape in _header(file).items():
        name = key.removeprefix(PREFIX)
        if name == key:
            raise ConfigError(f"{file}: {key}: expected names that begin with {PREFIX}")
        at = name.find(".lora_")
        if at >= 0 and name[at:] not in (LORA_A, LORA_B):
            raise ConfigError(
                f"{file}: {key}: expected of updates lora_A.weight and lora_B.weight of linear layers alone"
            )
        if at >= 0 and (len(shape) != 2 or shape[0 if name[at:] == LORA_A else 1] != rank):
            raise ConfigError(f"{file}: {key}: is {list(shape)}, and {CONFIG} says r={rank}")
        found[name] = shape
    for copy in [name for name in found if copied(name) in found]:
        del found[copy]
    layers = {name[: -len(LORA_A)] for name in found if name.endswith((LORA_A, LORA_B))}
    for layer in sorted(layers):
        if missing := [last for last in (LORA_A, LORA_B) if layer + last not in found]:
            raise ConfigError(f"{file}: lacks {PREFIX}{layer}{missing[0]}")
    if not layers:
        raise ConfigError(f"{file}: holds no low-rank update")
    return found


def copied(name: str) -> str | None:
    """The name of the tensor that one is a copy of: PEFT writes token embeddings that were resized and trained whole
    three times, as they are, as they were, and once more."""
    for inside in (SAVED, BEFORE):
        if inside in name:
            return name.replace(inside, ".")
    return None


def _header(file: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a file of safetensors, by their names."""
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            if size > _LONGEST_HEADER:
                raise ValueError("its header is too long")
            header = json.loads(opened.read(size))
        return {str(name): tuple(map(int, about["shape"])) for name, about in header.items() if name != "__metadata__"}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read as safetensors: {error}") from error
