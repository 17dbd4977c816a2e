"""What a run is made of, opened and checked before it leaves anything behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from kosmos import collector
from kosmos.checkpoint.folder import committed
from kosmos.compose import Composition, compose, make_feed
from kosmos.config import RunConfig
from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Source
from kosmos.data.lane import Feed
from kosmos.data.marks import check_marks
from kosmos.given import MADE_BY, check_is, warn_caller
from kosmos.model.fp8 import check_fp8
from kosmos.plugins import Registry, check_registry, load_plugins
from kosmos.run_choices import open_own_choices
from kosmos.run_file import make_run, with_absolute_sources
from kosmos.run_sources import following, open_both, open_scored
from kosmos.runtime.cores import helpers_of_rank, hold_threads
from kosmos.runtime.devices import pick_device, pick_precision
from kosmos.runtime.parallel import Parallel
from kosmos.train.alike import check_same_data, check_same_model
from kosmos.train.comparable import check_compared
from kosmos.train.compiling import check_compile
from kosmos.train.given_data import GivenData
from kosmos.train.initial_checkpoint import check_there
from kosmos.train.kept_warmup import with_kept_warmup
from kosmos.train.length import Report, in_steps
from kosmos.train.newest_state import newest_state
from kosmos.train.older_rules import rules_of
from kosmos.train.order import sample_order, with_fingerprints
from kosmos.train.output import RunFolder
from kosmos.train.settings import check_length, check_settings
from kosmos.train.sharding import check_types
from kosmos.train.sharing import check_sharing
from kosmos.train.side_by_side import check_at_once


@dataclass(frozen=True)
class Opened:
    """A run as one rank sees it."""

    parallel: Parallel
    device: torch.device
    dtype: torch.dtype
    """Of matrix products."""
    workers: int
    composition: Composition
    from_files: bool
    """Whether the model was built by the files that the run file names, else by what the run's folder keeps."""
    sources: Sequence[Source]
    held_out: Sequence[Source]
    choices: Sequence[ChoiceSource]
    """Questions that are scored beside them."""
    feed: Feed
    order: dict[str, Any]
    """What ``kosmos.train.order.sample_order`` gave."""
    lanes: Sequence[int]
    """Those of this rank."""
    metrics: Mapping[str, bool]
    """Of answers that it writes, and whether lower is better."""
    given: GivenData | None
    """Documents that it has in place of those that the run file names."""
    counted: str = ""
    """What its epochs come to, for a person."""
    repeats: str | None = None
    """A warning where they come to many more."""

    @property
    def scored(self) -> list[Source]:
        """What it holds out, and the questions beside that."""
        return [*self.held_out, *self.choices]


def compose_run(config: RunConfig, *, registry: Registry | None = None) -> Composition:
    """Model, tokenizer and planner of a run as it begins, to look at what it is made of and what it would see.

    Weights are those that ``train.seed`` draws, or those of pretrained parts. Nothing is written.

    Args:
        config: from ``make_run``.
        registry: the plugins; None takes the installed ones.

    Raises:
        ConfigError: something of it is wrong.
        PluginError: a component is not installed or its plugin is broken.

    Warns:
        UserWarning: the run has ``init`` or ``backbone.lora.adapter``, which is not loaded.
    """
    check_is("config", config, RunConfig, MADE_BY)
    check_registry(registry)
    if config.init is not None:
        warn_caller(
            f"init: the weights of {config.init.path} are not loaded here; load_run has them, for load_state_dict"
        )
    if config.backbone.lora is not None and config.backbone.lora.adapter is not None:
        warn_caller(
            f"backbone.lora.adapter: the values of {config.backbone.lora.adapter} are not loaded here; train_model "
            "takes them"
        )
    found = compose(config, registry or load_plugins(config.plugins))
    _check_marks(config, found.registry)
    return found


def _check_marks(config: RunConfig, registry: Registry) -> None:
    """Raises as ``check_marks``."""
    specs: dict[str, Any] = registry.specs("modality")
    check_marks({name: specs[name].marks for name in config.modalities if name in specs})


