"""Check a component's options against the signature of its factory.

The keyword parameters of a factory, with their annotations and defaults, are the schema of its options
in a run file: a plugin author writes a function and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from kosmos.elsewhere import around, beside, elsewhere, size_elsewhere
from kosmos.errors import ConfigError, PluginError
from kosmos.names import did_you_mean, listed, unspaced

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_Asked = tuple[list[tuple[str, Any, bool]], type[BaseModel]]
_schemas: WeakKeyDictionary[Callable[..., Any], _Asked] = WeakKeyDictionary()
"""Of each factory what was asked of it last: names of its options, their types and whether they have defaults."""


def check_options(
    factory: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    path: str,
    positional: int,
    owner: Callable[[str], str | None] = lambda name: None,
) -> dict[str, Any]:
    """The options, converted to the types that ``factory`` declares. Defaults are left to the factory.

    Args:
        factory: a class or function.
        options: as read from a run file; text is converted where it says a number (``"3e-4"``).
        path: where the options stand, such as ``"streams.image.encoder"``; begins every message.
        positional: number of parameters in front that are no options.
        owner: in words, which other component of the kind has an option, for the hint at one that is unknown.

    Raises:
        ConfigError: unknown or missing fields, wrong types; all in one line.
        PluginError: the factory's own signature is at fault, or gives one of the options no type.
    """
    parameters = _parameters(factory)
    fields = fields_of(factory, positional)
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    taken = {p.name for p in _front(parameters, positional)}
    annotations = {name: type_of(factory, parameter) for name, parameter in fields.items()}
    unknown = [name for name in options if name in taken or (name not in fields and not open_ended)]
    lines = [_unknown(name, fields, path, owner) for name in unknown]
    known = {name: value for name, value in options.items() if name in fields}
    for name in known:
        if fields[name].annotation is inspect.Parameter.empty:
            raise PluginError(f"{path}.{name}: {_title(factory)} {_untyped(fields[name])}")
    values, wrong = _convert(_schema_once(factory, fields, annotations), known, annotations, path)
    lines += wrong
    if lines:
        raise ConfigError("; ".join(lines))
    return {**values, **{name: value for name, value in options.items() if name not in fields}}


def faults_of(factory: Callable[..., Any], *, path: str, positional: int) -> list[str]:
    """What is wrong with the options that a factory declares: no type, or a default of another one; a line each.

    Args: as of ``check_options``.

    Raises:
        PluginError: types cannot be resolved, or cannot be checked at all.
    """
    lines = []
    for name, parameter in fields_of(factory, positional).items():
        if parameter.annotation is inspect.Parameter.empty:
            lines.append(f"{path}.{name}: {_title(factory)} {_untyped(parameter)}")
        elif parameter.default is not inspect.Parameter.empty and not _is_made_anew(parameter.default):
            annotations = {name: type_of(factory, parameter)}
            schema = _schema(factory, {name: parameter}, annotations)
            values, wrong = _convert(schema, {name: parameter.default}, annotations, path)
            if not wrong and not _stays(parameter.default, values[name]):
                wrong = [_mistyped(name, parameter.default, annotations[name], path)]
            lines += [f"the default of {line}" for line in wrong]
    return lines


def _untyped(parameter: inspect.Parameter) -> str:
    default = parameter.default
    such = "int" if default is inspect.Parameter.empty or default is None else type(default).__name__
    return f"gives this option no type, so that no value can be checked; write one, such as {parameter.name}: {such}"


def _is_made_anew(default: Any) -> bool:
    """Whether a default stands for the ``default_factory`` of a dataclass's field, whose signature shows it so."""
    return type(default).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"


def _stays(default: Any, converted: Any) -> bool:
    """Whether a default is of its type as it is: nobody converts it when the run file says nothing."""
    if isinstance(default, type(converted)):
        return True
    try:
        return bool(default == converted)
    except Exception:  # of the plugin's own ==, such as arrays of several; the caller tells of a default that changes
        return False


def fields_of(factory: Callable[..., Any], positional: int) -> dict[str, inspect.Parameter]:
    """The options of a factory by name. Raises PluginError as ``check_options``."""
    parameters = _parameters(factory)
    front = _front(parameters, positional)
    return {p.name: p for p in parameters if p.kind in _NAMED and p not in front}


def front_type(factory: Callable[..., Any]) -> Any:
    """What a factory states of its first parameter, which is no option; Any where it states nothing.

    Raises:
        PluginError: it states what cannot be resolved.
    """
    front = _front(_parameters(factory), 1)
    return type_of(factory, front[0]) if front else Any


def _front(parameters: list[inspect.Parameter], positional: int) -> list[inspect.Parameter]:
    """Those that are no options."""
    return [p for p in parameters if p.kind in _POSITIONAL][:positional]


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError) as error:
        raise PluginError(f"{_title(factory)}: a factory needs a readable signature: {error}") from error


