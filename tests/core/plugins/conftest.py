"""Plugins made of source text, and installed distributions made of two files."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

Install = Callable[..., None]
Write = Callable[[str, str], ModuleType]

HEAD = """
from kosmos.components import *
from kosmos.hookspecs import hookimpl
KOSMOS_API = 1
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    """``install("sonar", source)``: the distribution ``acme-sonar`` 1.2 with the plugin ``sonar``."""

    def put(
        name: str, source: str, *, head: str = HEAD, point: str = "", value: str = "", version: str = "1.2"
    ) -> None:
        (site / f"acme_{name}.py").write_text(head + dedent(source))
        info = site / f"acme_{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[kosmos]\n{point or name} = {value or f'acme_{name}'}\n")
        sys.modules.pop(f"acme_{name}", None)
        importlib.invalidate_caches()

    return put


@pytest.fixture
def write(site: Path) -> Write:
    """``write("sonar", source)``: a plugin module that no distribution brings, imported."""

    def put(name: str, source: str) -> ModuleType:
        (site / f"{name}.py").write_text(HEAD + dedent(source))
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return put
