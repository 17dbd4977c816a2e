"""What a run file may say: every field typed, with its meaning. ``kosmos.run_file`` reads and checks one.

Options of plugin components (an encoder's ``model``, a connector's ``factor``) stand beside the
component's ``name``; they are checked against the component's own signature when it is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from kosmos.config_checkpoint import CheckpointConfig
from kosmos.config_choices import OffersConfig
from kosmos.config_held_out import HeldOutConfig, KeptConfig
from kosmos.config_length import LengthConfig
from kosmos.config_profile import ProfileConfig, none_of_false
from kosmos.config_rows import RowsConfig
from kosmos.config_scored import ScoredConfig
from kosmos.config_shots import ShotsConfig
from kosmos.config_turns import TurnsConfig
from kosmos.config_weights import InitConfig, LoRAConfig
from kosmos.config_written import WrittenConfig
from kosmos.names import by_name
from kosmos.strict import (
    Strict,
    at_home,
    can_be_written,
    names_are_a_list,
    names_or_none,
    options_can_be_written,
    sources_are_a_list,
)


class ComponentConfig(Strict):
    """A component by name, with its options beside it. A bare string is the name."""

    model_config = ConfigDict(extra="allow")
    name: str
    """Name under which a plugin registers it; see ``kosmos plugins``."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    _written = model_validator(mode="after")(options_can_be_written)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class OptimizerConfig(ComponentConfig):
    """The optimizer with its options."""

    name: str = "lion"
    """Name under which a plugin registers it; see ``kosmos plugins``."""


class ScheduleConfig(ComponentConfig):
    """The schedule of the learning rate with its options."""

    name: str = "linear"
    """Name under which a plugin registers it; see ``kosmos plugins``."""


class PartConfig(ComponentConfig):
    """An encoder or a connector with its options."""

    name: str = ""
    """Name under which a plugin registers it; empty is the one of the modality that owns the stream."""


class BackboneConfig(ComponentConfig):
    """The language model; options of the component stand beside these fields."""

    name: str = "decoder"
    """Name under which a plugin registers it; see ``kosmos plugins``."""
    freeze: bool = False
    """Train none of its parameters (new token embeddings included)."""
    lora: LoRAConfig | None = None
    """Train low-rank updates in place of its parameters."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Its own peak learning rate; None takes ``train.learning_rate``."""


class StreamConfig(Strict):
    """An encoder with its connector. What is None comes from the modality that owns the stream."""

    encoder: PartConfig | None = None
    """The encoder. Options without a ``name`` are of the modality's own one."""
    connector: PartConfig | None = None
    """What maps its features to token slots; its ``name`` likewise."""
    freeze: bool = False
    """Train none of the encoder's parameters."""
    freeze_connector: bool = False
    """Train none of the connector's parameters, which had better have learned before (``init``)."""
    lora: LoRAConfig | None = None
    """Train low-rank updates in place of the encoder's parameters."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Peak learning rate of encoder and connector; None takes ``train.learning_rate``."""
    connector_learning_rate: float | None = Field(default=None, gt=0)
    """That of the connector, if it has another: a new one wants a higher rate than an encoder that has learned."""


class ModalityConfig(Strict):
    """How one modality is read."""

    stream: str | None = None
    """Stream that encodes it; None is a stream of the modality's own name."""
    processor: dict[str, Any] = Field(default_factory=dict)
    """Options of the modality's processor."""
    codec: ComponentConfig | None = None
    """What makes tokens of its media where the model is to write them; None is nothing: they are read alone."""

    _written = field_validator("processor")(can_be_written)


class ChoicesConfig(ShotsConfig, OffersConfig, KeptConfig, RowsConfig):
    """Questions that offer several answers. A bare string is the path."""


class DocumentsConfig(KeptConfig, RowsConfig):
    """Documents that are scored. A bare string is the path."""

    path: str
    """A registered dataset's name, a folder, a file, files by a pattern (``data/part-*.jsonl``) or a hub id."""
    template: str | None = None
    """Layout of a document, such as ``"[image:photo] Q: {question} A: → {answer}"``; what follows ``→`` is learned."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of a registered dataset. Files have ``chunk_chars``, ``max_text_bytes``, ``learn``,
    ``missing_media``, ``long_documents``, ``field``, ``base64``, ``delimiter`` and ``header``."""

    _written = field_validator("options")(can_be_written)


