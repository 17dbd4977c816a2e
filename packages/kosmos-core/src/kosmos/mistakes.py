"""What is wrong with a run file, in one line: each mistake, and for an unknown field the one that was meant."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from kosmos.config import RunConfig
from kosmos.elsewhere import elsewhere, here, of_source, value_elsewhere
from kosmos.names import did_you_mean, plain, unspaced
from kosmos.own_objects import what_to_do

AT_MOST = 4
"""Mistakes that are told."""
OPTIONS = {"data.sources": "--data", "output": "--output", "train.steps": "--steps", "train.epochs": "--epochs"}
"""The short ways of commands to fields."""


def explain(error: ValidationError) -> str:
    """Every mistake with its path, what was expected and what stands there."""
    # A misspelt field often makes another one missing: the misspelling is the news.
    unknown = {one["loc"][:-1] for one in error.errors() if one["type"] == "extra_forbidden"}
    found = [one for one in error.errors() if one["type"] != "missing" or one["loc"][:-1] not in unknown]
    found.sort(key=lambda one: one["type"] != "extra_forbidden")
    by_field: dict[tuple[tuple[int | str, ...], str], list[str]] = {}
    hints: dict[tuple[int | str, ...], str] = {}
    of_several: set[tuple[int | str, ...]] = set()  # fields that do not go together: what else is set says nothing
    for one in found:  # a field of several types has an error for each
        path = _field_of(one["loc"])
        said = by_field.setdefault((path, _shown(one["input"])), [])
        said.append(_told(one["type"], path, one["msg"], one["input"]))
        if hint := _choice_meant(one, path) or _unspaced_beside(one) or what_to_do(one["input"]):
            hints[path] = f"; {hint}"
        if one["type"] == "value_error" and isinstance(one["input"], dict):
            of_several.add(path)
    told = [
        f"{'.'.join(map(str, path))}: {' or '.join(dict.fromkeys(said))}"
        + ("" if said[0].startswith("unknown") or path in of_several else f", got {value}")
        + hints.get(path, "")
        for (path, value), said in by_field.items()
    ]
    more = f" (and {len(told) - AT_MOST} more)" if len(told) > AT_MOST else ""
    return "; ".join(told[:AT_MOST]) + more


def _shown(found: Any) -> str:
    """What stands there, in one line."""
    value = repr(found)
    if what_to_do(found) and len(value) > 60:  # such as all layers of a network
        return f"{' '.join(value.split())[:60]} .."
    return f"{' '.join(value.split())[:60]} .." if "\n" in value else value


def _told(kind: str, location: Sequence[int | str], message: str, found: Any) -> str:
    if kind == "extra_forbidden":
        return f"unknown field; {_meant(str(location[-1]), location[:-1])}"
    if kind == "value_error":  # of our own, in our words
        return message.removeprefix("Value error, ")
    if kind in ("model_type", "model_attributes_type"):
        if tuple(location) == ("data",) and isinstance(found, str | list):
            return f"expected fields; name what to train on as {_as_sources(found)}"
        return f"expected fields, such as {', '.join(_fields_at(location)[:4])}"
    return f"{message[0].lower()}{message[1:]}"


def _choice_meant(error: Any, path: Sequence[int | str]) -> str:
    """Which of the texts that a field takes was meant, or what is to be said of the one that stands there."""
    if error["type"] != "literal_error" or not isinstance(value := error["input"], str):
        return ""
    choices = re.findall(r"'([^']*)'", error["ctx"]["expected"])
    return value_elsewhere(".".join(map(str, path)), value) or did_you_mean(value, choices)


def _unspaced_beside(error: Any) -> str:
    """Which colon without a space may be why something is missing or null. An unknown field tells it itself."""
    nothing = error["loc"][-2:] if error["input"] is None and error["type"] != "extra_forbidden" else ()
    keys = list(error["input"]) if error["type"] == "missing" else nothing
    return next((said for key in keys if (said := unspaced(str(key)))), "")


def _as_sources(found: str | list[Any]) -> str:
    """How to write what stands in the place of all fields of the data."""
    paths = found if isinstance(found, list) else [found]
    if not 0 < len(paths) <= AT_MOST or not all(isinstance(path, str) and path for path in paths):
        paths = ["PATH"]
    written = yaml.safe_dump(paths, default_flow_style=True, width=sys.maxsize, allow_unicode=True)
    return f"data: {{sources: {written.strip()}}}"


def _field_of(location: Sequence[int | str]) -> tuple[int | str, ...]:
    """A place without what pydantic adds to it: which of a field's types was tried."""
    model: Any = RunConfig
    for number, part in enumerate(location):
        if not _is_model(model):
            return tuple(location)
        if isinstance(part, int) or part not in model.model_fields:
            continue  # of a list, a mapping or unknown
        inner = [a for a in _arguments(model.model_fields[part].annotation) if _is_model(a)]
        if not inner:
            rest = location[number + 1 :]
            return tuple(location[: number + 1]) + tuple(rest[:1] if rest and _is_key(model, str(part)) else ())
        model = inner[0]
    return tuple(location)


