"""From a run that was opened to a trainer that can take its next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from torch import Tensor

from kosmos.checkpoint.folder import Loaded, load_newest, reading, run_and_step
from kosmos.config import RunConfig
from kosmos.config_weights import InitConfig
from kosmos.data.document import Source
from kosmos.data.feeder import Feeder, open_feeder, sample_hang_s
from kosmos.data.quarantine import UselessData, incident_row
from kosmos.errors import KosmosError
from kosmos.names import listed
from kosmos.plugins import Registry
from kosmos.train.begun import Begun, read_begun, write_begun
from kosmos.train.gone import check_checkpoints
from kosmos.train.initial import Initial, drawn_again, held_out_anew, held_out_otherwise, open_initial, take_weights
from kosmos.train.initial_optimizer import take_optimizer
from kosmos.train.loop import Trainer
from kosmos.train.opening import Opened
from kosmos.train.order import check_goes_on
from kosmos.train.output import RunFolder
from kosmos.train.trained_before import held_out_before
from kosmos.train.watch import Watch


def newest(folder: RunFolder, config: RunConfig, order: Mapping[str, Any], registry: Registry) -> Loaded | None:
    """The newest whole checkpoint of a run, if it has any. Raises CheckpointError as ``check_goes_on``."""
    loaded = load_newest(folder.checkpoints)
    if loaded is None:
        check_checkpoints(folder)
        return None
    with reading(loaded):
        check_goes_on(loaded.state, config, order, loaded.folder, registry)
    return loaded


def start_trainer(
    stack: ExitStack,
    opened: Opened,
    folder: RunFolder,
    *,
    order: Mapping[str, Any],
    watch: Watch,
    report: Callable[[str], None],
    at: Callable[..., None] | None = None,
    loaded: Loaded | None = None,
) -> Trainer:
    """A trainer and the rows that it takes, which ``stack`` closes. All ranks call it.

    Args:
        order: what ``kosmos.train.order.sample_order`` gave.
        report: shows a line to the user.
        at: told what begins, as ``watch.at``; None is that.
        loaded: a checkpoint whose data are gone on with; its weights are the caller's to load.
    """
    feeders: list[Feeder] = []  # each rank's own, which it tells nobody
    opened.parallel.agreed(lambda: feeders.append(_open_feeder(opened, watch, loaded)))
    stack.callback(feeders[0].close)
    trainer = Trainer(
        opened.composition, feeders[0], folder,
        device=opened.device, dtype=opened.dtype, parallel=opened.parallel, order=order,
        report=report, at=at or watch.at, draw=loaded is None,
    )  # fmt: skip
    stack.push(_noting_useless(trainer, folder))
    if trainer.release is not None:  # parameters and the optimizer would hold each other for good
        stack.callback(trainer.release.remove)
    return trainer


def _noting_useless(trainer: Trainer, folder: RunFolder) -> Callable[..., None]:
    """What writes the bad samples of which a run ends to its ledger: no row came that would tell of them."""

    def note(kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UselessData) and trainer.parallel.is_main:
            with suppress(KosmosError):  # the samples are what is to be said
                folder.note_bad([incident_row(incident, trainer.step + 1) for incident in error.incidents])

    return note


def _open_feeder(opened: Opened, watch: Watch, loaded: Loaded | None) -> Feeder:
    with reading(loaded):
        state = loaded.state["data"] if loaded else None
        hang_s = sample_hang_s(opened.composition.config.train.hang_s)
        return open_feeder(
            opened.feed, opened.lanes, workers=opened.workers, state=state, hang_s=hang_s, moved=watch.moved
        )


def begin_with_weights(
    trainer: Trainer, folder: RunFolder, sources: Sequence[Source], *, resumed: bool = False
) -> None:
    """Give a trainer that has taken no step what its run file names to begin with, and report it. All ranks call it.

    Args:
        sources: what it trains on.
        resumed: whether the run was begun before: it begins again with what it had begun with.
    """
    config, composition, parallel = trainer.config, trainer.composition, trainer.parallel
    if config.init is not None:
        _begin_with(config.init, trainer, folder, sources, resumed)
    if config.backbone.lora is not None and (adapter := config.backbone.lora.adapter) is not None:
        # It reads a model of transformers, whose import takes a second of every other run's start.
        from kosmos.train.initial_adapter import check_adapter, read_adapter, take_adapter

        found = parallel.main_only(lambda: check_adapter(adapter, composition))
        tensors: dict[str, Tensor] = {}  # each rank's own, which it tells nobody
        parallel.agreed(lambda: tensors.update(read_adapter(found)))
        for line in take_adapter(found, tensors, composition):
            trainer.report(line)


def _begin_with(
    init: InitConfig, trainer: Trainer, folder: RunFolder, sources: Sequence[Source], resumed: bool
) -> None:
    model, turns, parallel = trainer.model, trainer.config.tokenizer.turns, trainer.parallel

    def opened() -> tuple[Initial, bool]:
        begun, of_model = read_begun(folder), (folder.tokenizer, model, trainer.composition)
        initial = open_initial(init, *of_model, begun=begun, resumed=resumed)
        write_begun(folder, Begun.of(initial.loaded))
        names_run = run_and_step(init.path)[1] is None
        return initial, names_run and begun is None and folder.last_step() is not None

    initial, is_unknown = parallel.main_only(opened)
    if is_unknown:  # of an older version
        trainer.report(
            f"warning: init: no {folder.begun.name} tells which step of {init.path} this run began with: it begins "
            f"again with step {initial.loaded.state['step']}"
        )
    for damaged in initial.loaded.skipped:
        trainer.report(f"warning: init: passed over a damaged checkpoint of {init.path}: {damaged}")
    for line in take_weights(model, initial, alone=parallel.world_size == 1, turns=turns):
        trainer.report(line)
    if init.optimizer:
        trainer.report(take_optimizer(trainer, initial))
    with reading(initial.loaded):
        state, here = initial.loaded.state, trainer.config.data
        again = drawn_again(state, trainer.order)
        both = initial.data or here, state["order"], here, trainer.order, init.path
        otherwise = [*held_out_otherwise(*both), *held_out_anew(*both, sources)]
    told, order = list(otherwise), trainer.order
    otherwise += parallel.main_only(lambda: [*held_out_before(init.path, told, here, order, sources)])
    if again:
        trainer.report(
            f"warning: data.seed: is that of {init.path} too, so the first documents of {listed(again)} come again, "
            "which its weights have been trained on; set another number"
        )
    for line in otherwise:
        trainer.report(f"warning: {line}")
