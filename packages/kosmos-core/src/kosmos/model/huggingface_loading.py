"""Build causal language models of transformers: from fields, from a configuration, from weights. Never from code."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM

from kosmos.errors import ConfigError, is_out_of_memory
from kosmos.model.huggingface_check import check_stated

OLD_FIELDS = ("rope_theta", "rope_scaling")
"""Fields that transformers still takes, beside those of the class."""
OF_FILES = ("_name_or_path", "architectures", "dtype", "transformers_version")
"""What a configuration says of the files that it was read from."""


def from_fields(fields: dict[str, Any], vocab_size: int, dtype: torch.dtype) -> Any:
    """Random weights for ``{"model_type": .., ..}``; the vocabulary is at least the tokenizer's.

    Raises:
        ConfigError: an unknown type or field, or values that do not fit each other.
    """
    if "model_type" not in fields:
        raise ConfigError("hf: config needs a model_type, such as llama")
    kind = str(fields["model_type"])
    _check_fields(kind, fields)
    stated = fields.get("vocab_size", 0)
    if not isinstance(stated, int) or isinstance(stated, bool):
        raise ConfigError(f"hf: vocab_size: expected a whole number, got {stated!r}")
    fields["vocab_size"] = max(vocab_size, stated)
    for token in ("pad_token_id", "bos_token_id", "eos_token_id"):
        fields.setdefault(token, None)
    return _from_config(kind, _guarded(kind, lambda: AutoConfig.for_model(**fields)), dtype)


def fields_of(config: Any) -> dict[str, Any] | None:
    """What ``from_fields`` makes an equal configuration of; None where it cannot."""
    kind, stated = config.model_type, config.to_diff_dict()
    if kind not in CONFIG_MAPPING:
        return None
    fields = {**fields_read(kind, stated), "model_type": kind}
    try:
        again = AutoConfig.for_model(**fields)
    except Exception:  # of fields that stand for each other it raises whatever comes of them
        return None
    told, meant = ({k: v for k, v in c.to_dict().items() if k not in OF_FILES} for c in (again, config))
    return fields if told == meant else None


def fields_read(kind: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields that a configuration states those that a model of this type reads, as others are kept by older
    versions of transformers, and read by nobody."""
    known = _known_fields(kind)
    return {name: value for name, value in stated.items() if name in known or _is_read(kind, name, value)}


def from_config_of(model: str, dtype: torch.dtype) -> Any:
    """Random weights in the shape of a model by id or folder."""
    return _from_config(model, _configuration(model), dtype)


def from_weights(model: str, dtype: torch.dtype) -> Any:
    """The weights of an id or a folder, from safetensors alone.

    Raises:
        ConfigError: it cannot be had, or lacks weights of a causal language model.
    """
    _check_folder(Path(model))
    config = _configuration(model)
    check_type(model, config)
    _check_plain(model, config)
    load = AutoModelForCausalLM.from_pretrained
    options = {"dtype": dtype, "use_safetensors": True, "output_loading_info": True, **_where(model)}
    built, info = _fetched(model, lambda: load(model, config=config, **options))
    absent = sorted(map(str, info["missing_keys"])) + sorted(map(str, info["mismatched_keys"]))
    if absent:
        raise ConfigError(f"hf: {model!r} lacks {len(absent)} weights of a language model, such as {absent[0]}")
    return _with_every_row(built)


