"""The frame of the command: finds the sub-commands, and turns errors into one line and an exit status.

Sub-commands are components like all others (``CommandSpec``), core's own included: see ``kosmos.builtin``
for the list and ``kosmos.commands`` for how to write one. Nothing of a sub-command is imported before
somebody runs it, so ``kosmos --help`` needs neither torch nor pydantic.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import kosmos
from kosmos.components import Spec
from kosmos.discovery import CORE
from kosmos.enabled import split_names
from kosmos.errors import (
    FULL,
    ConfigError,
    Interrupted,
    KosmosError,
    PluginError,
    TrainingError,
    cause,
    debugs,
    is_out_of_memory,
    missing_package,
    say_interrupted,
    unwritable,
)
from kosmos.interrupts import came
from kosmos.open_limit import too_many_open
from kosmos.plugins import Registry, load_core, load_plugins
from kosmos.selection import only_plugins
from kosmos.usage import in_words, refuse_repeated
from kosmos.visible import say

BEGAN_S = time.monotonic()
"""When the command began, for the account of its time."""
SMALLER = (
    "take a smaller model or smaller rows (data.tokens_per_pack), fewer bytes a parameter (train.weights=bf16, "
    "train.optimizer=lion8bit), more processes to share it, or fewer data.workers"
)
"""What to do where memory does not suffice."""
SUMMARY = "Train omni-modal language models from plugins."

GLOBAL_OPTIONS = [
    ("--debug", "Show the traceback of an error; may stand anywhere. KOSMOS_DEBUG=1 does the same."),
    ("--plugins A,B", "Load these alone, beside core; may stand anywhere. KOSMOS_PLUGINS=A,B loads disabled ones too."),
    ("--version", "Show the version and exit."),
    ("--help", "Show this message and exit."),
]


_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What typer raises at wrong usage; it keeps the class to itself."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0 well; 1 a mistake of ours; 2 wrong usage or run file; 3 a plugin, data or checkpoint that cannot be used;
    4 a run that went wrong; 5 a process that makes no progress; 130 interrupted.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    args[:2] = ["--help" if argument == "-h" else argument for argument in args[:2]]  # elsewhere it may be a text
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal in Latin-1 shows what it cannot as escapes
            stream.reconfigure(errors="backslashreplace")
    _drop_useless_width()
    debug = _take_debug(args)
    try:
        if args[:1] == ["--version"]:
            print(f"kosmos {kosmos.__version__}")
            return 0
        _warn_of_ascii()
        with only_plugins(_take_plugins(args)):
            return _status(_run_or_help(args))
    except SystemExit as leave:
        return _status(leave.code)
    except (KeyboardInterrupt, typer.Abort):
        return say_interrupted()
    except KosmosError as error:
        if came() and not isinstance(error, Interrupted):
            return say_interrupted()
        if "ulimit -n" not in str(error):
            error = too_many_open(error) or error
        return error.exit_status if error.elsewhere else _report(error.line(), error.exit_status, debug=debug)
    except _UsageError as error:
        return _report(f"error[usage]: {in_words(error)}", 2, debug=debug)
    except Exception as error:
        if came():  # what it has left half imported fails in any way
            return say_interrupted()
        if isinstance(error, ModuleNotFoundError) and (missing := missing_package(error)) is not None:
            return _report(missing.line(), missing.exit_status, debug=debug)
        if isinstance(error, BrokenPipeError):  # nobody reads what is printed
            return 1
        if isinstance(error, OSError) and _is_of_output(error):
            full = unwritable(error.filename or "output", error, "make room, or write elsewhere")
            return _report(full.line(), full.exit_status, debug=debug)
        if (many := too_many_open(error)) is not None:
            return _report(many.line(), many.exit_status, debug=debug)
        if is_out_of_memory(error):
            line = f"error[{TrainingError.code}]: out of memory: {cause(error)}; {SMALLER}"
            return _report(line, TrainingError.exit_status, debug=debug)
        hint = "" if debug else "; run again with --debug for the traceback"
        return _report(f"error[internal]: {cause(error)}{hint}", 1, debug=debug)


def _run_or_help(args: list[str]) -> Any:
    try:
        return _run(args)
    except _UsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # a bare "kosmos" or group of commands
            raise
        print(error.format_message(), flush=True)
        return 2


def _run(args: list[str]) -> Any:
    if "_KOSMOS_COMPLETE" in os.environ:  # a shell that asks for its script, or for what may come next
        from typer.completion import completion_init  # type: ignore[attr-defined]  # typer names it in no list

        completion_init()
    # Core's commands win over those of plugins, so that none has to be imported here to find one; what the
    # command loads, it loads by the run file's list.
    core = load_core()
    registry = core if args and args[0] in core.specs("command") else load_plugins()
    # Not through the root where a sub-command is named: a command that reads any parameter, be it --help,
    # has typer import pydantic (0.1 s).
    if args and args[0] in registry.specs("command"):
        command = _wrap(args[0], registry)
        return command.main(args[1:], prog_name=f"kosmos {args[0]}", standalone_mode=False)
    return build_command(registry).main(args, prog_name="kosmos", standalone_mode=False)


def build_command(registry: Registry) -> TyperGroup:
    """The ``kosmos`` command with every sub-command that plugins bring: its help, usage errors and completion."""
    broken = [plugin.name for plugin in registry.plugins if plugin.problems]
    return _Kosmos(
        name="kosmos",
        help=SUMMARY,
        epilog=f"Something is wrong with {', '.join(broken)}: see 'kosmos plugins'." if broken else None,
        commands={name: _Later(registry, spec) for name, spec in registry.specs("command").items()},
        rich_markup_mode=None,
        no_args_is_help=True,
    )


class _Kosmos(TyperGroup):
    """The root. ``main`` reads its options, which are listed here."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Options"):
            formatter.write_dl(GLOBAL_OPTIONS)
        self.format_commands(ctx, formatter)


