"""What a name means: a field of the run file, a component, a code of errors, a figure of a run, a word of the glossary,
or another trainer's word for one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from kosmos.components import KINDS, Spec
from kosmos.config import ComponentConfig, RunConfig
from kosmos.elsewhere import component_elsewhere, elsewhere, size_elsewhere, value_elsewhere
from kosmos.errors import ConfigError, KosmosError
from kosmos.mistakes import paths_in, paths_of
from kosmos.names import did_you_mean
from kosmos.plugins import Registry, plural
from kosmos.reference.entries import Entry, entries_of_fields, entries_of_options, entry_of_field
from kosmos.reference.figures import COLUMNS, GOODPUT, WHAT_GOODPUT_IS, column, goodput_class
from kosmos.reference.glossary import WORDS, word

KIND_AT = {
    "backbone": "backbone",
    "encoder": "encoder",
    "connector": "connector",
    "codec": "codec",
    "optimizer": "optimizer",
    "schedule": "schedule",
    "objective": "objective",
    "trackers": "tracker",
    "observers": "observer",
    "metrics": "metric",
    "processor": "modality",
}
"""Last part of a field's path to the kind of component that stands there."""
_SECTION = "fields"
HAVE_OPTIONS = [kind.kind for kind in KINDS if kind.kind != "command"]


@dataclass(frozen=True)
class Topic:
    """One thing that a name stands for."""

    title: str
    about: str
    """Paragraphs, with an empty line between two."""
    entries: tuple[Entry, ...] = ()
    """What it is made of."""
    more: str = ""
    """What to ask for next."""


def find(name: str, registry: Registry) -> list[Topic]:
    """All that a name stands for.

    Args:
        name: ``train.clip_norm``, ``guard``, ``timm``, ``timm.model``, ``quarantine-full``, ``data_wait_s``,
            ``lora_rank``.

    Raises:
        ConfigError: nothing that is installed has the name.
        PluginError: a component of the name is broken.
    """
    path, _, value = name.partition("=")
    if value and (fields := _fields(path, registry)):
        said = value_elsewhere(path, value)
        others = [topic for word in said.split() for topic in _fields(word, registry)]
        return [*([Topic(name, said)] if said else []), *others, *fields]
    figures = list(_figures(name))
    words = [Topic(f"{told[0]}, a word of the glossary", told[1])] if (told := word(name)) else []
    if found := [*_meant(name, registry, is_figure=bool(figures)), *words, *figures]:
        return found
    raise ConfigError(f"{name}: nothing has this name; {_nearest(name, registry)}")


def _meant(name: str, registry: Registry, *, is_figure: bool) -> list[Topic]:
    """All that a name stands for in a run file, or as a code; another trainer's word for that where it is no figure."""
    found = [*_codes(name), *_components(name, registry), *_fields(name, registry)]
    if found := found or [topic for path in paths_of(name.rpartition(".")[2]) for topic in _fields(path, registry)]:
        return found
    if options := [topic for kind in HAVE_OPTIONS for topic in _options_named(name, kind, registry)]:
        return options
    if ours := size_elsewhere(name.rpartition(".")[2]):
        return [topic for kind in HAVE_OPTIONS for topic in _options_named(ours, kind, registry)]
    said = elsewhere(name)
    if is_figure:
        return _fields(said, registry) if " " not in said else []
    if said := said or elsewhere(name.rpartition(".")[2]):
        told = Topic(name, "What other trainers call so is here: " + said + ("." if " " in said else ""))
        return [told, *([] if " " in said else _fields(said, registry))]
    for kind in HAVE_OPTIONS:
        if ours := component_elsewhere(kind, name):
            return list(_components(ours, registry))
    return []


def _figures(name: str) -> Iterator[Topic]:
    """Of a run: a column of its metrics, goodput, or a class of it."""
    if found := column(name):
        yield Topic(f"{found[0]}, a column of metrics.jsonl", _sentence(found[1]))
    if found := goodput_class(name):
        yield Topic(f"{found[0]}, a class of goodput", _sentence(found[1]), more="kosmos explain goodput")
    if name.lower() == "goodput":
        yield Topic(name, WHAT_GOODPUT_IS, tuple(Entry(one, "", "", said) for one, said in GOODPUT.items()))


def _sentence(text: str) -> str:
    return f"{text if text.startswith('`') else text[0].upper() + text[1:]}."


def overview(registry: Registry) -> list[Topic]:
    """All that can be asked for."""
    fields = tuple(Entry(e.name, "", "", _first_sentence(e.meaning)) for e in entries_of_fields(RunConfig, _named))
    kinds = [
        Entry(kind, "", "", ", ".join(registry.specs(kind))) for kind in HAVE_OPTIONS if registry.specs(kind)
    ]  # fmt: skip
    codes = tuple(Entry(code, "", "", _first_sentence(_about(kind))) for code, kind in _kinds_of_errors().items())
    figures = (Entry("metrics.jsonl", "", "", ", ".join(COLUMNS)), Entry("goodput", "", "", ", ".join(GOODPUT)))
    return [
        Topic("Fields of the run file", "", fields, "kosmos explain train, kosmos explain train.clip_norm"),
        Topic("Components", "", tuple(kinds), "kosmos explain lion, kosmos explain lion.betas"),
        Topic("Codes of errors", "", codes, "kosmos explain quarantine-full"),
        Topic("Figures of a run", "", figures, "kosmos explain data_wait_s, kosmos explain goodput"),
        Topic("Words", "", (Entry("glossary", "", "", ", ".join(WORDS)),), "kosmos explain lane"),
    ]


