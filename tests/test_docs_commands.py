"""The commands of the documentation parse, name what is there, and say what the pages say."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from kosmos.cli import _take_plugins, _wrap, main
from kosmos.commands import data, evaluate, generate, plan, plugins, train, tune
from kosmos.commands.arguments import split_extra, split_fields
from kosmos.launch import prices
from kosmos.plugins import Registry
from kosmos.run_file import make_run, parse_overrides, read_run_file
from kosmos.templates import check_name
from support.pages import EXAMPLES, ROOT, Block, blocks
from support.pages import registry as registry
from support.run_files import check_run


def command_lines() -> Iterator[tuple[str, str]]:
    """(where, line) of every ``kosmos`` command of the pages, alone or behind ``python -m`` and torchrun."""
    for block in [*blocks("sh"), *blocks("", "train")]:
        for number, line in enumerate(block.text.splitlines()):
            if found := re.search(r"(?:^| -m |/bin/)kosmos (.+)$", line.partition(" # ")[0]):
                yield f"{block}+{number}", found[1]
    for file in EXAMPLES:
        for line in re.findall(r"^#.*?\bkosmos (\w+ (?:train|examples|--).*)$", file.read_text("utf-8"), re.MULTILINE):
            yield file.name, line


@pytest.mark.parametrize(("where", "line"), list(command_lines()))
def test_a_command_of_the_pages_parses(
    where: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> None:
    name, *arguments = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    page = ROOT / where.partition(":")[0]
    for block in blocks("yaml", "file: ", page) if page.suffix == ".md" else ():  # that the page has told to write
        Path(block.marker.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
    for file in re.findall(r"\b[\w-]+\.(?:png|flac|mp4|csv|fen)\b", line):
        Path(file).touch()
    assert set(_take_plugins(arguments) or ()) <= {plugin.name for plugin in registry.plugins}
    PARSERS.get(name, partial(parse_other, name))(arguments, registry)


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_the_other_lines_of_shell_name_what_is_there(block: Block) -> None:
    made = {tomllib.loads(b.text)["project"]["name"] for b in blocks("toml", "file: pyproject")}
    new = re.compile(r"^kosmos plugin new ([\w-]+)", re.MULTILINE)
    made |= {f"kosmos-{name}" for b in blocks("sh") for name in new.findall(b.text)}
    for line in block.text.splitlines():
        program, *arguments = shlex.split(line, comments=True) or [""]
        assert program in PROGRAMS, f"{block}: {line}"
        for path in [after.partition("[")[0] for word, after in pairwise(arguments) if word == "-e"]:
            assert (ROOT / path).is_dir() or path.removeprefix("./") in made or path == ".", f"{block}: {line}"


def test_the_readme_installs_what_its_plugin_commands_need() -> None:
    lines = [line for block in blocks("sh", page=ROOT / "README.md") for line in block.text.splitlines()]
    new, test = "kosmos plugin new depth --defaults", "kosmos plugin test kosmos-depth"
    needed = ['pip install "kosmos-core[testing]>=26.11"', new, 'pip install -e "./kosmos-depth[test]"', test]
    assert [line for line in lines if line in needed] == needed


PROGRAMS = ("", "kosmos", "pip", "python", "python3", ".", "torchrun", "tensorboard", "nox", "sed")


def parse_run(name: str, command: Any, arguments: list[str], registry: Registry) -> None:
    """A command that takes a run file and its fields."""
    context = typer.main.get_command(command.app).make_context(name, arguments)
    overrides, files = split_extra(context.args, command.OPTIONS)
    if files == ["run.yaml"]:  # the reader's own
        return
    if context.params.get("of_steps") is not None:  # of a run of theirs
        assert (len(files), overrides) == (1, [])
        return
    base = read_run_file(Path(files[0]) if Path(files[0]).exists() else ROOT / files[0]) if files else {}
    named = {"modalities": ",".join(context.params["modalities"])} if context.params["modalities"] else {}
    check_run(make_run(base, named, parse_overrides(overrides)).model_dump(), registry, "command line")


def parse_generate(arguments: list[str], registry: Registry) -> None:
    context = typer.main.get_command(generate.app).make_context("generate", arguments)
    overrides, rest = split_fields(context.args)
    make_run(parse_overrides(overrides))
    specs: Any = registry.specs("modality")
    assert generate.read_segments(rest, list(specs), installed=specs) or context.params["data"]


def parse_eval(arguments: list[str], registry: Registry) -> None:
    context = typer.main.get_command(evaluate.app).make_context("eval", arguments)
    overrides, rest = split_extra(context.args, evaluate.OPTIONS)
    assert not rest
    check_run(make_run({"data": {"sources": ["sums"]}}, parse_overrides(overrides)).model_dump(), registry, "eval")


def parse_other(name: str, arguments: list[str], registry: Registry) -> None:
    """Any command, or group of commands, by its own declaration."""
    command: Any = _wrap(name, registry)
    if arguments == ["--help"]:
        assert command.get_help(command.make_context(name, [], resilient_parsing=True))
        return
    context = command.make_context(name, list(arguments))
    if hasattr(command, "commands"):
        _, part, rest = command.resolve_command(context, arguments)
        part.make_context(part.name, rest)


def parse_plugin(arguments: list[str], registry: Registry) -> None:
    parse_other("plugin", arguments, registry)
    verb, name = arguments[:2]
    assert verb == "test" or name == "chess" or check_name(name, registry) is None
    assert verb == "new" or name in {plugin.distribution for plugin in registry.plugins} | {"kosmos-depth"}


def parse_plugins(arguments: list[str], registry: Registry) -> None:
    assert {a for a in arguments if a.startswith("-")} <= set(plugins.FLAGS)
    names = arguments[1:] if arguments[:1] in (["enable"], ["disable"]) else arguments
    assert {a for a in names if not a.startswith("-")} <= {plugin.name for plugin in registry.plugins}
    assert plugins.app


def parse_launch(arguments: list[str], registry: Registry) -> None:
    """Really written, to a folder of its own: nothing is sent anywhere."""
    run_file = next(a for a in arguments if a.endswith(".yaml") and "/" in a)
    check_run(read_run_file(ROOT / run_file), registry, run_file)
    Path(run_file).parent.mkdir(exist_ok=True)
    Path(run_file).write_text((ROOT / run_file).read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["launch", *arguments]) == 0


PARSERS: dict[str, Callable[[list[str], Registry], None]] = {
    "train": partial(parse_run, "train", train),
    "data": partial(parse_run, "data", data),
    "plan": partial(parse_run, "plan", plan),
    "tune": partial(parse_run, "tune", tune),
    "eval": parse_eval,
    "generate": parse_generate,
    "plugin": parse_plugin,
    "plugins": parse_plugins,
    "launch": parse_launch,
}


def test_the_errors_of_the_guide_are_what_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("text", "errors")
    for command, line in re.findall(r"^\$ kosmos (.+)\n(.+)$", block.text, re.MULTILINE):
        assert main(shlex.split(command)) in (2, 3)
        assert capsys.readouterr().err == f"{line}\n"


def test_what_kosmos_data_prints_looks_like_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("text", "data")
    Path("photos").mkdir()
    Image.new("RGB", (32, 32)).save("photos/a.png")
    chat = {
        "conversations": [{"from": "human", "value": "<image>What is this?"}, {"from": "gpt", "value": "A square."}]
    }
    made = [{"image": "a.png", **chat}, {"image": "a.png", "text": "red"}, {"text": "Text alone."}]
    lines = [*({**row, "split": "train"} for row in made), {"text": "Held out.", "split": "test"}]
    Path("photos/rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["data", "--modalities", "image", "--data", "photos"]) == 0
    printed = capsys.readouterr().out
    for part in block.text.split("\n\n"):
        assert part.strip() in printed


def test_the_budget_of_the_page_is_what_the_prices_come_to() -> None:
    (block,) = blocks("text", "budget")
    assert block.text.splitlines() == prices.lines(300_000, 2)