class _Later(TyperCommand):
    """A sub-command known by name and summary; imported when it is run or asked for its own help."""

    def __init__(self, registry: Registry, spec: Spec) -> None:
        super().__init__(spec.name, help=spec.summary, rich_markup_mode=None)
        self._registry = registry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        assert self.name
        command = _wrap(self.name, self._registry)
        return command.make_context(info_name, args, parent=parent, **extra)


def _wrap(name: str, registry: Registry) -> Any:
    """A function, or a ``typer.Typer`` of several, as a command."""
    target, owner = registry.resolve("command", name), registry.owner("command", name)
    app = target
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        app.command(name)(target)
    command: Any = typer.main.get_command(app)
    refuse_repeated(command)
    command.invoke = _guarded(command.invoke, "" if owner.name == CORE else f"command {name!r} of plugin {owner.label}")
    return command


def _guarded(invoke: Callable[[Any], Any], plugin: str) -> Callable[[Any], Any]:
    """Typer ends a command at Ctrl-C without a word, and what goes wrong in a plugin's is no mistake of ours."""

    def invoked(context: Any) -> Any:
        try:
            return invoke(context)
        except KeyboardInterrupt:
            raise SystemExit(say_interrupted()) from None
        except (KosmosError, ModuleNotFoundError, typer.Exit, typer.Abort, _UsageError):
            raise
        except Exception as error:
            if not plugin or is_out_of_memory(error) or _is_of_output(error):
                raise
            raise PluginError(f"{plugin} raised {cause(error)}; --debug shows the traceback") from error

    return invoked


def _is_of_output(error: Exception) -> bool:
    """Whether nobody reads what is printed, or the disk has no room: no mistake of who wrote it."""
    return isinstance(error, OSError) and error.errno in (errno.EPIPE, *FULL)


def _drop_useless_width() -> None:
    """Forget a width of the terminal that is none: rich takes a 0 and shows nearly nothing."""
    width = os.environ.get("COLUMNS", "")
    if not (width.isdecimal() and int(width)):
        os.environ.pop("COLUMNS", None)


def _warn_of_ascii() -> None:
    """Python then finds no file of another name, and says of names and texts that they are no UTF-8.

    The ranks of ``--nproc`` are silent, whose launcher has said it, and so is what a shell asks at each Tab.
    """
    if os.environ.get("RANK", "0") != "0" or {"KOSMOS_NPROC", "_KOSMOS_COMPLETE"} & os.environ.keys():
        return
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii":
        line = "warning: the locale is ASCII, in which names and texts of other characters fail; set PYTHONUTF8=1"
        print(line, file=sys.stderr)


def _take_debug(args: list[str]) -> bool:
    """Remove ``--debug`` from the arguments, wherever it stands in front of a ``--``."""
    end = args.index("--") if "--" in args else len(args)
    found = "--debug" in args[:end]
    args[:end] = [argument for argument in args[:end] if argument != "--debug"]
    return found or debugs()


def _take_plugins(args: list[str]) -> list[str] | None:
    """Remove ``--plugins A,B`` likewise, and return the names; None where it is not there."""
    end = args.index("--") if "--" in args else len(args)
    place = next((n for n, argument in enumerate(args[:end]) if argument.partition("=")[0] == "--plugins"), None)
    if place is None:
        return None
    _, equals, value = args[place].partition("=")
    if not equals:
        value = " ".join(args[place + 1 : end][:1])
    names = split_names(value)
    if not names or value.startswith("-"):
        raise ConfigError("--plugins: expected names, such as --plugins audio,vision; core alone is --plugins core")
    del args[place : place + (1 if equals else 2)]
    return names


def _status(code: str | int | None) -> int:
    if isinstance(code, str):
        say(code, file=sys.stderr)
        return 1
    return code or 0


def _report(line: str, status: int, *, debug: bool) -> int:
    if debug:
        say(traceback.format_exc().rstrip("\n"), file=sys.stderr)
    say(line, file=sys.stderr)
    return status
