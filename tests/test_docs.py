"""The documentation: links lead somewhere, run files load, references are fresh, the site builds.

Its commands are in ``test_docs_commands``, its snippets in ``test_docs_snippets``, the packages that pages hold in
``test_docs_plugins``.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import pytest
import torch
import yaml
from pydantic import BaseModel

import kosmos
import kosmos.testing
from kosmos import Grid
from kosmos.compose import compose, make_feed
from kosmos.config import RunConfig
from kosmos.data.batch import to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.data.sources.template import parse_template
from kosmos.plugins import Registry, load_plugins
from kosmos.run_file import make_run, read_run_file
from kosmos.run_sources import open_sources
from support.pages import EXAMPLES, PAGES, ROOT, Block, anchors, blocks, prose
from support.pages import registry as registry
from support.run_files import check_run


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
    "errors", "option errors", "problems", "absence", "budget", "data", "closing table", "transcript", "house",
    "picture", "dist-info", "against", "corpus: proverbs/english.prov", "corpus: texts/proverbs.jsonl",
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
    found = re.findall(r"^source \w+ .* ([\d.]+ %)$", tables.pop(), re.MULTILINE)
    assert len(found) == 2
    for accuracy in found:
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


# templates


def test_a_template_in_the_text_of_the_pages_can_be_used(registry: Registry) -> None:
    templates = [t for page in PAGES for t in re.findall(r'`"([^`"]*→[^`"]*)"`', prose(page))]
    assert len(templates) >= 2
    for template in templates:
        parse_template(template, list(registry.specs("modality")), {})


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


def is_a_field(path: str) -> bool:
    """Whether a run file may have it: names of modalities and streams, numbers of sources and options are free."""
    kind: Any = RunConfig
    for name in path.split("."):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if name not in kind.model_fields:
                return kind.model_config.get("extra") == "allow"
            kind = kind.model_fields[name].annotation
        elif get_origin(kind) is dict or (get_origin(kind) is list and name.isdecimal()):
            kind = get_args(kind)[-1]
        else:
            return kind is Any
        held = [part for part in get_args(kind) if part is not NoneType]
        kind = held[0] if len(held) == 1 and get_origin(kind) is UnionType else kind
    return True


@pytest.mark.parametrize(
    ("paths", "are_fields"),
    [
        ("train.steps backbone.depth data.sources.0.path data.cells_per_pack.image plugins.0", True),
        ("streams.image.encoder.patch_size modalities.image.processor.resize.method", True),
        ("train.step modalities.image.size streams.image.bogus data.sources.0.bogus", False),
        ("train.steps.bogus data.lanes.x backbone.freeze.z output.x data.sources.bogus", False),
    ],
)
def test_fields_of_a_run_file_are_told_from_others(paths: str, are_fields: bool) -> None:
    assert [path for path in paths.split() if is_a_field(path) is not are_fields] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_fields_that_the_text_of_a_page_names_are_there(page: Path) -> None:
    known = "|".join(RunConfig.model_fields)
    named = re.findall(rf"`((?:{known})(?:\.[A-Za-z0-9_]+)+)(?:=[^`]*)?`", prose(page))
    assert [path for path in named if not path.endswith((".py", ".json")) and not is_a_field(path)] == []


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


def test_the_inputs_of_encoders_are_where_the_page_says() -> None:
    page = (ROOT / "docs" / "how-to" / "own-encoder.md").read_text(encoding="utf-8")
    named = re.findall(r"`(kosmos_\w+)\.(\w+Input)`", page)
    assert len(named) == 3
    for package, name in named:
        assert isinstance(getattr(importlib.import_module(package), name), type)


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