def _is_key(model: Any, field: str) -> bool:
    """Whether what stands behind a field is a key of a mapping or a number of a list."""
    return getattr(model.model_fields[field].annotation, "__origin__", None) in (dict, list)


def _meant(name: str, location: Sequence[int | str]) -> str:
    """The field that is most likely meant by a name that none has at its place."""
    if said := unspaced(name):
        return said
    if "." in name:  # a path is for the command line
        first, *rest = name.split(".")
        return f"fields are nested here: {first}: {': '.join(f'{{{part}' for part in rest)}: ...{'}' * len(rest)}"
    if tuple(location[:2]) == ("data", "sources") and (said := of_source(name)):
        return said
    if said := here(name, str(location[0]) if location else ""):
        return f"did you mean {said}?"
    if same := paths_of(name):
        return f"did you mean {' or '.join(same)}?"
    fields = _fields_at(location)
    if said := elsewhere(name, ".".join(map(str, location[:2])) or "backbone"):
        own = said.rpartition(".")[2]
        return said if " " in said else f"did you mean {own if own in fields else said}?"
    return did_you_mean(name, fields) or f"fields here: {', '.join(fields)}"


def field_meant(option: str, options: Collection[str] = ()) -> str:
    """What an unknown option may have been meant for: a field of the run file, one of ``options``, or nothing."""
    name = option.lstrip("-")
    said = " or ".join(paths_of(name)) or elsewhere(name)
    if OPTIONS.get(said) in options:
        return f"did you mean {OPTIONS[said]}?"
    return f"a field is set by its path: {said}=VALUE" if said and " " not in said.replace(" or ", "") else said


def paths_of(name: str) -> list[str]:
    """Paths of the fields of a name, wherever they stand; those of training first."""
    same = [path for path, own in paths_in(RunConfig) if plain(own) == plain(name)]
    return sorted(same, key=lambda path: not path.startswith("train."))


def paths_in(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, str]]:
    """Path and name of each field that has one place in a run file."""
    for name, field in model.model_fields.items():
        inner = [a for a in _arguments(field.annotation) if _is_model(a)]
        if not inner and name != "name":  # of a component, of which there are many
            yield f"{before}{name}", name
        elif field.annotation in inner:
            yield from paths_in(inner[0], f"{before}{name}.")


def _fields_at(location: Sequence[int | str]) -> list[str]:
    """Names of the fields of the model that stands at ``location`` in a run file."""
    model: Any = RunConfig
    for part in location:
        annotation = model.model_fields[part].annotation if _is_model(model) and part in model.model_fields else None
        inner = [a for a in _arguments(annotation) if _is_model(a)] if annotation is not None else []
        model = inner[0] if inner else model
    return list(model.model_fields)


def _arguments(annotation: Any) -> list[Any]:
    nested = getattr(annotation, "__args__", None)
    return [a for arg in nested for a in _arguments(arg)] if nested else [annotation]


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)