class SourceConfig(HeldOutConfig, DocumentsConfig):
    """One source of documents to train on. A bare string is the path."""

    weight: float | None = Field(default=None, gt=0)
    """Share of the tokens drawn. None for all sources: every document equally often."""
    limit: int | None = Field(default=None, ge=1)
    """Most of its documents that are trained on, drawn by ``data.seed``; None takes all. What is held out stays the
    same."""

    @field_validator("weight", mode="before")
    @classmethod
    def _is_drawn(cls, value: Any) -> Any:
        if value == 0 and value is not False:
            raise ValueError("expected above 0: what is not to be drawn is left out, or scored by evaluate.sources")
        return value


class DataConfig(Strict):
    """Where documents come from and how they fill rows."""

    sources: list[SourceConfig] = Field(default_factory=list)
    """What to train on; empty takes the sample sets of the modalities."""
    tokens_per_pack: int = Field(default=512, ge=16)
    """Most tokens in a row. Times ``data.lanes`` they are the tokens of a step."""
    cells_per_pack: dict[str, int] = Field(default_factory=dict)
    """Most encoder cells of a stream in a row, by stream; a stream that is not named has no limit but the row's."""
    long_chats: Literal["cut", "leave_out"] = "cut"
    """Chats and other texts of which only a part is learned, longer than a row: cut into pieces, so that an answer may
    stand apart from its question, or bad samples, as documents with media are."""
    lanes: int = Field(default=1, ge=1)
    """Independent sequences of rows. A step takes one row of each, whatever the number of processes and workers."""
    look_ahead: int = Field(default=128, ge=1)
    """Documents among which a lane chooses when it fills a row; more if so many do not fill two rows. 1 puts each
    document into a row of its own."""
    workers: int | None = Field(default=None, ge=0)
    """Processes that read and decode; with text alone at most one a lane. None is half the cores (8 at most); 0 decodes
    in the training process."""
    held_out: float = Field(default=0.05, ge=0, lt=1)
    """Share of the rows that is held out, of sources without a split of their own; 0 trains on all of them. What a
    source or a registered dataset marks as held out stays so, even with 0."""
    quarantine: float = Field(default=0.5, ge=0, le=1)
    """Largest share of bad samples among those drawn. Above it, once 100 samples are drawn, the run stops, as it does
    below 1 when all of a source, or its first 100, are bad."""
    seed: int = 0
    """Seed of the order of samples."""

    _lists = field_validator("sources", mode="before")(sources_are_a_list)


class TrainConfig(LengthConfig):
    """Optimization."""

    optimizer: OptimizerConfig = OptimizerConfig()
    """The optimizer with its options."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decay of matrices; norms, biases and embeddings are not decayed."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate over the steps, as a share of the peak."""
    objective: ComponentConfig | None = None
    """What is minimized, with its options, such as ``dpo``, which learns by preferences; null is the cross entropy of
    every learned token."""
    clip_norm: float | None = Field(default=1.0, gt=0)
    """Largest norm of the gradient of all parameters; None does not clip."""
    z_loss: float = Field(default=0.0, ge=0)
    """Weight of the squared log of softmax's denominator in what is minimized, 1e-5 to 1e-4: logits do not drift."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Type of matrix products. ``auto`` takes bf16 if the hardware multiplies it faster than fp32, and always with
    ``weights: bf16``, which allows nothing else."""
    fp8: Literal["tensorwise", "rowwise", "rowwise_with_gw_hp"] | None = None
    """Multiply in 8 bits within the backbone's blocks, by torchao (``pip install 'kosmos-core[fp8]>=26.11'``) on GPUs
    from Ada and Hopper on. ``tensorwise`` scales a matrix by one number, fastest by torchao's figures; ``rowwise`` each
    of its rows, so that no token changes how another is rounded, but for gradients of weights; ``rowwise_with_gw_hp``
    leaves those in bf16."""
    weights: Literal["fp32", "bf16"] = "fp32"
    """Type of the parameters. With ``bf16`` set ``master`` of the optimizer, or small updates are rounded away."""
    release_gradients: bool = False
    """Update each parameter during the backward pass and free its gradient at once: less memory, but no clipping
    (``clip_norm: null``) and one row a step and process."""
    gradient_checkpointing: bool | Literal["selective"] = False
    """Recompute activations in the backward pass instead of keeping them. ``selective`` keeps the results of products
    and attention and recomputes what is cheap; an encoder without this choice recomputes all, and so does a compiled
    backbone of transformers."""
    compile: bool | Literal["auto"] = "auto"
    """Compile the blocks of the backbone, and of encoders that can be compiled. ``auto`` does so on a GPU; on a CPU it
    compiles what stands between products, and attention in bf16, of a model whose backbone has 4 million parameters or
    more, in a second or two; in bf16 a trained run is scored by it too."""
    lanes_at_once: int = Field(default=1, ge=1)
    """Rows of a step that a process computes at once: on a GPU as one row; on a CPU, in runs of one process, each by
    its share of the threads, without dropout. Faster than one after another, for the memory of so many rows. For runs
    of several ``data.lanes``."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: ``auto`` is the first CUDA GPU, else the CPU. Apple's GPU (mps) is not used."""
    hang_s: float = Field(default=1800.0, gt=0)
    """Seconds without progress after which the run ends; the error names the rank that stands still and what it
    does. A data worker that is at one sample for half of it, 300 seconds at most, is ended, and the sample left out."""
    seed: int = 0
    """Seed of weights and dropout."""


