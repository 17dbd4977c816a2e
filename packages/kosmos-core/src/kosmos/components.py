"""The descriptors that plugins return from their hooks.

A descriptor is light: a name, where the component is (``"package.module:attribute"``, imported only
when somebody asks for it) and one line about it. Discovery therefore imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

API_VERSION = 1
"""Version of the plugin surface. A plugin module states the one it was written for: ``KOSMOS_API = 1``."""


def are_texts(value: object) -> bool:
    """Whether it is a tuple or a list of strings."""
    return isinstance(value, tuple | list) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One component that a plugin brings."""

    kind: ClassVar[str] = "component"
    gives: ClassVar[tuple[str, ...]] = ()
    """Attributes that whatever the factory makes has to have."""
    positional: ClassVar[int] = 0
    """Arguments of the factory in front of its options."""
    name: str
    """What users write in a run file."""
    target: str
    """``"package.module:attribute"``: the factory, called with the options of the run file."""
    summary: str
    """One line for ``kosmos plugins``."""

    def _faults(self) -> Iterator[str]:
        """What is wrong with it, a line each. One with a fault is refused when its plugin is loaded, and the others of
        its hook stay: a descriptor that raised as it is made would take those behind it along."""
        target: object = self.target
        module, _, attribute = target.partition(":") if isinstance(target, str) else ("", "", "")
        if not isinstance(self.name, str) or not self.name or not module or not attribute:
            what = f"{type(self).__name__}(name={self.name!r}, target={self.target!r})"
            yield f"{what}: need a name and 'package.module:attribute'"

    def _faults_of_texts(self, *fields: str) -> Iterator[str]:
        """Which of these fields hold no tuple of strings."""
        for name in fields:
            texts: object = getattr(self, name)
            if not are_texts(texts):
                meant = f"; did you mean ({texts!r},)?" if isinstance(texts, str) else ""
                yield f"{self.kind} {self.name!r}: {name}: expected a tuple of strings, got {texts!r}{meant}"


@dataclass(frozen=True, kw_only=True)
class ModalitySpec(Spec):
    """A kind of medium. ``target`` is its processor: ``factory(encoder_input, **options) -> Processor``."""

    kind = "modality"
    gives = ("cell_shape", "cell_dtype", "plan", "decode")
    positional = 1
    encoder: str
    """Encoder of the modality's own stream when the run file names none."""
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of that default encoder. The first is what the others are for: a run file that states it drops them."""
    connector: str = "mlp"
    """Connector of the modality's own stream when the run file names none."""
    connector_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of that default connector."""
    marks: tuple[str, ...] = ()
    """Special tokens that the modality's layouts use, such as ``<image>`` and ``</image>``."""
    suffixes: tuple[str, ...] = ()
    """File suffixes, lower case with the dot, by which folders of files are recognised."""
    sample_set: str | None = None
    """Name of the registered dataset to train on when no data is named."""
    has_time: bool = False
    """Whether its media have time, so that what rows say of seconds is meant for them (``Media.clip``)."""
    reads_rate: bool = False
    """Whether its processor reads ``Media.rate_hz`` of files, too, which do not state it themselves: rows may then say
    ``rate_hz`` or ``sampling_rate`` in the object of a medium. Of other modalities files come without."""
    arrays: tuple[int, ...] = ()
    """Numbers of dimensions of the arrays that its processor takes, such as ``(2,)`` for moments by channels: rows may
    then hold numbers in nested lists in place of a file. Of other modalities rows hold arrays of one dimension, beside
    their rate (``{"array": [...], "sampling_rate": N}``)."""
    full_scale: float | None = None
    """Largest value of arrays in rows, where whole numbers beyond it are of a scale that nobody states: a bad sample.
    None takes any numbers."""

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        yield from self._faults_of_texts("marks", "suffixes")
        suffixes = self.suffixes if are_texts(self.suffixes) else ()
        if wrong := [suffix for suffix in suffixes if not suffix.startswith(".") or suffix != suffix.lower()]:
            yield f"modality {self.name!r}: suffixes: expected lower case with the dot, got {wrong[0]!r}"
        arrays: Any = self.arrays
        if not isinstance(arrays, tuple) or not all(type(dims) is int and dims > 0 for dims in arrays):
            yield f"modality {self.name!r}: arrays: expected a tuple of whole numbers from 1 on, got {arrays!r:.40}"
        scale: Any = self.full_scale
        if scale is not None and (type(scale) not in (int, float) or not scale > 0):
            yield f"modality {self.name!r}: full_scale: expected a number above 0, got {scale!r:.40}"


@dataclass(frozen=True, kw_only=True)
class EncoderSpec(Spec):
    """``factory(**options) -> Encoder`` (see ``kosmos.model.protocols``)."""

    kind = "encoder"
    gives = ("input", "width", "forward")


@dataclass(frozen=True, kw_only=True)
class CodecSpec(Spec):
    """``factory(**options) -> Codec`` (see ``kosmos.data.codec``): how media are written by a model, as tokens."""

    kind = "codec"
    gives = ("size", "encode", "decode")
    modality: str
    """Whose media it encodes and decodes."""

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        modality: Any = self.modality
        if not isinstance(modality, str) or not modality:
            yield f"codec {self.name!r}: modality: expected the name of one, got {modality!r:.40}"


