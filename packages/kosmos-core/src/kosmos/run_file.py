"""Run files: read, laid over each other, checked with one clear line, written again."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from kosmos.chats import LAYOUTS
from kosmos.config import ChoicesConfig, ComponentConfig, RunConfig, SourceConfig
from kosmos.config_length import LENGTHS
from kosmos.config_rows import RowsConfig
from kosmos.errors import ConfigError
from kosmos.given import path_of
from kosmos.mistakes import explain
from kosmos.names import by_name, nearest
from kosmos.patterns import is_pattern
from kosmos.strict import as_written, names_are_a_list, one_is_a_list
from kosmos.yaml_values import MOST_DEPTH, Refused, SaidTwice
from kosmos.yaml_values import load_yaml as load_yaml  # commands read their values by it too

LISTS = ("sources", "trackers", "observers", "metrics")
"""Fields with items that a name alone may stand for."""
_ONE_COLUMN = re.compile(r"data\.sources\.(\d+\.)?held_out")
"""A mapping of one key, which another takes the place of."""
_Part = TypeVar("_Part", bound=ComponentConfig | None)
_Entry = TypeVar("_Entry", bound=RowsConfig)

YAML_SUFFIXES = (".yaml", ".yml")
SUCH_AS = "such as 'modalities: [image]'"
COMMAND_LINE = "command line"
"""What errors call the fields that a command has got."""


class _All(dict[str, Any]):
    """Settings of modalities that were listed by name, so that there are no others; a plain mapping adds to some."""


def names_all(modalities: Any) -> bool:
    """Whether they were listed by name, and not settings of some of them."""
    return isinstance(modalities, str | list | _All)


def read_run_file(path: str | Path) -> dict[str, Any]:
    """The content of a run file as plain values.

    Raises:
        ConfigError: it is no path, is missing, is not YAML, says a field twice, or holds no fields. ``{}`` means to
            say nothing; an empty file is more likely what a full disk or a wrong redirection has left.
    """
    path = path_of("path", path, "a run file, such as 'run.yaml'")
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the run file ({error.strerror}); {_meant(path)}") from error
    except SaidTwice as error:
        first, again = error.lines
        raise ConfigError(
            f"{path}:{again}: {error.key}: stands here and in line {first}; write it once, with all that belongs to it"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f":{where.line + 1}" if where else ""
        problem = _in_words(getattr(error, "problem", None) or "not UTF-8 text")
        if isinstance(error, Refused):
            raise ConfigError(f"{path}{line}: {problem}") from error
        raise ConfigError(f"{path}{line}: not YAML ({problem}){_or_data(path)}") from error
    if content is None:
        raise ConfigError(f"{path}: says nothing; write fields in it, {SUCH_AS}, or leave the file out{_or_data(path)}")
    if not isinstance(content, dict):
        found = "a list" if isinstance(content, list) else f"the value {content!r}"[:80]
        raise ConfigError(f"{path}: expected fields, {SUCH_AS}, got {found}{_or_data(path)}")
    return content


def _in_words(problem: str) -> str:
    """What YAML says is wrong, for people who indent by tabs."""
    return "a tab; indent by spaces" if problem.startswith("found character '\\t'") else problem


def _meant(path: Path) -> str:
    """What to do about a run file that cannot be read."""
    if (path / "run.yaml").is_file():
        return f"name {path / 'run.yaml'} in it"
    if path.is_dir():
        return f"name data with --data {path}"
    beside = [file.name for end in YAML_SUFFIXES for file in path.parent.glob(f"*{end}")]
    near = nearest(path.name, beside)
    return "give the path of a YAML file" if near is None else f"did you mean {path.parent / near}?"


def _or_data(path: Path) -> str:
    """Advice where a file that is no run file is not even called one."""
    return "" if path.suffix.lower() in YAML_SUFFIXES else f"; name data with --data {path}"


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """``["train.steps=10", ...]`` to nested values; the right side is read as YAML."""
    merged: dict[str, Any] = {}
    # What is set of a thing is laid on the thing, whichever is said first.
    for pair in sorted(pairs, key=lambda pair: pair.partition("=")[0].count(".")):
        path, equals, text = pair.partition("=")
        if not equals or not path or path.count(".") > MOST_DEPTH:
            raise ConfigError(f"override {_begin(pair)}: expected FIELD=VALUE, such as train.steps=100")
        try:
            value = load_yaml(text)
        except SaidTwice as error:
            raise ConfigError(f"override {path}: {error.key} stands twice in {text!r}") from error
        except Refused as error:
            raise ConfigError(f"override {path}: {error.problem}") from error
        except yaml.YAMLError as error:
            quoted = shlex.quote(f"{path}={json.dumps(text, ensure_ascii=False)}")
            raise ConfigError(
                f"override {path}: the value {text!r} is not YAML; as text it needs quotes beside the shell's: {quoted}"
            ) from error
        value = _Instead() if value == {} else value
        for part in reversed(path.lstrip("-").split(".")):
            value = {part: value}
        merged = merge(merged, value, renames=False)
    return merged


def _begin(pair: str) -> str:
    return repr(pair if len(pair) <= 200 else f"{pair[:200]}...")


class _Instead(dict[str, Any]):
    """A mapping that stands in place of what was there: ``X={}`` on the command line empties X."""


def merge(
    base: Mapping[str, Any], over: Mapping[str, Any], *, renames: bool = True, is_run: bool = True, path: str = ""
) -> dict[str, Any]:
    """``over`` laid on ``base``, mapping by mapping.

    Args:
        renames: a component whose name changes loses the old one's options, and another length of the run, or another
            column by which rows are held out, takes the place of the one that was there.
        is_run: they are of a whole run, not of a part of one.
        path: of that part, for messages.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, _Instead):
            merged[key] = _Instead(value)
            continue
        if renames and _ONE_COLUMN.fullmatch(f"{path}{key}"):
            merged[key] = value
            continue
        if key == "modalities" and isinstance(value, str | list | Mapping):
            merged[key] = _modalities(old, value, renames=renames)
            continue
        numbered = isinstance(value, Mapping) and value and all(str(number).isdecimal() for number in value)
        if numbered and isinstance(old, str) and key in LISTS:  # as the field itself reads it
            old = one_is_a_list(old) if key == "sources" else names_are_a_list(old)
        if numbered and isinstance(old, list):
            merged[key] = _lay_on_items(f"{path}{key}", old, value, renames=renames)
            continue
        if isinstance(value, Mapping):
            old = _in_full(key, old)
        if renames and is_run and key == "train":
            old = _without_length(old, value)
        of_run = is_run and key == "tokenizer"
        if of_run and isinstance(value, str):
            value = {"name": value}  # turns are no options of the tokenizer that goes
        renamed = (
            renames
            and not of_run
            and isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("name", old.get("name")) != old.get("name")
        )
        both = isinstance(value, Mapping) and isinstance(old, Mapping) and not renamed
        inner = f"{path}{key}."
        laid = merge(old, value, renames=renames, is_run=False, path=inner) if both else value  # type: ignore[arg-type]
        merged[key] = _Instead(laid) if isinstance(old, _Instead) and both else laid
    return merged