class GuardConfig(Strict):
    """What to do when a step goes wrong. Each case is a row of ``guards.jsonl``, with the documents of the step."""

    non_finite: Literal["stop", "skip", "roll_back"] = "stop"
    """If loss or gradient is not finite: stop, leave the update out, or go back to the weights of the newest checkpoint
    and on with the data that follow. Weights that are not finite are never saved: they stop a run that skips, too."""
    spike: float | None = Field(default=None, gt=1)
    """A loss above this many times the median of the last 64 steps is a spike; None looks for none."""
    norm_spike: float | None = Field(default=None, gt=1)
    """A gradient norm, before it is clipped, above this many times the median of theirs is a spike too."""
    on_spike: Literal["stop", "skip", "roll_back"] = "skip"
    """What to do about a spike."""
    at_most: int = Field(default=10, ge=1)
    """Most consecutive steps that may be skipped or rolled back; then the run stops."""


class ParallelConfig(Strict):
    """How several processes share the model. One process ignores all but ``offload``."""

    strategy: Literal["auto", "fsdp", "hsdp", "ddp"] = "auto"
    """``fsdp`` (``auto``) shards parameters, gradients and optimizer state over all ranks; ``hsdp`` within groups of
    ranks; ``ddp`` keeps all of them on every rank."""
    shards: int | None = Field(default=None, ge=1)
    """Ranks in a group of ``hsdp``; None is those of a machine."""
    tensor: int = Field(default=1, ge=1)
    """Ranks that share the matrices of the built-in decoder's blocks: tensor parallelism, for matrices that one device
    cannot hold. They train the same rows, so there are fewer ranks to deal ``data.lanes`` to. With ``fsdp``."""
    sequence: int = Field(default=1, ge=1)
    """Ranks that share every row, each with a part of its tokens: sequence parallelism, for rows that one device cannot
    hold. For the built-in decoder."""
    offload: bool = False
    """Keep the shards in host memory and step the optimizer there. Refused with one process, and with ``ddp``."""

    @property
    def sharing(self) -> int:
        """Neighbouring ranks that train the same rows."""
        return self.tensor * self.sequence


