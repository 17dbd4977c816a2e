"""What is wrong with a run file, in one line: each mistake, and for an unknown field the one that was meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from kosmos.config import RunConfig
from kosmos.names import did_you_mean, plain

AT_MOST = 4
"""Mistakes that are told."""

ELSEWHERE = {
    "a step takes data.lanes rows of data.tokens_per_pack tokens": (
        "batch_size micro_batch_size global_batch_size per_device_batch_size per_device_train_batch_size"
    ),
    "data.lanes says what a step takes, and each process accumulates its part": "gradient_accumulation_steps",
    "train.steps says how long; kosmos data tells how many steps take every document once": (
        "epochs num_epochs num_train_epochs"
    ),
    "a model of transformers is backbone: {name: hf, model: ID}": (
        "model model_id model_name model_name_or_path model_path"
    ),
    "kosmos train --resume FOLDER": "resume resume_from_checkpoint",
    "every step is a row of metrics.jsonl": "logging_steps log_interval",
    "rows are always packed": "packing neat_packing",
    "streams.NAME.freeze": "freeze_vit freeze_vision_tower freeze_encoder",
    "train.precision is auto, fp32 or bf16": "bf16 fp16 dtype torch_dtype mixed_precision",
    "train.steps": "max_steps",
    "train.learning_rate": "lr",
    "train.optimizer": "optim",
    "train.schedule": "scheduler lr_scheduler lr_scheduler_type",
    "train.warmup_steps": "warmup warmup_ratio",
    "train.clip_norm": "grad_clip gradient_clipping max_grad_norm",
    "train.compile": "torch_compile",
    "data.tokens_per_pack": "block_size context_length cutoff_len max_len max_length max_seq_length seq_len seq_length",
    "data.held_out": "val_size val_ratio validation_split test_size",
    "streams.NAME.encoder": "encoder vision_tower vision_model audio_tower",
    "init": "init_from pretrained_checkpoint load_from",
    "data.workers": "num_workers dataloader_num_workers",
    "data.sources": "dataset datasets dataset_path train_data data_path",
    "evaluate.every_steps": "eval_steps",
    "evaluate.patience": "early_stopping_patience",
    "checkpoint.every_steps": "save_steps",
    "checkpoint.keep_last": "save_total_limit",
    "parallel.strategy": "deepspeed fsdp",
    "parallel.tensor": "tensor_parallel_size",
    "trackers": "report_to logger",
    "output": "output_dir save_dir",
}
"""Where that is said here which other trainers call so."""
_BY_NAME = {plain(name): said for said, names in ELSEWHERE.items() for name in names.split()}


def explain(error: ValidationError) -> str:
    """Every mistake with its path, what was expected and what stands there."""
    # A misspelt field often makes another one missing: the misspelling is the news.
    unknown = {one["loc"][:-1] for one in error.errors() if one["type"] == "extra_forbidden"}
    found = [one for one in error.errors() if one["type"] != "missing" or one["loc"][:-1] not in unknown]
    found.sort(key=lambda one: one["type"] != "extra_forbidden")
    by_field: dict[tuple[str, str], list[str]] = {}
    for one in found:  # a field of several types has an error for each
        path = _field_of(one["loc"])
        said = by_field.setdefault((".".join(map(str, path)), repr(one["input"])), [])
        said.append(_told(one["type"], path, one["msg"]))
    told = [
        f"{path}: {' or '.join(dict.fromkeys(said))}" + ("" if said[0].startswith("unknown") else f", got {value}")
        for (path, value), said in by_field.items()
    ]
    more = f" (and {len(told) - AT_MOST} more)" if len(told) > AT_MOST else ""
    return "; ".join(told[:AT_MOST]) + more


def _told(kind: str, location: Sequence[int | str], message: str) -> str:
    if kind == "extra_forbidden":
        return f"unknown field; {_meant(str(location[-1]), location[:-1])}"
    if kind in ("model_type", "model_attributes_type"):
        return f"expected fields, such as {', '.join(_fields_at(location)[:4])}"
    return f"{message[0].lower()}{message[1:]}"


def _field_of(location: Sequence[int | str]) -> tuple[int | str, ...]:
    """A place without what pydantic adds to it: which of a field's types was tried."""
    model: Any = RunConfig
    for number, part in enumerate(location):
        if not _is_model(model):
            return tuple(location)
        if isinstance(part, int) or part not in model.model_fields:
            continue  # of a list, a mapping or unknown
        inner = [a for a in _arguments(model.model_fields[part].annotation) if _is_model(a)]
        if not inner:
            rest = location[number + 1 :]
            return tuple(location[: number + 1]) + tuple(rest if rest and _is_key(model, str(part)) else ())
        model = inner[0]
    return tuple(location)


def _is_key(model: Any, field: str) -> bool:
    """Whether what stands behind a field is a key of a mapping or a number of a list."""
    return getattr(model.model_fields[field].annotation, "__origin__", None) in (dict, list)


def _meant(name: str, location: Sequence[int | str]) -> str:
    """The field that is most likely meant by a name that none has at its place."""
    if same := _of_that_name(name):
        return f"did you mean {same}?"
    fields = _fields_at(location)
    if said := _BY_NAME.get(plain(name)):
        here = said.rpartition(".")[2]
        return said if " " in said else f"did you mean {here if here in fields else said}?"
    return did_you_mean(name, fields) or f"fields here: {', '.join(fields)}"


def field_meant(option: str) -> str:
    """What an unknown option may have been meant for: a field of the run file, or nothing."""
    name = option.lstrip("-")
    said = _of_that_name(name) or _BY_NAME.get(plain(name), "")
    return f"a field is set by its path: {said}=VALUE" if said and " " not in said.replace(" or ", "") else said


def _of_that_name(name: str) -> str:
    """Paths of the fields of a name, wherever they stand; those of training first."""
    same = [path for path, own in _paths(RunConfig) if plain(own) == plain(name)]
    return " or ".join(sorted(same, key=lambda path: not path.startswith("train.")))


def _paths(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, str]]:
    """Path and name of each field that has one place in a run file."""
    for name, field in model.model_fields.items():
        inner = [a for a in _arguments(field.annotation) if _is_model(a)]
        if not inner and name != "name":  # of a component, of which there are many
            yield f"{before}{name}", name
        elif field.annotation in inner:
            yield from _paths(inner[0], f"{before}{name}.")


def _fields_at(location: Sequence[int | str]) -> list[str]:
    """Names of the fields of the model that stands at ``location`` in a run file."""
    model: Any = RunConfig
    for part in location:
        annotation = model.model_fields[part].annotation if _is_model(model) and part in model.model_fields else None
        inner = [a for a in _arguments(annotation) if _is_model(a)] if annotation is not None else []
        model = inner[0] if inner else model
    return list(model.model_fields)


def _arguments(annotation: Any) -> list[Any]:
    nested = getattr(annotation, "__args__", None)
    return [a for arg in nested for a in _arguments(arg)] if nested else [annotation]


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
