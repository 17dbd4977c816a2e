"""Wrong usage of a command, found by typer, as one line like our own errors: what, expected, got, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kosmos.errors import ConfigError
from kosmos.names import did_you_mean, listed

_NO_COMMAND = re.compile(r"No such command '(.*?)'\.")
_NOT_EXPECTED = re.compile(r"Got unexpected extra argument\S* \((.*)\)$", re.DOTALL)


def in_words(error: Any) -> str:
    """What is wrong.

    Args:
        error: a ``UsageError`` of typer, whose kinds have no public names.
    """
    kind, context = type(error).__name__, getattr(error, "ctx", None)
    parameter = getattr(error, "param", None)
    if kind == "BadOptionUsage" and error.message.endswith("requires an argument."):
        return f"{error.option_name}: needs a value"
    if kind == "BadOptionUsage" and error.message.endswith("does not take a value."):
        return f"{error.option_name}: takes no value"
    if context is None:
        return _one_line(error.format_message())
    command = context.command_path
    if kind == "NoSuchOption":
        known = [*(name for p in context.command.params for name in p.opts if name.startswith("--")), "--help"]
        hint = did_you_mean(error.option_name, known) or f"options: {listed(known)}"
        return f"{error.option_name}: unknown option; {hint}"
    if kind == "MissingParameter" and parameter is not None:
        said = (getattr(parameter, "help", None) or "").partition(". ")[0].rstrip(".")
        what = f" ({said[0].lower()}{said[1:]})" if said else ""
        return f"{_named(parameter)}: is missing{what}; see '{command} --help'"
    if kind == "BadParameter" and parameter is not None:
        return f"{_named(parameter)}: {_expected(error)}"
    if (name := _NO_COMMAND.match(error.message)) and hasattr(context.command, "commands"):
        there = list(context.command.commands)
        hint = did_you_mean(name[1], there) or f"commands: {listed(there, at_most=len(there))}"
        return f"{name[1]}: unknown command; {hint}"
    if more := _NOT_EXPECTED.match(error.message):
        return f"{_one_line(more[1])}: not expected; see '{command} --help'"
    return _one_line(error.format_message())


def _named(parameter: Any) -> str:
    """An option by its long name, an argument by what the help calls it."""
    long = [name for name in parameter.opts if name.startswith("--")]
    return str(long[0] if long else getattr(parameter, "metavar", None) or parameter.name.upper())


def _expected(error: Any) -> str:
    """What pydantic, by which typer reads values, would have had, and what it got."""
    found = error.__cause__.errors()[0] if hasattr(error.__cause__, "errors") else {}
    kind, limits = str(found.get("type", "")), found.get("ctx", {})
    if kind.startswith("int_"):
        expected = "expected a whole number"
    elif kind.startswith("float_"):
        expected = "expected a number"
    elif kind == "greater_than_equal":
        expected = f"expected a number from {limits['ge']} on"
    elif kind == "less_than_equal":
        expected = f"expected a number up to {limits['le']}"
    else:
        return _one_line(error.message.removeprefix("Value error, ")).rstrip(".")
    return f"{expected}, got {found['input']!r}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def refuse_repeated(command: Any) -> None:
    """Have a command, and each below it, refuse an option of one value that stands there twice.

    The parser would take the last one without a word. A flag says the same each time.

    Args:
        command: of typer, as ``typer.main.get_command`` makes it. What it raises as it is run is ``ConfigError``.
    """
    for below in getattr(command, "commands", {}).values():
        refuse_repeated(below)
    make_parser = command.make_parser

    def made(context: Any) -> Any:
        parser = make_parser(context)
        parse = parser.parse_args

        def parsed(args: list[str]) -> Any:
            values, rest, order = parse(args=args)
            if not context.resilient_parsing:  # of completion, which parses what is being written
                _check_once(order)
            return values, rest, order

        parser.parse_args = parsed
        return parser

    command.make_parser = made


def _check_once(order: Sequence[Any]) -> None:
    """Raises ConfigError where an option is among parameters twice of which one value is kept."""
    seen: list[Any] = []
    for parameter in order:
        if parameter.param_type_name != "option" or parameter.multiple or parameter.is_flag or parameter.count:
            continue
        if any(parameter is other for other in seen):
            raise ConfigError(f"{_named(parameter)}: stands there twice, and takes one value; give it once")
        seen.append(parameter)
