"""Write run-file.md, components.md, commands.md and promises.md from the code: ``python docs/make_reference.py``.

Fields of the run file come from the docstrings of ``kosmos.config``, options of components from the
signatures and docstrings of their factories, commands from their help, promises from the rules of the
conformance kit. A test holds the files against what this makes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kosmos.cli import GLOBAL_OPTIONS, build_command
from kosmos.components import Spec
from kosmos.config import (
    BackboneConfig,
    ChoicesConfig,
    ComponentConfig,
    DataConfig,
    DocumentsConfig,
    EvaluateConfig,
    GuardConfig,
    ModalityConfig,
    ParallelConfig,
    RunConfig,
    SourceConfig,
    StreamConfig,
    TokenizerConfig,
    TrainConfig,
)
from kosmos.config_checkpoint import CheckpointConfig
from kosmos.config_choices import OfferingConfig
from kosmos.config_profile import ProfileConfig
from kosmos.config_turns import TurnsConfig
from kosmos.config_weights import InitConfig, LoRAConfig
from kosmos.config_written import WrittenConfig
from kosmos.plugins import PluginRecord, Registry, load_plugins
from kosmos.reference.entries import Entry, entries_of_fields, entries_of_options
from kosmos.testing.check import RULES

DOCS = Path(__file__).resolve().parent
NOTE = "<!-- Made by docs/make_reference.py: change the docstrings of the code and run it again. -->\n"

OURS = ("kosmos-core", "kosmos-vision", "kosmos-audio", "kosmos-video")
WIDTH = 92
"""Of the help of commands, in characters."""

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Top of the file", RunConfig),
    ("init", InitConfig),
    ("modalities.NAME", ModalityConfig),
    ("streams.NAME", StreamConfig),
    ("A component", ComponentConfig),
    ("backbone", BackboneConfig),
    ("lora", LoRAConfig),
    ("tokenizer", TokenizerConfig),
    ("tokenizer.turns", TurnsConfig),
    ("data", DataConfig),
    ("data.sources[N]", SourceConfig),
    ("train", TrainConfig),
    ("guard", GuardConfig),
    ("parallel", ParallelConfig),
    ("evaluate", EvaluateConfig),
    ("evaluate.generate", WrittenConfig),
    ("evaluate.sources[N]", DocumentsConfig),
    ("evaluate.choices[N]", ChoicesConfig),
    ("evaluate.choices[N].options", OfferingConfig),
    ("checkpoint", CheckpointConfig),
    ("profile", ProfileConfig),
)
"""Where a group of fields stands in a run file, and the class that declares it."""


def run_file_reference() -> str:
    """docs/run-file.md."""
    parts = [
        NOTE,
        "# Run file\n",
        "A run file is YAML. [Components](components.md) lists the options of components, "
        "[examples](../examples/README.md) has whole files, and the words are in the [glossary](glossary.md).\n\n"
        "- On the command line every field below can be set by its dotted path, with its value in YAML: "
        "`train.steps=100`. Items of a list go by their number from 0: `data.sources.0.weight=2`. What is set "
        "is laid over what the file says; `data.cells_per_pack={}` empties. In Python use `make_run`.\n"
        "- A field that is not written has the default. A field that does not exist is refused, and the error "
        "gives the nearest name. An empty file is refused too; `{}` means that all fields have their defaults.\n"
        "- `kosmos explain train.clip_norm` says at the terminal what stands here, of any field, component or option.\n"
        "- Where the text says None, write `null`. A list with one item may be written without brackets, names of "
        "components with commas (`tensorboard,wandb`), and an empty list as `none`.\n"
        "- If a component gets another name, the options of the component before are dropped.\n"
        "- Relative paths start in the folder in which the command runs, wherever the run file is; `~` is the "
        "user's home folder.\n"
        "- `OUTPUT/run.yaml` holds the run with every field filled in; options of components stand there as far "
        "as they were stated, and their defaults in `plugins.lock.json`.\n",
    ]
    for title, model in SECTIONS:
        about = inspect.cleandoc(model.__doc__ or "").replace("``", "`")
        parts += [f"## {title}\n", f"{about}\n", "\n".join(_field_table(model)) + "\n"]
    return "\n".join(parts)


def _field_table(model: type[BaseModel]) -> Iterator[str]:
    yield "| field | value | default | meaning |"
    yield "|---|---|---|---|"
    yield from map(_entry, entries_of_fields(model, _link))


def _entry(entry: Entry) -> str:
    return _row(f"`{entry.name}`", *entry[1:])


def _link(model: type) -> str:
    """To the section of a class of fields; empty where it has none."""
    title = next((title for title, of_section in SECTIONS if of_section is model), None)
    return f"[{title}](#{_anchor(title)})" if title else ""


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")


def _row(*cells: str) -> str:
    plain = (" ".join(cell.split()).replace("|", "\\|").replace("``", "`") for cell in cells)
    return f"| {' | '.join(plain)} |"


def components_reference(registry: Registry) -> str:
    """docs/components.md: what the plugins of this repository bring."""
    parts = [
        NOTE,
        "# Components\n",
        "Every component that the four packages bring, with its options: the fields that are written beside its `name` "
        "in a [run file](run-file.md). `kosmos plugins NAME` lists what an installed plugin brings. Options are the "
        "keyword parameters of the component's factory; a wrong name or type is refused, and the error gives the "
        "nearest name.\n",
    ]
    for plugin in registry.plugins:
        if plugin.distribution in OURS:
            parts += [f"## {plugin.distribution}\n", *_component_sections(plugin, registry)]
    return "\n".join(parts)


def _component_sections(plugin: PluginRecord, registry: Registry) -> Iterator[str]:
    for spec in plugin.components:
        if spec.kind == "command":
            continue
        yield f"### {spec.kind} `{spec.name}`\n"
        yield f"{spec.summary}\n"
        if defaults := _stream_defaults(spec):
            yield f"{defaults}\n"
        factory = registry.resolve(spec.kind, spec.name)
        if rows := list(map(_entry, entries_of_options(factory, spec.positional, _link))):
            yield "\n".join(["| option | value | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _stream_defaults(spec: Spec) -> str:
    """What a modality's own stream is made of."""
    encoder = getattr(spec, "encoder", None)
    if encoder is None:
        return ""
    options: Mapping[str, Any] = getattr(spec, "encoder_options", {})
    told = ", ".join(f"{name}: {value}" for name, value in options.items())
    marks = " and ".join(f"`{mark}`" for mark in getattr(spec, "marks", ()))
    suffixes = " ".join(f"`{suffix}`" for suffix in getattr(spec, "suffixes", ()))
    return (
        f"Own stream: encoder `{encoder}`{f' ({told})' if told else ''}, connector `{getattr(spec, 'connector', '')}`. "
        f"Marks: {marks}. Sample set: `{getattr(spec, 'sample_set', None)}`. Files in class folders: {suffixes}."
    )


