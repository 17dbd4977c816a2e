"""What a component promises that is no modality and no dataset: that it can be made, offline and with its defaults."""

from __future__ import annotations

import contextlib
import tempfile
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kosmos.data.writer import size_of
from kosmos.errors import PluginError
from kosmos.testing.promise import BrokenPromise, Lacking, NotBuilt, Rule, rule
from kosmos.testing.subjects import CodecUnderTest, ComponentUnderTest, EncoderUnderTest

SAYS = "it is made with its defaults, offline"
TRIED: dict[str, tuple[Any, ...]] = {
    "metric": (["a text"], ["a text"]),
    "observer": ({"step": 1, "loss": 2.5},),
    "schedule": (100, 10, 0),
}
"""What would be given to a function that stands where the factory of such functions should."""


def _arguments(kind: str, folder: Path) -> tuple[Any, ...]:
    """What a run gives the factories of a kind in front of their options."""
    groups = [
        {"name": "w", "names": ["w"], "params": [nn.Parameter(torch.ones(4, 4))], "lr": 0.01, "weight_decay": 0.1}
    ]
    given: dict[str, tuple[Any, ...]] = {
        "connector": (24, 32),
        "backbone": (300,),
        "optimizer": (groups, 0.01),
        "schedule": (100, 10),
        "tracker": (folder, {"train": {"steps": 2}, "modalities": {}}),
    }
    return given.get(kind, ())


def builds(component: ComponentUnderTest) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = component.build(*_arguments(component.spec.kind, Path(folder)))
        except Lacking:
            _refuse_what_is_no_factory(component)
            raise
        except NotBuilt as error:
            raise BrokenPromise(str(error)) from error
        if component.spec.kind == "tracker":
            with contextlib.suppress(Exception):  # what it logs and closes is another promise
                made.close()
    if component.spec.kind in TRIED and not callable(made):
        raise BrokenPromise(f"{component.spec.target} returned {made!r:.80}; expected a function")


def _refuse_what_is_no_factory(component: ComponentUnderTest) -> None:
    """Its parameters have no default, so a function in place of its factory looks as one that needs options."""
    target = component.registry.resolve(component.spec.kind, component.spec.name)
    tried = TRIED.get(component.spec.kind, ())
    needed = [p for p in signature(target).parameters.values() if p.default is p.empty]
    if not tried or len(needed) != len(tried):
        return
    try:
        made = target(*tried)
    except (Exception, SystemExit):  # a seam: it may need other options
        return
    if not callable(made):
        kind = component.spec.kind
        raise BrokenPromise(f"{component.spec.target} is the {kind} itself; expected a function that returns one")


def encoder_builds(encoder: EncoderUnderTest) -> None:
    builds(encoder)
    try:
        module = encoder.fresh()
        for name, kind in (("width", int), ("input", object)):
            if not isinstance(found := getattr(module, name, None), kind) or found is None:
                raise BrokenPromise(f"{type(module).__name__}.{name} is {found!r:.80}; expected {kind.__name__}")
        _ = encoder.items
    except Lacking:
        raise
    except NotBuilt as error:
        raise BrokenPromise(str(error)) from error


def codec_builds(codec: CodecUnderTest) -> None:
    builds(codec)
    try:
        size_of(codec.spec.name, codec.codec)
    except PluginError as error:
        raise BrokenPromise(str(error)) from error
    books: Any = getattr(codec.codec, "books", 1)
    if type(books) is not int or books < 1 or codec.codec.size % books:
        raise BrokenPromise(f"books {books!r:.60}; expected a whole number that divides its size, {codec.codec.size}")


KINDS = ("connector", "backbone", "optimizer", "schedule", "objective", "metric", "tracker", "observer")
RULES: tuple[Rule, ...] = (
    rule("encoder", "builds", f"{SAYS}, and an installed modality makes cells for it")(encoder_builds),
    rule("codec", "builds", f"{SAYS}, and says how many codes it has")(codec_builds),
    *(rule(kind, "builds", SAYS)(builds) for kind in KINDS),
)