@dataclass(frozen=True, kw_only=True)
class ConnectorSpec(Spec):
    """``factory(width_in, width_out, **options) -> Connector``."""

    kind = "connector"
    gives = ("slots", "forward")
    positional = 2


@dataclass(frozen=True, kw_only=True)
class BackboneSpec(Spec):
    """``factory(vocab_size, **options) -> Backbone``."""

    kind = "backbone"
    gives = ("width", "embed", "output_weight", "forward")
    positional = 1


@dataclass(frozen=True, kw_only=True)
class DatasetSpec(Spec):
    """``factory(split, **options) -> Source``; ``split`` is ``"train"`` or ``"held_out"``."""

    kind = "dataset"
    gives = ("name", "document", "__len__")
    positional = 1
    modalities: tuple[str, ...] = ()
    """Modalities that its documents hold, beside text; ``"text"`` among them adds nothing."""

    def __post_init__(self) -> None:
        if are_texts(self.modalities):
            object.__setattr__(self, "modalities", tuple(name for name in self.modalities if name != "text"))

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        yield from self._faults_of_texts("modalities")


@dataclass(frozen=True, kw_only=True)
class CorpusSpec(Spec):
    """``read(files: CorpusFiles) -> Iterable[tuple[str, row]] | None``: a layout of files that is read as rows.

    It is asked of each folder or file that is named as data: None says that it is no such corpus. Rows are as those of
    a JSONL file, each with its origin, as ``CorpusFiles.lines`` gives it, or are a SampleError, that says why not.
    """

    kind = "corpus"
    positional = 1


@dataclass(frozen=True, kw_only=True)
class LayoutSpec(Spec):
    """``factory() -> Layout`` (see ``kosmos.train.layout``): how another library lays out a whole model in a folder.

    ``kosmos import`` reads such folders as runs, and ``kosmos export --for NAME`` writes runs as such folders.
    """

    kind = "layout"
    gives = ("matches", "read", "write")


@dataclass(frozen=True, kw_only=True)
class MetricSpec(Spec):
    """``factory(**options) -> metric``; ``metric(predictions: list[str], references: list[str]) -> float``.

    A metric that takes several right answers has ``of_several(predictions: list[str], references: list[list[str]]) ->
    float``, too.
    """

    kind = "metric"
    gives = ("__call__",)
    lower_is_better: bool = False
    """Whether of two scores the lower is the better one, for ``evaluate.best``."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec(Spec):
    """``factory(groups, learning_rate, **options) -> torch.optim.Optimizer``."""

    kind = "optimizer"
    gives = ("param_groups", "step", "zero_grad", "state_dict")
    positional = 2
    parameterwise: bool = False
    """Whether ``step()`` does the same where it is called for one parameter after the other, in any order, which
    ``train.release_gradients`` does: nothing in it is of all parameters, and what it counts is in their states."""


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec(Spec):
    """``factory(steps, warmup_steps, **options) -> Callable[[int], float]``: step to share of the peak rate."""

    kind = "schedule"
    gives = ("__call__",)
    positional = 2


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec(Spec):
    """``factory(**options) -> Objective`` (see ``kosmos.model.objectives``): what is minimized."""

    kind = "objective"
    gives = ("__call__",)
    unit: Literal["token", "document", "pair"] = "document"
    """What it gives a loss for: every learned token, every document, or every pair of a better and a worse one, which
    rows of preferences are."""
    reference: bool = False
    """Whether it compares with the model as the run began with it."""

    def _faults(self) -> Iterator[str]:
        yield from super()._faults()
        if self.unit not in ("token", "document", "pair"):
            yield f"objective {self.name!r}: unit: expected token, document or pair, got {self.unit!r}"


@dataclass(frozen=True, kw_only=True)
class TrackerSpec(Spec):
    """``factory(output: Path, run: dict, **options) -> Tracker``."""

    kind = "tracker"
    gives = ("log", "close")
    positional = 2


@dataclass(frozen=True, kw_only=True)
class CommandSpec(Spec):
    """A sub-command: ``target`` is a function that typer can wrap."""

    kind = "command"


@dataclass(frozen=True, kw_only=True)
class ObserverSpec(Spec):
    """``factory(**options) -> Callable[[dict], None]``, called with each row of ``metrics.jsonl``."""

    kind = "observer"
    gives = ("__call__",)


KINDS: tuple[type[Spec], ...] = (
    ModalitySpec,
    EncoderSpec,
    ConnectorSpec,
    CodecSpec,
    BackboneSpec,
    DatasetSpec,
    CorpusSpec,
    LayoutSpec,
    MetricSpec,
    OptimizerSpec,
    ScheduleSpec,
    ObjectiveSpec,
    TrackerSpec,
    CommandSpec,
    ObserverSpec,
)
"""Every kind of component, in the order in which ``kosmos plugins`` lists them."""
