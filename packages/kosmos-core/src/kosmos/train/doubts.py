"""What is allowed and hardly meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import signature
from types import MappingProxyType
from typing import Any

from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.data.foreign import called, first_line
from kosmos.data.processor import Processor


def doubts(
    config: RunConfig,
    sources: Sequence[Source],
    *,
    resumed: bool,
    backbone: object | None = None,
    streams: Iterable[tuple[str, Any]] = (),
    processors: Mapping[str, Processor] = MappingProxyType({}),
) -> Iterator[str]:
    """Warnings about a run.

    Args:
        sources: what it trains on.
        resumed: whether it goes on, so that a fresh one was warned.
        backbone: its language model.
        streams: its streams by their names.
        processors: those of its modalities by their names.
    """
    for name, processor in processors.items():
        yield from (f"modalities.{name}: {hint}" for hint in _hints(processor))
    yield from _settings(config, resumed=resumed)
    if config.init is None and not resumed:  # else they may have the weights of another run, or of this one
        yield from _frozen_as_drawn(streams)
    made_for, tokens = getattr(backbone, "made_for", None), config.data.tokens_per_pack
    if made_for is not None and tokens > made_for and not resumed:
        yield (
            f"data.tokens_per_pack {tokens}: a document may be as long, and the backbone was made for {made_for} "
            f"tokens; set data.tokens_per_pack={made_for} unless the documents are shorter"
        )
    held = [getattr(source, "modalities", None) for source in sources]
    for modality in config.modalities:
        if None not in held and not any(modality in of_source for of_source in held if of_source is not None):
            yield (
                f"no document holds {modality}, so what encodes it learns nothing; leave it out of modalities, or name "
                "data that hold it (kosmos data shows what was found)"
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


def _frozen_as_drawn(streams: Iterable[tuple[str, Any]]) -> Iterator[str]:
    for name, stream in streams:
        encoder = stream.encoder
        # One that does not tell of files may have read some all the same.
        drawn = getattr(encoder, "without_files", None) == {} and next(encoder.parameters(), None) is not None
        if stream.frozen and drawn:
            known = signature(type(encoder)).parameters
            options = [f"streams.{name}.encoder.{option}" for option in ("pretrained", "weights") if option in known]
            yield (
                f"streams.{name}.freeze: the encoder's weights are drawn at random, and it never learns; leave freeze "
                f"out, or give it weights ({', '.join([*options, 'init'])})"
            )


def _settings(config: RunConfig, *, resumed: bool) -> Iterator[str]:
    train, backbone = config.train, config.backbone
    # Where nobody said how long it warms up, it is a run of a few steps to see whether it works. A run's own file, of
    # which this one may be a copy, says every field.
    fields = type(train).model_fields
    copied = fields.keys() == train.model_fields_set and train.warmup_steps == fields["warmup_steps"].default
    said = "warmup_steps" in train.model_fields_set and not copied
    if said and train.warmup_steps > train.steps and not resumed:
        yield (
            f"train.warmup_steps {train.warmup_steps} is more than train.steps {train.steps}: the learning rate never "
            "reaches train.learning_rate"
        )
    model = backbone.options.get("model")
    if model and backbone.options.get("pretrained", True) and config.tokenizer.name == "bytes" and not resumed:
        yield (
            f"backbone.model {model} has learned tokens of its own, and tokenizer is bytes, whose tokens mean other "
            f"things to it: set tokenizer={model}"
        )
