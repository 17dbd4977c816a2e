"""The pages of the documentation, their code blocks, and the package that the plugin guide holds."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([ROOT / "README.md", *(f for d in ("docs", "examples", "packages/*") for f in ROOT.glob(f"{d}/*.md"))])
EXAMPLES = sorted(ROOT.glob("examples/*.yaml"))


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


def blocks(language: str = "", marker: str = "") -> list[Block]:
    """The blocks of all pages in a language, or behind a marker."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^(?:<!-- (.+?) -->\n+)?```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(page, line, match[1] or "", match[2], match[3]))
    return [b for b in found if (b.language == language or not language) and b.marker.startswith(marker)]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked by, as GitHub makes it."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def write_package(folder: Path) -> None:
    """The files of the plugin guide, and in ``src`` what pip would add so that the entry point is found."""
    for block in blocks("", "file: "):
        file = folder / block.marker.removeprefix("file: ")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text, encoding="utf-8")
    (folder / "src" / "kosmos_series" / "__init__.py").touch()
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / "src" / f"kosmos_series-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"]["kosmos"].items())
    (info / "entry_points.txt").write_text(f"[kosmos]\n{points}")
