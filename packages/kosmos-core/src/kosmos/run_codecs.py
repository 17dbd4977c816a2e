"""The codecs of a run: how media that the model is to write become tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, cast

from kosmos.components import CodecSpec
from kosmos.config import ComponentConfig, RunConfig
from kosmos.data.codec import Codec
from kosmos.data.tokenizer import Tokenizer
from kosmos.data.writer import Writer, code_marks, identity_of, size_of
from kosmos.errors import ConfigError, KosmosError, PluginError
from kosmos.names import listed
from kosmos.plugins import Registry


@dataclass(frozen=True)
class BuiltCodec:
    """One of a run, by the modality whose media it encodes."""

    modality: str
    codec: Codec
    size: int
    identity: str
    """What tells its numbers from those of others."""

    def writer(self, tokenizer: Tokenizer) -> Writer:
        """Its tokens, of a tokenizer that has ``marks_of_codecs``."""
        return Writer(self.modality, self.codec, self.identity, tokenizer)


def path_of(modality: str) -> str:
    """Where a run file states the codec of a modality."""
    return f"modalities.{modality}.codec"


def check_codec(registry: Registry, modality: str, stated: ComponentConfig | None) -> None:
    """Check the codec that a run file states for a modality, if it does, before it is built.

    Raises:
        ConfigError: it is of another modality, or has no such option.
        PluginError: it is not installed, or its plugin is broken.
    """
    if stated is None:
        return
    path, found = path_of(modality), registry.specs("codec")
    if (spec := cast("CodecSpec | None", found.get(stated.name))) is not None and spec.modality != modality:
        own = [name for name, other in found.items() if cast(CodecSpec, other).modality == modality]
        has = f"; of {modality} there are {listed(own)}" if own else f"; none that is installed is of {modality}"
        raise ConfigError(f"{path}: {stated.name} is a codec of {spec.modality}{has}")
    registry.check("codec", stated.name, stated.options, path=path, positional=0)


def build_codecs(
    config: RunConfig, registry: Registry, absent: dict[str, KosmosError] | None = None
) -> dict[str, BuiltCodec]:
    """Those that the run file states, by modality. Raises as ``check_codec``, and what making one raises.

    Args:
        absent: gets the error of one that cannot be made, by its modality; None raises it.
    """
    built: dict[str, BuiltCodec] = {}
    for modality, settings in config.modalities.items():
        with _passing(absent, modality):
            if (stated := settings.codec) is None:
                continue
            codec: Any = registry.build("codec", stated.name, options=stated.options, path=path_of(modality))
            factory = registry.resolve("codec", stated.name)
            size, identity = size_of(stated.name, codec), identity_of(stated.name, codec, _in_effect(factory, stated))
            built[modality] = BuiltCodec(modality, codec, size, identity)
    return built


@contextmanager
def _passing(absent: dict[str, KosmosError] | None, modality: str) -> Iterator[None]:
    try:
        yield
    except (ConfigError, PluginError) as error:
        if absent is None:
            raise
        absent[modality] = error


def _in_effect(factory: Any, stated: ComponentConfig) -> dict[str, Any]:
    """The options of a codec, with the defaults of those that are not stated."""
    bound = signature(factory).bind(**stated.options)
    bound.apply_defaults()
    return dict(bound.arguments)


def marks_of_codecs(codecs: Mapping[str, BuiltCodec]) -> list[str]:
    """Special tokens by which their media are written."""
    return [mark for name, built in codecs.items() for mark in code_marks(name, built.size)]
