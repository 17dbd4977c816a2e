"""Kosmos trains omni-modal language models from plugins. The public names, imported when first used."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "26.11.0"

_PUBLIC = {
    "hookimpl": "kosmos.hookspecs",
    **dict.fromkeys(
        (
            "API_VERSION ModalitySpec EncoderSpec ConnectorSpec CodecSpec BackboneSpec DatasetSpec CorpusSpec "
            "LayoutSpec MetricSpec OptimizerSpec ScheduleSpec ObjectiveSpec TrackerSpec CommandSpec ObserverSpec"
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
    **dict.fromkeys(
        "Blocks Codes Document FileSpan Text Mark Media MediaSource Segment Source StoredMedia".split(),
        "kosmos.data.document",
    ),
    "Documents": "kosmos.data.in_memory",
    "CorpusFiles": "kosmos.data.sources.corpora",
    "chat_prompt": "kosmos.data.chat",
    "answered": "kosmos.data.asked",
    "log_probs": "kosmos.model.log_probs",
    "WithLosses": "kosmos.model.own_losses",
    "Judged": "kosmos.model.objectives",
    "PackedBatch": "kosmos.data.batch",
    **dict.fromkeys("Grid MediaPlan Processor".split(), "kosmos.data.processor"),
    **dict.fromkeys("SlotCount OnePerCell Pooled Fixed".split(), "kosmos.data.slots"),
    **dict.fromkeys("Codec Encoded".split(), "kosmos.data.codec"),
    **dict.fromkeys("TensorPlace read_tensor_places".split(), "kosmos.data.tensor_files"),
    **dict.fromkeys("Layout ModelParts ReadModel WrittenModel".split(), "kosmos.train.layout"),
    **dict.fromkeys("LazyTensors ModelFolder".split(), "kosmos.model.model_folder"),
    **dict.fromkeys("backbone_of is_tied language_name language_tensors".split(), "kosmos.model.huggingface_parts"),
    "WrittenMedia": "kosmos.data.writer",
    **dict.fromkeys("written_media said_parts".split(), "kosmos.evaluate.written"),
    "cut_blocks": "kosmos.data.blocks",
    "to_device": "kosmos.data.transfer",
    **dict.fromkeys("NPY_MAGIC NpyHeader read_npy_header read_npy_values".split(), "kosmos.data.npy"),
    "CppCompilation": "kosmos.runtime.native",
    "Segments": "kosmos.model.segments",
    "recurring_size": "kosmos.model.recurring",
    "ItemTransformer": "kosmos.model.item_transformer",
    **dict.fromkeys("Encoder Connector Backbone".split(), "kosmos.model.protocols"),
    **dict.fromkeys("Normal draw_weights new_seed".split(), "kosmos.model.weights"),
    **dict.fromkeys("prefix_of read_weights".split(), "kosmos.model.weight_files"),
    **dict.fromkeys("attend attend_cached attend_across".split(), "kosmos.model.attention"),
    "attends_compiled": "kosmos.model.attention_compiled",
    "WithKernels": "kosmos.model.cpu_kernels",
    "within_items": "kosmos.model.within_items",
    **dict.fromkeys("Recompute run_block".split(), "kosmos.model.recompute"),
    "Tracker": "kosmos.train.trackers",
    **dict.fromkeys("PluginRecord Registry load_plugins".split(), "kosmos.plugins"),
    **dict.fromkeys("PluginLock LockedPlugin lock_of read_lock".split(), "kosmos.lock"),
    "RunConfig": "kosmos.config",
    **dict.fromkeys("make_run read_run_file".split(), "kosmos.run_file"),
    "Composition": "kosmos.compose",
    "compose_run": "kosmos.train.opening",
    "compile_model": "kosmos.train.compiling",
    **dict.fromkeys("TrainingRows open_training_rows".split(), "kosmos.train.training_rows"),
    **dict.fromkeys("open_sources open_held_out".split(), "kosmos.run_sources"),
    "open_rows": "kosmos.run_rows",
    "open_choices": "kosmos.run_choices",
    **dict.fromkeys("RunResult train_model resume_run".split(), "kosmos.train.run"),
    **dict.fromkeys("Reporter ConsoleReporter RunStart".split(), "kosmos.train.progress"),
    **dict.fromkeys("SavedRun load_run".split(), "kosmos.train.saved"),
    "save_run": "kosmos.train.saving",
    **dict.fromkeys("Score Scores score".split(), "kosmos.evaluate.score"),
    "Generated": "kosmos.evaluate.answer",
    **dict.fromkeys("generate_answers generate_text generate_texts".split(), "kosmos.evaluate.asking"),
    "score_answers": "kosmos.evaluate.answer_scores",
    **dict.fromkeys("ChoiceScore Chosen score_choices".split(), "kosmos.evaluate.choices"),
    "deprecated": "kosmos.deprecation",
}
"""Public name to the module that has it. What is not here may change without notice (``tests/core/public_api.txt``)."""

__all__ = [*_PUBLIC]

_RENAMED: dict[str, tuple[str, str]] = {}
"""A name that was public to the one in its place, and the release in which it goes: one release later or more."""

_OF_A_SYSTEM = ("kosmos.runtime.", "kosmos.train.")
"""Modules that need what Windows has not: signals, above all."""


def _name_user() -> None:
    """Where the system has no name for the user, as in containers that run under any number, have that number stand for
    it in ``USER``, for what this process starts too.

    PyTorch's compiler, which is imported with any model, names its folder of caches by the user, and fails without one.
    """
    if any(os.environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME")):  # as getpass.getuser looks
        return
    try:
        from pwd import getpwuid
    except ImportError:  # Windows
        return
    try:
        getpwuid(os.getuid())
    except KeyError:
        os.environ["USER"] = str(os.getuid())


_name_user()  # here every process of ours passes, and before it imports torch


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        if _PUBLIC[name].startswith(_OF_A_SYSTEM):
            _check_system()
        return getattr(import_module(_PUBLIC[name]), name)
    if name in _RENAMED:
        from kosmos.deprecation import deprecated

        new, goes_in = _RENAMED[name]
        deprecated(f"kosmos.{name}", instead=f"kosmos.{new}", goes_in=goes_in)
        return __getattr__(new)
    raise AttributeError(f"module 'kosmos' has no attribute {name!r}")


def _check_system() -> None:
    from kosmos.errors import wrong_system

    if (refused := wrong_system()) is not None:
        raise refused


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])


if TYPE_CHECKING:
    from kosmos.components import API_VERSION as API_VERSION
    from kosmos.components import BackboneSpec as BackboneSpec
    from kosmos.components import CodecSpec as CodecSpec
    from kosmos.components import CommandSpec as CommandSpec
    from kosmos.components import ConnectorSpec as ConnectorSpec
    from kosmos.components import CorpusSpec as CorpusSpec
    from kosmos.components import DatasetSpec as DatasetSpec
    from kosmos.components import EncoderSpec as EncoderSpec
    from kosmos.components import LayoutSpec as LayoutSpec
    from kosmos.components import MetricSpec as MetricSpec
    from kosmos.components import ModalitySpec as ModalitySpec
    from kosmos.components import ObjectiveSpec as ObjectiveSpec
    from kosmos.components import ObserverSpec as ObserverSpec
    from kosmos.components import OptimizerSpec as OptimizerSpec
    from kosmos.components import ScheduleSpec as ScheduleSpec
    from kosmos.components import TrackerSpec as TrackerSpec
    from kosmos.compose import Composition as Composition
    from kosmos.config import RunConfig as RunConfig
    from kosmos.data.asked import answered as answered
    from kosmos.data.batch import PackedBatch as PackedBatch
    from kosmos.data.blocks import cut_blocks as cut_blocks
    from kosmos.data.chat import chat_prompt as chat_prompt
    from kosmos.data.codec import Codec as Codec
    from kosmos.data.codec import Encoded as Encoded
    from kosmos.data.document import Blocks as Blocks
    from kosmos.data.document import Codes as Codes
    from kosmos.data.document import Document as Document
    from kosmos.data.document import FileSpan as FileSpan
    from kosmos.data.document import Mark as Mark
    from kosmos.data.document import Media as Media
    from kosmos.data.document import MediaSource as MediaSource
    from kosmos.data.document import Segment as Segment
    from kosmos.data.document import Source as Source
    from kosmos.data.document import StoredMedia as StoredMedia
    from kosmos.data.document import Text as Text
    from kosmos.data.in_memory import Documents as Documents
    from kosmos.data.npy import NPY_MAGIC as NPY_MAGIC
    from kosmos.data.npy import NpyHeader as NpyHeader
    from kosmos.data.npy import read_npy_header as read_npy_header
    from kosmos.data.npy import read_npy_values as read_npy_values
    from kosmos.data.processor import Grid as Grid
    from kosmos.data.processor import MediaPlan as MediaPlan
    from kosmos.data.processor import Processor as Processor
    from kosmos.data.slots import Fixed as Fixed
    from kosmos.data.slots import OnePerCell as OnePerCell
    from kosmos.data.slots import Pooled as Pooled
    from kosmos.data.slots import SlotCount as SlotCount
    from kosmos.data.sources.corpora import CorpusFiles as CorpusFiles
    from kosmos.data.tensor_files import TensorPlace as TensorPlace
    from kosmos.data.tensor_files import read_tensor_places as read_tensor_places
    from kosmos.data.transfer import to_device as to_device
    from kosmos.data.writer import WrittenMedia as WrittenMedia
    from kosmos.deprecation import deprecated as deprecated
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
    from kosmos.evaluate.answer import Generated as Generated
    from kosmos.evaluate.answer_scores import score_answers as score_answers
    from kosmos.evaluate.asking import generate_answers as generate_answers
    from kosmos.evaluate.asking import generate_text as generate_text
    from kosmos.evaluate.asking import generate_texts as generate_texts
    from kosmos.evaluate.choices import ChoiceScore as ChoiceScore
    from kosmos.evaluate.choices import Chosen as Chosen
    from kosmos.evaluate.choices import score_choices as score_choices
    from kosmos.evaluate.score import Score as Score
    from kosmos.evaluate.score import Scores as Scores
    from kosmos.evaluate.score import score as score
    from kosmos.evaluate.written import said_parts as said_parts
    from kosmos.evaluate.written import written_media as written_media
    from kosmos.hookspecs import hookimpl as hookimpl
    from kosmos.lock import LockedPlugin as LockedPlugin
    from kosmos.lock import PluginLock as PluginLock
    from kosmos.lock import lock_of as lock_of
    from kosmos.lock import read_lock as read_lock
    from kosmos.model.attention import attend as attend
    from kosmos.model.attention import attend_across as attend_across
    from kosmos.model.attention import attend_cached as attend_cached
    from kosmos.model.attention_compiled import attends_compiled as attends_compiled
    from kosmos.model.cpu_kernels import WithKernels as WithKernels
    from kosmos.model.huggingface_parts import backbone_of as backbone_of
    from kosmos.model.huggingface_parts import is_tied as is_tied
    from kosmos.model.huggingface_parts import language_name as language_name
    from kosmos.model.huggingface_parts import language_tensors as language_tensors
    from kosmos.model.item_transformer import ItemTransformer as ItemTransformer
    from kosmos.model.log_probs import log_probs as log_probs
    from kosmos.model.model_folder import LazyTensors as LazyTensors
    from kosmos.model.model_folder import ModelFolder as ModelFolder
    from kosmos.model.objectives import Judged as Judged
    from kosmos.model.own_losses import WithLosses as WithLosses
    from kosmos.model.protocols import Backbone as Backbone
    from kosmos.model.protocols import Connector as Connector
    from kosmos.model.protocols import Encoder as Encoder
    from kosmos.model.recompute import Recompute as Recompute
    from kosmos.model.recompute import run_block as run_block
    from kosmos.model.recurring import recurring_size as recurring_size
    from kosmos.model.segments import Segments as Segments
    from kosmos.model.weight_files import prefix_of as prefix_of
    from kosmos.model.weight_files import read_weights as read_weights
    from kosmos.model.weights import Normal as Normal
    from kosmos.model.weights import draw_weights as draw_weights
    from kosmos.model.weights import new_seed as new_seed
    from kosmos.model.within_items import within_items as within_items
    from kosmos.plugins import PluginRecord as PluginRecord
    from kosmos.plugins import Registry as Registry
    from kosmos.plugins import load_plugins as load_plugins
    from kosmos.run_choices import open_choices as open_choices
    from kosmos.run_file import make_run as make_run
    from kosmos.run_file import read_run_file as read_run_file
    from kosmos.run_rows import open_rows as open_rows
    from kosmos.run_sources import open_held_out as open_held_out
    from kosmos.run_sources import open_sources as open_sources
    from kosmos.runtime.native import CppCompilation as CppCompilation
    from kosmos.train.compiling import compile_model as compile_model
    from kosmos.train.layout import Layout as Layout
    from kosmos.train.layout import ModelParts as ModelParts
    from kosmos.train.layout import ReadModel as ReadModel
    from kosmos.train.layout import WrittenModel as WrittenModel
    from kosmos.train.opening import compose_run as compose_run
    from kosmos.train.progress import ConsoleReporter as ConsoleReporter
    from kosmos.train.progress import Reporter as Reporter
    from kosmos.train.progress import RunStart as RunStart
    from kosmos.train.run import RunResult as RunResult
    from kosmos.train.run import resume_run as resume_run
    from kosmos.train.run import train_model as train_model
    from kosmos.train.saved import SavedRun as SavedRun
    from kosmos.train.saved import load_run as load_run
    from kosmos.train.saving import save_run as save_run
    from kosmos.train.trackers import Tracker as Tracker
    from kosmos.train.training_rows import TrainingRows as TrainingRows
    from kosmos.train.training_rows import open_training_rows as open_training_rows