def _without_length(train: Any, over: Any) -> Any:
    """What is said of training, without how long it is where ``over`` says that in its own way. null says nothing."""
    if not isinstance(train, Mapping) or not isinstance(over, Mapping):
        return train
    if all(over.get(name) is None for name in LENGTHS):
        return train
    return {name: value for name, value in train.items() if name not in LENGTHS}


def _in_full(key: str, short: Any) -> Any:
    """What a component's name alone, the rank of updates, the number of answers, the path of a run, a known layout of
    chats or ``true`` stands for; else it as it is."""
    if key == "profile" and short is True:
        return {}
    if key == "lora" and isinstance(short, int):
        return {} if isinstance(short, bool) else {"rank": short}
    if key == "generate" and isinstance(short, int):
        return {"documents": short}
    if key == "init" and isinstance(short, str):
        return {"path": short}
    if key == "turns" and isinstance(short, str):
        return LAYOUTS.get(short, short)
    return {"name": short} if isinstance(short, str) else short


def _modalities(old: Any, over: str | Sequence[Any] | Mapping[str, Any], *, renames: bool) -> dict[str, Any]:
    """Modalities laid on others: names say which there are, and what is set of them stays; a mapping adds to them."""
    settings = by_name(old) if isinstance(old, str | list | Mapping) else {}
    both = merge(settings, by_name(over), renames=renames, is_run=False)
    if names_all(over):
        return _All({name: both[name] for name in by_name(over)})
    return _All(both) if names_all(old) else both