def _codes(name: str) -> list[Topic]:
    kind = _kinds_of_errors().get(name)
    return [] if kind is None else [Topic(f"error[{name}]", f"{_about(kind)}\n\nExit status {kind.exit_status}.")]


def _kinds_of_errors() -> dict[str, type[KosmosError]]:
    def under(kind: type[KosmosError]) -> Iterator[type[KosmosError]]:
        for one in kind.__subclasses__():
            yield one
            yield from under(one)

    found = [one for one in under(KosmosError) if one.__module__ == KosmosError.__module__]
    return {one.code: one for one in found}


def _components(name: str, registry: Registry) -> Iterator[Topic]:
    """Components of a name, or an option of these."""
    component, _, option = name.rpartition(".")
    for kind in HAVE_OPTIONS:
        if name in registry.specs(kind):
            yield _component(registry.get(kind, name), registry)
        elif component in registry.specs(kind):
            yield from _option(registry.get(kind, component), option, registry)


def _component(spec: Spec, registry: Registry) -> Topic:
    owner = registry.owner(spec.kind, spec.name)
    options = tuple(_options(spec, registry))
    return Topic(f"{spec.kind} {spec.name}, of plugin {owner.label}", spec.summary, options)


def _option(spec: Spec, option: str, registry: Registry) -> Iterator[Topic]:
    for entry in _options(spec, registry):
        if entry.name == option:
            yield _alone(f"{option}, an option of {spec.kind} {spec.name}", entry)


def _options(spec: Spec, registry: Registry) -> Iterator[Entry]:
    return entries_of_options(registry.resolve(spec.kind, spec.name), spec.positional, _named)


def _fields(path: str, registry: Registry) -> list[Topic]:
    """The field at a path such as ``train.steps``, ``streams.image.encoder`` or ``data.sources[N].weight``; no topic
    where there is none."""
    parts = [part for part in path.replace("[", ".").replace("]", "").split(".") if part]
    return list(_at(RunConfig, parts, "", path, registry)) if parts else []


def _at(
    model: type[BaseModel], parts: Sequence[str], kind: str, path: str, registry: Registry, named: str = ""
) -> Iterator[Topic]:
    """What stands below a section of the run file.

    Args:
        kind: of component that the section is; empty where it is none.
        named: the modality or stream that the path names.
    """
    head, *rest = parts
    field = model.model_fields.get(head)
    if field is None:  # beside a component's name stand its options
        if issubclass(model, ComponentConfig) and not rest:
            own = registry.specs("modality").get(named)
            yield from _options_named(head, kind, registry, first=getattr(own, kind, ""))
        return
    kind, inner = KIND_AT.get(head, ""), _section_in(field.annotation)
    named = rest[0] if rest and head in ("modalities", "streams") else named
    is_name = get_origin(field.annotation) is dict or (rest and (rest[0].isdecimal() or rest[0] == "N"))
    if inner is not None and get_origin(field.annotation) in (list, dict) and is_name:
        rest = rest[1:]
    if not rest:
        yield _field(path, entry_of_field(head, field, _named), inner, kind, registry)
    elif inner is not None:
        yield from _at(inner, rest, kind, path, registry, named)
    elif kind:  # a mapping of options alone
        yield from _options_named(rest[0], kind, registry, only=named)


def _options_named(option: str, kind: str, registry: Registry, *, only: str = "", first: str = "") -> Iterator[Topic]:
    """Of all components of the kind whose plugins are whole, or of the ``only`` one that is meant."""
    known = registry.specs(kind)
    for name in [only] if only in known else sorted(known, key=lambda name: name != first):
        if registry.peek(kind, name) is not None:
            yield from _option(registry.get(kind, name), option, registry)


def _field(path: str, entry: Entry, inner: type[BaseModel] | None, kind: str, registry: Registry) -> Topic:
    """A field; where it is a section, what is in it."""
    inside = tuple(entries_of_fields(inner, _named)) if inner is not None else ()
    meaning = inspect.getdoc(inner) if inner is not None and not entry.meaning else entry.meaning
    names = ", ".join(registry.specs(kind)) if kind else ""
    more = f"{plural(kind)}: {names}; kosmos explain NAME tells the options of one" if names else ""
    return Topic(path, _alone(path, entry._replace(meaning=meaning or "")).about, inside, more)


def _alone(title: str, entry: Entry) -> Topic:
    about = f"{entry.takes}\n\n{entry.meaning}" if entry.takes != _SECTION else entry.meaning
    return Topic(title, about)


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """The class of fields that an annotation holds: of ``X | None``, ``list[X]``, ``dict[str, X]``."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part)) is not None), None)


def _named(model: type) -> str:
    """What a class of fields is called in the type of another."""
    if not issubclass(model, BaseModel):
        return ""
    return "a component" if issubclass(model, ComponentConfig) else _SECTION


def _about(kind: type[KosmosError]) -> str:
    return inspect.getdoc(kind) or ""


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".") + "." if text else ""


def _nearest(name: str, registry: Registry) -> str:
    components = [component for kind in HAVE_OPTIONS for component in registry.specs(kind)]
    known = [*RunConfig.model_fields, *(path for path, _ in paths_in(RunConfig)), *_kinds_of_errors(), *components]
    known += [*COLUMNS, "goodput", *WORDS]
    return did_you_mean(name, known) or "kosmos explain lists what can be asked for"
