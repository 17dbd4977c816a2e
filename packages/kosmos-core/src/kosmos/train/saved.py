"""Load what a run has saved: the composition with the weights of a checkpoint, by default its newest whole one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch

from kosmos import collector
from kosmos.checkpoint.folder import (
    MANIFEST,
    Loaded,
    committed,
    digest,
    load_newest,
    load_step,
    reading,
    run_and_step,
    step_of,
)
from kosmos.checkpoint.tensors import load_model
from kosmos.compose import Composition, compose
from kosmos.config import RunConfig
from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Source
from kosmos.data.fingerprint import fingerprint_of
from kosmos.errors import CheckpointError, ConfigError, PluginError
from kosmos.given import A_RUN, path_of, whole
from kosmos.lock import check_lock, taken_over
from kosmos.model.lora import merge_updates
from kosmos.model.weights import materialize
from kosmos.names import listed
from kosmos.plugins import Registry, check_registry
from kosmos.run_file import make_run
from kosmos.runtime.cores import hold_threads
from kosmos.runtime.devices import apart_from_autocast, pick_device, pick_precision
from kosmos.runtime.environment import own_local_rank
from kosmos.train.best import measure_of, ranked, values, worse_than_begun
from kosmos.train.going_on import in_quotes, what_resumes
from kosmos.train.gone import check_checkpoints
from kosmos.train.laid_over import laid_over
from kosmos.train.measure import ALL, Measure, measured
from kosmos.train.older_rules import as_begun
from kosmos.train.other_codecs import check_codecs
from kosmos.train.other_processors import check_cells
from kosmos.train.output import RunFolder


@dataclass(frozen=True)
class SavedRun:
    """A trained model, ready to score and to generate."""

    composition: Composition
    step: int
    device: torch.device
    dtype: torch.dtype
    """Of matrix products."""
    skipped: tuple[str, ...]
    """Newer checkpoints that are damaged."""
    changed: tuple[str, ...] = ()
    """Plugins that are not those that the run was trained with."""
    documents: Mapping[str, int] = field(default_factory=dict)
    """By source, how many the run trained on."""
    checkpoint: str = ""
    """Hash of the checkpoint's manifest, and so of all that is in it."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """By source, what told them from others, where that is known."""
    folder: Path = Path()
    """Of the run."""
    shown_otherwise: tuple[str, ...] = ()
    """Options of processors that are not those that it was trained with, a line each."""
    order: Mapping[str, Any] = field(default_factory=dict)
    """``kosmos.train.order.sample_order`` of the checkpoint."""
    worse: str | None = None
    """Of the checkpoint that scored best: that the run scored better before its first step, and how much."""

    def warnings(self) -> list[str]:
        """What a user should know before relying on it, a line each."""
        damaged = [f"passed over a damaged checkpoint: {name}" for name in self.skipped]
        changed = [f"{line}; the run was trained with other code" for line in self.changed]
        lacking = [
            f"{route.no_codec}; what the run writes of {name} stays tokens"
            for name, route in self.composition.planner.routes.items()
            if route.no_codec
        ]
        return [*damaged, *changed, *self.shown_otherwise, *lacking, *([self.worse] if self.worse else [])]

    def as_begun(self, sources: Sequence[Source | ChoiceSource]) -> None:
        """Have rows of the run's own data read as they were in training, where it was begun with other rules."""
        if self.order:
            as_begun(self.order, sources)

    def other_data(self, sources: Sequence[Source]) -> list[str]:
        """What a user should know of the run's data before relying on scores of what it held out, a line each.

        Args:
            sources: what the run would train on now.
        """
        found = []
        for source in sources:
            before, count = self.documents.get(source.name), len(source)
            known, now = self.fingerprints.get(source.name), fingerprint_of(source)
            if before not in (None, count):
                found.append(f"{source.name}: {count:,} documents to train on, {before:,} when the run was trained")
            elif None not in (known, now) and known != now:
                found.append(
                    f"{source.name}: other documents to train on than when the run was trained, or in another order"
                )
        return [
            f"{line}; unless the data state a split, others are held out now, and some that are scored may have been "
            "trained on"
            for line in found
        ]


