"""The pages of the documentation, their code blocks, and the packages that they hold.

What a block is for stands in a comment in front of it: ``<!-- file: run.yaml -->`` is a file of the page's package,
``<!-- put: module.py Class.method -->`` takes the place of a definition, others are named by the tests that use them.
"""

from __future__ import annotations

import ast
import atexit
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from textwrap import dedent, indent

import pytest

from kosmos.hookspecs import GROUP
from kosmos.plugins import Registry, load_core, load_plugins
from kosmos.templates import make_plugin

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("", "docs/", "docs/*/", "examples/", "examples/plugins/", "packages/*/")
PAGES = sorted(file for folder in FOLDERS for file in ROOT.glob(f"{folder}*.md"))
EXAMPLES = sorted(ROOT.glob("examples/*.yaml"))
KINDS = ROOT / "docs" / "plugins"
"""A page for each kind of component, with a package."""
GUIDE = ROOT / "docs" / "plugins.md"
"""It changes what ``kosmos plugin new`` writes."""


@dataclass(frozen=True)
class Block:
    """A code block of a page, and the comment in front of it."""

    page: Path
    line: int
    marker: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def _blocks_of(page: Path) -> tuple[Block, ...]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^(?:<!-- (.+?) -->\n+)?```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return tuple(Block(page, text.count("\n", 0, m.start()) + 1, m[1] or "", m[2], dedent(m[3])) for m in found)


def blocks(language: str = "", marker: str = "", page: Path | None = None) -> list[Block]:
    """The blocks of a page, or of all, in a language, or behind a marker."""
    every = [block for p in ([page] if page else PAGES) for block in _blocks_of(p)]
    return [b for b in every if (b.language == language or not language) and b.marker.startswith(marker)]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked by, as GitHub makes it."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def kinds_with_a_page() -> list[str]:
    return sorted(page.stem for page in KINDS.glob("*.md"))


def write_files(page: Path, folder: Path) -> Path:
    """The files that a page holds, an empty ``__init__.py`` in each package of it, and what it puts into others."""
    for block in blocks("", "file: ", page):
        file = folder / block.marker.removeprefix("file: ")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    for package in folder.glob("src/*/"):
        (package / "__init__.py").touch()
    for block in blocks("python", "put: ", page):
        path, name = block.marker.removeprefix("put: ").split()
        put(folder / path, name, block.text)
    return folder


def put(file: Path, name: str, text: str) -> None:
    """Put ``text`` in the place of the definition ``name`` (``Class.method``) of a module."""
    source = file.read_text(encoding="utf-8")
    node: ast.AST = ast.parse(source)
    for part in name.split("."):
        node = next(child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == part)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    lines = source.splitlines(keepends=True)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    lines[first - 1 : node.end_lineno] = [indent(text, " " * node.col_offset)]
    file.write_text("".join(lines), encoding="utf-8")


def install(package: Path, site: Path) -> None:
    """Build the wheel of a package and unpack it, which is what pip does with it."""
    with tempfile.TemporaryDirectory() as wheels:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
        done = subprocess.run(build, cwd=package, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (wheel,) = Path(wheels).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)


@cache
def installed_pages() -> tuple[Path, Path]:
    """(folder of the packages that pages hold, folder in which they and those of the examples are installed)."""
    folder = Path(tempfile.mkdtemp(prefix="kosmos-pages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for kind in kinds_with_a_page():
        install(write_files(KINDS / f"{kind}.md", folder / kind), folder / "site")
    install(change(make_plugin("chess", folder, ask=False, registry=load_core())), folder / "site")
    for example in ROOT.glob("examples/plugins/*/"):
        install(example, folder / "site")
    return folder, folder / "site"


def change(package: Path) -> Path:
    """Do to a new package what the guide says."""
    write_files(GUIDE, package)
    for block in blocks("sh", "sed", GUIDE):
        subprocess.run(block.text, shell=True, cwd=package, check=True)
    return package


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """What is installed, with the packages of the pages, found by their entry points."""
    load_plugins()  # kept from here on, so that no other test meets these packages among the installed ones
    folder, site = installed_pages()
    before = set(sys.modules)
    sys.path.insert(0, str(site))
    installed = [plugin.name for plugin in load_plugins().plugins if plugin.name != "core"]
    found = load_plugins(only=sorted({*installed, *plugins_of(site)}))
    assert [plugin.problems for plugin in found.plugins if plugin.problems] == []
    yield found
    sys.path.remove(str(site))
    for name in set(sys.modules) - before:
        if (file := getattr(sys.modules[name], "__file__", None)) and file.startswith(str(folder)):
            del sys.modules[name]


def plugins_of(site: Path) -> list[str]:
    """Names of the plugins that are installed in a folder."""
    return [point.name for found in distributions(path=[str(site)]) for point in found.entry_points.select(group=GROUP)]