BY_PATH = (".sources", ".choices")
"""How lists end whose items stand for their path, where they are a word."""


def _lay_on_items(path: str, items: Sequence[Any], over: Mapping[Any, Any], *, renames: bool) -> list[Any]:
    """A list some of whose items, named by their number from 0, are set or laid over: ``data.sources.0.weight=2``."""
    merged = list(items)
    for number, value in over.items():
        if (place := int(number)) >= len(merged):
            there = f"the last of {len(merged)} is {path}.{len(merged) - 1}" if merged else "there are none"
            raise ConfigError(f"{path}.{number}: {there}; to add one, give {path} as a whole list")
        # Short forms of the items that lists have: the path of a source, the name of a component.
        short = {("path" if path.endswith(BY_PATH) else "name"): merged[place]}
        item = short if isinstance(merged[place], str) else merged[place]
        both = isinstance(item, Mapping) and isinstance(value, Mapping)
        inner = f"{path}.{number}."
        merged[place] = merge(item, value, renames=renames, is_run=False, path=inner) if both else value
    return merged


def _refuse_fields_of_lists(values: Mapping[str, Any], layer: Mapping[str, Any]) -> None:
    """Raises ConfigError where a layer over ``values`` calls items of a list by names, as if these were its fields."""
    for path in ("data.sources", "evaluate.sources", "evaluate.choices", "evaluate.metrics", "trackers", "observers"):
        old, over = (_at(path, of) for of in (values, layer))
        own, called = (SourceConfig.model_fields, "path") if path.endswith(BY_PATH) else ((), "name")
        if not isinstance(over, Mapping) or called in over or isinstance(old, Mapping):
            continue
        items = found if isinstance(found := one_is_a_list(old), list) else []
        for name, value in over.items():
            if name in own and items:
                raise ConfigError(f"{path}.{name}: {path} is a list; set it of an item, such as {path}.0.{name}")
            if name not in own and isinstance(value, Mapping) and not str(name).isdecimal():
                raise ConfigError(f"{path}.{name}: {path} is a list; {_item_called(str(name), path, called, items)}")


def _at(path: str, values: Any) -> Any:
    for part in path.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _item_called(name: str, path: str, called: str, items: Sequence[Any]) -> str:
    """How to write the item of a list that somebody calls by a name."""
    for number, item in enumerate(items):
        names = [item.get("name"), item.get(called)] if isinstance(item, Mapping) else [item]
        if name in (*names, *(Path(known).stem for known in names if isinstance(known, str))):
            return f"{name} is {path}.{number}"
    return f"write [{{{'name' if called == 'name' else 'path: PATH, name'}: {name}}}], or set an item by its number"


def _refuse_items_of_nothing(values: Mapping[str, Any]) -> None:
    """Raises ConfigError where something is set of sources by their number, and no sources are there."""
    for path in ("data.sources", "evaluate.sources", "evaluate.choices"):
        sources = _at(path, values)
        if isinstance(sources, Mapping) and sources and all(str(number).isdecimal() for number in sources):
            _lay_on_items(path, [], sources, renames=True)


def make_run(*layers: Mapping[str, Any] | RunConfig, where: str = "run") -> RunConfig:
    """Lay the layers over each other, last wins, and check the result.

    Args:
        layers: fields as a run file has them, or a run, of which those count that it states. Paths, tuples and
            numbers of numpy or PyTorch are taken for what a file would hold.

    Raises:
        ConfigError: names the field's path, what was expected and found, and the nearest field.
    """
    stated = [_stated(layer) if isinstance(layer, RunConfig) else layer for layer in layers]
    return lay_over(stated[:1], stated[1:], where=where, over=where)


