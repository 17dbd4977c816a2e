"""An encoder of another modality is refused by the types that both state, before anything is built of it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kosmos.components import ModalitySpec
from kosmos.compose import compose
from kosmos.encoder_inputs import check_encoder
from kosmos.errors import ConfigError, PluginError
from kosmos.plugins import Registry
from support.runs import small_run, ticks_registry
from support.ticks_encoder import TicksEncoder

Write = Callable[[str, str], ModuleType]

PARTS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class SeaInput:
    depth: int

@dataclass(frozen=True)
class SkyInput:
    height: int

@dataclass(frozen=True)
class LikeSky:
    height: int
    wind: int

class Sea:
    input: SeaInput
class Sky:
    input: SkyInput
class Kite:
    input: 'LikeSky'
class Silent: ...
class Later(Sky): ...

def sky(encoder_input: SkyInput, *, depth: int = 1): ...
def any_of(encoder_input): ...
def either(encoder_input: SeaInput | SkyInput): ...
def unknown(encoder_input: 'Lost'): ...
def number(encoder_input: int): ...

@hookimpl
def kosmos_modalities():
    for name in ("sky", "any_of", "either", "unknown", "number"):
        yield ModalitySpec(name=name, target=f"parts:{name}", summary="", encoder="Own")

@hookimpl
def kosmos_encoders():
    for name in ("Sea", "Sky", "Kite", "Later"):
        yield EncoderSpec(name=name, target=f"parts:{name}", summary="")
    yield EncoderSpec(name="Own", target="parts:Silent", summary="")
    yield EncoderSpec(name="broken", target="parts:Nowhere", summary="")
"""
OTHERS = """
@hookimpl
def kosmos_encoders():
    yield EncoderSpec(name="Silent", target="parts:Silent", summary="")
"""


@pytest.fixture
def registry(write: Write) -> Registry:
    return Registry.from_modules({"parts": write("parts", PARTS), "others": write("others", OTHERS)})


def check(registry: Registry, modality: str, encoder: str, given: Any = None) -> None:
    spec = registry.get("modality", modality)
    assert isinstance(spec, ModalitySpec)
    check_encoder(registry, spec, encoder, "streams.s.encoder", given)


def test_the_line_says_both_types_and_the_encoders_that_fit(registry: Registry) -> None:
    with pytest.raises(ConfigError) as caught:
        check(registry, "sky", "Sea")
    said = "Sea is an encoder for SeaInput, and the modality sky takes one for SkyInput; name one of these"
    assert str(caught.value) == f"streams.s.encoder: {said}: Sky, Kite, Later, Own"
    assert not registry.used  # it was looked at and not used


@pytest.mark.parametrize(
    ("modality", "encoder"),
    [("sky", "Sky"), ("sky", "Later"), ("sky", "Kite"), ("sky", "Own"), ("sky", "Silent"), ("sky", "broken"),
     ("any_of", "Sea"), ("either", "Sea"), ("unknown", "Sea")],
)  # fmt: skip
def test_what_fits_or_states_nothing_is_let_be(registry: Registry, modality: str, encoder: str) -> None:
    check(registry, modality, encoder)


def test_an_encoder_that_states_nothing_is_known_by_the_input_that_it_has(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="Silent is an encoder for int, and the modality sky takes one for SkyInput"):
        check(registry, "sky", "Silent", 7)
    check(registry, "sky", "Silent", SimpleNamespace(height=3))
    check(registry, "number", "Silent", 7)
    with pytest.raises(ConfigError, match="Silent is an encoder for tuple, and the modality number takes one for int"):
        check(registry, "number", "Silent", (7,))


@pytest.mark.parametrize("width", ["48", 0, 1.5, None, True])
def test_an_encoder_without_a_width_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch, width: object) -> None:
    registry = ticks_registry()
    monkeypatch.setattr(TicksEncoder, "width", property(lambda self: width, lambda self, value: None), raising=False)
    says = rf"^streams.ticks.encoder: ticks \(TicksEncoder\): width is {width!r}; expected a whole number from 1 on"
    with pytest.raises(PluginError, match=says):
        compose(small_run(), registry)
