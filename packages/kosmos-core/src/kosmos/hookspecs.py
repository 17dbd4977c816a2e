"""The whole plugin surface.

A plugin is a module named by an entry point of the group ``kosmos``. It states ``KOSMOS_API = 1`` and
implements any of the hooks below, each marked with ``@hookimpl``. Every hook returns descriptors;
nothing heavy is imported until a run asks for a component by name.

Example, complete:

    from kosmos import EncoderSpec, hookimpl

    KOSMOS_API = 1

    @hookimpl
    def kosmos_encoders():
        yield EncoderSpec(name="my-encoder", target="my_package.encoder:MyEncoder", summary="What it is.")
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from kosmos.components import (
    BackboneSpec,
    CodecSpec,
    CommandSpec,
    ConnectorSpec,
    CorpusSpec,
    DatasetSpec,
    EncoderSpec,
    LayoutSpec,
    MetricSpec,
    ModalitySpec,
    ObjectiveSpec,
    ObserverSpec,
    OptimizerSpec,
    ScheduleSpec,
    TrackerSpec,
)

GROUP = "kosmos"
"""Name of the entry-point group and of the pluggy project."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def kosmos_modalities() -> Iterable[ModalitySpec]:  # type: ignore[empty-body]
    """Kinds of media: how a medium is planned and decoded, and its default stream."""


@hookspec
def kosmos_encoders() -> Iterable[EncoderSpec]:  # type: ignore[empty-body]
    """Networks that turn the cells of media into features."""


@hookspec
def kosmos_connectors() -> Iterable[ConnectorSpec]:  # type: ignore[empty-body]
    """Networks that turn an encoder's features into token slots of the backbone."""


@hookspec
def kosmos_codecs() -> Iterable[CodecSpec]:  # type: ignore[empty-body]
    """Media as tokens that a model writes, and back."""


@hookspec
def kosmos_backbones() -> Iterable[BackboneSpec]:  # type: ignore[empty-body]
    """Language models."""


@hookspec
def kosmos_datasets() -> Iterable[DatasetSpec]:  # type: ignore[empty-body]
    """Named sources of documents."""


@hookspec
def kosmos_corpora() -> Iterable[CorpusSpec]:  # type: ignore[empty-body]
    """Layouts of folders and files that are known by what they hold, and read as rows."""


@hookspec
def kosmos_layouts() -> Iterable[LayoutSpec]:  # type: ignore[empty-body]
    """How other libraries lay out whole models in folders, which are read as runs and written of them."""


@hookspec
def kosmos_metrics() -> Iterable[MetricSpec]:  # type: ignore[empty-body]
    """Scores of generated against expected texts."""


@hookspec
def kosmos_optimizers() -> Iterable[OptimizerSpec]:  # type: ignore[empty-body]
    """Optimizers."""


@hookspec
def kosmos_schedules() -> Iterable[ScheduleSpec]:  # type: ignore[empty-body]
    """Learning-rate schedules."""


@hookspec
def kosmos_objectives() -> Iterable[ObjectiveSpec]:  # type: ignore[empty-body]
    """What is minimized, in place of the cross entropy of tokens."""


@hookspec
def kosmos_trackers() -> Iterable[TrackerSpec]:  # type: ignore[empty-body]
    """Where metrics go, beside ``metrics.jsonl``."""


@hookspec
def kosmos_commands() -> Iterable[CommandSpec]:  # type: ignore[empty-body]
    """Further sub-commands of ``kosmos``."""


@hookspec
def kosmos_observers() -> Iterable[ObserverSpec]:  # type: ignore[empty-body]
    """Callables that see the metrics of each step."""


HOOKS: dict[str, str] = {
    "modality": "kosmos_modalities",
    "encoder": "kosmos_encoders",
    "connector": "kosmos_connectors",
    "codec": "kosmos_codecs",
    "backbone": "kosmos_backbones",
    "dataset": "kosmos_datasets",
    "corpus": "kosmos_corpora",
    "layout": "kosmos_layouts",
    "metric": "kosmos_metrics",
    "optimizer": "kosmos_optimizers",
    "schedule": "kosmos_schedules",
    "objective": "kosmos_objectives",
    "tracker": "kosmos_trackers",
    "command": "kosmos_commands",
    "observer": "kosmos_observers",
}
"""Kind of component to the hook that brings it."""
