"""A plugin of the smaller kinds, one of each; its components are in ``smaller``."""

from __future__ import annotations

from collections.abc import Iterator

from kosmos import (
    BackboneSpec,
    CommandSpec,
    ConnectorSpec,
    MetricSpec,
    ObjectiveSpec,
    ObserverSpec,
    OptimizerSpec,
    ScheduleSpec,
    TrackerSpec,
    hookimpl,
)

KOSMOS_API = 1
AT = "support.smaller"


@hookimpl
def kosmos_connectors() -> Iterator[ConnectorSpec]:
    yield ConnectorSpec(name="average", target=f"{AT}:Mean", summary="One slot an item.")


@hookimpl
def kosmos_backbones() -> Iterator[BackboneSpec]:
    yield BackboneSpec(name="little", target=f"{AT}:Small", summary="Core's decoder, small.")


@hookimpl
def kosmos_optimizers() -> Iterator[OptimizerSpec]:
    yield OptimizerSpec(name="momentum", target=f"{AT}:descent", summary="Gradient descent.", parameterwise=True)


@hookimpl
def kosmos_schedules() -> Iterator[ScheduleSpec]:
    yield ScheduleSpec(name="stairs", target=f"{AT}:stairs", summary="Halved now and then.")


@hookimpl
def kosmos_metrics() -> Iterator[MetricSpec]:
    yield MetricSpec(name="same_length", target=f"{AT}:same_length", summary="Share of equal lengths.")


@hookimpl
def kosmos_objectives() -> Iterator[ObjectiveSpec]:
    yield ObjectiveSpec(name="squares", target=f"{AT}:squares", summary="Mean square of a document's losses.")


@hookimpl
def kosmos_trackers() -> Iterator[TrackerSpec]:
    yield TrackerSpec(name="lines", target=f"{AT}:Lines", summary="A line a row.")


@hookimpl
def kosmos_observers() -> Iterator[ObserverSpec]:
    yield ObserverSpec(name="watch", target=f"{AT}:watch", summary="Prints steps.")


@hookimpl
def kosmos_commands() -> Iterator[CommandSpec]:
    yield CommandSpec(name="show", target=f"{AT}:show", summary="Show a few.")
