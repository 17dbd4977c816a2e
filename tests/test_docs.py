"""The documentation runs: commands parse, run files load, links lead somewhere, and the plugin of the guide trains."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
import yaml

from kosmos import Grid
from kosmos.cli import _take_plugins, main
from kosmos.commands import evaluate, generate, plugins, report, tokenizer, train
from kosmos.commands.arguments import split_extra
from kosmos.compose import compose, make_feed, open_sources
from kosmos.config import ComponentConfig, RunConfig, make_run, parse_overrides, read_run_file
from kosmos.data.batch import to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.data.sources import open_source
from kosmos.launch import prices
from kosmos.options import check_options
from kosmos.plugins import Registry, load_plugins
from kosmos.train.run import train_model
from support.pages import EXAMPLES, PAGES, ROOT, Block, anchors, blocks, prose, write_package

POSITIONAL = {"modality": 1, "encoder": 0, "connector": 2, "backbone": 1, "optimizer": 2, "schedule": 2, "tracker": 2}
"""Arguments in front of the options of a kind's factories."""


def test_there_is_something_to_look_at() -> None:
    assert len(PAGES) >= 10
    assert len(EXAMPLES) >= 6
    assert min(len(blocks(language)) for language in ("sh", "yaml", "python", "json")) >= 3
    assert [b.page.name for m in ("train", "test", "closing table") for b in blocks("", m)] == ["README.md"] * 3


# links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
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
def test_an_example_loads_and_its_options_exist(file: Path, series: Registry) -> None:
    check_run(read_run_file(file), series, file.name)
    assert f"kosmos train examples/{file.name}" in file.read_text(encoding="utf-8")
    assert f"({file.name})" in (ROOT / "examples" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["image-audio", "video-frames", "mixture"])
def test_an_example_that_runs_as_it_stands_takes_its_first_row(
    name: str, series: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    quick = {"data": {"lanes": 1, "look_ahead": 16, "tokens_per_pack": 512}}
    composition = compose(make_run(read_run_file(ROOT / "examples" / f"{name}.yaml"), quick), series)
    feed = make_feed(composition, open_sources(composition.config, series, "train"))
    (row,) = open_feeder(feed, [0], workers=0).next_step()
    assert row.incidents == []
    assert composition.model(to_tensors(row.arrays)).total.isfinite()


def test_the_example_of_kosmos_1_is_the_model_of_its_paper(series: Registry) -> None:
    run = make_run(read_run_file(ROOT / "examples" / "kosmos-1.yaml"), {"tokenizer": "bytes"})
    with torch.device("meta"):
        composition = compose(run, series)
    backbone: Any = composition.model.backbone
    stream: Any = composition.model.streams["image"]
    others = sum(p.numel() for p in backbone.parameters()) - backbone.vocab_size * backbone.width
    assert round((others + 64_007 * 2_048) / 1e9, 2) == 1.34
    assert (stream.encoder.input.size_px, stream.encoder.input.patch_px) == ((224, 224), (14, 14))
    assert stream.connector.slots(Grid(1, 16, 16)) == 64


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_run_file_of_the_pages_loads_and_its_options_exist(block: Block, series: Registry) -> None:
    check_run(yaml.safe_load(block.text), series, str(block))


def test_the_references_are_what_the_code_says() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
    texts = {"run-file": made["run_file_reference"](), "components": made["components_reference"](load_plugins())}
    for name, text in texts.items():
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
    where: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, series: Registry
) -> None:
    name, *arguments = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    for file in re.findall(r"\b[\w-]+\.(?:png|flac|csv)\b", line):
        Path(file).touch()
    assert set(_take_plugins(arguments) or ()) <= {plugin.name for plugin in series.plugins}
    PARSERS[name](arguments, series)


def parse_train(arguments: list[str], registry: Registry) -> None:
    context = typer.main.get_command(train.app).make_context("train", arguments)
    overrides, files = split_extra(context.args, train.OPTIONS)
    base = read_run_file(ROOT / files[0]) if files else {}
    named = {"modalities": context.params["modalities"]} if context.params["modalities"] else {}
    check_run(make_run(base, named, parse_overrides(overrides)).model_dump(), registry, "command line")


def parse_generate(arguments: list[str], registry: Registry) -> None:
    context = typer.main.get_command(generate.app).make_context("generate", arguments)
    assert generate.read_segments(context.args, list(registry.specs("modality")))


def parse_eval(arguments: list[str], registry: Registry) -> None:
    app = typer.Typer()
    app.command("eval")(evaluate.evaluate)
    typer.main.get_command(app).make_context("eval", arguments)


def parse_tokenizer(arguments: list[str], registry: Registry) -> None:
    group: Any = typer.main.get_command(tokenizer.app)
    _, command, rest = group.resolve_command(group.make_context("tokenizer", arguments), arguments)
    command.make_context("train", rest)


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


def parse_report(arguments: list[str], registry: Registry) -> None:
    app = typer.Typer()
    app.command("report")(report.report)
    typer.main.get_command(app).make_context("report", arguments)


PARSERS: dict[str, Callable[[list[str], Registry], None]] = {
    "train": parse_train,
    "eval": parse_eval,
    "generate": parse_generate,
    "tokenizer": parse_tokenizer,
    "plugins": parse_plugins,
    "launch": parse_launch,
    "report": parse_report,
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


def test_the_python_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64), "red").save("photo.png")
    (block,) = [b for b in blocks("python") if b.page.name == "guide.md" and not b.marker]
    shorter = {'"steps": 300': '"steps": 2', '"max_documents": 128': '"max_documents": 8', "=64": "=8"}
    code = block.text
    for long, short in shorter.items():
        assert long in code
        code = code.replace(long, short)
    exec(compile(code, str(block), "exec"), {})
    assert capsys.readouterr().out.startswith("runs/image-001 0.0\n")


