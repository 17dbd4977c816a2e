"""Begin with the weights of another run: a second stage, with other data, other settings, other parts frozen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from kosmos.checkpoint.folder import Loaded
from kosmos.checkpoint.tensors import MODEL, model_tensors, read_into, read_whole, shapes
from kosmos.compose import Composition
from kosmos.config import DataConfig, SourceConfig
from kosmos.config_turns import TurnsConfig
from kosmos.config_weights import InitConfig
from kosmos.data.document import Source
from kosmos.data.foreign import called, first_line
from kosmos.data.sources.given import is_noted
from kosmos.data.sources.places import Places
from kosmos.errors import PluginError
from kosmos.lock import keeping
from kosmos.model.lora import changes, plus, updates_among, updates_in
from kosmos.names import listed
from kosmos.run_updates import update_scales
from kosmos.train.begun import Begun
from kosmos.train.initial_checkpoint import open_first
from kosmos.train.initial_packed import Taken, whole_shapes
from kosmos.train.initial_parts import LEAVE, Shapes, by_part, check_same, instead, left_parts
from kosmos.train.initial_tokens import MovedTokens, moved_tokens, token_rows
from kosmos.train.initial_updates import kept_updates
from kosmos.train.other_codecs import codec_warnings
from kosmos.train.saved import config_of
from kosmos.train.taken_parts import First, options_there, other_options, other_processors

BACKBONE = "backbone"
"""The part that holds a row for each token."""


class Initial(NamedTuple):
    """What a run begins with."""

    loaded: Loaded
    optimizer: str
    """The name of its optimizer."""
    scales: dict[str, float]
    """How often its low-rank updates count, by part."""
    turns: TurnsConfig | None = None
    """How chats were laid out."""
    others: tuple[str, ...] = ()
    """Options that are not what they were there, a line each."""
    resized: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """Tensors of another shape there, which an encoder brings to its own, to the options of the encoder there."""
    tokens: MovedTokens | None = None
    """Which tokens are the same, where not all are."""
    token_rows: frozenset[str] = frozenset()
    """Tensors with a row for each token, where not all are the same."""
    data: DataConfig | None = None
    """What it was trained on."""
    kept: frozenset[str] = frozenset()
    """Its low-rank updates that are gone on with."""
    left: frozenset[str] = frozenset()
    """Parts that both have, and that are not taken."""


def open_initial(
    settings: InitConfig,
    tokenizer: Path,
    model: nn.Module,
    composition: Composition,
    *,
    begun: Begun | None = None,
    resumed: bool = False,
) -> Initial:
    """The checkpoint that a run begins with.

    Args:
        settings: as in the run file.
        tokenizer: folder of the run's own tokenizer, which has to be the same but for added tokens.
        model: whose parts have to be the same where both have them.
        composition: what the model is made of.
        begun: see ``kosmos.train.initial_checkpoint.open_first``, and so ``resumed``.

    Raises:
        ConfigError: there is no run or whole checkpoint, or its tokens or one of those parts are others.
        PluginError: a component does not tell its options.
    """
    folder, loaded = open_first(settings.path, begun, resumed=resumed)
    config = config_of(folder)
    initial = Initial(loaded, config.train.optimizer.name, update_scales(config), config.tokenizer.turns)
    ours, theirs = _parts(model, initial)
    initial = initial._replace(left=left_parts(settings, ours, theirs, folder.path))
    both = [part for part in ours if part in theirs and part not in initial.left]
    tokens = moved_tokens(folder.tokenizer, tokenizer, folder.path) if BACKBONE in both else None
    first = First(
        folder.path, config, config_of(folder, folder.read_model()), keeping(folder.path, composition.registry)
    )
    others = other_options(composition, first, both)
    resized: dict[str, dict[str, Any]] = {}
    rows = token_rows(model, ours[BACKBONE], theirs[BACKBONE]) if tokens is not None else []
    for part in both:
        there = theirs[part] | {name: ours[part][name] for name in rows if part == BACKBONE}
        if unlike := [n for n, shape in ours[part].items() if there.get(n, shape) != shape and _encoder_of(model, n)]:
            options = options_there(composition, first, part)
            empty = {name: torch.empty(there[name], device="meta") for name in unlike}
            brought = [n for n in unlike if _resized(model, n, empty[n], options, ours[part][n]) is not None]
            resized |= dict.fromkeys(brought, options)
            there |= {name: ours[part][name] for name in brought}
        differ = [other.path for other in others.get(part, ())]
        check_same(part, ours[part], there, loaded.folder, differ, instead(part, both))
    told = [*chain.from_iterable(others.values()), *other_processors(composition, first, both)]
    lines = tuple(other.line(folder.path) for other in told)
    if BACKBONE in both:
        lines += tuple(codec_warnings(loaded.state["order"], composition.planner.codecs, folder.path))
    if settings.keep_updates:
        initial = initial._replace(kept=kept_updates(loaded, _scales_taken(initial), model, composition))
    return initial._replace(others=lines, resized=resized, tokens=tokens, token_rows=frozenset(rows), data=config.data)


def drawn_again(before: Mapping[str, Any], order: Mapping[str, Any]) -> list[str]:
    """Sources whose documents come in the same order again, before the run of a checkpoint has had all of them.

    Args:
        before: state of the checkpoint.
        order: what ``kosmos.train.order.sample_order`` gave for the run that begins.
    """
    there, here = before["order"]["data"], order["data"]
    if there["seed"] != here["seed"]:
        return []
    again = []
    for number, (old, new) in enumerate(zip(there["sources"], here["sources"], strict=False)):
        facts = [{name: of[name] for name in ("name", "documents", "blocks") if name in of} for of in (old, new)]
        by_lanes = "blocks" in old and there["lanes"] != here["lanes"]  # of which each meets few blocks at a time
        drawn = sum(lane["draws"][number] for lane in before["data"]["lanes"].values())
        if facts[0] == facts[1] and not by_lanes and not _are_others(old, new) and drawn < old["documents"]:
            again.append(old["name"])
    return again


def _are_others(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two sources, by their facts, are known to have other documents, or in another order."""
    prints = one.get("fingerprint"), other.get("fingerprint")
    return None not in prints and prints[0] != prints[1]


