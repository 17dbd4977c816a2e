"""A field or an option for a reader: its name, what it takes, its default and what it means."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kosmos.config import ComponentConfig
from kosmos.options import fields_of, type_of

WORDS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    Path: "path",
    NoneType: "null",
    Any: "anything",
}
LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
REQUIRED = "required"

Named = Callable[[type], str]
"""What a class of fields is called; empty where it has no name."""


class Entry(NamedTuple):
    """One field or option."""

    name: str
    value: str
    """What it takes."""
    default: str
    """As YAML writes it, ``required``, or nothing where the fields in it have their own."""
    meaning: str

    @property
    def takes(self) -> str:
        """What it takes, with its default."""
        default = {REQUIRED: f"; {REQUIRED}", "": ""}.get(self.default, f"; by default {self.default}")
        return f"{self.value}{default}"


def entries_of_fields(model: type[BaseModel], named: Named) -> Iterator[Entry]:
    """The fields of a section of the run file."""
    for name, field in model.model_fields.items():
        yield entry_of_field(name, field, named)


def entry_of_field(name: str, field: FieldInfo, named: Named) -> Entry:
    """A field that is a group of fields is described by the group's own docstring."""
    meaning = field.description or inspect.getdoc(class_of(field.annotation)) or ""
    return Entry(name, words(field.annotation, named) + _limits(field), _default(field), meaning)


def entries_of_options(factory: Callable[..., Any], positional: int, named: Named) -> Iterator[Entry]:
    """The options of a component.

    Args:
        factory: what makes it.
        positional: parameters in front that are no options (``Spec.positional``).

    Raises:
        PluginError: its signature or its types cannot be read.
    """
    meanings = _argument_docs(factory)
    for name, parameter in fields_of(factory, positional).items():
        default = REQUIRED if parameter.default is inspect.Parameter.empty else as_yaml(parameter.default)
        yield Entry(name, words(type_of(factory, parameter), named), default, meanings.get(name, ""))


def class_of(annotation: Any) -> Any:
    """The annotation if it is a class, else None."""
    return annotation if inspect.isclass(annotation) else None


def words(annotation: Any, named: Named) -> str:
    """A type as a reader of YAML would say it."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return words(inner[0], named)
    if inner == () and annotation in WORDS:
        return WORDS[annotation]
    if origin in (Union, UnionType):
        return " or ".join(words(member, named) for member in inner)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if origin is list:
        return f"list of {words(inner[0], named)}"
    if origin is tuple:
        return f"[{', '.join(words(member, named) for member in inner)}]"
    if origin is dict:
        return f"mapping of name to {words(inner[1], named)}"
    # Encoders, optimizers and others are components with a default name of their own.
    of_class = annotation.__mro__ if inspect.isclass(annotation) else ()
    name = next((name for base in of_class if (name := named(base))), "")
    return name or getattr(annotation, "__name__", str(annotation))


def _limits(field: FieldInfo) -> str:
    limits = [
        f"{said} {getattr(part, name):g}" for part in field.metadata for name, said in LIMITS.items()
        if hasattr(part, name)
    ]  # fmt: skip
    return f", {', '.join(limits)}" if limits else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    if issubclass(class_of(field.annotation) or int, BaseModel) and not isinstance(field.default, ComponentConfig):
        return ""
    value = field.get_default(call_default_factory=True)
    return as_yaml([_plain(v) for v in value] if isinstance(value, list) else _plain(value))


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, ComponentConfig) else value


def as_yaml(value: Any) -> str:
    """A value as YAML writes it, in backquotes."""
    if value is None:
        return "`null`"
    if value == "":
        return '`""`'
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list | tuple):
        return f"`[{', '.join(map(str, value))}]`"
    if isinstance(value, dict):
        return "`{}`" if not value else f"`{value}`"
    return f"`{value:g}`" if isinstance(value, float) and abs(value) < 1e-2 else f"`{value}`"


def _argument_docs(factory: Callable[..., Any]) -> dict[str, str]:
    """Parameter to its text under ``Args:``, of the class or of its ``__init__``."""
    texts = [inspect.getdoc(factory) or ""]
    if inspect.isclass(factory):
        texts.append(inspect.getdoc(factory.__init__) or "")
    found: dict[str, str] = {}
    for text in texts:
        block = re.search(r"^Args:\n((?: +.*\n?|\n)*)", text, re.MULTILINE)
        for name, meaning in re.findall(r"^    (\w+): ((?:.*\n?)(?:^ {6,}.*\n?)*)", block[1] if block else "", re.M):
            found[name] = meaning
    return found
