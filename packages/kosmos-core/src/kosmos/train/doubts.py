"""What is allowed and hardly meant."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from kosmos.config import BackboneConfig, RunConfig, StreamConfig
from kosmos.config_weights import InitConfig
from kosmos.data.chat_template import template
from kosmos.data.document import Source
from kosmos.data.doubtful_media import doubted_media
from kosmos.data.foreign import called, first_line
from kosmos.data.layout_marks import misspelt_marks
from kosmos.data.place_tags import doubtful_places
from kosmos.data.plan import Planner, Route
from kosmos.data.processor import Processor
from kosmos.data.shown import scored_only
from kosmos.data.sources.blind import blind_of
from kosmos.data.sources.chosen import are_apart
from kosmos.data.sources.given import SPLIT, is_noted
from kosmos.data.sources.not_read import warnings_of
from kosmos.data.sources.places import Places
from kosmos.data.sources.remarks import remarks_of
from kosmos.data.sources.splits import split_of
from kosmos.data.sources.textfiles import longest_piece
from kosmos.data.sources.unnamed import warnings_of as warnings_of_unnamed
from kosmos.data.sources.wishes import warnings_of as warnings_of_wishes
from kosmos.data.stated_lengths import longer_than_stated
from kosmos.data.tokenizer import Tokenizer
from kosmos.data.turns import fitting
from kosmos.model.lora import LoRALinear
from kosmos.model.nf4 import values_in
from kosmos.model.omni import OmniModel
from kosmos.names import listed
from kosmos.patterns import first_file
from kosmos.run_sources import chats_among
from kosmos.train.frozen_as_drawn import frozen_backbone, frozen_streams, is_drawn
from kosmos.train.given_twice import given_twice
from kosmos.train.held_out_elsewhere import held_out_elsewhere
from kosmos.train.media_held_out import media_held_out
from kosmos.train.other_tokens import warnings_of as warnings_of_tokens
from kosmos.train.small_data import few_held_out
from kosmos.train.trained_before import scored_before

KEEPS_UPDATES = ("lion", "lion8bit", "muon", "adamw")
"""Optimizers with the option ``master``."""
LEARNS_WITHIN = 5
"""Steps of a process within which an encoder has to meet a row that trains it, or ``learns_nothing`` names it."""


SHORT_PIECES = 4
"""Pieces of text files are told where a row holds more than so many of them."""


def doubts(
    config: RunConfig,
    sources: Sequence[Source],
    *,
    resumed: bool,
    backbone: object | None = None,
    streams: Iterable[tuple[str, Any]] = (),
    routes: Mapping[str, Route] = MappingProxyType({}),
    tokenizer: Tokenizer | None = None,
    scored: Sequence[Source] | None = None,
) -> Iterator[str]:
    """Warnings about a run.

    Args:
        sources: what it trains on.
        resumed: whether it goes on, so that a fresh one was warned.
        backbone: its language model.
        streams: its streams by their names.
        routes: where the media of its modalities go.
        tokenizer: its own.
        scored: what it holds out, and scores beside that, questions too; None where that is not known.
    """
    for name, route in routes.items():
        yield from (f"modalities.{name}: {hint}" for hint in _hints(route.processor))
    yield from _settings(config, resumed=resumed)
    streams = list(streams)
    yield from _idle_rates(config, streams)
    if not resumed:
        yield from warnings_of_tokens(config, tokenizer, backbone)
        yield from _rounded_away(config, {"backbone": backbone, **{f"streams.{name}": part for name, part in streams}})
        yield from _batch_statistics(streams)
        yield from frozen_streams(config, streams)
    if not resumed and not InitConfig.gives(config.init, "backbone"):  # else they are those of another run, or its own
        yield from frozen_backbone(config.backbone, backbone)
        yield from _turns(config, tokenizer)
    if not resumed:
        yield from _preferences(config, backbone)
        yield from misspelt_marks(routes, sources)
        yield from doubtful_places(sources, routes)
        yield from longer_than_stated(routes, sources)
        yield from doubted_media(routes, sources)
        yield from _never_scored(config) if scored is not None and not scored else ()
        yield from few_held_out(config, scored or ())
        yield from _scored_and_trained(config)
        yield from scored_before(config)
        yield from held_out_elsewhere(config, sources, scored or ())
        yield from media_held_out(sources, scored or ())
        if any(is_noted(entry.path) for entry in config.data.sources):
            yield from given_twice(sources, scored or ())
        yield from _router(backbone)
        yield from _experts(config.backbone, backbone)
    made_for, tokens = getattr(backbone, "made_for", None), config.data.tokens_per_pack
    ends_at = getattr(backbone, "longest", None) or tokens  # where texts are cut, however many a row holds
    if made_for is not None and min(tokens, ends_at) > made_for and not resumed:
        yield (
            f"data.tokens_per_pack {tokens}: a document may be as long, and the backbone was made for {made_for} "
            f"tokens; set data.tokens_per_pack={made_for} unless the documents are shorter"
        )
    if not resumed:
        for source in sources:
            yield from warnings_of_wishes(source.name, getattr(source, "wishes", {}), getattr(source, "rated", ()))
            yield from warnings_of_unnamed(source)
            yield from warnings_of(source.name, getattr(source, "left_out", {}))
            yield from _short_pieces(config, source, tokenizer)
        for source in (*sources, *scored_only(sources, scored or ())):
            yield from remarks_of(source)
        for source in scored_only(sources, scored or ()):
            yield from blind_of(source, config.modalities)
    yield from _held_nowhere(config, [getattr(source, "modalities", None) for source in sources])


def _held_nowhere(config: RunConfig, held: Sequence[Collection[str] | None]) -> Iterator[str]:
    """Of modalities that no source holds, unless the stream of their name encodes another that one holds.

    Args:
        held: what each source holds; None where that is not known.
    """
    known = [of_source for of_source in held if of_source is not None]
    if len(known) < len(held):
        return
    fed = {config.stream_of(name) for of_source in known for name in of_source if name in config.modalities}
    for modality in config.modalities:
        name = config.stream_of(modality)
        stream = config.streams.get(name, StreamConfig())
        is_kept = name not in fed and stream.freeze and stream.freeze_connector  # as it is, for a later stage
        if modality in fed or is_kept or any(modality in of_source for of_source in known):
            continue
        vain, keep = "", ""
        if name not in fed:
            vain = ", so what encodes it learns nothing"
            keep = f"to keep it for a later stage set streams.{name}: {{freeze: true, freeze_connector: true}}; else "
        yield (
            f"no document holds {modality}{vain}; {keep}leave it out of modalities, or name data that hold it "
            "(kosmos data shows what was found)"
        )


def _router(backbone: Any) -> Iterator[str]:
    """Of a mixture of experts whose configuration asks for a loss that is not here."""
    asks = getattr(getattr(getattr(backbone, "model", None), "config", None), "output_router_logits", False)
    if asks and getattr(backbone, "router_loss", None) is None:
        yield (
            "backbone: its configuration has output_router_logits, and the router's own loss is not added: only that "
            "of the tokens is trained on, so that experts may be used unevenly; set backbone.router_loss to add it"
        )


def _experts(settings: BackboneConfig, backbone: Any) -> Iterator[str]:
    """Of updates to a mixture of experts, who are tensors rather than linear layers and get none."""
    if settings.lora is None or backbone is None:
        return
    left = sum(p.numel() for p in backbone.parameters() if p.dim() == 3 and not p.requires_grad)
    if left:
        every = sum(map(values_in, backbone.parameters()))
        yield (
            f"backbone.lora: experts that are one tensor get no updates, {left:,} of the {every:,} parameters; only "
            "the layers beside them learn"
        )


def _hints(processor: Processor) -> Sequence[str]:
    """What a processor says; it is advice alone, so one that fails at it is told and stops nothing."""
    try:
        hints: Sequence[str] = getattr(processor, "hints", ())
        if not isinstance(hints, tuple | list):
            raise TypeError(f"expected a list of lines, got {type(hints).__name__}")
    except Exception as error:
        return [f"what it could say cannot be shown: {called(processor, 'hints')}: {first_line(error)}"]
    return hints


def _preferences(config: RunConfig, backbone: Any) -> Iterator[str]:
    named, part = config.train.objective, config.backbone
    has_begun = InitConfig.gives(config.init, "backbone")
    drops = part.options.get("dropout") or (part.lora is not None and part.lora.dropout)
    if named is not None and named.name == "dpo" and drops:
        yield (
            "train.objective: dpo compares with the model as it was, which drops nothing, so that by dropout all "
            "answers seem to have become less likely; set that of the backbone to 0"
        )
    if named is not None and named.name in ("dpo", "simpo") and not has_begun and is_drawn(backbone):
        yield (
            f"train.objective: {named.name} is for models that have learned to answer, and this one is drawn at "
            "random; name the run that it begins with (init), or take orpo, which learns to answer, too"
        )


def _idle_rates(config: RunConfig, streams: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for name, stream in streams:
        rate = config.streams.get(name, StreamConfig()).connector_learning_rate
        if rate is not None and not any(p.requires_grad for p in stream.connector.parameters()):
            yield f"streams.{name}.connector_learning_rate: the connector has nothing to train, so it has no effect"


def _batch_statistics(streams: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Encoders whose norms mix the items of a row, which are there together by an accident of packing."""
    for name, stream in streams:
        stream.encoder.train(stream.encoder.training)  # one that overrides it keeps its norms in evaluation mode
        norms = [n for n, m in stream.encoder.named_modules() if isinstance(m, _BatchNorm) and m.training]
        if norms and not stream.frozen:
            yield (
                f"streams.{name}.encoder: BatchNorm ({listed(norms, at_most=2)}) makes the features of an item depend "
                "on what else is in its row; GroupNorm in its place, or BatchNorm in evaluation mode, does not"
            )


