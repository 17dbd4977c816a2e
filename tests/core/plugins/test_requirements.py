"""``kosmos plugins`` names what a plugin's distribution requires and lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import kosmos
from kosmos.commands.plugins import as_dict, checked, detail, plain_table
from kosmos.plugins import PluginRecord, load_plugins
from kosmos.requirements import unmet

Install = Callable[..., None]


def require(site: Path, *requirements: str) -> None:
    with (site / "acme_sonar-1.2.dist-info" / "METADATA").open("a") as metadata:
        metadata.writelines(f"Requires-Dist: {text}\n" for text in requirements)


def sonar() -> PluginRecord:
    return next(plugin for plugin in load_plugins(only=["sonar"]).plugins if plugin.name == "sonar")


def test_what_is_absent_or_of_another_version_is_a_problem(install: Install, site: Path) -> None:
    install("sonar", "")
    require(site, "pluggy>=1", "nowhere-at-all>=2,<3", "numpy>=999", "kosmos-core>=99.1")
    wrong = checked(sonar()).problems
    numpy = wrong[1].split("and ")[1].split()[0]
    assert wrong == (
        "requires nowhere-at-all<3,>=2, which is not installed: pip install 'nowhere-at-all<3,>=2'",
        f"requires numpy>=999, and {numpy} is installed: pip install 'numpy>=999'",
        f"requires kosmos-core>=99.1, and {kosmos.__version__} is installed: pip install 'kosmos-core>=99.1', from "
        "where kosmos-core came",
    )
    assert as_dict(checked(sonar()))["problems"] == list(wrong)
    assert detail(checked(sonar()))[1:] == [f"  problem: {line}" for line in wrong]
    table = plain_table(load_plugins(only=["sonar"]))
    assert table[-3:] == [f"problem: sonar (acme-sonar 1.2): {line}" for line in wrong]


def test_what_only_an_extra_or_another_system_requires_is_none(install: Install, site: Path) -> None:
    install("sonar", "")
    require(
        site, 'nowhere-at-all; extra == "fast"', 'nowhere-at-all; sys_platform == "plan9"', "no requirement at all !"
    )
    assert checked(sonar()).problems == ()


def test_the_command_prints_them_as_json(install: Install, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kosmos import cli, plugins

    install("sonar", "")
    require(site, "nowhere-at-all")
    plugins._load_once.cache_clear()
    assert cli.main(["plugins", "sonar", "--json"]) == 0
    plugins._load_once.cache_clear()
    assert "nowhere-at-all" in json.loads(capsys.readouterr().out)["plugins"][0]["problems"][0]


@pytest.mark.parametrize(
    "name", ["kosmos-core", "kosmos-vision", "kosmos-audio", "kosmos-video", "no-such-distribution"]
)
def test_our_packages_lack_nothing_here(name: str) -> None:
    assert unmet(name) == []
