"""A published model, as another library has laid it out in a folder, as a run that was never trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kosmos.checkpoint.averaging import write_weights
from kosmos.checkpoint.tensors import model_tensors
from kosmos.compose import Composition, compose
from kosmos.config import DataConfig
from kosmos.config_weights import InitConfig
from kosmos.data.chat_template import save_tokenizer
from kosmos.data.hf_tokenizer import load_hf_tokenizer
from kosmos.data.tokenizer import load_tokenizer
from kosmos.data.turns import fitting
from kosmos.errors import ConfigError
from kosmos.lock import keep_lock
from kosmos.model.model_folder import TURNS, ModelFolder
from kosmos.model.weights import materialize
from kosmos.names import did_you_mean, listed
from kosmos.plugins import Registry
from kosmos.run_file import make_run
from kosmos.train.branch import run_folder
from kosmos.train.forecast.parts import counted
from kosmos.train.layout import Layout, ReadModel
from kosmos.train.order import settings_of

NO_LAYOUT = "no installed layout reads it"


class Imported(NamedTuple):
    """What was made of a folder."""

    layout: str
    composition: Composition
    hints: tuple[str, ...]
    spells: bool
    """Whether it is known how turns of chats are spelled."""


def import_folder(folder: Path, output: Path, registry: Registry, layout: str | None = None) -> Imported:
    """Make ``output`` the folder of a run that holds the model of ``folder``; it is whole or not there.

    Args:
        layout: name of the layout that the folder has; None is the one that knows it.

    Raises:
        ConfigError: no layout, or several, read the folder, or it holds what a run could not give back exactly, or
            there is something at ``output``.
        PluginError: a component that it needs is not installed.
        TrainingError: the disk is full or not writable.
    """
    if output.exists():  # before weights are read, which takes minutes
        raise ConfigError(f"{output}: is there already; name a folder that is not")
    published = ModelFolder(folder)
    name = _chosen(published, registry, layout)
    _refuse_few_bits(published)
    made: Layout = registry.build("layout", name)
    read = made.read(published)
    config = make_run(_settings(published, read, output), where=f"{folder} (layout {name})")
    with _named(published, read.marks) as tokenizer:
        composition = compose(config, registry, draw=False, tokenizer_folder=tokenizer)
    materialize(composition.model, torch.device("cpu"), draw=False)
    _fill(composition, read.tensors, folder)
    weights = {name: tensor.detach() for name, tensor in model_tensors(composition.model).items()}
    own = config.tokenizer.model_copy(update={"name": str(output.resolve() / "tokenizer")})
    # Whoever trains by its run file goes on with its weights: without them a model of this shape is nothing.
    begins = {"tokenizer": own, "init": InitConfig(path=output.resolve())}
    with run_folder(config.model_copy(update=begins), output) as new:
        save_tokenizer(composition.tokenizer, composition.planner.turns, new.tokenizer)
        keep_lock(new.path, registry)
        new.write_model(composition.without_files())
        new.write_parameters(counted(composition))
        order = settings_of(config)
        order = {**order, "data": {**order["data"], "sources": []}}  # nobody knows what it has learned from
        write_weights(weights, {"step": 0, "order": order}, new.checkpoints, of=())
    return Imported(name, composition, read.hints, bool(published.json(TURNS)) or config.tokenizer.turns is not None)


def layouts_of(folder: ModelFolder, registry: Registry) -> list[str]:
    """Names of the installed layouts that know a folder."""
    return [name for name in registry.specs("layout") if registry.build("layout", name).matches(folder.config)]


def _chosen(folder: ModelFolder, registry: Registry, layout: str | None) -> str:
    if layout is not None:
        if layout not in (known := registry.specs("layout")):
            said = did_you_mean(layout, known) or f"layouts: {listed(known) if known else 'none are installed'}"
            absent = registry.why_absent("layout", layout)
            raise ConfigError(f"--layout {layout}: no such layout is installed; {said}{absent}")
        if not registry.build("layout", layout).matches(folder.config):
            raise ConfigError(f"--layout {layout}: {folder.path} is none of it ({_kind(folder)})")
        return layout
    found = layouts_of(folder, registry)
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{folder.path}: is read by the layouts {listed(found)}; name one of them (--layout)")
    known, meant = registry.specs("layout"), str(folder.config.get("model_type")).replace("_", "-")
    raise ConfigError(
        f"{folder.path}: {NO_LAYOUT} ({_kind(folder)}); installed are {listed(known) if known else 'none'}; a language "
        f"model alone is a backbone: {{name: hf, model: {folder.path}}}{registry.why_absent('layout', meant)}"
    )


def _kind(folder: ModelFolder) -> str:
    return f"its config.json says model_type {folder.config.get('model_type')!r:.60}"


def _refuse_few_bits(folder: ModelFolder) -> None:
    """Raises ConfigError where weights are in few bits: of such a model others would come out."""
    inner = [folder.config, *(part for part in folder.config.values() if isinstance(part, dict))]
    if any(part.get("quantization_config") for part in inner):
        raise ConfigError(
            f"{folder.path}: config.json: quantization_config: its weights are in few bits; give the model as it was "
            "before (backbone.lora.quantize rounds it)"
        )


def _settings(folder: ModelFolder, read: ReadModel, output: Path) -> dict[str, Any]:
    """The run file. Where the layout does not say how turns are spelled, it is as special tokens of the tokenizer
    tell, if the model has learned from chats at all."""
    given = dict(read.settings)
    tokenizer = {"name": str(folder.path.resolve()), **given.get("tokenizer", {})}
    if written := folder.json(TURNS):
        tokenizer["turns"] = written.get("turns")
    elif "turns" not in tokenizer and folder.chat_template:
        tokenizer["turns"] = fitting(load_tokenizer(str(folder.path)))
    return {**given, **_rows(read.medium_slots), "tokenizer": tokenizer, "output": str(output)}


def _rows(slots: int) -> dict[str, Any]:
    """Length of the rows, where the default does not hold two media of so many slots: what is told as the command to go
    on with has to train."""
    least = 2 * slots
    return {} if least <= DataConfig().tokens_per_pack else {"data": {"tokens_per_pack": 1 << (least - 1).bit_length()}}


@contextmanager
def _named(folder: ModelFolder, marks: Mapping[str, str]) -> Iterator[Path | None]:
    """The folder's tokenizer with names for marks; None where these have their own.

    Raises:
        ConfigError: it has no such special tokens.
    """
    if not marks:
        yield None
        return
    tokenizer = load_hf_tokenizer(str(folder.path), ())
    if lacking := [name for name in marks.values() if name not in tokenizer.special_ids]:
        raise ConfigError(f"{folder.path}: its tokenizer lacks the special token {lacking[0]}, which its model needs")
    tokenizer.names |= marks
    with TemporaryDirectory() as place:
        tokenizer.save(Path(place))
        yield Path(place)


def _fill(composition: Composition, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Every tensor of the model, one after the other. Raises ConfigError where one is missing, or does not fit."""
    own = model_tensors(composition.model)
    if lacking := [name for name in own if name not in tensors]:
        raise ConfigError(f"{folder}: lacks {len(lacking)} tensors of the model, first {lacking[0]}")
    if extra := [name for name in tensors if name not in own]:
        raise ConfigError(f"{folder}: holds {len(extra)} tensors that the model has no place for, first {extra[0]}")
    backbone: Any = composition.model.backbone
    table = getattr(backbone, "token_table", backbone.output_weight)
    by_token = {id(table()), id(backbone.output_weight())}
    with torch.no_grad():
        for name, tensor in own.items():
            _copy(tensor, tensors[name], f"{folder}: {name}", may_grow=id(tensor) in by_token)


def _copy(own: Tensor, stored: Tensor, where: str, *, may_grow: bool) -> None:
    rows = len(stored) if stored.ndim else 0
    grows = may_grow and own.ndim == stored.ndim and own.shape[1:] == stored.shape[1:] and 0 < rows < len(own)
    if own.shape != stored.shape and not grows:
        raise ConfigError(
            f"{where}: is {tuple(stored.shape)}, and the model that its configuration tells has {tuple(own.shape)}"
        )
    if own.is_floating_point() != stored.is_floating_point():
        raise ConfigError(f"{where}: is of {stored.dtype}, expected {own.dtype}; give the model as it was before")
    if grows:
        own[:rows].copy_(stored)
        own[rows:] = stored.float().mean(0).to(own.dtype)
    else:
        own.copy_(stored)
