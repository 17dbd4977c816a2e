"""Arguments that commands share: dotted fields of the run file, and friendly refusals of what is neither."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kosmos.commands.elsewhere import called_elsewhere
from kosmos.commands.fields import source_of
from kosmos.config import RunConfig
from kosmos.config_length import LENGTHS
from kosmos.errors import ConfigError, unwritable
from kosmos.mistakes import OPTIONS, field_meant
from kosmos.names import by_name, did_you_mean, listed
from kosmos.run_file import YAML_SUFFIXES, names_all
from kosmos.runtime.environment import num_processes
from kosmos.runtime.launch import is_launched, said_once
from kosmos.selection import asked_plugins

Modalities = Annotated[
    list[str] | None, typer.Option(help="Comma-separated, such as image,audio; text is always there. May be repeated.")
]
Step = Annotated[
    str | None,
    typer.Option(
        metavar="N|best",
        help="Step of the checkpoint, or best: that of the best score by evaluate.best; by default the newest.",
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        help="Registered name, folder, file, files by a pattern in quotes or hub id, or fields as of data.sources such "
        "as '{path: FILE, columns: {text: sentence}}'; may be repeated."
    ),
]

Epochs = Annotated[
    float | None, typer.Option(help="In place of steps: how often every document comes, such as 3 or 0.5.")
]

_PATH = re.compile(r"[A-Za-z_]\w*(\.[\w-]+)*")
"""What the path of a field looks like, which hardly any word of a text does."""


def split_extra(
    arguments: Sequence[str], options: Collection[str], elsewhere: Mapping[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """Overrides (``a.b=1``, ``--a.b=1``, ``--a.b 1``) and the rest, which may be files.

    Args:
        arguments: what the command's own options left over.
        options: the command's own options, for the hint at a typo.
        elsewhere: a table of ``kosmos.commands.elsewhere``, where fields of training are of no use.

    Raises:
        ConfigError: an unknown flag.
    """
    overrides: list[str] = []
    rest: list[str] = []
    pending = iter(arguments)
    for argument in pending:
        name, equals, _ = argument.partition("=")
        if argument.startswith("-"):
            if "." not in name:
                meant = field_meant(name, options) if elsewhere is None else called_elsewhere(name, elsewhere)
                hint = meant or did_you_mean(name, options) or f"options: {listed(options)}"
                raise ConfigError(f"{name}: unknown option; {hint}")
            value = argument if equals else f"{argument}={next(pending, '')}"
            overrides.append(value.lstrip("-"))
        else:
            (overrides if equals else rest).append(argument)
    return overrides, rest


def split_fields(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides, as of ``split_extra``, and the rest: flags whose value stands behind them, whatever it looks like."""
    overrides: list[str] = []
    rest: list[str] = []
    pending = iter(arguments)
    for argument in pending:
        name, equals, _ = argument.partition("=")
        is_flag = argument.startswith("-")
        path = name.lstrip("-")
        is_field = _PATH.fullmatch(path) and ("." in path or (path in RunConfig.model_fields and not is_flag))
        if is_field and (equals or is_flag):
            overrides.append((argument if equals else f"{argument}={next(pending, '')}").lstrip("-"))
            continue
        rest.append(argument)
        if is_flag and not equals:
            rest += [value for value in [next(pending, None)] if value is not None]
    return overrides, rest


def one_file(files: Sequence[str]) -> str | None:
    """The run file, if one is named.

    Raises:
        ConfigError: there are several, or it is a word that no file is called.
    """
    elsewhere = "fields are set as FIELD.PATH=VALUE, modalities named as --modalities A,B and data as --data PATH"
    if len(files) > 1:
        raise ConfigError(f"expected one run file, got {', '.join(files)}; {elsewhere}")
    if files and Path(files[0]).suffix.lower() not in YAML_SUFFIXES and not os.path.lexists(files[0]):
        raise ConfigError(f"{files[0]}: no such run file; {elsewhere}")
    return files[0] if files else None


def short_options(
    *,
    modalities: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    output: str | None = None,
) -> dict[str, Any]:
    """The short ways to common fields, as a layer of the run file; ``--plugins`` of the command is one of them.

    Raises:
        ConfigError: one has an empty value.
    """
    for names in modalities or ():
        refuse_empty("--modalities", names)
    refuse_empty("--output", output)
    for path in data or ():
        refuse_empty("--data", path)
    layer: dict[str, Any] = {}
    if (plugins := asked_plugins()) is not None:
        layer["plugins"] = list(plugins)
    if modalities:
        layer["modalities"] = ",".join(modalities)
    if data:
        layer["data"] = {"sources": [source_of(text) for text in data]}
    length = {name: value for name, value in (("steps", steps), ("epochs", epochs)) if value is not None}
    if len(length) > 1:
        raise ConfigError("--steps and --epochs: both say how long the run is; leave one out")
    if length:
        layer["train"] = length
    if output is not None:
        layer["output"] = output
    return layer


