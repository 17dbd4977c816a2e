"""The example plugins, found as installed distributions are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.made import add_metadata
from support.pages import ROOT

PLUGINS = ROOT / "examples" / "plugins"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name to a copy of each package, with what pip would add to its ``src``."""
    folder = tmp_path_factory.mktemp("plugins")
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    names = sorted(file.parent.name for file in PLUGINS.glob("*/pyproject.toml"))
    copies = {name: Path(shutil.copytree(PLUGINS / name, folder / name, ignore=ignore)) for name in names}
    for package in copies.values():
        add_metadata(package)
    return copies


@pytest.fixture(scope="session")
def path(installed: dict[str, Path]) -> list[Path]:
    """What has to be importable."""
    return [package / "src" for package in installed.values()]
