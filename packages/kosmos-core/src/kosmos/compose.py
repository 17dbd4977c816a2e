"""Put a run together from what is installed: tokenizer, model, and the planner that counts as the model does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from torch import inference_mode

from kosmos.components import ModalitySpec, ObjectiveSpec
from kosmos.config import ComponentConfig, DataConfig, RunConfig, StreamConfig
from kosmos.data.batch import PackedBatch, assemble, ready_document, to_tensors
from kosmos.data.document import Document, Source
from kosmos.data.lane import Feed
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.processor import Processor
from kosmos.data.tokenizer import Tokenizer, load_tokenizer
from kosmos.data.turns import ROLES, spell_turns
from kosmos.encoder_inputs import build_encoder, check_encoder, suiting
from kosmos.errors import ConfigError, KosmosError, PluginError
from kosmos.model.decoder import Decoder
from kosmos.model.omni import OmniModel, Stream
from kosmos.model.recompute import recompute_in
from kosmos.model.weights import drawn_later, seed_part, without_memory
from kosmos.names import did_you_mean, listed
from kosmos.plugins import Registry
from kosmos.run_codecs import build_codecs, check_codec, marks_of_codecs
from kosmos.run_updates import check_updates, put_updates
from kosmos.runtime.generators import own_draws

NOTHING_LEARNS = "backbone.freeze: nothing is left to train; a frozen backbone needs a stream that is trained"
Absent = Callable[[PluginError], object]
"""What is done about a component that is not installed here, or is broken."""


@dataclass(frozen=True, repr=False)
class Composition:
    """The parts of a run that belong together."""

    config: RunConfig
    registry: Registry
    tokenizer: Tokenizer
    model: OmniModel
    planner: Planner
    parts: Mapping[str, tuple[Any, ComponentConfig]] = field(default_factory=dict)
    """Backbone, encoders and connectors by their places in the run file, each with what it was built by."""

    def __repr__(self) -> str:
        made = {"backbone": self.model.backbone, **self.model.streams}
        return f"<Composition: {', '.join(f'{n} {sum(p.numel() for p in m.parameters()):,}' for n, m in made.items())}>"

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams, in the order in which every rank runs them."""
        return tuple(self.model.streams)

    @property
    def processors(self) -> dict[str, Processor]:
        """Those of the modalities, by their names."""
        return {name: route.processor for name, route in self.planner.routes.items()}

    def pack(self, documents: Sequence[Document]) -> PackedBatch:
        """The documents one behind another in one row of any length, on the CPU, as they come in training, to look at.

        ``model(batch)`` gives the losses of what is learned of them, ``model.hidden(batch)`` the hidden states [T, D].

        Args:
            documents: at least one. Media are decoded as they are: nothing is augmented. A pair comes as two documents.

        Raises:
            ConfigError: ``documents`` are none.
            SampleError: one cannot be used, such as one that is longer than the run's rows and can not be cut.
        """
        given = list(documents) if isinstance(documents, Iterable) and not isinstance(documents, str | Document) else []
        if not given or not all(isinstance(document, Document) for document in given):
            raise ConfigError(f"documents: expected a list of Document, got {documents!r:.60}")
        planner = self.planner
        plans = [p for d in given for p in replace(planner, pairs=bool(d.rejected)).plan(d)]
        return to_tensors(
            assemble([ready_document(plan, planner.routes, "packed") for plan in plans], planner.routes, self.streams)
        )

    def without_files(self) -> dict[str, Any]:
        """What laid over the run file builds parts that were built from files without them, their weights aside."""
        layer: dict[str, Any] = {}
        for path, (part, by) in self.parts.items():
            if not (instead := getattr(part, "without_files", None)):
                continue
            *places, name = path.split(".")
            at = layer
            for place in places:
                at = at.setdefault(place, {})
            at[name] = {"name": by.name, **by.options, **instead}
        return layer