def torn(what: str, planner: Planner) -> str:
    """A warning of documents that are cut.

    Args:
        what: the documents.
    """
    advice = "raise data.tokens_per_pack"
    if planner.most < planner.max_tokens:
        advice = "the backbone has no more positions"
    leave_out = (
        "leave them out (data.long_chats=leave_out, for those with media no options.long_documents, and a higher "
        "data.quarantine for many)"
    )
    return (
        f"{what} take more than {planner.most:,} tokens and are cut, so that what is learned may stand apart from what "
        f"was asked; {advice}, shorten them or {leave_out}"
    )


def learns_nothing(model: OmniModel) -> Iterator[str]:
    """What is to be trained and was not so far: encoders whose features led to none of their parameters, and low-rank
    updates of layers that are read without being called."""
    yield from _idle_updates("backbone", model.backbone)
    for name, stream in model.streams.items():
        if (learns := cast(Any, stream).learns) is False:
            yield (
                f"{cast(Any, stream).titles['encoder']}: in {LEARNS_WITHIN} steps none of its features had a gradient, "
                "so it learns nothing; leave out no_grad() and detach(), or freeze it (freeze: true beside it)"
            )
        elif learns:
            yield from _idle_updates(f"streams.{name}", cast(Any, stream).encoder)


def _idle_updates(place: str, part: nn.Module) -> Iterator[str]:
    if idle := [name for name, layer in part.named_modules() if isinstance(layer, LoRALinear) and layer.is_idle()]:
        yield (
            f"{place}.lora: in {LEARNS_WITHIN} steps these layers had no gradient, so that their updates learn "
            f"nothing: {listed(idle, at_most=4)}; name the others in {place}.lora.layers"
        )


