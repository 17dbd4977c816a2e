"""The low-rank updates of a run's language model as a folder that PEFT reads, beside the model that they belong to."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.utils import logging

from kosmos.adapter_files import CONFIG, PREFIX, WEIGHTS
from kosmos.commands.language_model import write_tokenizer, written_aside
from kosmos.config import RunConfig
from kosmos.config_weights import LoRAConfig
from kosmos.errors import ConfigError
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.huggingface_loading import from_weights
from kosmos.model.lora import A, B, LoRALinear, modules_named
from kosmos.model.nf4 import PACKED, pack, shape_of
from kosmos.model.weights import round_weights
from kosmos.names import listed
from kosmos.train.output import RunFolder
from kosmos.train.saved import SavedRun, config_of


class Adapter(NamedTuple):
    """What was written."""

    base: str
    """The model that it belongs to: an id of the hub or a folder."""
    layers: int
    """That have an update."""
    values: int
    rows: int | None
    """Of the token embedding, where the model has another number."""
    saved: tuple[str, ...]
    """Modules that are written whole."""


class _Parts(NamedTuple):
    """Of a model of transformers, by the names that it has for them."""

    updates: dict[str, LoRALinear]
    saved: dict[str, nn.Module]
    """Modules that PEFT puts in the place of the model's (``modules_to_save``)."""
    laid_over: set[str]
    """Names of weights that PEFT copies into the model's own, as of embeddings that were resized."""


def write_adapter(run: SavedRun, folder: Path, base: str | None) -> Adapter:
    """Updates and what was trained whole, their configuration, and the tokenizer; ``folder`` is whole or not there.

    Args:
        run: loaded with its updates beside its weights.
        base: the model that they belong to, whose weights are compared with the run's; None is ``backbone.model``.

    Raises:
        ConfigError: the language model has no updates or is none of transformers, the weights beside them are not those
            of ``base``, or no folder can be written there.
        TrainingError: the disk is full.
    """
    composition = run.composition
    backbone, lora = composition.model.backbone, _updates_of(composition.config)
    if not isinstance(backbone, HuggingFaceBackbone):
        raise ConfigError(
            f"backbone {composition.config.backbone.name}: an adapter of PEFT belongs to a model of transformers "
            "(backbone hf); write the model with its updates merged (--for transformers)"
        )
    stated = _stated_base(run) if base is None else os.path.abspath(base) if Path(base).is_dir() else base
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    theirs = _base(stated, backbone.token_table().dtype)
    packed = _packed_alike(backbone.model, theirs)  # as a run does it, before it rounds weights to bf16
    if composition.config.train.weights == "bf16":  # a run is loaded in fp32
        round_weights(composition.model)
        round_weights(theirs)
    parts = _parts(backbone, lora, theirs)
    _check_base(backbone.model, theirs, packed, parts, stated)
    tensors = {PREFIX + name: tensor.detach().contiguous() for name, tensor in _tensors(backbone.model, parts)}
    about = _configuration(backbone.model, lora, parts, stated)
    rows, others = len(backbone.token_table()), len(theirs.get_input_embeddings().weight)
    with written_aside(folder) as partial:
        write_tokenizer(run, partial)
        save_file(dict(sorted(tensors.items())), partial / WEIGHTS, {"format": "pt"})
        text = json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False)
        (partial / CONFIG).write_text(text + "\n", encoding="utf-8")
    saved = (*parts.saved, *sorted(name.rpartition(".")[0] for name in parts.laid_over))
    values = sum(tensor.numel() for tensor in tensors.values())
    return Adapter(stated, len(parts.updates), values, rows if rows != others else None, saved)


def left_out(config: RunConfig) -> str | None:
    """What a run has learned, or may have, that no adapter of its language model holds."""
    if not config.modalities:
        return None
    streams = sorted({config.stream_of(modality) for modality in config.modalities})
    updated = [f"streams.{name}.lora" for name in streams if (s := config.streams.get(name)) and s.lora is not None]
    among = f", the updates of {listed(updated)} among them" if updated else ""
    return (
        f"encoders and connectors ({listed(streams)}) are not in the adapter{among}, since the model that it belongs "
        "to has none; kosmos export OUTPUT FILE --part streams.NAME writes them"
    )


def _updates_of(config: RunConfig) -> LoRAConfig:
    if config.backbone.lora is not None:
        return config.backbone.lora
    encoders = [f"streams.{name}.lora" for name, stream in config.streams.items() if stream.lora is not None]
    if encoders:
        raise ConfigError(
            f"the run has updates of encoders alone ({listed(encoders)}), and an adapter of PEFT is of the language "
            "model; write an encoder, its updates merged, by kosmos export OUTPUT FILE --part streams.NAME.encoder"
        )
    raise ConfigError(
        "the run has no low-rank updates (backbone.lora), of which an adapter consists; write the language model whole "
        "(--for transformers)"
    )


def _stated_base(run: SavedRun) -> str:
    model = config_of(RunFolder.open(run.folder)).backbone.options.get("model")
    if model is None:
        raise ConfigError(
            "backbone.model: the run file names no model that the updates belong to; name it by --base: an id of the "
            "hub or a folder"
        )
    return str(model)


