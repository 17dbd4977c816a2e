"""The example plugins are distributions of their own, which need nothing of Kosmos but what is public."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command import environment, kosmos
from support.pages import ROOT

PLUGINS = ROOT / "examples" / "plugins"
NAMES = ("kosmos-pointcloud", "kosmos-sketch", "kosmos-timeseries")
PUBLIC = {"kosmos", "kosmos.testing"}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_all_are_looked_at(installed: dict[str, Path]) -> None:
    assert tuple(installed) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_imports_only_what_is_public(name: str) -> None:
    files = [*PLUGINS.glob(f"{name}/src/**/*.py"), *PLUGINS.glob(f"{name}/tests/*.py")]
    found = {module for file in files for module in imported(file) if module.partition(".")[0] == "kosmos"}
    assert found == PUBLIC


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_states_what_it_needs_and_its_licence(name: str) -> None:
    project = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert (PLUGINS / name / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert "kosmos-core>=26.11" in project["dependencies"]
    assert project["entry-points"]["kosmos"] == {name.partition("-")[2]: f"{name.replace('-', '_')}.plugin"}


def test_the_core_and_our_packages_know_none() -> None:
    files = [file for file in ROOT.glob("packages/*/src/**/*") if file.suffix in (".py", ".json", ".md")]
    assert len(files) > 100
    assert [str(f) for f in files for n in NAMES if n in (t := f.read_text()) or n.replace("-", "_") in t] == []


@pytest.mark.parametrize("name", NAMES)
def test_kosmos_lists_a_plugin_without_a_problem(name: str, path: list[Path]) -> None:
    modality = name.partition("-")[2]
    done = kosmos("plugins", modality, path=path)
    assert done.returncode == 0, done.stderr
    assert f"{modality} ({name} 0.1)" in done.stdout
    assert f"modality {modality}" in done.stdout
    assert "problem" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_plugins_own_tests_pass_and_the_conformance_kit_is_among_them(
    name: str, installed: dict[str, Path], path: list[Path]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "tests"],
        cwd=installed[name],
        env=environment(path),
        timeout=600,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    for promise in (
        "hostile-input",
        "packed-equals-alone",
        "no-leak",
        "zero-length",
        "two-ranks",
        "gradient-everywhere",
    ):
        assert f"/{promise}]" in done.stdout
    passed = [line for line in done.stdout.splitlines() if line.startswith("PASSED tests/test_conformance.py")]
    assert len(passed) > 30