def _stated(run: RunConfig) -> dict[str, Any]:
    """The fields that a run states, and no modalities but its own."""
    fields = run.model_dump(mode="json", exclude_unset=True)
    return {name: _All(value) if name == "modalities" else value for name, value in fields.items()}


def lay_over(
    first: Sequence[Mapping[str, Any]], later: Sequence[Mapping[str, Any]], *, where: str, over: str
) -> RunConfig:
    """The run of two groups of layers, which errors call ``where`` and ``over``: a file, and what a command sets of it.

    Raises: as ``make_run``.
    """
    values: dict[str, Any] = {}
    for layer in (*first, *later):
        if not isinstance(layer, Mapping):
            raise ConfigError(f"{where}: expected a mapping of fields, got {layer!r}; read_run_file reads a file")
        written = as_written(layer)
        _refuse_fields_of_lists(values, written)
        values = merge(values, written)
    _refuse_items_of_nothing(values)
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        told = explain(error)
        raise ConfigError(f"{_at_fault(told, first, where, over)}: {told}") from error


def _at_fault(told: str, first: Sequence[Mapping[str, Any]], where: str, over: str) -> str:
    """What has the mistakes that are told: the first layers by themselves, those over them, or both."""
    values: dict[str, Any] = {}
    for layer in first:
        values = merge(values, as_written(layer))
    try:
        RunConfig.model_validate(values)
    except ValidationError as error:
        return where if over == where or explain(error) == told else f"{where} and {over}"
    return over


def dump_run(config: RunConfig) -> str:
    """The run as a YAML run file that makes it again."""
    return str(config)


def with_absolute_sources(config: RunConfig, datasets: Collection[str]) -> RunConfig:
    """The run with the paths of its data as they are from anywhere, since it may go on from another folder.

    Links stay as they are: a name says what a file is, and where the media of a table are. So do ``datasets``, the
    names of registered ones.
    """

    def absolute(path: str) -> str:
        try:
            is_place = path not in datasets and (Path(path).exists() or is_pattern(path))
            return os.path.abspath(path) if is_place else path
        except (OSError, ValueError):
            return path

    def moved(entries: Sequence[_Entry]) -> list[_Entry]:
        return [entry.model_copy(update=_places(entry, absolute)) for entry in entries]

    init = config.init
    if init is not None:
        init = init.model_copy(update={"path": Path(os.path.abspath(init.path))})
    streams = {
        name: stream.model_copy(update={"encoder": _with_absolute(stream.encoder, "weights", absolute)})
        for name, stream in config.streams.items()
    }
    modalities = {
        name: modality.model_copy(update={"codec": _with_absolute(modality.codec, "weights", absolute)})
        for name, modality in config.modalities.items()
    }
    lora = config.backbone.lora
    if lora is not None and lora.adapter is not None:
        lora = lora.model_copy(update={"adapter": Path(os.path.abspath(lora.adapter))})
    changes = {
        "data": config.data.model_copy(update={"sources": moved(config.data.sources)}),
        "evaluate": config.evaluate.model_copy(
            update={"sources": moved(config.evaluate.sources), "choices": moved(config.evaluate.choices)}
        ),
        "init": init, "streams": streams, "modalities": modalities,
        "backbone": _with_absolute(config.backbone.model_copy(update={"lora": lora}), "model", absolute),
    }  # fmt: skip
    return config.model_copy(update=changes)


def _places(entry: RowsConfig, absolute: Callable[[str], str]) -> dict[str, Any]:
    """The paths of a source as they are from anywhere."""
    its = {"shots_from": entry.shots_from} if isinstance(entry, ChoicesConfig) else {}
    paths = {name: path and absolute(path) for name, path in {"path": entry.path, **its}.items()}
    return {**paths, "root": None if entry.root is None else Path(os.path.abspath(entry.root))}


def _with_absolute(part: _Part, option: str, absolute: Callable[[str], str]) -> _Part:
    """A component whose option names files, as they are from anywhere: whoever scores the run builds it again."""
    value = part.options.get(option) if part is not None else None
    if part is None or not isinstance(value, str):
        return part
    return type(part).model_validate({**part.model_dump(), option: absolute(value)})