@own_draws()
@inference_mode(False)
def compose(
    config: RunConfig,
    registry: Registry,
    *,
    tokenizer_folder: Path | None = None,
    draw: bool = True,
    spare_codecs: bool = False,
) -> Composition:
    """Build model and planner. Weights are drawn from ``train.seed``; PyTorch's generators stay as they were.

    Args:
        tokenizer_folder: a saved run's tokenizer, which then replaces the one of the run file.
        draw: False leaves a backbone that can be filled later (``draw_weights``) without memory for its parameters, for
            whoever knows where they are to lie: see ``kosmos.model.weights.materialize``.

        spare_codecs: whether a codec that cannot be made, such as one whose weights are not there, is done without: the
            tokens of a saved run are known, and media that are to be written are then bad samples.

    Raises:
        ConfigError: a stream is named that no modality uses, or options are wrong.
        PluginError: a component is not installed or its plugin is broken.
    """
    absent: dict[str, KosmosError] | None = {} if spare_codecs else None
    specs = check_parts(config, registry, without_codecs=spare_codecs)
    codecs = build_codecs(config, registry, absent)
    marks = [mark for spec in specs.values() for mark in spec.marks] + marks_of_codecs(codecs)
    texts = config.tokenizer.turns.model_dump() if config.tokenizer.turns is not None else {}
    spelled = " ".join(filter(None, (texts.get(name) for name in ("begin", *ROLES.values()))))
    tokenizer = load_tokenizer(str(tokenizer_folder or config.tokenizer.name), marks, spelled=spelled)
    seed_part(config.train.seed, "backbone")
    with nullcontext() if draw else _without_memory(registry, config.backbone.name):
        backbone = registry.build(
            "backbone", config.backbone.name, tokenizer.vocab_size, options=config.backbone.options, path="backbone"
        )
    parts: dict[str, tuple[Any, ComponentConfig]] = {"backbone": (backbone, config.backbone)}
    streams: dict[str, Stream] = {}
    for modality in config.modalities:
        name = config.stream_of(modality)
        if name not in streams:
            seed_part(config.train.seed, f"streams.{name}")
            streams[name] = _stream(config, registry, name, specs, backbone.width, parts)
    if config.backbone.lora is not None:
        put_updates(config, "backbone", backbone, config.backbone, leave=(backbone.output_weight(),))
    model = OmniModel(backbone, streams, freeze_backbone=config.backbone.freeze, z_loss=config.train.z_loss)
    model.title = _title("backbone", backbone, config.backbone)
    if not any(p.requires_grad for p in model.parameters()):
        raise ConfigError(NOTHING_LEARNS)
    if config.train.gradient_checkpointing:
        recompute_in(model, config.train.gradient_checkpointing)
    writers = {name: codec.writer(tokenizer) for name, codec in codecs.items()}
    routes = {
        name: replace(
            _route(config, registry, spec, streams, parts),
            writer=writers.get(name),
            no_codec=str((absent or {}).get(name, "")),
        )
        for name, spec in specs.items()
    }
    turns = spell_turns(texts, tokenizer) if texts else None
    data, longest = config.data, getattr(backbone, "longest", None)
    how = (data.tokens_per_pack, data.cells_per_pack, longest, turns, data.long_chats)
    planner = Planner(tokenizer, routes, *how, _learns_pairs(config, registry))
    return Composition(config, registry, tokenizer, model, planner, parts)


def check_composition(composition: object) -> None:
    """Raises ConfigError where something else is given, such as a saved run that has one."""
    if not isinstance(composition, Composition):
        has = (
            "; give its .composition" if hasattr(composition, "composition") else ", such as load_run(...).composition"
        )
        raise ConfigError(f"composition: expected a Composition, got {type(composition).__name__}{has}")


def _learns_pairs(config: RunConfig, registry: Registry) -> bool:
    named = config.train.objective
    return named is not None and cast(ObjectiveSpec, registry.get("objective", named.name)).unit == "pair"


def _without_memory(registry: Registry, backbone: str) -> AbstractContextManager[Any]:
    """Around the building of a backbone, where it can be drawn later."""
    return without_memory() if drawn_later(registry.resolve("backbone", backbone)) else nullcontext()


def _modality(registry: Registry, name: str) -> ModalitySpec:
    return cast(ModalitySpec, registry.get("modality", name))


