"""What the sections of a run file are made of: fields that are checked, and forms in which values may be given."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from kosmos.errors import ConfigError
from kosmos.own_objects import what_to_do

T = TypeVar("T", bound=BaseModel)
Options = TypeVar("Options", bound=Mapping[str, Any])
_POWER = re.compile(r"[+-]?\d+(\.\d+)?e\+?\d{1,2}", re.ASCII | re.IGNORECASE)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises ConfigError where a field is set: other objects may have been made by what it is."""
        if name in type(self).model_fields:
            raise ConfigError(
                f"{name}: settings of a run stay as they are; make another run with it, as "
                "make_run(run, {'train': {'steps': 50}}) does"
            )
        super().__setattr__(name, value)

    def __str__(self) -> str:
        """As a run file has it."""
        import yaml

        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))

    @field_validator("*", mode="before")
    @classmethod
    def _whole_numbers(cls, value: Any, field: ValidationInfo) -> Any:
        # 1e5 is text to YAML, which pydantic reads where a float is wanted.
        annotation = cls.model_fields[str(field.field_name)].annotation
        types = _types(annotation)[1 if get_origin(annotation) is dict else 0 :]
        return _whole(value) if int in types and not {str, float} & set(types) else value

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, field: ValidationInfo) -> Any:
        # pydantic would read it as 1, and YAML reads yes and on as true.
        held = value.values() if isinstance(value, Mapping) else [value]
        wrong = _number_alone(cls.model_fields[str(field.field_name)].annotation)
        if wrong is not None and any(isinstance(one, bool) for one in held):
            raise PydanticKnownError(wrong)
        return value


def as_written(value: Any) -> Any:
    """A value of Python as a run file would hold it: paths are text, tuples lists, numbers of numpy and PyTorch plain.

    What a run file cannot hold stays as it is, for whoever checks the field.
    """
    if isinstance(value, Mapping):
        written = {key: as_written(one) for key, one in value.items()}
        return value if all(written[key] is one for key, one in value.items()) else written
    if isinstance(value, list | tuple):
        return [as_written(one) for one in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    try:
        return value.item() if getattr(value, "shape", None) == () else value
    except RuntimeError:  # of a tensor on PyTorch's meta device, which holds no value
        return value


def options_can_be_written(component: T) -> T:
    """Raises ValueError where a run file cannot hold an option of a component."""
    can_be_written(component.model_extra or {})
    return component


def can_be_written(options: Options) -> Options:
    """Raises ValueError where a run file cannot hold one of them."""
    for place, name, value in _leaves(options):
        if isinstance(value, float) and not math.isfinite(value):  # it would be written as null, and read as left out
            raise ValueError(f"{place}: expected a finite number, got {value}")
        if not isinstance(value, str | int | float | date | None) or not isinstance(name, str | int):
            advice = f"; {told}" if (told := what_to_do(value)) else ""
            raise ValueError(
                f"{place}: expected text, numbers, true, false, null, or lists or mappings of these{advice}"
            )
    return options


def _leaves(values: Mapping[Any, Any], at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Place, name and value of what is no list or mapping itself."""
    for name, value in values.items():
        if isinstance(value, Mapping | list):
            yield from _leaves(value if isinstance(value, Mapping) else dict(enumerate(value)), f"{at}{name}.")
        else:
            yield f"{at}{name}", name, value


def at_home(path: Any) -> Any:
    """A path with the user's folder in place of ``~``, which no shell has replaced in a run file or behind ``=``."""
    return os.path.expanduser(path) if isinstance(path, str) and path.startswith("~") else path


def one_is_a_list(value: Any) -> Any:
    """A list; of one where a name stands alone, of none where ``none``, in brackets or not, or nothing does."""
    if value is None or (isinstance(value, str | list) and value in ("none", ["none"])):
        return []
    return [value] if isinstance(value, str | Mapping) else value


def sources_are_a_list(value: Any) -> Any:
    """As ``one_is_a_list``. Raises ValueError where rows in memory stand for a source or its path."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
    for rows in (one for item in items for one in (item.values() if isinstance(item, Mapping) else [item])):
        if way := next((way for way in ("save_to_disk", "to_parquet") if hasattr(rows, way)), None):
            raise ValueError(
                f"expected paths or names of data, found rows in memory ({type(rows).__name__}); save them with {way} "
                "and name the folder or file, or write a dataset (DatasetSpec) that gives them"
            )
    return one_is_a_list(value)


def names_are_a_list(value: Any) -> Any:
    """A list of components; names may stand side by side with commas, as modalities do."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
    return names if len(names) > 1 else one_is_a_list(value)


def names_or_none(value: Any) -> Any:
    """As ``names_are_a_list``, where None is something else than no name."""
    return None if value is None else names_are_a_list(value)


def _types(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _whole(value: Any) -> Any:
    """A whole number in place of a text that says one as ``1e5`` or ``2.5e3``, also within a mapping."""
    if isinstance(value, Mapping):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, str) and _POWER.fullmatch(value) and (number := Decimal(value)) == number.to_integral_value():
        return int(number)
    return value


def _number_alone(annotation: Any) -> Literal["int_type", "float_type"] | None:
    """pydantic's error for what is none of the numbers that a field takes; None where it takes none, or true too."""
    types = _types(annotation)
    if bool in types:
        return None
    return "int_type" if int in types else "float_type" if float in types else None
