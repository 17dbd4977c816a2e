"""Put a run together from what is installed: tokenizer, model, and the planner that counts as the model does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kosmos.components import DatasetSpec, ModalitySpec
from kosmos.config import ComponentConfig, RunConfig, SourceConfig, StreamConfig
from kosmos.data.document import Source
from kosmos.data.lane import Feed
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.processor import Processor
from kosmos.data.sources.folders import MANIFEST
from kosmos.data.sources.opening import Parts, open_parts, short_name
from kosmos.data.sources.splits import Split
from kosmos.data.tokenizer import Tokenizer, load_tokenizer
from kosmos.errors import ConfigError, DataError, EmptySplit, KosmosError, PluginError
from kosmos.model.omni import OmniModel, Stream
from kosmos.model.recompute import Recompute
from kosmos.model.weights import drawn_later, seed_part, without_memory
from kosmos.names import listed
from kosmos.options import check_options
from kosmos.plugins import Registry


@dataclass(frozen=True)
class Composition:
    """The parts of a run that belong together."""

    config: RunConfig
    registry: Registry
    tokenizer: Tokenizer
    model: OmniModel
    planner: Planner
    parts: Mapping[str, tuple[Any, ComponentConfig]] = field(default_factory=dict)
    """Backbone, encoders and connectors by their places in the run file, each with what it was built by."""

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams, in the order in which every rank runs them."""
        return tuple(self.model.streams)

    @property
    def processors(self) -> dict[str, Processor]:
        """Those of the modalities, by their names."""
        return {name: route.processor for name, route in self.planner.routes.items()}

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


def compose(
    config: RunConfig, registry: Registry, *, tokenizer_folder: Path | None = None, draw: bool = True
) -> Composition:
    """Build model and planner. Weights are drawn from ``train.seed``.

    Args:
        tokenizer_folder: a saved run's tokenizer, which then replaces the one of the run file.
        draw: False leaves a backbone that can be filled later (``draw_weights``) without memory for its parameters, for
            whoever knows where they are to lie: see ``kosmos.model.weights.materialize``.

    Raises:
        ConfigError: a stream is named that no modality uses, or options are wrong.
        PluginError: a component is not installed or its plugin is broken.
    """
    specs = {name: _modality(registry, name) for name in config.modalities}
    _check_streams(config)
    marks = [mark for spec in specs.values() for mark in spec.marks]
    tokenizer = load_tokenizer(str(tokenizer_folder or config.tokenizer.name), marks)
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
    model = OmniModel(backbone, streams, freeze_backbone=config.backbone.freeze)
    if not any(p.requires_grad for p in model.parameters()):
        raise ConfigError("backbone.freeze: nothing is left to train; a frozen backbone needs a stream")
    if config.train.gradient_checkpointing:
        _checkpoint_gradients(model, config.train.gradient_checkpointing)
    routes = {name: _route(config, registry, spec, streams) for name, spec in specs.items()}
    longest = getattr(backbone, "longest", None)
    planner = Planner(tokenizer, routes, config.data.tokens_per_pack, config.data.cells_per_pack, longest)
    return Composition(config, registry, tokenizer, model, planner, parts)


def _without_memory(registry: Registry, backbone: str) -> AbstractContextManager[Any]:
    """Around the building of a backbone, where it can be drawn later."""
    return without_memory() if drawn_later(registry.resolve("backbone", backbone)) else nullcontext()


def _modality(registry: Registry, name: str) -> ModalitySpec:
    spec = registry.get("modality", name)
    assert isinstance(spec, ModalitySpec)
    return spec


def _check_streams(config: RunConfig) -> None:
    used = {config.stream_of(modality) for modality in config.modalities}
    for where, names in (("streams", config.streams), ("data.cells_per_pack", config.data.cells_per_pack)):
        for name in names:
            if name not in used:
                raise ConfigError(
                    f"{where}.{name}: no modality of the run uses this stream; used: {listed(sorted(used))}"
                )


def _stream(
    config: RunConfig,
    registry: Registry,
    name: str,
    specs: dict[str, ModalitySpec],
    width: int,
    parts: dict[str, tuple[Any, ComponentConfig]],
) -> Stream:
    settings = config.streams.get(name, StreamConfig())
    owner = specs.get(name)
    if owner is None and not all(part and part.name for part in (settings.encoder, settings.connector)):
        raise ConfigError(f"streams.{name}: no modality has this name, so it needs both an encoder and a connector")
    encoder = _or_default(settings.encoder, owner.encoder if owner else None, owner.encoder_options if owner else {})
    connector = _or_default(
        settings.connector, owner.connector if owner else None, owner.connector_options if owner else {}
    )
    path = f"streams.{name}"
    built = registry.build("encoder", encoder.name, options=encoder.options, path=f"{path}.encoder")
    if lacking := [part for part in ("input", "width") if not hasattr(built, part)]:
        raise PluginError(
            f"{_title(f'{path}.encoder', built, encoder)} has no {' and no '.join(lacking)}; an encoder has input "
            "(what a processor makes for it), width (features of a cell) and forward(values, grids)"
        )
    joined = registry.build(
        "connector", connector.name, built.width, width, options=connector.options, path=f"{path}.connector"
    )
    both = {"encoder": (built, encoder), "connector": (joined, connector)}
    parts |= {f"{path}.{part}": made for part, made in both.items()}
    titles = {part: _title(f"{path}.{part}", *made) for part, made in both.items()}
    return Stream(built, joined, width=width, freeze=settings.freeze, titles=titles)