def check_parts(
    config: RunConfig, registry: Registry, absent: Absent | None = None, *, without_codecs: bool = False
) -> dict[str, ModalitySpec]:
    """Check what a model is to be made of, and the options of each, before any is built: it may read files for minutes.

    Args:
        absent: gets the error of each component that is missing or broken, which is then passed over; None raises it.
        without_codecs: look at none of them.

    Returns:
        The modalities of the run that are there.

    Raises:
        ConfigError: as ``compose``, where that needs neither a tokenizer nor a built part.
        PluginError: as ``compose``.
    """
    specs: dict[str, ModalitySpec] = {}
    for modality, settings in config.modalities.items():
        with _passing(absent):
            specs[modality] = _modality(registry, modality)
            path = f"modalities.{modality}.processor"
            registry.check("modality", modality, settings.processor, path=path, positional=1)
            if not without_codecs:
                check_codec(registry, modality, settings.codec)
    _check_streams(config)
    check_updates(config)
    if config.backbone.freeze and not config.modalities:
        raise ConfigError(NOTHING_LEARNS)
    with _passing(absent):
        registry.check("backbone", config.backbone.name, config.backbone.options, path="backbone", positional=1)
    for name in dict.fromkeys(map(config.stream_of, config.modalities)):
        if name in config.modalities and name not in specs:
            continue  # what it would be made of is not known
        encoder, connector = parts_of(config, name, specs)
        path, own = f"streams.{name}", [spec for modality, spec in specs.items() if config.stream_of(modality) == name]
        suits = suiting(registry, own)
        with _passing(absent):
            registry.check("encoder", encoder.name, encoder.options, path=f"{path}.encoder", positional=0, suits=suits)
        with _passing(absent):
            registry.check("connector", connector.name, connector.options, path=f"{path}.connector", positional=2)
        for spec in own:
            check_encoder(registry, spec, encoder.name, f"{path}.encoder")
    return specs


@contextmanager
def _passing(absent: Absent | None) -> Iterator[None]:
    try:
        yield
    except PluginError as error:
        if absent is None:
            raise
        absent(error)


@own_draws()
def decoder_alone(config: RunConfig, registry: Registry) -> Decoder | None:
    """The built-in decoder of a run, low-rank updates included, without memory for its parameters, in a moment.

    Returns:
        None where the backbone is another one, which may read files.

    Raises:
        ConfigError: its options, or layers that are named, do not go together.
    """
    if registry.resolve("backbone", config.backbone.name) is not Decoder:
        return None
    with without_memory():
        decoder: Decoder = registry.build(
            "backbone", config.backbone.name, 1, options=config.backbone.options, path="backbone"
        )
        if config.backbone.lora is not None:
            put_updates(config, "backbone", decoder, config.backbone, leave=(decoder.output_weight(),))
    return decoder


def _check_streams(config: RunConfig) -> None:
    used = {config.stream_of(modality) for modality in config.modalities}
    for where, names in (("streams", config.streams), ("data.cells_per_pack", config.data.cells_per_pack)):
        for name in names:
            if name not in used:
                raise ConfigError(
                    f"{where}.{name}: no modality of the run uses this stream; used: {listed(sorted(used))}"
                )


def parts_of(config: RunConfig, name: str, specs: dict[str, ModalitySpec]) -> tuple[ComponentConfig, ComponentConfig]:
    """Encoder and connector of a stream. Raises ConfigError where one is neither stated nor a modality's own."""
    settings = config.streams.get(name, StreamConfig())
    owner = specs.get(name)
    if owner is None and not all(part and part.name for part in (settings.encoder, settings.connector)):
        needs = f"no modality has this name, so it needs both an encoder and a connector; {did_you_mean(name, specs)}"
        raise ConfigError(f"streams.{name}: {needs.removesuffix('; ')}")
    encoder = _or_default(settings.encoder, owner.encoder if owner else None, owner.encoder_options if owner else {})
    connector = _or_default(
        settings.connector, owner.connector if owner else None, owner.connector_options if owner else {}
    )
    return encoder, connector


def _stream(
    config: RunConfig,
    registry: Registry,
    name: str,
    specs: dict[str, ModalitySpec],
    width: int,
    parts: dict[str, tuple[Any, ComponentConfig]],
) -> Stream:
    encoder, connector = parts_of(config, name, specs)
    path = f"streams.{name}"
    built = build_encoder(registry, encoder.name, encoder.options, f"{path}.encoder")
    joined = registry.build(
        "connector", connector.name, built.width, width, options=connector.options, path=f"{path}.connector"
    )
    both = {"encoder": (built, encoder), "connector": (joined, connector)}
    parts |= {f"{path}.{part}": made for part, made in both.items()}
    titles = {part: _title(f"{path}.{part}", *made) for part, made in both.items()}
    settings = config.streams.get(name, StreamConfig())
    if settings.lora is not None:
        put_updates(config, path, built, settings)
    frozen = {"freeze": settings.freeze, "freeze_connector": settings.freeze_connector}
    return Stream(built, joined, width=width, titles=titles, **frozen)


