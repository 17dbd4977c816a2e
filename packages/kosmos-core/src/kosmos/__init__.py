"""Kosmos trains omni-modal language models from plugins. The public names, imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "26.11.0"

_PUBLIC = {
    "hookimpl": "kosmos.hookspecs",
    **dict.fromkeys(
        (
            "API_VERSION ModalitySpec EncoderSpec ConnectorSpec BackboneSpec DatasetSpec MetricSpec "
            "OptimizerSpec ScheduleSpec TrackerSpec CommandSpec ObserverSpec"
        ).split(),
        "kosmos.components",
    ),
    **dict.fromkeys(
        (
            "KosmosError ConfigError PluginError DataError SampleError PlanMismatch QuarantineFull "
            "CheckpointError TrainingError Interrupted"
        ).split(),
        "kosmos.errors",
    ),
    **dict.fromkeys("Document Text Mark Media Source".split(), "kosmos.data.document"),
    **dict.fromkeys("Grid MediaPlan Processor".split(), "kosmos.data.processor"),
    "cut_blocks": "kosmos.data.blocks",
    "Segments": "kosmos.model.segments",
    "attend": "kosmos.model.attention",
    **dict.fromkeys("RunConfig make_run".split(), "kosmos.config"),
    **dict.fromkeys("RunResult train_model resume_run".split(), "kosmos.train.run"),
    **dict.fromkeys("SavedRun load_run".split(), "kosmos.train.saved"),
    "generate_text": "kosmos.generate",
    "score": "kosmos.evaluate.score",
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'kosmos' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])


if TYPE_CHECKING:
    from kosmos.components import API_VERSION as API_VERSION
    from kosmos.components import BackboneSpec as BackboneSpec
    from kosmos.components import CommandSpec as CommandSpec
    from kosmos.components import ConnectorSpec as ConnectorSpec
    from kosmos.components import DatasetSpec as DatasetSpec
    from kosmos.components import EncoderSpec as EncoderSpec
    from kosmos.components import MetricSpec as MetricSpec
    from kosmos.components import ModalitySpec as ModalitySpec
    from kosmos.components import ObserverSpec as ObserverSpec
    from kosmos.components import OptimizerSpec as OptimizerSpec
    from kosmos.components import ScheduleSpec as ScheduleSpec
    from kosmos.components import TrackerSpec as TrackerSpec
    from kosmos.config import RunConfig as RunConfig
    from kosmos.config import make_run as make_run
    from kosmos.data.blocks import cut_blocks as cut_blocks
    from kosmos.data.document import Document as Document
    from kosmos.data.document import Mark as Mark
    from kosmos.data.document import Media as Media
    from kosmos.data.document import Source as Source
    from kosmos.data.document import Text as Text
    from kosmos.data.processor import Grid as Grid
    from kosmos.data.processor import MediaPlan as MediaPlan
    from kosmos.data.processor import Processor as Processor
    from kosmos.errors import CheckpointError as CheckpointError
    from kosmos.errors import ConfigError as ConfigError
    from kosmos.errors import DataError as DataError
    from kosmos.errors import Interrupted as Interrupted
    from kosmos.errors import KosmosError as KosmosError
    from kosmos.errors import PlanMismatch as PlanMismatch
    from kosmos.errors import PluginError as PluginError
    from kosmos.errors import QuarantineFull as QuarantineFull
    from kosmos.errors import SampleError as SampleError
    from kosmos.errors import TrainingError as TrainingError
    from kosmos.evaluate.score import score as score
    from kosmos.generate import generate_text as generate_text
    from kosmos.hookspecs import hookimpl as hookimpl
    from kosmos.model.attention import attend as attend
    from kosmos.model.segments import Segments as Segments
    from kosmos.train.run import RunResult as RunResult
    from kosmos.train.run import resume_run as resume_run
    from kosmos.train.run import train_model as train_model
    from kosmos.train.saved import SavedRun as SavedRun
    from kosmos.train.saved import load_run as load_run
