"""The documentation runs: commands parse, run files load, snippets run, links lead somewhere, the site builds.

The packages that pages hold are in ``test_docs_plugins``.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml

import kosmos
import kosmos.testing
from kosmos import Grid, load_run
from kosmos.cli import _take_plugins, _wrap, main
from kosmos.commands import generate, plugins, train
from kosmos.commands.arguments import split_extra
from kosmos.compose import compose, make_feed, open_sources
from kosmos.config import ComponentConfig, RunConfig, make_run, parse_overrides, read_run_file
from kosmos.data.batch import to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.data.sources import open_source
from kosmos.launch import prices
from kosmos.options import check_options
from kosmos.plugins import Registry, load_plugins
from kosmos.templates import check_name
from kosmos.train.run import train_model
from support.pages import EXAMPLES, PAGES, ROOT, Block, anchors, blocks, prose
from support.pages import registry as registry

POSITIONAL = {"modality": 1, "encoder": 0, "connector": 2, "backbone": 1, "optimizer": 2, "schedule": 2, "tracker": 2}
"""Arguments in front of the options of a kind's factories."""


def test_there_is_something_to_look_at() -> None:
    assert len(PAGES) >= 10
    assert len(EXAMPLES) >= 6
    assert min(len(blocks(language)) for language in ("sh", "yaml", "python", "json")) >= 3
    assert [b.page.name for m in ("train", "test") for b in blocks("", m)] == ["README.md"] * 2


LANGUAGES = {
    "sh": "parsed by the real commands",
    "yaml": "loaded as a run file",
    "python": "run, or part of a package",
    "json": "read as rows",
    "toml": "part of a package",
    "diff": "put into a file of a package",
    "console": "transcripts, of which tests run the commands",
}
TEXTS = (
    "errors", "option errors", "problems", "absence", "budget", "closing table", "transcript", "house", "picture",
)  # fmt: skip
"""Markers of blocks of text. All but the picture are held against something by a test."""
GENERATED = ("commands.md",)
"""Pages that ``make_reference`` makes with blocks."""


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_every_snippet_is_of_a_kind_that_is_checked(block: Block) -> None:
    if block.page.name in GENERATED or block.language in LANGUAGES:
        return
    assert block.marker in (*TEXTS, "train", "test"), f"{block}: what checks this?"


def test_the_table_of_the_tutorial_is_that_of_the_readme_and_of_the_results() -> None:
    tables = {block.text for block in blocks("", "closing table")}
    assert len(tables) == 1
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    for accuracy in re.findall(r"^  \w+ .* ([\d.]+ %)$", tables.pop(), re.MULTILINE):
        assert f"| {accuracy} |" in results


def test_the_house_of_the_design_names_every_part_of_core() -> None:
    (block,) = blocks("text", "house")
    source = ROOT / "packages" / "kosmos-core" / "src" / "kosmos"
    parts = {p.stem for p in source.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    told = set(re.findall(r"\w+", block.text))
    assert parts - told - {"__init__", "__main__"} == set()


@pytest.mark.parametrize("block", blocks("python", "from: "), ids=str)
def test_a_snippet_from_the_code_stands_there(block: Block) -> None:
    lines = [" ".join(line.split()) for line in (ROOT / block.marker.removeprefix("from: ")).read_text().splitlines()]
    wanted = [" ".join(line.split()) for line in block.text.splitlines()]
    assert any(lines[n : n + len(wanted)] == wanted for n in range(len(lines)))


# links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        assert not target.startswith("/"), target
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not target.startswith("http") and (not file.exists() or (anchor and anchor not in anchors(file))):
            broken.append(target)
    assert broken == []


# run files


def check_run(values: Mapping[str, Any], registry: Registry, where: str) -> RunConfig:
    """Load a run file and hold the options of its components against their signatures."""
    config = make_run(values, where=where)
    parts: list[tuple[str, ComponentConfig]] = [
        ("backbone", config.backbone),
        ("optimizer", config.train.optimizer),
        ("schedule", config.train.schedule),
        *(("tracker", t) for t in config.trackers),
        *(("metric", m) for m in config.evaluate.metrics),
        *_stream_parts(config, registry),
        *(
            ("modality", ComponentConfig.model_validate({"name": name, **m.processor}))
            for name, m in config.modalities.items()
        ),
    ]
    for kind, part in parts:
        factory = registry.resolve(kind, part.name)
        check_options(factory, part.options, path=f"{where}: {part.name}", positional=POSITIONAL.get(kind, 0))
    return config


def _stream_parts(config: RunConfig, registry: Registry) -> Iterator[tuple[str, ComponentConfig]]:
    """Encoders and connectors that are stated; without a name they are those of the stream's modality."""
    for name, stream in config.streams.items():
        for kind, part in (("encoder", stream.encoder), ("connector", stream.connector)):
            if part is not None:
                own = part.name or getattr(registry.get("modality", name), kind)
                yield kind, ComponentConfig.model_validate({"name": own, **part.options})


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_loads_and_its_options_exist(file: Path, registry: Registry) -> None:
    check_run(read_run_file(file), registry, file.name)
    assert f"kosmos train examples/{file.name}" in file.read_text(encoding="utf-8")
    assert f"({file.name})" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["image-audio", "video-frames", "mixture"])