def _rounded_away(config: RunConfig, parts: Mapping[str, Any]) -> Iterator[str]:
    """Weights in bf16 whose small updates nothing keeps: of a llama that Lion trained at 2e-5 for 40 steps 92 % never
    moved. What an optimizer of another package does is not known."""
    optimizer, rounds = config.train.optimizer, config.train.weights == "bf16"
    if optimizer.name not in KEEPS_UPDATES or (optimizer.options.get("master") or "none") != "none":
        return
    learning = {n: part.parameters() for n, part in parts.items() if isinstance(part, nn.Module)}
    in_bf16 = [n for n, of in learning.items() if any(p.dtype is torch.bfloat16 for p in of if p.requires_grad)]
    if rounds or in_bf16:
        place = "train.weights" if rounds else listed(in_bf16)
        yield (
            f"train.optimizer.master: weights that learn are in bf16 ({place}), "
            "in which a change of less than about a 500th of a weight is lost; set train.optimizer.master=stochastic "
            "(no memory) or bits16 (2 bytes a parameter), or keep them in fp32"
        )


def _short_pieces(config: RunConfig, source: Source, tokenizer: Tokenizer | None) -> Iterator[str]:
    """A warning where text files are cut into documents far shorter than a row, so that no context is longer."""
    longest, row = longest_piece(source), config.data.tokens_per_pack
    if longest is None or tokenizer is None:
        return
    text, tokens = longest, max(1, len(tokenizer.encode(longest)))
    if SHORT_PIECES * tokens < row:
        chars = 1000 * -(-row * len(text) // tokens // 1000)
        yield (
            f"{source.name}: its texts are cut into documents of {len(text):,} characters, some {tokens:,} tokens, and "
            f"a row holds {row:,}: no longer context is learned; options: {{chunk_chars: {chars}}} makes documents as "
            "long as a row"
        )


def _settings(config: RunConfig, *, resumed: bool) -> Iterator[str]:
    train, backbone = config.train, config.backbone
    if train.is_counted and train.warmup > train.steps and not resumed:
        yield (
            f"train.warmup_steps {train.warmup_steps} is more than train.steps {train.steps}: the learning rate never "
            "reaches train.learning_rate"
        )
    dtype = backbone.options.get("dtype", "bfloat16")
    if train.weights == "bf16" and backbone.name == "hf" and dtype != "bfloat16" and not resumed:
        yield (
            f"backbone.dtype {dtype} has no effect: train.weights=bf16 makes all weights bf16; leave one of them out"
        )


def _never_scored(config: RunConfig) -> Iterator[str]:
    if config.evaluate.every_steps and not config.evaluate.choices:
        given = any(is_noted(entry.path) for entry in config.data.sources)
        what = f"give held_out beside sources ({SPLIT})" if given else "raise data.held_out"
        yield f"evaluate.every_steps {config.evaluate.every_steps}: nothing is held out to be scored; {what}"


_ROWS = "such as rows: {split: [train, val]} and rows: {split: test}"


def _scored_and_trained(config: RunConfig) -> Iterator[str]:
    """What is trained on though it is meant to be scored, by its name or by the run file."""
    sources = config.data.sources
    held_out = [split_of(Path(entry.path).name) == "held_out" and first_file(entry.path).exists() for entry in sources]
    if not all(held_out):  # beside others, whose name says nothing of the kind
        for entry in itertools.compress(sources, held_out):
            yield (
                f"data {entry.path}: is called as what is held out, and trained on; name it in evaluate.sources "
                "instead to have it scored alone"
            )
    places = Places()
    for scored, entry in itertools.product(config.evaluate.sources, sources):
        if places.overlap(Path(scored.path), Path(entry.path)) and not are_apart(scored.rows, entry.rows):
            rows = f"; name the rows that are meant of each ({_ROWS})" if scored.path == entry.path else ""
            yield f"evaluate.sources: {scored.path} shares files with {entry.path}, which is trained on{rows}"


def _turns(config: RunConfig, tokenizer: Tokenizer | None) -> Iterator[str]:
    model = config.backbone.options.get("model")
    learned = model and config.backbone.options.get("pretrained", True)
    if tokenizer is None or not learned or config.tokenizer.turns is not None:
        return
    known = fitting(tokenizer)
    ours = [template(None, tokenizer, tools=tools) for tools in (True, False)]
    has_template = getattr(tokenizer, "chat_template", "") != ""
    has_another = has_template and getattr(tokenizer, "chat_template", "") not in ours
    if (known or has_another) and (chats := chats_among(config.data.sources)) is not None:
        yield (
            f"{chats}: holds chats, and their turns stand between marks that backbone.model {model} has never seen; if "
            f"it has learned to answer, {f'set tokenizer.turns={known}' if known else 'write out tokenizer.turns'}, as "
            f"its tokenizer's {'chat template spells them' if has_template else 'special tokens suggest'}"
        )