def held_out_otherwise(
    there: DataConfig, before: Mapping[str, Any], here: DataConfig, order: Mapping[str, Any], init: Path
) -> Iterator[str]:
    """Warnings of sources of both runs of which another share is held out: the larger one holds the smaller.

    Args:
        there: of the run of a checkpoint, whose ``state["order"]`` is ``before``.
        here: of the run that begins, whose ``order`` is as ``drawn_again`` takes it.
        init: what that calls the other.
    """
    sources = [
        zip(data.sources, found["data"]["sources"], strict=False) for data, found in ((there, before), (here, order))
    ]
    for (old, was), (new, now) in _of_both(*sources):
        then, share = _share(there, old), _share(here, new)
        if then == share or not _are_others(was, now):  # data that state a split have no share
            continue
        if isinstance(then, dict) or isinstance(share, dict):
            yield _otherwise_chosen(_place_of(here, new), now["name"], then, share, init)
            continue
        what = "was held out there is trained on here" if then > share else "is scored here was trained on there"
        yield (
            f"{_place_of(here, new)}: of {now['name']} a share of {then:g} was held out in {init}, and {share:g} is "
            f"here, so that some of what {what}; set it to {then:g}"
        )


def held_out_anew(
    there: DataConfig,
    before: Mapping[str, Any],
    here: DataConfig,
    order: Mapping[str, Any],
    init: Path,
    sources: Iterable[Source],
) -> Iterator[str]:
    """Warnings of sources of both runs that have other rows now, which are held out by their numbers among them.

    Args:
        there: as of ``held_out_otherwise``, and so the others.
        sources: of the run that begins.
    """
    by_place = {source.name for source in sources if getattr(source, "by_place", False)}
    were, are = (
        list(zip(data.sources, of["data"]["sources"], strict=False)) for data, of in ((there, before), (here, order))
    )
    same = list(_of_both(were, are))
    grown = [new for (old, was), new in same if _share(there, old) == _share(here, new[0]) and _are_others(was, new[1])]
    places = Places()
    others = [new for new in are if not any(new is of for _, of in same)]
    apart = [new for new in others if any(_meet(old, new, places) for old in were)]
    for new, now in (*grown, *apart):
        if now["name"] in by_place and _share(here, new):
            yield (
                f"{_place_of(here, new)}: {now['name']} has other rows or files than {init} was trained on, and rows "
                "without an id are held out by their numbers among all of them, so that most of what is scored here "
                "may have been trained on there; give the rows a column split, or an id, or name what is scored in "
                "evaluate.sources and set held_out to 0"
            )