def type_of(factory: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A parameter's annotation, resolved alone: others may name types that only a type checker imports.

    Raises:
        PluginError: it cannot be resolved.
    """
    found = parameter.annotation
    if found is inspect.Parameter.empty:
        return Any
    if not isinstance(found, str):
        return found
    try:
        # The annotation is source code of the plugin, which has been imported already.
        return eval(found, _namespace(factory))  # noqa: S307
    except Exception as error:
        raise PluginError(
            f"{_title(factory)}: type {found!r} of option {parameter.name} cannot be resolved: {error}"
        ) from error


def _namespace(factory: Any) -> dict[str, Any]:
    """Globals of the code that declares the parameters."""
    while hasattr(factory, "func"):  # functools.partial
        factory = factory.func
    if inspect.isclass(factory):
        factory = factory.__init__ if factory.__init__ is not object.__init__ else factory.__new__
    elif not inspect.isroutine(factory):
        factory = type(factory).__call__
    return dict(getattr(inspect.unwrap(factory), "__globals__", {}))


def _title(factory: Any) -> str:
    return f"{getattr(factory, '__module__', '')}.{getattr(factory, '__qualname__', factory)}"


def _schema_once(
    factory: Callable[..., Any], fields: Mapping[str, inspect.Parameter], annotations: Mapping[str, Any]
) -> type[BaseModel]:
    """A run checks the options of one factory several times, and pydantic takes 2 ms to make a model of them."""
    asked = [(name, annotations[name], parameter.default is parameter.empty) for name, parameter in fields.items()]
    try:
        before = _schemas.get(factory)
        if before is None or before[0] != asked:  # a class in a notebook may have got other parameters
            before = _schemas[factory] = asked, _schema(factory, fields, annotations)
    except TypeError:  # neither hashed nor referred to weakly
        return _schema(factory, fields, annotations)
    return before[1]


def _schema(
    factory: Callable[..., Any], fields: Mapping[str, inspect.Parameter], annotations: Mapping[str, Any]
) -> type[BaseModel]:
    # Aliases carry the names, since pydantic keeps some for itself (schema, copy, model_*, _private).
    empty = inspect.Parameter.empty
    definitions: dict[str, Any] = {
        f"option_{i}": (annotations[name], Field(... if p.default is empty else p.default, alias=name))
        for i, (name, p) in enumerate(fields.items())
    }
    config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", allow_inf_nan=True)
    try:
        schema = create_model("Options", __config__=config, **definitions)
        schema.model_rebuild(_types_namespace=_namespace(factory))
    except (PydanticUserError, PydanticUndefinedAnnotation, TypeError) as error:
        raise PluginError(f"{_title(factory)}: its options cannot be checked: {error}") from error
    return schema


def _convert(
    schema: type[BaseModel], options: Mapping[str, Any], annotations: Mapping[str, Any], path: str
) -> tuple[dict[str, Any], list[str]]:
    lines = [
        _mistyped(name, value, annotations[name], path)
        for name, value in options.items()
        if isinstance(value, bool) and not _takes_bool(annotations[name])
    ]
    try:
        model = schema.model_validate(dict(options))
    except ValidationError as error:
        return {}, lines + _explain(error, options, annotations, path)
    fields = {info.alias: field for field, info in schema.model_fields.items()}
    return {name: getattr(model, fields[name]) for name in options}, lines


def _takes_bool(annotation: Any) -> bool:
    """Whether true and false are values of a type: pydantic would read them as 1 and 0 where a number is wanted."""
    if get_origin(annotation) is Annotated:
        return _takes_bool(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return any(_takes_bool(member) for member in get_args(annotation))
    return annotation not in (int, float, complex, NoneType)


def _explain(
    error: ValidationError, options: Mapping[str, Any], annotations: Mapping[str, Any], path: str
) -> list[str]:
    """One line for each option at fault; the members of a union give one together."""
    lines: dict[str, str] = {}
    for fault in error.errors(include_url=False):
        name = str(fault["loc"][0])
        if fault["type"] == "missing" and len(fault["loc"]) == 1:
            lines[name] = f"{path}.{name}: missing; expected {_readable(annotations[name])}"
        elif fault["type"] in ("value_error", "assertion_error") or (
            "ctx" in fault and fault["type"] != "literal_error"
        ):
            told = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Input ")
            lines.setdefault(name, f"{path}.{name}: {told}, got {_short(options[name])}")
        else:
            lines.setdefault(name, _mistyped(name, options[name], annotations[name], path))
    return list(lines.values())


def _mistyped(name: str, value: Any, annotation: Any, path: str) -> str:
    choices = [c for c in get_args(annotation) if isinstance(c, str)] if get_origin(annotation) is Literal else []
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    return f"{path}.{name}: expected {_readable(annotation)}, got {_short(value)}" + (f"; {hint}" if hint else "")


def _unknown(name: str, fields: Mapping[str, inspect.Parameter], path: str, owner: Callable[[str], str | None]) -> str:
    if said := unspaced(str(name)):
        return f"{path}.{name}: unknown field; {said}"
    ours = size_elsewhere(str(name))
    hint = f"did you mean {ours}?" if ours in fields else did_you_mean(str(name), fields)
    if ours and not hint and "config" in fields:
        hint = f"did you mean {path}.config.{name}?"
    if not hint and (outside := around(path, str(name))):
        hint = f"did you mean {outside}?"
    elif not hint and (other := owner(str(name))):
        hint = other
    elif not hint and (said := elsewhere(str(name))):
        hint = said if " " in said else f"did you mean {said}?"
    known = listed([*fields, *beside(path)], at_most=40)
    return f"{path}.{name}: unknown field" + (f"; {hint}" if hint else "") + f" (fields: {known})"


def has_it(kind: str, other: str, path: str) -> str:
    """That another component of a kind has an option which the one at ``path`` has not, and how to name it there."""
    if kind == "modality":  # a processor is that of its modality: no field names another
        return f"the processor of modality {other} has it"
    return f"{other} has it ({path}.name={other})"


def _readable(annotation: Any) -> str:
    """A type as people write it: ``int | None``, ``'mean' or 'max'``, ``tuple[int, ...]``."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _readable(get_args(annotation)[0])
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(annotation))
    if origin in (Union, UnionType):
        return " | ".join("None" if member is NoneType else _readable(member) for member in get_args(annotation))
    if origin is not None:
        return str(annotation).replace("typing.", "").replace("collections.abc.", "")
    return str(getattr(annotation, "__name__", annotation))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
