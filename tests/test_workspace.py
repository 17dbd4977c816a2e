"""What the files at the top of the repository promise to each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import kosmos

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = {
    path.parent.name: tomllib.loads(path.read_text())["project"] for path in ROOT.glob("packages/*/pyproject.toml")
}


def command(name: str) -> str:
    """The code block after ``<!-- name -->`` in the README."""
    found = re.search(rf"<!-- {name} -->\n+```[a-z]*\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found, f"README.md has no code block after <!-- {name} -->"
    return found[1]


def test_the_readme_tests_in_one_line_which_installs_every_package() -> None:
    line = command("test")
    assert "\n" not in line
    assert all(f"-e packages/{name}" in line for name in PROJECTS)
    assert line.endswith("-m pytest -n 2 --dist loadfile")


@pytest.mark.parametrize("name", PROJECTS)
def test_every_package_has_the_version_of_core_and_one_licence(name: str) -> None:
    if name == "kosmos-core":
        assert PROJECTS[name]["dynamic"] == ["version"]  # which is in the code alone
    else:
        assert PROJECTS[name]["version"] == kosmos.__version__
    assert PROJECTS[name]["license"] == "Apache-2.0"
    assert (ROOT / "packages" / name / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("name", PROJECTS)
def test_the_readme_of_a_package_has_no_link_into_the_repository_which_a_wheel_has_not(name: str) -> None:
    text = (ROOT / "packages" / name / PROJECTS[name]["readme"]).read_text()
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []


@pytest.mark.parametrize("name", [name for name in PROJECTS if name != "kosmos-core"])
def test_a_plugin_cannot_be_satisfied_by_the_unrelated_kosmos_core_of_the_registry(name: str) -> None:
    assert "kosmos-core>=26.11" in PROJECTS[name]["dependencies"]


def test_the_pinned_torch_is_one_that_core_allows() -> None:
    assert "torch>=2.11,<2.15" in PROJECTS["kosmos-core"]["dependencies"]
    assert re.search(r"^torch==2\.1[1-4]\.", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