def test_an_example_that_runs_as_it_stands_takes_its_first_row(
    name: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    quick = {"data": {"lanes": 1, "look_ahead": 16, "tokens_per_pack": 512}}
    composition = compose(make_run(read_run_file(ROOT / "examples" / f"{name}.yaml"), quick), registry)
    feed = make_feed(composition, open_sources(composition.config, registry, "train"))
    (row,) = open_feeder(feed, [0], workers=0).next_step()
    assert row.incidents == []
    assert composition.model(to_tensors(row.arrays)).total.isfinite()


def test_the_example_of_kosmos_1_is_the_model_of_its_paper(registry: Registry) -> None:
    run = make_run(read_run_file(ROOT / "examples" / "kosmos-1.yaml"), {"tokenizer": "bytes"})
    with torch.device("meta"):
        composition = compose(run, registry)
    backbone: Any = composition.model.backbone
    stream: Any = composition.model.streams["image"]
    others = sum(p.numel() for p in backbone.parameters()) - backbone.vocab_size * backbone.width
    assert round((others + 64_007 * 2_048) / 1e9, 2) == 1.34
    assert (stream.encoder.input.size_px, stream.encoder.input.patch_px) == ((224, 224), (14, 14))
    assert stream.connector.slots(Grid(1, 16, 16)) == 64


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_run_file_of_the_pages_loads_and_its_options_exist(block: Block, registry: Registry) -> None:
    check_run(yaml.safe_load(block.text), registry, str(block))


def test_every_public_name_is_in_the_reference() -> None:
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    public = [f"kosmos.{name}" for name in dir(kosmos) if not name.startswith("__")]
    assert sorted(shown) == sorted([*public, *(f"kosmos.testing.{name}" for name in dir(kosmos.testing))])


@pytest.mark.slow
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the site is built where requirements-docs.txt is installed")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    told = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*.html")]
    assert len(pages) > len(list(ROOT.glob("docs/**/*.md")))
    fetched = [tag for page in pages for tag in re.findall(r"<(?:script|link|img|iframe)[^>]*https?:[^>]*>", page)]
    assert [tag for tag in fetched if 'rel="canonical"' not in tag] == []


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}


def test_the_references_are_what_the_code_says() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
    for name, text in made["references"](load_plugins()).items():
        written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert written == text, f"docs/{name}.md is out of date: run 'python docs/make_reference.py'"


# commands


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
    for file in re.findall(r"\b[\w-]+\.(?:png|flac|csv|fen)\b", line):
        Path(file).touch()
    assert set(_take_plugins(arguments) or ()) <= {plugin.name for plugin in registry.plugins}
    PARSERS.get(name, partial(parse_other, name))(arguments, registry)


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_the_other_lines_of_shell_name_what_is_there(block: Block) -> None:
    made = {tomllib.loads(b.text)["project"]["name"] for b in blocks("toml", "file: pyproject")} | {"kosmos-chess"}
    for line in block.text.splitlines():
        program, *arguments = shlex.split(line, comments=True) or [""]
        assert program in PROGRAMS, f"{block}: {line}"
        for path in [after.partition("[")[0] for word, after in pairwise(arguments) if word == "-e"]:
            assert (ROOT / path).is_dir() or path.removeprefix("./") in made or path == ".", f"{block}: {line}"


PROGRAMS = ("", "kosmos", "pip", "python", "python3", ".", "torchrun", "tensorboard", "nox", "sed")


def parse_train(arguments: list[str], registry: Registry) -> None:
    context = typer.main.get_command(train.app).make_context("train", arguments)
    overrides, files = split_extra(context.args, train.OPTIONS)
    base = read_run_file(Path(files[0]) if Path(files[0]).exists() else ROOT / files[0]) if files else {}
    named = {"modalities": context.params["modalities"]} if context.params["modalities"] else {}
    check_run(make_run(base, named, parse_overrides(overrides)).model_dump(), registry, "command line")


