"""A hook of mkdocs: files of the repository that pages link to become pages of the site.

On GitHub a link such as ``../packages/kosmos-core/src/kosmos/cli.py`` leads to the file. The site has no such file, and
is to be read without a network: the file is shown on a page of its own under ``source/``, Markdown as Markdown.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FOLDER = "source"
LINK = re.compile(r"(?<=\]\()([^)\s#]+)((?:#[^)\s]*)?)(?=\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file that is linked, and for those that these link to."""
    waiting = list(DOCS.rglob("*.md"))
    added: set[Path] = set()
    while waiting:
        for linked in _linked(waiting.pop()):
            if linked not in added:
                added.add(linked)
                waiting += [linked] if linked.suffix == ".md" else []
                files.append(File.generated(config, _uri(linked), content=_page(linked)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead the links of a page to the pages of the files."""
    uri: str = page.file.src_uri
    own = ROOT / uri.removeprefix(f"{FOLDER}/").removesuffix(".md") if _is_source(uri) else DOCS / uri
    here = posixpath.dirname(uri)

    def lead(match: re.Match[str]) -> str:
        target = _resolve(own, match[1])
        if target is None:
            return match[0]
        return posixpath.relpath(_uri(target), here) + match[2]

    return LINK.sub(lead, markdown) if own.suffix == ".md" else markdown


def _linked(page: Path) -> Iterator[Path]:
    """The files outside docs/ that a page links to."""
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        target = _resolve(page, match[1])
        if target is not None and not target.is_relative_to(DOCS):
            yield target


def _resolve(page: Path, link: str) -> Path | None:
    """The file of the repository that a link names; None where it is an address, or nothing is there."""
    if "://" in link:
        return None
    target = Path(os.path.normpath(page.parent / link))
    return target if target.is_file() and target.is_relative_to(ROOT) else None


def _is_source(uri: str) -> bool:
    return uri.startswith(f"{FOLDER}/")


def _uri(file: Path) -> str:
    """Where the site has a file."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    return f"{FOLDER}/{file.relative_to(ROOT).as_posix()}.md"


def _page(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    title = file.relative_to(ROOT).as_posix()
    language = LANGUAGES.get(file.suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {title}\n\n~~~~~{language}\n{text}\n~~~~~\n"