def test_the_chats_of_the_guide_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64), "red").save("photo.png")
    asked = {"role": "user", "content": [{"type": "image", "image": "photo.png"}, {"type": "text", "text": "?"}]}
    chat = {"messages": [asked, {"role": "assistant", "content": "red"}]}
    (tmp_path / "chats.jsonl").write_text(f"{json.dumps(chat)}\n" * 4)
    small = {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48}
    layers = {"data": {"sources": ["chats.jsonl"], "lanes": 1, "workers": 0}, "backbone": small, "trackers": []}
    train_model(make_run(layers, {"modalities": ["image"], "train": {"steps": 1}, "output": "runs/assistant"}))
    (block,) = blocks("python", "chats")
    exec(compile(block.text.replace("dtype=", "max_new_tokens=2, dtype="), str(block), "exec"), {})
    assert capsys.readouterr().out.endswith("\n")
    assert main(["generate", "runs/assistant", "--prompt", "x", "--max-new-tokens", "1"]) == 0
    hint = f"hint: {tmp_path / 'chats.jsonl'} holds chats; with --chat the run is asked as they ask\n"
    assert capsys.readouterr().err == hint
    assert main(["generate", "runs/assistant", "--chat", "--prompt", "x", "--max-new-tokens", "1"]) == 0
    assert capsys.readouterr().err == ""


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


# the plugin of the guide


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The plugin of docs/plugins.md as its blocks say it, installed as pip would: on the path, with an entry point."""
    load_plugins()  # kept from here on, so that no other test meets this package among the installed ones
    folder = tmp_path_factory.mktemp("kosmos-series")
    write_package(folder)
    sys.path.insert(0, str(folder / "src"))
    yield folder
    sys.path.remove(str(folder / "src"))
    for name in [name for name in sys.modules if name.split(".")[0] == "kosmos_series"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def series(package: Path) -> Registry:
    """The installed plugins and that of the guide, found by its entry point."""
    registry = load_plugins(only=["audio", "series", "video", "vision"])
    assert [plugin.problems for plugin in registry.plugins if plugin.problems] == []
    return registry


def test_the_plugin_of_the_guide_trains(series: Registry, tmp_path: Path) -> None:
    run = make_run(
        {
            "modalities": ["series"],
            "streams": {"series": {"encoder": {"name": "series", "width": 16, "heads": 2}}},
            "data": {"tokens_per_pack": 256, "look_ahead": 16, "workers": 0},
            "backbone": {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
            "train": {"steps": 3},
            "evaluate": {"max_documents": 16},
            "output": str(tmp_path / "run"),
            "trackers": [],
        }
    )
    result = train_model(run, registry=series)
    assert result.after is not None
    assert result.before is not None
    assert result.after.by_modality["series"].loss < result.before.by_modality["series"].loss
    assert (tmp_path / "run" / "quarantine.jsonl").read_text() == ""


def test_the_smaller_components_of_the_guide_train(package: Path, tmp_path: Path, capsys: Any) -> None:
    modules = {"series": "kosmos_series.plugin", "more": "kosmos_series.more"}
    registry = Registry.from_modules(modules)
    assert [plugin.problems for plugin in registry.plugins if plugin.problems] == []
    run = make_run(
        {
            "modalities": ["series"],
            "streams": {"series": {"connector": "mean"}},
            "data": {"tokens_per_pack": 128, "lanes": 1, "look_ahead": 8, "workers": 0},
            "backbone": {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
            "train": {"steps": 3, "optimizer": "sgd", "schedule": {"name": "stairs", "levels": 2}},
            "evaluate": {"max_documents": 4},
            "output": str(tmp_path / "run"),
            "trackers": ["csv"],
            "observers": [{"name": "alarm", "above": 0.0}],
        }
    )
    train_model(run, registry=registry)
    assert len((tmp_path / "run" / "loss.csv").read_text().splitlines()) == 3
    assert capsys.readouterr().out.startswith("step 1: loss ")
    assert registry.build("metric", "first_word")(["a b", "c"], ["a x", "d"]) == 0.5
    registry.resolve("command", "ramps")(2)
    assert capsys.readouterr().out.count("series") == 2


def test_the_tests_of_the_plugin_of_the_guide_pass(package: Path) -> None:
    paths = {"PYTHONPATH": str(package / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "tests")]
    done = subprocess.run(
        command, env={**os.environ, **paths}, cwd=package, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_planning_with_the_plugin_of_the_guide_imports_no_torch(package: Path) -> None:
    script = (
        "import sys, kosmos_series.plugin, kosmos_series.series, kosmos_series.samples; print('torch' in sys.modules)"
    )
    paths = {"PYTHONPATH": str(package / "src")}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **paths}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_file_of_the_kind_of_the_guide_can_be_generated_from(series: Registry, tmp_path: Path) -> None:
    (tmp_path / "measurements.csv").write_text("1\n2\n3\n")
    encoder = series.build("encoder", "series")
    processor = series.build("modality", "series", encoder.input)
    (media,) = generate.read_segments(["--series", str(tmp_path / "measurements.csv")], ["series"])
    cells = processor.decode(media, processor.plan(media))
    assert cells.tolist() == [[1, 2, 3, 0, 0, 0, 0, 0]]
    assert cells.dtype == np.float32