class EvaluateConfig(ScoredConfig):
    """Held-out scores during training."""

    every_steps: int | None = Field(default=None, ge=1)
    """Score every so many steps too; None scores only before the first step and after the last."""
    patience: int | None = Field(default=None, ge=1)
    """Stop early after so many scorings in turn none of which is the best so far, that before the first step among
    them; None trains all steps."""
    least_gain: float = Field(default=0.0, ge=0)
    """By how much a figure has to be better to count for ``patience``: a loss in nats, right answers as share of 1."""
    best: str | None = None
    """By what scorings are compared, for ``patience``, ``checkpoint.keep_best`` and ``--step best``: ``NAME`` is the
    loss of this held-out source, ``NAME.exact_match`` its share of right answers, ``NAME.METRIC`` a metric of those it
    writes (``generate``), ``loss`` and ``exact_match`` those of all. None is the loss of all target tokens."""
    sources: list[DocumentsConfig] = Field(default_factory=list)
    """What is scored and never trained on, beside what ``data.sources`` hold out: of data that state a split their
    held-out part, of others all. Fields are those of ``data.sources`` but ``weight``, ``limit`` and ``held_out``."""
    choices: list[ChoicesConfig] = Field(default_factory=list)
    """Questions that offer several answers, of files as of ``kosmos eval --choices``, scored with what is held out: how
    often the right answer is the likeliest is the exact match of a source of this name."""
    generate: WrittenConfig | None = None
    """Answers that the model really writes at each scoring; null writes none."""
    metrics: list[ComponentConfig] = Field(default_factory=list)
    """More metrics of answers that are written, by ``generate`` and by ``kosmos eval --generate``."""

    _lists = field_validator("metrics", mode="before")(names_are_a_list)
    _sources = field_validator("sources", "choices", mode="before")(sources_are_a_list)

    @model_validator(mode="after")
    def _patience_needs_scorings(self) -> EvaluateConfig:
        if self.patience is not None and self.every_steps is None:
            raise ValueError("patience counts scorings during training: set evaluate.every_steps too")
        return self


class TokenizerConfig(Strict):
    """How text becomes tokens. A bare string is the name."""

    name: str = "bytes"
    """``bytes``, the folder of a Hugging Face tokenizer, or its id on the hub."""
    turns: TurnsConfig | None = None
    """How turns of chats are spelled, for a model that has learned to answer already; null puts them between marks of
    Kosmos's own, which the model learns."""

    _home = field_validator("name", mode="before")(at_home)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class RunConfig(Strict):
    """A whole run."""

    modalities: dict[str, ModalityConfig] = Field(default_factory=dict)
    """Modalities beside text: a list of names, or a mapping with settings. ``text`` may be named and adds nothing."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    streams: dict[str, StreamConfig] = Field(default_factory=dict)
    """Streams by name; those of the modalities exist without being named."""
    backbone: BackboneConfig = BackboneConfig()
    train: TrainConfig = TrainConfig()
    guard: GuardConfig = GuardConfig()
    parallel: ParallelConfig = ParallelConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    profile: ProfileConfig | None = None
    """Steps whose time is looked at; null or false looks at none."""
    trackers: list[ComponentConfig] = Field(default_factory=lambda: [ComponentConfig(name="tensorboard")])
    """Where metrics go beside ``metrics.jsonl``."""
    observers: list[ComponentConfig] = Field(default_factory=list)
    """Callables of plugins that see every row of metrics."""
    plugins: list[str] | None = None
    """Plugins to load beside core, by the names that ``kosmos plugins`` shows; None loads all that are enabled."""
    output: Path | None = None
    """Folder of the run; None makes a new one under ``runs/``."""
    init: InitConfig | None = None
    """The run whose weights this one begins with; what it has besides is drawn."""

    _lists = field_validator("trackers", "observers", mode="before")(names_are_a_list)
    _names = field_validator("plugins", mode="before")(names_or_none)
    _home = field_validator("output", mode="before")(at_home)
    _profile = field_validator("profile", mode="before")(none_of_false)

    @model_validator(mode="before")
    @classmethod
    def _modality_names(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(names := value.get("modalities"), str | list):
            value = {**value, "modalities": by_name(names)}
        if isinstance(value, Mapping) and isinstance(named := value.get("modalities"), Mapping):
            value = {**value, "modalities": {n: s or {} for n, s in named.items() if n != "text"}}
        return value

    @model_validator(mode="after")
    def _tokens_are_steps(self) -> RunConfig:
        if self.train.tokens is not None:
            steps = -(-self.train.tokens // (self.data.lanes * self.data.tokens_per_pack))
            object.__setattr__(self, "train", self.train.in_steps(steps))
        return self

    @property
    def written(self) -> list[str]:
        """Modalities with a codec, whose media the model may write."""
        return [name for name, modality in self.modalities.items() if modality.codec is not None]

    def stream_of(self, modality: str) -> str:
        """Name of the stream that encodes ``modality``."""
        return self.modalities[modality].stream or modality
