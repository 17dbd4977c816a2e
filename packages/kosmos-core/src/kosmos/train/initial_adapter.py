"""Begin with the values of an adapter of PEFT: low-rank updates of a model of transformers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import isclose
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer as Tokens
from torch import Tensor, nn

from kosmos.adapter_files import CONFIG, LORA_A, LORA_B, PREFIX, SAVED, WEIGHTS, Adapter, copied, open_adapter
from kosmos.compose import Composition
from kosmos.config_weights import LoRAConfig
from kosmos.data.bytes_tokenizer import ByteTokenizer
from kosmos.data.hf_tokenizer import HfTokenizer, of_bytes
from kosmos.errors import ConfigError
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.lora import A, B, LoRALinear
from kosmos.names import listed
from kosmos.train.initial import as_here

PLACE = "backbone.lora.adapter"
_OURS = "backbone.model."
"""What stands in front of a name of the model's in a run."""


def check_adapter(folder: Path, composition: Composition) -> Adapter:
    """What an adapter says of itself, once it is known to fit a run.

    Args:
        composition: whose model has the run's weights already.

    Raises:
        ConfigError: it is of a kind that is not read, or of another model.
    """
    backbone, lora = composition.model.backbone, cast(LoRAConfig, composition.config.backbone.lora)
    try:
        adapter = open_adapter(folder)
    except ConfigError as error:
        raise ConfigError(f"{PLACE}: {error}") from error
    if not isinstance(backbone, HuggingFaceBackbone):
        name = composition.config.backbone.name
        raise ConfigError(f"{PLACE}: {folder} is of a model of transformers (backbone hf), and backbone {name} is none")
    if adapter.rank != lora.rank or not isclose(adapter.alpha / adapter.rank, lora.alpha / lora.rank, rel_tol=1e-6):
        raise ConfigError(
            f"backbone.lora: rank {lora.rank} and alpha {lora.alpha:g}, and the adapter {folder} has rank "
            f"{adapter.rank} and alpha {adapter.alpha:g}; leave them out to take them from it"
        )
    model = composition.model
    own = _tensors(model)
    tables = _tables(backbone, own)
    for name, shape in adapter.shapes.items():
        _check_shape(adapter, name, shape, own, tables)
    if read := [name for name in adapter.shapes if _OURS + name in tables]:
        _check_tokens(adapter, adapter.shapes[read[0]][0], composition, backbone)
    _check_whole(adapter, backbone)
    _check_ties(adapter, backbone)
    return adapter


def take_adapter(adapter: Adapter, tensors: Mapping[str, Tensor], composition: Composition) -> Iterator[str]:
    """Give a model that has taken no step the values of an adapter, and tell of it. All ranks call it.

    Args:
        adapter: what ``check_adapter`` gave.
        tensors: what ``read_adapter`` gave.
        composition: whose model is whole or sharded, with memory.
    """
    backbone = cast(HuggingFaceBackbone, composition.model.backbone)
    own = _tensors(composition.model)
    tables = _tables(backbone, own)
    with torch.no_grad():
        for name, stored in tensors.items():
            ours = own[_of_run(name)].detach()
            rows = ours.shape[0] - stored.shape[0] if _OURS + name in tables else 0
            if rows:  # as rows of new marks begin beside those of a model
                mean = stored.float().mean(0, keepdim=True).to(stored.dtype)
                stored = torch.cat([stored, mean.expand(rows, *stored.shape[1:])])
            ours.copy_(as_here(stored.to(ours.dtype), ours))
    saved = sorted({name.rpartition(".")[0] for name in tensors if not name.endswith((LORA_A, LORA_B))})
    whole = f" and with its {listed(saved)}" if saved else ""
    yield f"begins with updates of {len(adapter.layers)} layers of the adapter {adapter.folder}{whole}"
    named = composition.config.backbone.options.get("model")
    if adapter.base and named and Path(adapter.base).name != Path(str(named)).name:
        yield (
            f"warning: {PLACE}: {adapter.folder} was trained beside {adapter.base}, and this run has {named}; with "
            "other weights than those its updates are of no use"
        )


def _check_shape(adapter: Adapter, name: str, shape: tuple[int, ...], own: Mapping[str, Any], tables: set[str]) -> None:
    ours = own.get(_of_run(name))
    if ours is None:
        at, last = _split(name)
        is_there = any(path.startswith(f"{_OURS}{at}.") for path in own)
        if is_there and last in (LORA_A, LORA_B):
            raise ConfigError(
                f"backbone.lora.layers: {adapter.folder} has an update of {at}, and the run has none there; "
                "leave layers out to take them from it, or name it"
            )
        raise ConfigError(f"{PLACE}: {adapter.folder} is of another model: it has {name}, which backbone.model lacks")
    here = tuple(ours.shape)
    if here == shape:
        return
    if _OURS + name in tables and here[1:] == shape[1:]:
        if shape[0] < here[0]:
            return
        raise ConfigError(
            f"{PLACE}: {adapter.folder} has rows of {shape[0]:,} tokens in {name}, and the run {here[0]:,}: its "
            f"tokenizer has tokens of its own; give the run that (tokenizer: {adapter.folder}, if it lies there)"
        )
    raise ConfigError(
        f"{PLACE}: {adapter.folder} is of another model: {name} is {list(shape)} there, {list(here)} in backbone.model"
    )