def grow_vocabulary(model: Any, vocab_size: int) -> int:
    """Embedding and output projection, tied or not, get rows for the ids that the tokenizer adds.

    New rows are the mean of the old ones; nothing ever shrinks.

    Returns:
        How many.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    if rows >= vocab_size:
        return 0
    model.resize_token_embeddings(vocab_size, mean_resizing=False)
    weights = {id(w): w for w in (model.get_input_embeddings().weight, model.get_output_embeddings().weight)}
    with torch.no_grad():
        for weight in weights.values():
            weight[rows:] = weight[:rows].mean(0)
    return vocab_size - int(rows)


def _check_folder(folder: Path) -> None:
    """Raises ConfigError where a folder has files of a model that are not the ones to be read."""
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise ConfigError(
            f"hf: cannot load {str(folder)!r}: it is an adapter without its model; name that as backbone.model and "
            "this as backbone.lora.adapter, or a folder in which peft has merged both (merge_and_unload, then "
            "save_pretrained)"
        )
    pickled = sorted(folder.glob("*.bin"))
    if pickled and not any(folder.glob("*.safetensors*")):
        raise ConfigError(
            f"hf: cannot load {str(folder)!r}: its weights are in {pickled[0].name}, and only safetensors are read; "
            "load it in transformers and write it again (save_pretrained)"
        )
    for index in folder.rglob("*.safetensors.index.json"):
        for file in _files_of(index):
            if re.search(r"[/\\]", file) or not file.endswith(".safetensors"):
                raise ConfigError(
                    f"hf: cannot load {str(folder)!r}: {index.name} names the file {file!r}; expected files of "
                    "safetensors in its own folder"
                )


def _files_of(index: Path) -> list[str]:
    """The files that a list of weights names; none where it cannot be read, of which the reader of weights tells."""
    try:
        return sorted(set(map(str, json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def _configuration(model: str) -> Any:
    """What a model by id or folder states, without what it asks to be computed with.

    Names of attention may be those of compiled code on the hub, which transformers fetches and runs where its package
    ``kernels`` is installed, whatever is said of code and of local files.
    """
    config = _fetched(model, lambda: AutoConfig.from_pretrained(model, **_where(model)))
    config._attn_implementation = "eager"  # in configurations within it too; ours takes its place later
    config._experts_implementation = None
    return config


def check_type(name: str, config: Any) -> None:
    """Raises ConfigError where none that can be packed would be built, before any of its code has run.

    For one that is no language model transformers would answer with a list of all classes that are.
    """
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ConfigError(
            f"hf: {name!r} is of model_type {config.model_type}, which is no causal language model on text alone; give "
            "the language model by itself (inside one of pictures or sounds it is a part that save_pretrained writes)"
        )
    check_stated(name, config, MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])


def _check_plain(name: str, config: Any) -> None:
    """Raises ConfigError for weights in few bits: they are not trained, and reading them may fetch code of the hub."""
    stated = getattr(config, "quantization_config", None)
    if stated:
        kind = (stated if isinstance(stated, dict) else vars(stated)).get("quant_method")
        raise ConfigError(
            f"hf: cannot load {name!r}: its weights are in few bits ({getattr(kind, 'value', kind)}), which are not "
            "trained here; give the model as it was before (backbone.lora.quantize rounds it), or load it in "
            "transformers, dequantize it and write it again (save_pretrained)"
        )


def _from_config(name: str, config: Any, dtype: torch.dtype) -> Any:
    check_type(name, config)
    build = AutoModelForCausalLM.from_config
    return _with_every_row(_guarded(name, lambda: build(config, dtype=dtype, trust_remote_code=False)))


def _with_every_row(model: Any) -> Any:
    """The model, whose embedding of the padding token gets gradients like the others: it is often that of an end."""
    model.get_input_embeddings().padding_idx = None
    return model


def _check_fields(kind: str, fields: dict[str, Any]) -> None:
    """transformers keeps a misspelt field as an attribute that nobody reads."""
    if kind not in CONFIG_MAPPING:
        near = difflib.get_close_matches(kind, CONFIG_MAPPING, 1)
        raise ConfigError(f"hf: unknown model_type {kind!r}{_hint(near)}")
    known = _known_fields(kind)
    for name, value in fields.items():
        if name not in known and not _is_read(kind, name, value):
            raise ConfigError(f"hf: {kind} has no field {name!r}{_hint(difflib.get_close_matches(name, known, 1))}")


def _known_fields(kind: str) -> set[str]:
    of_class = CONFIG_MAPPING[kind]
    renamed = {name for pair in of_class.attribute_map.items() for name in pair}
    return {field.name for field in dataclass_fields(of_class)} | {"model_type", *OLD_FIELDS} | renamed


def _is_read(kind: str, name: str, value: Any) -> bool:
    """Whether the model reads a field that its configuration's class lacks, as many do ``head_dim``.

    Numbers alone: names may be those of code that transformers fetches.
    """
    if name.startswith("_") or not isinstance(value, int | float):
        return False
    models = MODEL_FOR_CAUSAL_LM_MAPPING.get(CONFIG_MAPPING[kind], ())
    for model in models if isinstance(models, tuple) else (models,):
        try:
            text = inspect.getsource(inspect.getmodule(model) or model)
        except OSError:  # it came without its text
            continue
        if re.search(rf"\bconfig(\.{re.escape(name)}\b|, \"{re.escape(name)}\")", text):
            return True
    return False


def _hint(near: list[str]) -> str:
    return f"; did you mean {near[0]}?" if near else ""


def _where(model: str) -> dict[str, Any]:
    return {"local_files_only": Path(model).is_dir(), "trust_remote_code": False}


def _fetched(model: str, load: Callable[[], Any]) -> Any:
    """``_guarded`` for an id or a folder: where there is no such folder, what to do is said too."""
    try:
        return _guarded(model, load)
    except ConfigError as error:
        if Path(model).is_dir() or not isinstance(error.__cause__, OSError):
            raise
        why = str(error.__cause__).split(". ")[0].split("\n")[0].rstrip(".")
        is_id = re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", model)
        raise ConfigError(
            f"hf: cannot load {model!r}: no such folder"
            + (f", and as an id of the hub: {why}" if is_id else "")
            + "; give a folder that holds the model (backbone.model=FOLDER), or an id where the hub can be reached"
        ) from error


def _guarded(name: str, load: Callable[[], Any]) -> Any:
    """Run a call that loads or builds; what transformers says of a user's model becomes one line."""
    try:
        return load()
    except Exception as error:  # of wrong numbers it raises whatever comes of them
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())
        kind = "" if isinstance(error, OSError | ValueError | StrictDataclassError) else f"{type(error).__name__}: "
        raise ConfigError(f"hf: cannot load {name!r}: {kind}{reason[:300]}") from error