def _title(path: str, part: Any, by: ComponentConfig) -> str:
    """What errors call a part: its place in the run file, its name and its class."""
    return f"{path}: {by.name} ({type(part).__name__})"


def _or_default(stated: ComponentConfig | None, name: str | None, options: Mapping[str, Any]) -> ComponentConfig:
    """What the run file states; the modality's default options fill what it leaves open of the same component.

    The first of the default options is what the others are for (a model, and the picture size that suits it):
    a run file that states it gets none of them.
    """
    if stated is None or stated.name in ("", name):
        own = stated.options if stated else {}
        fill = {} if next(iter(options), None) in own else options
        return ComponentConfig.model_validate({"name": name, **fill, **own})
    return stated


def _route(config: RunConfig, registry: Registry, spec: ModalitySpec, streams: dict[str, Stream]) -> Route:
    name = config.stream_of(spec.name)
    stream: Any = streams[name]
    options = config.modalities[spec.name].processor
    processor = registry.build(
        "modality", spec.name, stream.encoder.input, options=options, path=f"modalities.{spec.name}.processor"
    )
    return Route(processor, name, stream.connector.slots, frozenset(spec.marks))


def check_components(config: RunConfig, registry: Registry) -> None:
    """Look up what is first used after the start, and check its options, before a run leaves anything behind.

    Raises:
        ConfigError: an option is unknown or of a wrong type.
        PluginError: a component is not installed or its plugin is broken.
    """
    train = config.train
    late: list[tuple[str, str, ComponentConfig, int]] = [
        ("optimizer", "train.optimizer", train.optimizer, 2),
        ("schedule", "train.schedule", train.schedule, 2),
        *(("tracker", f"trackers.{number}", part, 2) for number, part in enumerate(config.trackers)),
        *(("observer", f"observers.{number}", part, 0) for number, part in enumerate(config.observers)),
        *(("metric", f"evaluate.metrics.{number}", part, 0) for number, part in enumerate(config.evaluate.metrics)),
    ]
    for kind, path, part, positional in late:
        check_options(registry.resolve(kind, part.name), part.options, path=path, positional=positional)


def _checkpoint_gradients(model: OmniModel, wanted: Recompute) -> None:
    parts: list[tuple[str, Any]] = [("backbone", model.backbone)]
    parts += [(f"streams.{name}.encoder", stream.encoder) for name, stream in model.streams.items()]
    for path, part in parts:
        switch = getattr(part, "set_gradient_checkpointing", None)
        if switch is None:
            raise ConfigError(
                f"train.gradient_checkpointing: {path} ({type(part).__name__}) cannot recompute its activations"
            )
        switch(wanted)


def open_sources(
    config: RunConfig,
    registry: Registry,
    split: Literal["train", "held_out"],
    entries: Sequence[SourceConfig] | None = None,
) -> list[Source]:
    """The sources of the run, or ``entries`` in their place. No source named: the modalities' sample sets.

    Raises:
        ConfigError: a modality has no sample set, two sources have one name, or only some have a weight.
        DataError: a source cannot be opened.
    """
    return _parts_of(_open_all(config, registry, entries), split, config.data.held_out)


def open_held_out(config: RunConfig, registry: Registry) -> list[Source]:
    """The held-out parts of the run's sources; a source without one (it has one row) is left out.

    Raises: as ``open_sources``.
    """
    return _held_out_of(_open_all(config, registry), config.data.held_out)


def open_both(config: RunConfig, registry: Registry) -> tuple[list[Source], list[Source]]:
    """As ``open_sources`` for what is trained on, and ``open_held_out``; every row is looked at once."""
    opened, share = _open_all(config, registry), config.data.held_out
    return _parts_of(opened, "train", share), _held_out_of(opened, share)


def _open_all(config: RunConfig, registry: Registry, entries: Sequence[SourceConfig] | None = None) -> list[Parts]:
    """The sources of the run, or ``entries`` in their place, of which no part is chosen yet."""
    entries = list(entries if entries is not None else config.data.sources) or _sample_sets(config, registry)
    opened = []
    for number, entry in enumerate(entries):
        with _named(number, len(entries)):
            opened.append(_open(config, registry, entry, _place_of(number)))
    return opened


@contextmanager
def _named(number: int, of: int) -> Iterator[None]:
    """Errors say which source of the run they are about, where it has several."""
    where = _place_of(number)
    try:
        yield
    except KosmosError as error:
        if of < 2 or str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from error


def _place_of(number: int) -> str:
    return f"data.sources.{number}"