def _base(name: str, dtype: torch.dtype) -> Any:
    try:
        return from_weights(name, dtype)
    except ConfigError as error:
        raise ConfigError(
            f"{error}. The adapter belongs to that model, whose weights are compared with the run's; --base names "
            "another place of it"
        ) from error


def _parts(backbone: HuggingFaceBackbone, lora: LoRAConfig, base: Any) -> _Parts:
    model = backbone.model
    modules = {name: module for name, module in backbone.named_modules() if name}
    trained = modules_named(modules, lora.whole, "backbone.lora.whole", "module").values()
    whole = {module for parent in trained for module in parent.modules()}
    updates = {name: of for name, of in model.named_modules() if isinstance(of, LoRALinear)}
    into, out = model.get_input_embeddings(), model.get_output_embeddings()
    tied = into.weight is out.weight
    if tied and (into in whole or out in whole):
        whole |= {into, out}
    saved: dict[str, nn.Module] = {}
    laid_over: set[str] = set()
    for name, module in model.named_modules():
        if not module._parameters or isinstance(module, LoRALinear) or name.startswith(tuple(f"{of}." for of in saved)):
            continue
        of_tokens = module is into or module is out
        grew = of_tokens and module.weight.shape != base.get_submodule(name).weight.shape
        if module in whole and not (of_tokens and tied):  # a copy of one of two tied modules would be tied to nothing
            saved[name] = module
        elif grew or module in whole:
            again = {"weight"} if module is out and module is not into and tied else set()
            laid_over |= {f"{name}.{own}" for own in module.state_dict().keys() - again}
    return _Parts(updates, saved, laid_over)


def _tensors(model: Any, parts: _Parts) -> Iterator[tuple[str, Tensor]]:
    for name, layer in parts.updates.items():
        yield f"{name}.lora_A.weight", layer.low_rank_a
        yield f"{name}.lora_B.weight", layer.low_rank_b
    for name, module in parts.saved.items():
        yield from ((f"{name}.{own}", tensor) for own, tensor in module.state_dict().items())
    every = model.state_dict()
    yield from ((name, every[name]) for name in parts.laid_over)


def _packed_alike(model: Any, base: Any) -> dict[str, Tensor]:
    """What weights of the base are in 4 bits, by the name in the model, where that has them so."""
    ours, theirs = model.state_dict(), base.state_dict()
    kept = {path: f"{path.removesuffix(PACKED)}weight" for path in ours if path.rpartition(".")[2] == PACKED}
    fits = {path: w for path, w in kept.items() if w in theirs and theirs[w].shape == shape_of(tuple(ours[path].shape))}
    return {path: pack(theirs[weight]) for path, weight in fits.items()}


def _check_base(model: Any, base: Any, packed: dict[str, Tensor], parts: _Parts, name: str) -> None:
    """Raises ConfigError where what is kept is not what the base has."""
    ours, theirs = model.state_dict(keep_vars=True), base.state_dict(keep_vars=True)
    beside = {f"{path}.{last}" for path in parts.updates for last in (A, B)}
    # Weights that are laid over are laid over all that is tied to them there.
    tied = {id(theirs[path]): ours[path] for path in parts.laid_over if path in theirs}
    inside = tuple(f"{path}." for path in parts.saved)
    for path, tensor in packed.items():
        theirs[path] = tensor
        del theirs[f"{path.removesuffix(PACKED)}weight"]
    for path in sorted((ours.keys() - beside) | theirs.keys()):
        one, other = ours.get(path), theirs.get(path)
        if path.startswith(inside) or (one is not None and tied.get(id(other)) is one):
            continue
        if one is None or other is None or one.shape != other.shape or not torch.equal(one, other):
            raise ConfigError(
                f"{name}: {path} is not what the updates of the run stand beside; name by --base the model that the "
                "run began with (that of a run of init: kosmos export RUN FOLDER --for transformers; with "
                "init.keep_updates the base of that run), or write the model merged (--for transformers)"
            )


def _configuration(model: Any, lora: LoRAConfig, parts: _Parts, base: str) -> dict[str, Any]:
    every = [name for name, _ in model.named_modules() if name]
    inside = tuple(f"{name}." for name in parts.saved)
    others = [name for name in every if name not in parts.saved and not name.startswith(inside)]
    targets = _short(parts.updates, others, lambda name, last: f".{name}".endswith(f".{last}"))
    saved = _short(parts.saved, every, lambda name, last: name.endswith(last))
    alpha = int(lora.alpha) if lora.alpha == int(lora.alpha) else lora.alpha
    return {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "revision": None,
        "inference_mode": True, "r": lora.rank, "lora_alpha": alpha, "lora_dropout": lora.dropout,
        "target_modules": targets, "modules_to_save": saved or None, "bias": "none", "fan_in_fan_out": False,
        "init_lora_weights": True, "use_rslora": False, "use_dora": False, "rank_pattern": {}, "alpha_pattern": {},
        "layers_to_transform": None, "layers_pattern": None,
    }  # fmt: skip


def _short(names: Collection[str], every: Collection[str], meant: Callable[[str, str], bool]) -> list[str]:
    """The last parts of names, as adapters usually state them, where these mean no other of ``every``."""
    lasts = sorted({name.rpartition(".")[2] for name in names})
    found = {name for name in every if any(meant(name, last) for last in lasts)}
    return lasts if found == set(names) else sorted(names)