def commands_reference(registry: Registry) -> str:
    """docs/commands.md: the help of each of core's commands."""
    root = build_command(registry)
    parts = [
        NOTE,
        "# Commands\n",
        "What `kosmos COMMAND --help` says. Plugins may add commands of their own; `kosmos --help` lists all. An "
        "option of one value that stands there twice is refused; of a field that is set twice (`train.steps=1 "
        "train.steps=2`) the last value counts.\n",
        "\n".join(["| option of all | meaning |", "|---|---|", *(_row(f"`{o}`", text) for o, text in GLOBAL_OPTIONS)]),
        "",
    ]
    for name, spec in registry.specs("command").items():
        if registry.owner("command", name).distribution == OURS[0]:
            parts += [f"## kosmos {name}\n", f"{spec.summary}\n", *_helps(f"kosmos {name}", root.commands[name])]
    return "\n".join(parts)


def _helps(path: str, command: Any) -> Iterator[str]:
    """The help of a command and of those under it."""
    context = command.make_context(path, [], resilient_parsing=True, max_content_width=WIDTH, terminal_width=WIDTH)
    yield f"```text\n{context.get_help().rstrip()}\n```\n"
    for name, part in getattr(context.command, "commands", {}).items():
        yield from _helps(f"{path} {name}", part)


def promises_reference() -> str:
    """docs/promises.md: the rules of the conformance kit."""
    kinds: dict[str, list[str]] = {}
    for rule in RULES:
        kinds.setdefault(rule.kind, []).append(_row(f"`{rule.id}`", rule.says + (" (slow)" if rule.slow else "")))
    parts = [
        NOTE,
        "# Promises\n",
        "What `kosmos plugin test` tries to break, for each kind of component that a plugin brings. Slow promises "
        "start trainings or compilers; `--fast` leaves them out. The [plugin guide](plugins.md#how-it-is-tested) says "
        "how to use them.\n",
    ]
    titles = {"plugin": "The plugin", "component": "Every component"}
    for kind, rows in kinds.items():
        title = titles.get(kind, f"{kind[0].upper()}{kind[1:]}")
        parts += [f"## {title}\n", "\n".join(["| promise | says |", "|---|---|", *rows]) + "\n"]
    return "\n".join(parts)


def references(registry: Registry) -> dict[str, str]:
    """Name of a page to what should stand in it."""
    return {
        "run-file": run_file_reference(),
        "components": components_reference(registry),
        "commands": commands_reference(registry),
        "promises": promises_reference(),
    }


def main() -> None:
    for name, text in references(load_plugins()).items():
        (DOCS / f"{name}.md").write_text(text, encoding="utf-8")
        print(f"{name}.md: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