def _meet(old: Found, new: Found, places: Places) -> bool:
    """Whether two sources of other paths have files in common, and other rows."""
    one, other = old[0].path, new[0].path
    if is_noted(one) or is_noted(other) or not _are_others(old[1], new[1]):
        return False
    return places.overlap(Path(one), Path(other))


def _share(data: DataConfig, source: SourceConfig) -> Any:
    """What of a source is held out."""
    return data.held_out if source.held_out is None else source.held_out


def _place_of(data: DataConfig, source: SourceConfig) -> str:
    """The field that says what of a source is held out."""
    return "data.held_out" if source.held_out is None else f"data.sources.{data.sources.index(source)}.held_out"


def _otherwise_chosen(place: str, name: str, then: Any, now: Any, init: Path) -> str:
    """Of rows that are held out by their values in one of two runs at least."""
    before, here = (f"a share of {of:g}" if isinstance(of, float) else f"what has {_values(of)}" for of in (then, now))
    return (
        f"{place}: of {name} {before} was held out in {init}, and {here} is here, so that some of what is scored here "
        "was trained on there; hold the same out"
    )


def _values(held_out: Mapping[str, Sequence[Any]]) -> str:
    return ", ".join(f"{column} {listed(map(str, values))}" for column, values in held_out.items())


Found = tuple[SourceConfig, Mapping[str, Any]]
"""A source of a run, and its facts."""


def _of_both(there: Iterable[Found], here: Iterable[Found]) -> Iterator[tuple[Found, Found]]:
    """Sources of two runs that are of one file or folder; of several of one place, those of one name.

    Documents that were given in Python lie nowhere, and none of them are held out.
    """
    places: list[dict[Path, list[Found]]] = [{}, {}]
    for of, found in zip(places, (there, here), strict=True):
        for source in found:
            if not is_noted(source[0].path):
                of.setdefault(Path(source[0].path).resolve(), []).append(source)
    for place in (place for place in places[1] if place in places[0]):
        olds, news = (of[place] for of in places)
        alone = len(olds) == len(news) == 1
        yield from ((old, new) for old in olds for new in news if alone or old[1]["name"] == new[1]["name"])


