"""Whether the parts whose weights a run takes are built as they were where these were trained.

Weights fit wherever shapes do, and many options have none: heads, wavelengths of positions, the mean of pictures. So
components are compared by their names and by the options that they have in effect.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.components import ModalitySpec
from kosmos.compose import Composition, parts_of
from kosmos.config import ComponentConfig, RunConfig
from kosmos.errors import ConfigError, KosmosError, PluginError
from kosmos.options import fields_of
from kosmos.plugins import Registry
from kosmos.train.initial_parts import instead

LONGEST = 80
"""Characters of a value in a line."""


class First(NamedTuple):
    """The run whose weights are taken."""

    folder: Path
    stated: RunConfig
    """By its run file."""
    built: RunConfig
    """With what its files stated laid over it, which it keeps; see ``Composition.without_files``."""
    registry: Registry
    """Of the components of today, with the defaults that it keeps."""


class Other(NamedTuple):
    """An option in effect that is not what it was."""

    path: str
    then: Any
    now: Any
    from_files: str = ""
    """What the first run read it from, where this run does not name that: ``weights: encoder.safetensors``."""

    def line(self, folder: Path) -> str:
        """What to say where the weights may do all the same."""
        remedy = f"name {self.from_files} again, which stated it" if self.from_files else "set it as it was"
        then, now = map(_shown, (self.then, self.now))
        return f"warning: {self.path}: {then} in {folder}, {now} here; unless that is meant, {remedy}"


def other_options(composition: Composition, first: First, paths: Collection[str]) -> dict[str, list[Other]]:
    """What of each part is not as it was in the first run.

    Args:
        composition: the run that takes weights.
        paths: of the parts that both runs have, such as ``streams.image.encoder``.

    Raises:
        ConfigError: a part is another component, or has another option that its weights were trained for.
    """
    return {
        path: _others(composition, first, path, instead(path, paths)) for path in paths if path in composition.parts
    }


def other_processors(composition: Composition, first: First, paths: Iterable[str]) -> list[Other]:
    """Options of processors that are not as they were, of modalities whose encoders are among the parts taken."""
    found: list[Other] = []
    now, then, taken = composition.config, first.built, set(paths)
    for name, settings in now.modalities.items():
        stream = now.stream_of(name)
        if name in then.modalities and stream == then.stream_of(name) and f"streams.{stream}.encoder" in taken:
            path = f"modalities.{name}.processor"
            of_both = (first.registry, then.modalities[name].processor), (composition.registry, settings.processor)
            before, after = (in_effect(registry, "modality", name, of, path) for registry, of in of_both)
            found += [Other(*one) for one in _differences(before, after, path)]
    return found


def options_there(composition: Composition, first: First, path: str) -> dict[str, Any]:
    """The options in effect of a part in the first run, by today's component."""
    there = _component(first.built, path, composition.registry)
    return in_effect(first.registry, path.rpartition(".")[2], there.name, there.options, path)


def _others(composition: Composition, first: First, path: str, or_else: str) -> list[Other]:
    registry, kind = composition.registry, path.rpartition(".")[2]
    part, by = composition.parts[path]
    stated, then = (_component(config, path, registry) for config in (first.stated, first.built))
    if then.name != by.name:
        raise ConfigError(
            f"init: {path} of {first.folder} is another: {then.name} there, {by.name} here; name {then.name}, or "
            f"{or_else}"
        )
    options = {**by.options, **(getattr(part, "without_files", None) or {})}
    of_both = (first.registry, then.options), (registry, options)
    before, after = (in_effect(known, kind, by.name, of, path) for known, of in of_both)
    files = _files(stated.options, then.options, by.options)
    found = []
    for where, one, other in _differences(before, after, path):
        option = where.removeprefix(f"{path}.").split(".")[0]
        from_files = files if stated.options.get(option) != then.options.get(option) else ""
        found.append(Other(where, one, other, from_files))
        told = one is not None and other is not None  # else one is a default that only the part itself knows
        if told and option in getattr(registry.resolve(kind, by.name), "same_for_weights", ()):
            raise ConfigError(
                f"init: {path} of {first.folder} is another: {option}: {_shown(one)} there, {_shown(other)} here, and "
                f"its weights are of no use otherwise; set {where}={_shown(one)}, or {or_else}"
            )
    return found


def _component(config: RunConfig, path: str, registry: Registry) -> ComponentConfig:
    """What a part was built by, its modality's defaults filled in."""
    if path == "backbone":
        return config.backbone
    _, name, kind = path.split(".")
    spec = registry.specs("modality").get(name)
    encoder, connector = parts_of(config, name, {name: spec} if isinstance(spec, ModalitySpec) else {})
    return encoder if kind == "encoder" else connector


def in_effect(registry: Registry, kind: str, name: str, options: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Options with the defaults of those that are not stated, as plain values.

    Raises:
        ConfigError: the component has no such options, or they do not fit each other.
        PluginError: there is no such component, or it does not tell its options.
    """
    factory, positional = registry.resolve(kind, name), registry.get(kind, name).positional
    try:
        checked = registry.check(kind, name, options, path=path, positional=positional)
    except ConfigError as error:
        raise ConfigError(f"init: {error}") from error
    fields = fields_of(factory, positional).items()
    values = {**{n: p.default for n, p in fields if p.default is not Parameter.empty}, **checked}
    if (settle := getattr(factory, "in_effect", None)) is not None:
        try:
            values = settle(values)
        except KosmosError:
            raise
        except Exception as error:
            raise PluginError(f"{path}: in_effect of {kind} {name!r} fails: {error}") from error
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain


def _differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Dotted path and both values of what differs; lists are told whole."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            yield from _differences(one.get(key), other.get(key), f"{path}.{key}")
    elif one != other:
        yield path, one, other


def _files(stated: Mapping[str, Any], built: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The options by which the first run named files, of which this one names none."""
    told: Iterator[str] = (
        f"{name}: {value}" for name, value in stated.items() if value and not built.get(name) and not here.get(name)
    )
    return ", ".join(told)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
