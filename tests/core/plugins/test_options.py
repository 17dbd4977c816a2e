"""The signature of a factory is the schema of its options."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import Field

from kosmos.errors import ConfigError, PluginError
from kosmos.options import check_options, faults_of

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]

PATH = "streams.image.encoder"


def factory(
    width_in: Missing,
    *,
    width: int,
    patch_size: int = 16,
    dropout: float = 0.0,
    pool: Literal["mean", "max"] = "mean",
    sizes: tuple[int, ...] = (1, 2),
    resolution: tuple[int, int] = (224, 224),
    limit: int | None = None,
    layers: int | str = 1,
    flag: bool = False,
    extra: dict[str, int] | None = None,
    heads: Annotated[int, Field(gt=0)] = 1,
    model_name: str = "",
    schema: str = "",
    _private: int = 0,
) -> Missing:
    """A factory with every type that options come in, and a positional whose type only a checker knows."""


def check(options: dict[str, Any], *, of: Any = factory, positional: int = 1) -> dict[str, Any]:
    return check_options(of, options, path=PATH, positional=positional)


def line(options: dict[str, Any], *, of: Any = factory, positional: int = 1) -> str:
    with pytest.raises(ConfigError) as caught:
        check(options, of=of, positional=positional)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_the_options_given_come_back_so_that_defaults_stay_the_factorys() -> None:
    assert check({"width": 3}) == {"width": 3}


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("width", "3", 3),
        ("dropout", "3e-4", 3e-4),
        ("dropout", 1, 1.0),
        ("sizes", [1, "2"], (1, 2)),
        ("resolution", [64, 32], (64, 32)),
        ("limit", None, None),
        ("layers", "all", "all"),
        ("flag", "true", True),
        ("extra", {"a": "1"}, {"a": 1}),
    ],
)
def test_values_take_the_declared_type(name: str, given: object, expected: object) -> None:
    value = check({"width": 1, name: given})[name]
    assert value == expected
    assert type(value) is type(expected)


def test_names_that_pydantic_keeps_for_itself_are_options_like_others() -> None:
    options = {"width": 1, "model_name": "a", "schema": "b", "_private": 2}
    assert check(options) == options


def test_an_unknown_option_names_the_nearest_and_all() -> None:
    assert line({"width": 1, "patchsize": 8}).startswith(
        "streams.image.encoder.patchsize: unknown field; did you mean patch_size? (fields: width, patch_size, dropout,"
    )
    assert "unknown field; did you mean streams.image.freeze? (fields" in line({"width": 1, "freez": True})


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("width", "wide", "expected int, got 'wide'"),
        ("width", 1.5, "expected int, got 1.5"),
        ("width", None, "expected int, got None"),
        ("width", True, "expected int, got True"),
        ("limit", True, "expected int | None, got True"),
        ("pool", "maen", "expected 'mean' or 'max', got 'maen'; did you mean mean?"),
        ("sizes", ["a"], "expected tuple[int, ...], got ['a']"),
        ("layers", [1], "expected int | str, got [1]"),
        ("flag", "perhaps", "expected bool, got 'perhaps'"),
        ("extra", [1], "expected dict[str, int] | None, got [1]"),
        ("model_name", 3, "expected str, got 3"),
        ("heads", 0, "should be greater than 0, got 0"),
    ],
)
def test_a_wrong_value_says_what_was_expected_and_what_came(name: str, given: object, expected: str) -> None:
    assert line({"width": 1, name: given}) == f"{PATH}.{name}: {expected}"


def test_a_missing_option_says_its_type() -> None:
    assert line({}) == f"{PATH}.width: missing; expected int"


def test_all_faults_come_in_one_line() -> None:
    assert line({"dropout": "x", "wdth": 3}).count(PATH) == 3


def test_a_positional_parameter_is_no_option() -> None:
    assert line({"width": 1, "width_in": 3}).startswith(f"{PATH}.width_in: unknown field")


def test_a_factory_with_keywords_takes_any_option_but_not_its_positionals() -> None:
    def open_ended(width_in: int, depth: int = 1, **others: Any) -> None: ...

    assert check({"depth": "2", "anything": [1]}, of=open_ended) == {"depth": 2, "anything": [1]}
    assert "unknown field" in line({"width_in": 1}, of=open_ended)
    assert "expected int" in line({"depth": "deep"}, of=open_ended)


def test_classes_dataclasses_and_partials_are_factories() -> None:
    class Module:
        def __init__(self, width_in: int, depth: int = 1) -> None: ...

    @dataclass
    class Settings:
        depth: int
        rate: float | None = None

    assert check({"depth": "3"}, of=Module) == {"depth": 3}
    assert check({"depth": 3, "rate": "1"}, of=Settings, positional=0) == {"depth": 3, "rate": 1.0}
    assert check({"patch_size": "8"}, of=functools.partial(factory, width=3)) == {"patch_size": 8}


def test_an_option_without_a_type_is_the_plugins_fault_where_it_is_stated() -> None:
    def bare(depth=1):  # type: ignore[no-untyped-def]
        ...

    assert check({}, of=bare, positional=0) == {}
    with pytest.raises(PluginError, match=r"\.depth: .*bare gives this option no type, .* such as depth: int$"):
        check({"depth": [None]}, of=bare, positional=0)


@dataclass
class MadeAnew:
    sizes: list[int] = field(default_factory=list)


def test_a_default_that_a_dataclass_makes_anew_is_no_fault() -> None:
    assert faults_of(MadeAnew, path="encoder x", positional=0) == []


def test_options_that_a_factory_declares_wrongly_are_told_each() -> None:
    def faulty(
        depth=1,  # type: ignore[no-untyped-def]
        *,
        anything: Any = None,
        width: int = "64",  # type: ignore[assignment]
        scale: float = "big",  # type: ignore[assignment]
        names: list[int] | None = "no",  # type: ignore[assignment]
        sizes: tuple[int, ...] = [1],  # type: ignore[assignment]
        layers: int = None,  # type: ignore[assignment]  # noqa: RUF013
        count: int = True,
        needed: int,
        rate: float = 1,
        share: float = math.nan,
        pool: Literal["mean", "max"] = "mean",
        among: Mapping[str, Any] = MappingProxyType({}),
        steps: Sequence[int] = (1, 2),
    ) -> None: ...

    assert faults_of(faulty, path="encoder x", positional=0) == [
        f"encoder x.depth: {__name__}.{faulty.__qualname__} gives this option no type, so that no value can be "
        "checked; write one, such as depth: int",
        "the default of encoder x.width: expected int, got '64'",
        "the default of encoder x.scale: expected float, got 'big'",
        "the default of encoder x.names: expected list[int] | None, got 'no'",
        "the default of encoder x.sizes: expected tuple[int, ...], got [1]",
        "the default of encoder x.layers: expected int, got None",
        "the default of encoder x.count: expected int, got True",
    ]


def test_a_type_that_cannot_be_resolved_is_the_plugins_fault() -> None:
    def faulty(depth: Missing = 1) -> None: ...

    with pytest.raises(PluginError, match=r"type 'Missing' of option depth cannot be resolved"):
        check({"depth": 1}, of=faulty, positional=0)