def parse_generate(arguments: list[str], registry: Registry) -> None:
    context = typer.main.get_command(generate.app).make_context("generate", arguments)
    assert generate.read_segments(context.args, list(registry.specs("modality")))


def parse_other(name: str, arguments: list[str], registry: Registry) -> None:
    """Any command, or group of commands, by its own declaration."""
    command: Any = _wrap(name, registry.resolve("command", name))
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
    "train": parse_train,
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


def test_the_budget_of_the_page_is_what_the_prices_come_to() -> None:
    (block,) = blocks("text", "budget")
    assert block.text.splitlines() == prices.lines(300_000, 2)


# snippets


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_snippet_compiles_and_what_it_imports_of_kosmos_is_there(block: Block) -> None:
    tree = ast.parse(block.text, str(block))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kosmos":
            module = importlib.import_module(str(node.module))
            assert [a.name for a in node.names if not hasattr(module, a.name)] == []


SHORTER = {
    '"steps": 300}})': '"steps": 2}, "evaluate": {"max_documents": 8}})',
    '"steps": 300': '"steps": 2',
    '"max_documents": 128': '"max_documents": 8',
    "max_documents=64": "max_documents=8",
    "dtype=saved.dtype)": "dtype=saved.dtype, max_new_tokens=2)",
}
"""What would take long, and what is run in its place."""
PARTS = ("file: ", "put: ", "from: ", "board: ")
"""Begin the markers of blocks that are parts of packages, or of the code."""
AFTER = ("chats", "after a run")
"""Markers of blocks that want a run to be there."""


def run_block(block: Block) -> None:
    code = block.text
    for long, short in SHORTER.items():
        code = code.replace(long, short)
    exec(compile(code, str(block), "exec"), {"__name__": "snippet"})


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a photo."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64), "red").save("photo.png")
    return tmp_path


@pytest.fixture
def with_runs(at_home: Path) -> Path:
    """With a run that has learned from chats, under the names that pages use."""
    asked = {"role": "user", "content": [{"type": "image", "image": "photo.png"}, {"type": "text", "text": "?"}]}
    chat = {"messages": [asked, {"role": "assistant", "content": "red"}]}
    (at_home / "chats.jsonl").write_text(f"{json.dumps(chat)}\n" * 4)
    small = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
    layers = {"data": {"sources": ["chats.jsonl"], "lanes": 1, "workers": 0}, "backbone": small, "trackers": []}
    train_model(make_run(layers, {"modalities": ["image"], "train": {"steps": 1}, "output": "runs/assistant"}))
    shutil.copytree("runs/assistant", "runs/mine")
    return at_home


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_snippet_runs(block: Block, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    if block.marker.startswith(PARTS):
        pytest.skip("part of a package, or of the code: tested as such")
    request.getfixturevalue("with_runs" if block.marker in AFTER else "at_home")
    run_block(block)
    if "print(" in block.text:
        assert capsys.readouterr().out.strip()


def test_a_chat_is_asked_as_the_page_says(with_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["generate", "runs/assistant", "--prompt", "x", "--max-new-tokens", "1"]) == 0
    hint = f"hint: {with_runs / 'chats.jsonl'} holds chats; with --chat the run is asked as they ask\n"
    assert capsys.readouterr().err == hint
    assert main(["generate", "runs/assistant", "--chat", "--prompt", "x", "--max-new-tokens", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_the_weights_of_a_run_are_one_file_as_the_page_says(with_runs: Path) -> None:
    from safetensors.torch import load_file

    (block,) = [b for b in blocks("python", "after a run") if "save_model" in b.text]
    run_block(block)
    kept, model = load_file(with_runs / "model.safetensors"), load_run(Path("runs/mine")).composition.model
    assert set(kept) <= set(model.state_dict())
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in kept.items())


@pytest.mark.parametrize("block", blocks("json", "rows"), ids=str)
def test_the_rows_of_the_guide_are_documents(block: Block, tmp_path: Path) -> None:
    for name in re.findall(r'"([\w/]+\.(?:png|jpg|flac))"', block.text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"medium")
    (tmp_path / "rows.jsonl").write_text(block.text, encoding="utf-8")
    rows = [json.loads(line) for line in block.text.splitlines()]
    path, known = str(tmp_path / "rows.jsonl"), ("image", "audio")
    parts = [open_source(path, split=s, registry=load_plugins(), modalities=known) for s in _splits(rows)]
    documents = [part.document(i) for part in parts for i in range(len(part))]
    assert len(documents) == len(rows)
    assert all(any(getattr(segment, "train", False) for segment in d.segments) for d in documents)


def _splits(rows: list[Any]) -> list[Any]:
    return ["train", "held_out"] if len(rows) > 1 else ["train"]
