"""Whether a run can start, as far as its settings tell: without data, weights, a GPU or other processes.

A process that trains looks here before it reads anything, and ``kosmos launch`` for processes that are yet to be.
"""

from __future__ import annotations

from inspect import isclass
from typing import cast

import torch

from kosmos.components import OptimizerSpec
from kosmos.compose import Absent, check_components, check_parts, check_weights, decoder_alone
from kosmos.config import RunConfig, TrainConfig
from kosmos.errors import ConfigError, PluginError
from kosmos.model.fp8 import WHERE as FP8
from kosmos.plugins import Registry
from kosmos.runtime.dealing import check_dealing, num_groups
from kosmos.runtime.devices import pick_precision
from kosmos.runtime.parallel import Parallel
from kosmos.train.objective import check_objective
from kosmos.train.optim.release import check_release
from kosmos.train.profiling import check_profile
from kosmos.train.schedules import Schedule
from kosmos.train.sharding import check_strategy
from kosmos.train.sharing import check_kind, check_sharing


def check_settings(config: RunConfig, registry: Registry, parallel: Parallel, *, absent: Absent | None = None) -> None:
    """Refuse settings by which the processes of ``parallel`` cannot train. Tells other ranks nothing.

    Args:
        parallel: how many processes there are, and how many of them on a machine; its rank does not matter.
        absent: gets the error of each component that is missing or broken here, which is then passed over; None raises
            it.

    Raises:
        ConfigError: of several mistakes the first that is looked for.
        PluginError: a component is not installed or its plugin is broken.
    """
    train, processes = config.train, parallel.world_size
    check_dealing(config.data.lanes, processes, config.parallel.sharing)
    check_strategy(config.parallel, parallel)
    pick_precision(train.precision, torch.device("cpu"), train.weights)  # what is refused is so on any device
    _check_fp8(config, processes)
    check_weights(config.data)
    if config.checkpoint.keep_best and config.evaluate.every_steps is None:
        raise ConfigError("checkpoint.keep_best: keeps what scored best during training: set evaluate.every_steps too")
    if train.release_gradients:
        spec = registry.specs("optimizer").get(train.optimizer.name)  # where there is none, that is told below
        check_release(
            optimizer=train.optimizer.name,
            parameterwise=spec is None or cast(OptimizerSpec, spec).parameterwise,
            clip_norm=train.clip_norm,
            rows_per_step=config.data.lanes // num_groups(processes, config.parallel.sharing),
            world_size=processes,
            is_sharded=config.parallel.strategy != "ddp",
            is_offloaded=config.parallel.offload,
        )
    check_components(config, registry, absent)
    check_objective(config, registry, processes)
    if train.is_counted:
        check_length(config, registry, processes)
    check_parts(config, registry, absent)
    _check_backbone(config, registry, processes)


def check_length(config: RunConfig, registry: Registry, processes: int) -> None:
    """Refuse what does not go with the steps of a run, which are known. Raises ConfigError or PluginError."""
    check_profile(config.profile, config.train.steps, processes)
    if registry.peek("schedule", config.train.schedule.name) is not None:  # else that has been told
        open_schedule(config.train, registry)


def open_schedule(train: TrainConfig, registry: Registry) -> Schedule:
    """The learning rate over the steps of a run. Raises ConfigError or PluginError where its options make none."""
    schedule: Schedule = registry.build(
        "schedule", train.schedule.name, train.steps, train.warmup,
        options=train.schedule.options, path="train.schedule",
    )  # fmt: skip
    return schedule


def _check_fp8(config: RunConfig, processes: int) -> None:
    """What products of 8 bits do not go together with, whatever the model and the device."""
    if config.train.fp8 is None:
        return
    if config.train.precision == "fp32":
        raise ConfigError(f"{FP8}: not with train.precision=fp32; leave one of them out")
    if processes > 1 and config.parallel.tensor > 1:
        raise ConfigError(f"{FP8}: not of matrices that ranks share (parallel.tensor); leave one of them out")


def _check_backbone(config: RunConfig, registry: Registry, processes: int) -> None:
    """What can be known of the backbone before it is built: all of the built-in decoder, the class of others."""
    try:
        kind = registry.resolve("backbone", config.backbone.name)
    except PluginError:  # which has been told
        return
    if isclass(kind):
        check_kind(kind, config.parallel, processes)
    if (decoder := decoder_alone(config, registry)) is not None:
        check_sharing(decoder, config.parallel, processes)