def _title(path: str, part: Any, by: ComponentConfig) -> str:
    """What errors call a part: its place in the run file, its name and its class."""
    return f"{path}: {by.name} ({type(part).__name__})"


def _or_default(stated: ComponentConfig | None, name: str | None, options: Mapping[str, Any]) -> ComponentConfig:
    """What the run file states; the modality's default options fill what it leaves open of the same component. The
    first of them is what the others are for (a model, and its picture size): a run file that states it gets none.
    """
    if stated is None or stated.name in ("", name):
        own = stated.options if stated else {}
        fill = {} if next(iter(options), None) in own else options
        return ComponentConfig.model_validate({"name": name, **fill, **own})
    return stated


def _route(
    config: RunConfig,
    registry: Registry,
    spec: ModalitySpec,
    streams: dict[str, Stream],
    parts: Mapping[str, tuple[Any, ComponentConfig]],
) -> Route:
    name = config.stream_of(spec.name)
    stream: Any = streams[name]
    path = f"streams.{name}.encoder"
    check_encoder(registry, spec, parts[path][1].name, path, stream.encoder.input)
    options = config.modalities[spec.name].processor
    processor = registry.build(
        "modality", spec.name, stream.encoder.input, options=options, path=f"modalities.{spec.name}.processor"
    )
    return Route(processor, name, stream.connector.slots, frozenset(spec.marks))


def check_components(config: RunConfig, registry: Registry, absent: Absent | None = None) -> None:
    """Look up what is first used after the start, and check its options, before a run leaves anything behind.

    Args:
        absent: as of ``check_parts``.

    Raises:
        ConfigError: an option is unknown or of a wrong type.
        PluginError: a component is not installed or its plugin is broken.
    """
    train = config.train
    late: list[tuple[str, str, ComponentConfig, int]] = [
        ("optimizer", "train.optimizer", train.optimizer, 2),
        ("schedule", "train.schedule", train.schedule, 2),
        *([("objective", "train.objective", train.objective, 0)] if train.objective else []),
        *(("tracker", f"trackers.{number}", part, 2) for number, part in enumerate(config.trackers)),
        *(("observer", f"observers.{number}", part, 0) for number, part in enumerate(config.observers)),
        *(("metric", f"evaluate.metrics.{number}", part, 0) for number, part in enumerate(config.evaluate.metrics)),
    ]
    for kind, path, part, positional in late:
        with _passing(absent):
            registry.check(kind, part.name, part.options, path=path, positional=positional)


def check_weights(config: DataConfig) -> bool:
    """Whether sources have weights. Raises ConfigError where only some of them have."""
    lacking = [s.path for s in config.sources if s.weight is None]
    if 0 < len(lacking) < len(config.sources):
        raise ConfigError(f"data.sources: {lacking[0]} has no weight and others have; give all of them one, or none")
    return bool(config.sources) and not lacking


def make_feed(composition: Composition, sources: Sequence[Source]) -> Feed:
    """The endless feed of training rows."""
    config = composition.config.data
    by_documents = not check_weights(config)
    weights = [float(len(s)) for s in sources] if by_documents else [float(s.weight or 0) for s in config.sources]
    mixture = Mixture(
        tuple(sources), tuple(weights), by_documents, config.seed, num_lanes=config.lanes,
        row_tokens=config.tokens_per_pack,
    )  # fmt: skip
    return Feed(mixture, composition.planner, config.look_ahead, composition.streams)


def make_scoring_feed(composition: Composition, sources: Sequence[Source], *, lanes: int, max_documents: int) -> Feed:
    """A feed of each source once, at most ``max_documents`` of each."""
    mixture = Mixture.read_once(sources, max_documents, even=composition.config.evaluate.is_even, num_lanes=lanes)
    return Feed(mixture, composition.planner, composition.config.data.look_ahead, composition.streams)
