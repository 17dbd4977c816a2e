"""The public surface of ``kosmos`` as text: names, signatures, fields, protocol members, hooks.

After a change that is meant, renew the stored text, and say in the commit what it means for plugins:

    python tests/support/surface.py
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kosmos
from kosmos import hookspecs, testing
from kosmos.components import KINDS
from kosmos.hookspecs import GROUP, HOOKS

STORED = Path(__file__).resolve().parent.parent / "core" / "public_api.txt"
CALLED = ("__call__", "__len__")
"""Members with underscores that are part of the surface."""


def surface() -> str:
    """One block a name, sorted; annotations as they are written in the source."""
    blocks = ["\n".join(described(name, getattr(kosmos, name))) for name in dir(kosmos) if name != "__version__"]
    kit = ["\n".join(described(name, getattr(testing, name))) for name in sorted(testing._PUBLIC)]
    return "\n\n".join([_hooks(), *blocks, "kosmos.testing", *kit, _renamed()]) + "\n"


def _hooks() -> str:
    lines = [f"    {hook}{signature(getattr(hookspecs, hook))}" for hook in HOOKS.values()]
    kinds = f"kinds of components: {', '.join(kind.kind for kind in KINDS)}"
    return "\n".join([f"hooks of the entry-point group {GROUP}", *lines, kinds])


def _renamed() -> str:
    lines = [f"    {old} -> {new}, goes in {goes_in}" for old, (new, goes_in) in sorted(kosmos._RENAMED.items())]
    return "\n".join(["renamed", *(lines or ["    none"])])


def described(name: str, value: Any) -> Iterator[str]:
    """One public name in lines."""
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}" + (f"({bases})" if bases else "")
        yield from (f"    {line}" for line in _members(value))
    elif inspect.isfunction(value):
        yield f"def {name}{signature(value)}"
    else:
        yield _assignment(name)


def _assignment(name: str) -> str:
    """A constant or an alias, as its module writes it."""
    file = inspect.getsourcefile(__import__({**kosmos._PUBLIC, **testing._PUBLIC}[name], fromlist=["_"]))
    statements = ast.parse(Path(str(file)).read_text(encoding="utf-8")).body
    return next(ast.unparse(s) for s in statements if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == name)


def _members(value: type) -> list[str]:
    if issubclass(value, kosmos.KosmosError):
        return [f"code = {value.code!r}", f"exit_status = {value.exit_status}"]
    if issubclass(value, BaseException):  # has no signature but Python's own
        return []
    found: dict[str, str] = {}
    for base in [b for b in reversed(value.__mro__) if b.__module__.split(".")[0] == "kosmos"]:
        found |= dict(_own(base, fields=not hasattr(value, "__dataclass_fields__")))
    if hasattr(value, "model_fields"):  # of pydantic
        return ["fields: those of a run file (docs/run-file.md)", *found.values()]
    if getattr(value, "_is_protocol", False):
        return list(found.values())
    return [f"__init__{signature(value)}", *found.values()]


def _own(base: type, *, fields: bool) -> Iterator[tuple[str, str]]:
    """What a class itself declares. Fields of a dataclass stand in its constructor's signature, but for those that it
    does not take."""
    for field in getattr(base, "__dataclass_fields__", {}).values():
        if not field.init and not field.name.startswith("_"):
            yield field.name, f"{field.name}: {_written(field.type)} (set by itself)"
    plain = fields and not hasattr(base, "model_fields") and not issubclass(base, tuple)
    for name, annotation in sorted(inspect.get_annotations(base).items() if plain else ()):
        if not name.startswith("_"):
            yield name, f"{name}: {_written(annotation)}" + (f" = {vars(base)[name]!r}" if name in vars(base) else "")
    for name, member in sorted(vars(base).items()):
        if name.startswith("_") and name not in CALLED:
            continue
        getter = getattr(member, "fget", None) or getattr(member, "func", None)  # property or cached_property
        kind = next((k.__name__ for k in (staticmethod, classmethod) if isinstance(member, k)), "def")
        function = getattr(member, "__func__", member)
        if getter is not None and not hasattr(base, "model_fields"):
            yield name, f"{name}: {_written(inspect.signature(getter).return_annotation)} (property)"
        elif inspect.isfunction(function):
            yield name, f"{kind} {name}{signature(function)}"


def signature(function: Any) -> str:
    """``(a: int, *, b: str = 'x') -> None``, the same in every version of Python."""
    found = inspect.signature(function)
    parts: list[str] = []
    for parameter in found.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in " ".join(parts):
            parts.append("*")
        parts.append(_parameter(parameter))
    said = found.return_annotation
    return f"({', '.join(parts)})" + ("" if said is found.empty else f" -> {_written(said)}")


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    type_ = "" if parameter.annotation is parameter.empty else f": {_written(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{type_}"
    default = "..." if callable(parameter.default) else repr(parameter.default)  # its address would differ each time
    return f"{parameter.name}{type_} = {default}"


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", str(annotation))


if __name__ == "__main__":
    STORED.write_text(surface(), encoding="utf-8")
    print(f"written: {STORED}")