def _parts_of(opened: Sequence[Parts], split: Split, share: float) -> list[Source]:
    sources = []
    for number, parts in enumerate(opened):
        with _named(number, len(opened)):
            sources.append(parts.part(split, share))
    return _distinct(sources)


def _held_out_of(opened: Sequence[Parts], share: float) -> list[Source]:
    sources = []
    for number, parts in enumerate(opened):
        with suppress(EmptySplit), _named(number, len(opened)):
            sources.append(parts.part("held_out", share))
    return _distinct(sources)


def open_named(
    config: RunConfig, registry: Registry, paths: Sequence[str], warn: Callable[[str], None] = lambda line: None
) -> list[Source]:
    """What a saved run is scored on when data are named.

    Of a source of the run (by its path or name) the part that the run held out; of other data the part that they
    themselves state as held out, and where they state none, all of them: nothing of them was trained on.

    Args:
        warn: told where data share files with a source of the run, so that some of them may have been trained on.

    Raises: as ``open_sources``.
    """
    sources = []
    for path in paths:
        if (number := _number_in_run(config, path)) is not None:
            opened = _open(config, registry, config.data.sources[number], _place_of(number))
            sources.append(opened.part("held_out", config.data.held_out))
            continue
        for other in config.data.sources:
            if _overlap(Path(path), Path(other.path)):
                warn(f"data {path!r}: shares files with the run's source {other.path}, and may have been trained on")
        parts = _open_as_it_is(config, registry, path)
        try:
            sources.append(parts.part("held_out", 0.0))
        except EmptySplit:
            sources.append(parts.part("train", 0.0))
    return _distinct(sources, "--data", "score them one after the other")


def _open_as_it_is(config: RunConfig, registry: Registry, path: str) -> Parts:
    """A source that is named without settings, whose advice would be to give some."""
    try:
        return _open(config, registry, SourceConfig(path=path))
    except DataError as error:
        if "columns: {" not in str(error):
            raise
        raise type(error)(
            f"{error}; data that are named to be scored take neither, only data.sources of a run do: write rows in "
            "which the columns have these names"
        ) from error


def _number_in_run(config: RunConfig, path: str) -> int | None:
    """Which source of the run has this path or name; None where none has."""
    for number, entry in enumerate(config.data.sources):
        known = (entry.path, entry.name or short_name(entry.path))
        if path in known or _place(Path(path)) == _place(Path(entry.path)):
            return number
    return None


def _place(path: Path) -> Path:
    """A folder with a manifest is the manifest."""
    path = path.resolve()
    return path.parent if path.name == MANIFEST else path


def _overlap(one: Path, other: Path) -> bool:
    one, other = _place(one), _place(other)
    return one.exists() and other.exists() and (one.is_relative_to(other) or other.is_relative_to(one))


def _open(config: RunConfig, registry: Registry, entry: SourceConfig, where: str = "") -> Parts:
    """A source, which stands at ``where`` in the run file; empty where it does not."""
    return open_parts(
        entry.path,
        registry=registry,
        modalities=list(config.modalities),
        name=entry.name,
        template=entry.template,
        columns=entry.columns,
        root=entry.root,
        options=entry.options,
        where=where,
    )


NAME_THEM = "give one another name (name: ... in the run file, data.sources.N.name=... on the command line)"


def _distinct(sources: list[Source], where: str = "data.sources", advice: str = NAME_THEM) -> list[Source]:
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where}: two sources are called {name!r}; {advice}")
    return sources


def _sample_sets(config: RunConfig, registry: Registry) -> list[SourceConfig]:
    if not config.modalities:
        texts = [s.name for s in registry.specs("dataset").values() if isinstance(s, DatasetSpec) and not s.modalities]
        return [SourceConfig(path=name) for name in texts[:1]]
    without = [name for name in config.modalities if _modality(registry, name).sample_set is None]
    if without:
        raise ConfigError(f"modality {without[0]} brings no sample set; name data with --data")
    return [SourceConfig(path=str(_modality(registry, name).sample_set)) for name in config.modalities]


def make_feed(composition: Composition, sources: Sequence[Source]) -> Feed:
    """The endless feed of training rows."""
    config = composition.config.data
    stated = {s.weight for s in config.sources}
    by_documents = stated <= {None}
    if not by_documents and None in stated:
        missing = next(s for s in config.sources if s.weight is None)
        raise ConfigError(f"data.sources: {missing.path} has no weight and others have; give all of them one, or none")
    weights = [float(len(s)) for s in sources] if by_documents else [float(s.weight or 0) for s in config.sources]
    mixture = Mixture(tuple(sources), tuple(weights), by_documents, config.seed, num_lanes=config.lanes)
    return Feed(mixture, composition.planner, config.look_ahead, composition.streams)


def make_scoring_feed(composition: Composition, sources: Sequence[Source], *, lanes: int, max_documents: int) -> Feed:
    """A feed of each source once, at most ``max_documents`` of each."""
    mixture = Mixture(tuple(sources), tuple(1.0 for _ in sources), True, 0, once=max_documents, num_lanes=lanes)
    return Feed(mixture, composition.planner, composition.config.data.look_ahead, composition.streams)