def load_run(
    output: str | Path,
    *,
    step: int | Literal["best"] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    registry: Registry | None = None,
    merge: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> SavedRun:
    """The model of the run in ``output``, in evaluation mode. All weights want gradients, frozen ones too.

    What ``SavedRun.warnings`` says is warned of: damaged checkpoints, plugins that are not those of the run, options of
    processors (``overrides``) that are not, and a best score (``step="best"``) that is worse than before the first
    step.

    Args:
        output: the run's folder, or that of one of its checkpoints.
        step: of which checkpoint; None is the newest whole one, ``best`` that of the best score by ``evaluate.best``.
        device: ``auto`` takes a GPU if there is one; of several processes of a launcher each has its own.
        overrides: laid over the run file, such as ``{"data": {"sources": {0: {"path": "moved"}}}}``; a stated
            ``train.device`` is that of ``auto``.
        merge: put low-rank updates (``lora``) into the weights that they stand beside, in whose type they are rounded.

    Raises:
        ConfigError: there is no run, ``step`` is no step, ``output`` is the checkpoint of another step, or one of
            ``overrides`` is wrong, would make another model or would have no effect.
        CheckpointError: there is no whole checkpoint, none of that step, or none that was scored.
        PluginError: a component that it uses is not installed.
    """
    found = opened_run(output, step=step, device=device, registry=registry, merge=merge, overrides=overrides)
    for line in found.warnings():
        warnings.warn(line, stacklevel=2)
    return found


@apart_from_autocast()
@torch.inference_mode(False)  # which is grad mode, too: parts are tried out, and weights are to be trained
def opened_run(
    output: str | Path,
    *,
    step: int | Literal["best"] | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    registry: Registry | None = None,
    merge: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> SavedRun:
    """As ``load_run``, for who tells what there is to be said in another way."""
    check_registry(registry)
    collector.imported()
    folder, loaded = open_checkpoint(path_of("output", output, A_RUN), step, overrides or {})
    best = step == "best"
    laid = laid_over(folder, overrides or {}, registry, chosen_by_best=best, may_be_shown=True)
    config, plugins = laid.config, laid.plugins
    changed = check_lock(folder.path, plugins, accept=True)
    hold_threads()
    states_device = "device" in (overrides or {}).get("train", {})
    own = own_local_rank() if torch.cuda.device_count() > 1 else 0  # a process may be shown its own GPU alone
    where = pick_device(config.train.device if device == "auto" and states_device else device, own)
    try:
        composition = compose(config, plugins, tokenizer_folder=folder.tokenizer, draw=False, spare_codecs=True)
        composition = replace(composition, planner=composition.planner.for_scores())
        check_cells(composition, laid.processors)
        with reading(loaded):
            check_codecs(loaded.state["order"], composition.planner.codecs, loaded.folder)
        materialize(composition.model, where, draw=False)
        composition.model.to(where).eval()
        load_model(composition.model, loaded.tensors, alone=True)
        if merge:
            merge_updates(composition.model)
    except (ConfigError, PluginError, CheckpointError) as error:
        if other := taken_over(folder.path, plugins):
            raise type(error)(f"{other}: {error}") from error
        if changed:  # which is likely why
            raise type(error)(f"{error}; the run was trained with other code: {'; '.join(changed)}") from error
        raise
    # Also what was frozen: autocast keeps casts of weights that want gradients, and casts others at every use.
    for parameter in composition.model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    dtype = pick_precision(config.train.precision, where)
    collector.go_on()
    with reading(loaded):
        opened = loaded.state["order"]["data"]["sources"]
        documents = {source["name"]: source["documents"] for source in opened}
        fingerprints = {source["name"]: source["fingerprint"] for source in opened if "fingerprint" in source}
    found, manifest = loaded.state["step"], digest(loaded.folder / MANIFEST)
    skipped, code = loaded.skipped, tuple(changed)
    worse = worse_than_begun(folder.scores(), _measure(folder, overrides or {})) if best else None
    told = (documents, manifest, fingerprints, folder.path, laid.told, loaded.state["order"], worse)
    return SavedRun(composition, found, where, dtype, skipped, code, *told)


def config_of(folder: RunFolder, *over: Mapping[str, Any]) -> RunConfig:
    """The run as its folder has it, with what is laid over it. Raises ConfigError where that is no run file."""
    return make_run(folder.read_config(), *over, where=str(folder.run_file))


def open_checkpoint(
    output: Path, step: int | Literal["best"] | None = None, overrides: Mapping[str, Any] = MappingProxyType({})
) -> tuple[RunFolder, Loaded]:
    """A run's folder and one of its checkpoints; arguments and errors as of ``load_run``."""
    given, step = output, _step_of(step)
    output, named = run_and_step(given)
    if None not in (step, named) and step != named:
        raise ConfigError(f"step {step}: {given} is the checkpoint of step {named}; leave one of them out")
    folder, step = RunFolder.open(output), named if step is None else step
    check_checkpoints(folder)
    if step == "best":
        return folder, _load_best(folder, _measure(folder, overrides))
    loaded = load_newest(folder.checkpoints) if step is None else load_step(folder.checkpoints, step)
    if loaded is None:
        again = in_quotes(what_resumes(output))
        raise CheckpointError(f"{folder.checkpoints}: no checkpoint was saved yet; go on with {again}")
    return folder, loaded


def _measure(folder: RunFolder, overrides: Mapping[str, Any]) -> Measure:
    if not overrides:
        return measure_of(folder)
    return Measure.of(folder.goes_on_with(overrides).evaluate.best, measured(folder.scores()))


def _step_of(given: int | Literal["best"] | None) -> int | Literal["best"] | None:
    """A step as it may be asked for, also by a number of numpy or PyTorch. Raises ConfigError where it is none."""
    if given is None or (isinstance(given, str) and given == "best"):
        return given
    try:
        return whole("step", given, least=0)
    except ConfigError as error:
        raise ConfigError(f"step: expected the number of a step, or 'best', got {given!r:.60}") from error


def _load_best(folder: RunFolder, measure: Measure) -> Loaded:
    """Of the run's whole checkpoints the one that scored best."""
    there = [step_of(checkpoint) for checkpoint in committed(folder.checkpoints)]
    rows, damaged = folder.scores(), list[str]()
    for step in ranked(rows, there, measure):
        try:
            return replace(load_step(folder.checkpoints, step), skipped=tuple(damaged))
        except CheckpointError as error:
            damaged.append(str(error))
    why = f"damaged: {'; '.join(damaged)}; " if damaged else ""
    names = sorted({name for row in rows for name in (row.get("held_out") or {}).get("source") or {}})
    by = "" if measure == ALL else f" by its {measure} (evaluate.best; scored were documents of {listed(names)})"
    raise CheckpointError(
        f"{folder.checkpoints}: no whole checkpoint is of a step that was scored{by}; {why}checkpoints: "
        f"{listed(map(str, sorted(there)))}; scored: {listed(map(str, values(rows, measure)))}; checkpoint.keep_best "
        "saves and keeps the best"
    )