def open_run(
    config: RunConfig,
    folder: RunFolder | None,
    registry: Registry,
    parallel: Parallel,
    report: Report = lambda line: None,
    given: GivenData | None = None,
) -> Opened:
    """Open a new run, or that of ``folder``. All ranks call it, and all raise the same KosmosError.

    Args:
        report: told what is waited for where it takes long.
        given: documents in place of those that the run file names.
    """
    collector.imported()
    # From the start, so that a bad sample has one name before and after a resume.
    absolute = with_absolute_sources(config, registry.specs("dataset"))
    # A checkpoint has all weights: the files that they began with are needed no more.
    saved = folder is not None and parallel.main_only(lambda: bool(committed(folder.checkpoints)))
    kept = parallel.main_only(folder.read_model) if folder is not None and saved else {}
    rules = parallel.main_only(lambda: _rules_of(folder)) if folder is not None and saved else {}
    if folder is None and (init := config.init) is not None:
        parallel.main_only(lambda: check_there(init.path))
    opened: list[Opened] = []  # each rank's own, which it tells nobody
    parallel.agreed(lambda: opened.append(_open(absolute, folder, registry, parallel, kept, given, rules)))
    run = opened[0]
    check_same_data(run.order, [*run.held_out, *run.choices], parallel)
    check_same_model(run.composition, parallel)
    sampled = parallel.main_only(lambda: given.sampled(report) if given else {})
    run = replace(run, order=with_fingerprints(run.order, sampled))
    if not absolute.train.is_counted:
        run = _counted(run, registry, report)
    if folder is None or not saved:
        return run
    kept_warmup = parallel.main_only(lambda: with_kept_warmup(run.composition.config, folder))
    return replace(run, composition=replace(run.composition, config=kept_warmup))


def _rules_of(folder: RunFolder) -> dict[str, Any]:
    """The rules by which its data were opened, as of ``following``. A state that is none is refused where it is gone on
    from."""
    order = (newest_state(folder.checkpoints) or {}).get("order")
    return rules_of(order) if isinstance(order, Mapping) else {}


def _counted(run: Opened, registry: Registry, report: Report) -> Opened:
    """The run with the steps that its epochs come to. All ranks call it."""
    config, parallel = run.composition.config, run.parallel

    def count() -> tuple[RunConfig, str, str | None]:
        counted, found = in_steps(config, run.feed, report)
        check_length(counted, registry, parallel.world_size)
        repeats = found.warning(config.data)
        return counted, found.line() if repeats else found.told(), repeats

    counted, told, repeats = parallel.main_only(count)
    return replace(run, composition=replace(run.composition, config=counted), counted=told, repeats=repeats)


def _open(
    config: RunConfig,
    folder: RunFolder | None,
    registry: Registry,
    parallel: Parallel,
    kept: Mapping[str, Any],
    given: GivenData | None,
    rules: Mapping[str, Any],
) -> Opened:
    """Tells other ranks nothing. Of several mistakes the first that is looked for here is told."""
    check_settings(config, registry, parallel)
    if folder is None:
        _check_marks(config, registry)
    parallel = parallel.shared_by(config.parallel.sharing)
    hold_threads()
    device = pick_device(config.train.device, parallel.local_rank)
    dtype = pick_precision(config.train.precision, device, config.train.weights)
    wanted = config.data.workers
    workers = helpers_of_rank(parallel.local_world_size) if wanted is None else wanted
    tokenizer = folder.tokenizer if folder else None
    draw = folder is None and parallel.world_size == 1  # else a checkpoint may be read, or each rank holds a share
    by = make_run(config.model_dump(mode="json"), kept) if kept else config
    composition = replace(compose(by, registry, tokenizer_folder=tokenizer, draw=draw), config=config)
    if config.train.weights == "fp32":  # else all are made one
        check_types(composition.model, config.parallel, parallel)
    check_sharing(composition.model.backbone, config.parallel, parallel.world_size)
    check_compile(composition.model, config.train.compile, device)
    check_fp8(config.train.fp8, composition.model.backbone, device)
    check_at_once(config, composition.model, device, processes=parallel.world_size)
    with following(**rules) if folder else nullcontext():
        sources, held_out = _open_data(config, registry, given, resumed=folder is not None)
        choices = open_own_choices(
            config, registry, held_out,
            encode=composition.tokenizer.encode, max_rows=config.evaluate.max_documents,
        )  # fmt: skip
    metrics = check_compared(config, held_out, choices, composition.planner, registry)
    feed = make_feed(composition, sources)
    return Opened(
        parallel=parallel, device=device, dtype=dtype, workers=workers, composition=composition,
        from_files=not kept, sources=sources, held_out=held_out, choices=choices, feed=feed,
        order=sample_order(config, sources, given.held_out if given else (), composition.planner.codecs),
        lanes=parallel.lanes(config.data.lanes), metrics=metrics, given=given,
    )  # fmt: skip


def _open_data(
    config: RunConfig, registry: Registry, given: GivenData | None, *, resumed: bool
) -> tuple[list[Source], list[Source]]:
    """What is trained on, and what is scored."""
    if given is None:
        return open_both(config, registry)
    given.check_some(resumed=resumed)
    scored = open_scored(config, registry, given.names)
    return list(given.sources), [*given.held_out, *scored]