def _check_tokens(adapter: Adapter, rows: int, composition: Composition, backbone: HuggingFaceBackbone) -> None:
    """Raises ConfigError where rows of the adapter are not of the tokens that the run has there."""
    file = adapter.folder / "tokenizer.json"
    if not file.is_file():
        if rows > (had := backbone.vocab_size - backbone.grown):
            raise ConfigError(
                f"{PLACE}: {adapter.folder} has rows of {rows:,} tokens, {rows - had} more than its model, and no "
                "tokenizer.json that says of which; put that of its training beside it"
            )
        return
    tokenizer = composition.tokenizer
    readable = of_bytes(tokenizer) if isinstance(tokenizer, ByteTokenizer) else tokenizer
    if not isinstance(readable, HfTokenizer):
        return
    try:
        theirs = Tokens.from_file(str(file)).get_vocab(with_added_tokens=True)
    except Exception as error:  # its library raises nothing else
        raise ConfigError(f"{PLACE}: {file}: cannot be read as a tokenizer: {error}") from error
    ours = readable.vocabulary()
    if other := next((token for token, number in sorted(theirs.items()) if ours.get(token) != number), None):
        raise ConfigError(
            f"{PLACE}: {adapter.folder} has rows of other tokens than the run: {other!r} is {theirs[other]} there, and "
            f"{ours.get(other, 'none')} here; give the run its tokenizer (tokenizer: {adapter.folder})"
        )


def _check_whole(adapter: Adapter, backbone: HuggingFaceBackbone) -> None:
    """Raises ConfigError where a layer that the adapter names has no update in it: part of its file is lost."""
    if not isinstance(adapter.targets, tuple):
        return
    for name, layer in backbone.model.named_modules():
        meant = isinstance(layer, LoRALinear) and f".{name}".endswith(tuple(f".{last}" for last in adapter.targets))
        if meant and name not in adapter.layers:
            raise ConfigError(
                f"{PLACE}: {adapter.folder / WEIGHTS} has no update of {name}, which target_modules of {CONFIG} names; "
                "give the whole adapter, or leave the layer out there (exclude_modules)"
            )


def _check_ties(adapter: Adapter, backbone: HuggingFaceBackbone) -> None:
    """Raises ConfigError where one matrix of the model would be two."""
    into, out = backbone.model.get_input_embeddings(), backbone.model.get_output_embeddings()
    if into.weight is not out.weight:
        return
    names = [f"{name}.weight" for name, module in backbone.model.named_modules() if module is into or module is out]
    here = [*read_adapter(adapter, only=names).values()]
    apart = any(name.rpartition(".")[0].endswith(adapter.saved) for name in names) and not adapter.keeps_ties
    if (len(here) == 2 and not torch.equal(*here)) or (len(here) == 1 and apart):
        raise ConfigError(
            f"{PLACE}: in {adapter.folder} {listed(names)} are matrices of their own, which are one in the model "
            "(tie_word_embeddings): PEFT trained a copy of one of them (modules_to_save, without ensure_weight_tying)"
        )


def read_adapter(adapter: Adapter, only: Collection[str] | None = None) -> dict[str, Tensor]:
    """Tensors of an adapter, or some of them, by the names that the model has for them.

    Raises:
        ConfigError: its file cannot be read.
    """
    file = adapter.folder / WEIGHTS
    names = adapter.shapes if only is None else [name for name in only if name in adapter.shapes]
    try:
        with safe_open(file, "pt") as opened:
            found = {name: opened.get_tensor(PREFIX + name) for name in names}
            again = {key: copied(key.removeprefix(PREFIX)) for key in opened.keys() if SAVED in key}  # noqa: SIM118
            of = {key: found[name] for key, name in again.items() if name in found}
            others = [key for key, tensor in of.items() if not torch.equal(opened.get_tensor(key), tensor)]
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{PLACE}: {file}: cannot be read as safetensors: {error}") from error
    if others:
        raise ConfigError(
            f"{PLACE}: {file}: {others[0]} and {copied(others[0])} differ, and one of them is a copy; merge it into "
            "its model with peft (merge_and_unload, then save_pretrained), and name that as backbone.model"
        )
    if wrong := next((name for name, tensor in found.items() if not bool(torch.isfinite(tensor).all())), None):
        raise ConfigError(f"{PLACE}: {file}: {wrong} holds NaN or infinity: the adapter is of no use; give another")
    return found


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by all names that they have."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}


def _tables(backbone: HuggingFaceBackbone, own: Mapping[str, Tensor]) -> set[str]:
    """Names in the run of tensors with a row for each token."""
    modules = backbone.model.get_input_embeddings(), backbone.model.get_output_embeddings()
    rows = [parameter for module in modules for parameter in module.parameters(recurse=False)]
    return {name for name, tensor in own.items() if any(tensor is of for of in rows)}


def _split(name: str) -> tuple[str, str]:
    for last in (LORA_A, LORA_B):
        if name.endswith(last):
            return name.removesuffix(last), last
    return name.rpartition(".")[0], ""


def _of_run(name: str) -> str:
    """A name of an adapter's tensor as a run has it."""
    at, last = _split(name)
    ours = {LORA_A: A, LORA_B: B}
    return f"{_OURS}{at}.{ours[last]}" if last else _OURS + name