def refuse_said_twice(short: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises ConfigError where an option and a field both say all of a thing, of which only one could count."""
    lengths = [f"train.{name}" for name in LENGTHS]
    for path in lengths:
        others = [other for other in lengths if other != path and _at(given, other) is not None]
        others += [path] if _states_none(given, path) else []
        if others and _at(short, path) is not None:
            raise ConfigError(f"{OPTIONS[path]} and {others[0]}=...: both say how long the run is; leave one out")
    for path, option in {**OPTIONS, "modalities": "--modalities"}.items():
        said, again = _at(short, path), _at(given, path)
        if path == "modalities" and said is not None and names_all(again):
            said, again = sorted(by_name(said)), sorted(by_name(again))
        if said is not None and again not in (None, said) and not isinstance(again, Mapping):  # data.sources.0.root=...
            raise ConfigError(f"{option} and {path}=...: both are given, and only one of them can count; leave one out")


def _states_none(values: Mapping[str, Any], path: str) -> bool:
    section, _, name = path.rpartition(".")
    of = _at(values, section)
    return isinstance(of, Mapping) and name in of and of[name] is None


def _at(values: Any, path: str) -> Any:
    """What stands at a path; None where nothing does."""
    for part in path.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def as_step(given: str | None) -> int | Literal["best"] | None:
    """The value of ``Step``.

    Raises:
        ConfigError: it is none.
    """
    if given is None:
        return None
    if given == "best":
        return "best"
    try:
        return int(given.replace(",", ""))  # as checkpoints are listed
    except ValueError:
        raise ConfigError(f"--step: expected the number of a step, or best, got {given!r}") from None


def refuse_empty(option: str, value: str | None) -> None:
    """An unset variable of a shell gives an empty value, which would mean the current folder, or nothing.

    Raises:
        ConfigError: ``value`` is empty. None is an option that was not given.
    """
    if value is not None and not value.strip():
        raise ConfigError(f"{option}: the value is empty (an unset variable?); give one, or leave the option out")


def check_given_once(paths: Sequence[str], option: str = "--data") -> None:
    """Raises ConfigError where a value of an option is empty, or stands there twice."""
    for path in paths:
        refuse_empty(option, path)
        if paths.count(path) > 1:
            raise ConfigError(f"{option} {path}: is given twice; give each source once")


def check_free(argument: str, file: str) -> None:
    """Raises ConfigError where a file of this name cannot be written, or would be written over; TrainingError where the
    disk is full."""
    refuse_empty(argument, file)
    refuse_taken(Path(file))
    if file.endswith(os.sep):
        raise ConfigError(f"{file}: is the name of a folder; name a file")
    if not Path(file).parent.is_dir():
        raise ConfigError(f"{file}: {Path(file).parent} is no folder; make it first")


def check_free_folder(argument: str, folder: str) -> None:
    """As ``check_free`` of a folder, which is made with those above it."""
    refuse_empty(argument, folder)
    refuse_taken(Path(folder), "folder")
    check_above(Path(folder))


def check_above(folder: Path) -> None:
    """Raises ConfigError where a folder cannot be made, as a file is in its place or in that of one above it."""
    first = next(path for path in (folder, *folder.parents) if path.exists())
    if not first.is_dir():
        raise ConfigError(f"{first}: is no folder; name one to write to")


def check_writable(argument: str, file: str) -> None:
    """As ``check_free``, and raises ConfigError where no file can be made there: before the work, not behind it."""
    check_free(argument, file)
    try:
        with open(file, "x"):
            pass
        os.unlink(file)
    except OSError as error:
        raise unwritable(f"{argument} {file}", error, "name another file") from error


def refuse_ranks(command: str) -> None:
    """Several processes would each do all of it, and write the same files.

    Raises:
        ConfigError: torchrun, or another launcher, has started this process as one of several.
    """
    with said_once():
        if is_launched() and (ranks := num_processes()) > 1:
            raise ConfigError(f"{command} runs in one process, and this is one of {ranks}; start it without a launcher")


def refuse_taken(place: Path, what: str = "file") -> None:
    """What stands somewhere is its owner's: no command writes over it.

    Args:
        what: is to be written.

    Raises:
        ConfigError: something is there, be it a link to what is gone.
    """
    if os.path.lexists(place):
        raise ConfigError(f"{place}: exists already; name another {what}, or remove it")