def take_weights(model: nn.Module, initial: Initial, *, alone: bool, turns: TurnsConfig | None = None) -> Iterator[str]:
    """Fill the parts of a model that a checkpoint has too, and tell what was taken, and what was not.

    Low-rank updates there are put into the weights that they stand beside, but for ``initial.kept``, and those of the
    model are drawn anew.

    Args:
        model: whole or sharded, with memory.
        initial: what ``open_initial`` gave.
        alone: this process reads by itself; otherwise all ranks read together.
        turns: how chats are laid out now.

    Raises:
        CheckpointError: the checkpoint cannot be read.
    """
    own, folder = model_tensors(model), initial.loaded.tensors
    ours, theirs = _parts(model, initial)
    both = [part for part in ours if part in theirs and part not in initial.left]
    names = [name for part in both for name in ours[part]]
    packed = Taken(own, folder, names)
    taken = {name: own[name].detach() for name in (*names, *initial.kept) if name not in packed.added}
    with torch.no_grad():
        brought = initial.resized.keys() | initial.token_rows
        read_into(folder, {MODEL + n: tensor for n, tensor in taken.items() if n not in brought}, alone=alone)
        for name, stored in _read(folder, initial.token_rows):
            whole = cast(MovedTokens, initial.tokens).taken(taken[name], stored)
            taken[name].copy_(as_here(whole, taken[name]))
        for name, stored in _read(folder, initial.resized.keys()):
            whole = _resized(model, name, stored, initial.resized[name], own[name].shape)
            taken[name].copy_(as_here(whole, taken[name]))
        updates = updates_among([n.removeprefix(MODEL) for n in shapes(folder)], _scales_taken(initial)) - initial.kept
        for name, added in changes(dict(_read(folder, updates)), initial.scales):
            if name in packed.added:
                packed.added[name] = added
            elif name in taken:
                taken[name].copy_(plus(taken[name], as_here(added, taken[name])))
        packed.fill(as_here)
    as_they_are = f", its {len(initial.kept) // 2} low-rank updates as they are" if initial.kept else ""
    yield f"begins with {', '.join(both)} of {initial.loaded.folder}{as_they_are}"
    yield from packed.lines()
    if initial.resized:
        yield f"brought to the size here: {listed(initial.resized)}"
    yield from initial.others
    if initial.tokens is not None:
        yield from initial.tokens.lines()
    if turns != initial.turns and BACKBONE in both:
        there, here = ({} if of is None else of.model_dump() for of in (initial.turns, turns))
        name = next(name for name in (*there, *here) if there.get(name) != here.get(name))
        values = [f"{of[name]!r}" if of else "between marks" for of in (here, there)]
        yield f"warning: tokenizer.turns.{name}: chats are laid out otherwise ({values[0]}) than there ({values[1]})"
    begun = "not there, and begun as a new run would"  # from weights of their own, if they name some
    left = f"left there ({LEAVE}), and begun as a new run would"
    only = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
    for what, parts in ((begun, only[0]), (left, initial.left), ("left there", only[1])):
        if parts:
            yield f"{what}: {', '.join(sorted(parts))}"


def _scales_taken(initial: Initial) -> dict[str, float]:
    """How often the low-rank updates count of parts that are not left there."""
    return {part: scale for part, scale in initial.scales.items() if part not in initial.left}


def _read(folder: Path, names: Collection[str]) -> Iterable[tuple[str, Tensor]]:
    """Some of a checkpoint's tensors of the model, whole, by name."""
    return read_whole(folder, MODEL, only=lambda name: name.removeprefix(MODEL) in names).items()


def as_here(whole: Tensor, weight: Tensor) -> Tensor:
    """A tensor where a weight is, and cut as that."""
    whole = whole.to(weight.device)
    return distribute_tensor(whole, weight.device_mesh, weight.placements) if isinstance(weight, DTensor) else whole


def _encoder_of(model: nn.Module, name: str) -> Any:
    """The encoder that a tensor is of, if it brings any to its own shape; else None."""
    match name.split(".", 3):
        case ["streams", stream, "encoder", _]:
            encoder = cast(Any, model).streams[stream].encoder
            return encoder if hasattr(encoder, "resized") else None
    return None


def _resized(model: nn.Module, name: str, stored: Tensor, options: Mapping[str, Any], shape: Sequence[int]) -> Any:
    """What ``resized`` of the encoder that a tensor is of makes of it; None where it makes nothing of it.

    Raises:
        PluginError: it fails, or the result has another shape.
    """
    encoder = _encoder_of(model, name)
    try:
        found = encoder.resized(name.split(".", 3)[3], stored, options)
    except Exception as error:
        raise PluginError(f"init: {name}: {called(encoder, 'resized')} fails: {first_line(error)}") from error
    if found is not None and tuple(found.shape) != tuple(shape):
        raise PluginError(f"init: {name}: {called(encoder, 'resized')} gives {list(found.shape)}, not {list(shape)}")
    return found


def _parts(model: nn.Module, initial: Initial) -> tuple[dict[str, Shapes], dict[str, Shapes]]:
    """Those of a model and those of a checkpoint, without low-rank updates."""
    found = shapes(initial.loaded.tensors)
    stored = whole_shapes({n.removeprefix(MODEL): s for n, s in found.items() if n.startswith(MODEL)})
    own = whole_shapes({name: tuple(t.shape) for name, t in model_tensors(model).items()})
    return by_part(own, updates_in(model)), by_part(stored, updates_among(stored, initial.scales))
