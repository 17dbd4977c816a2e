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
    wrong = checked([sonar()])[0].problems
    numpy = wrong[1].split("and ")[1].split()[0]
    assert wrong == (
        "requires nowhere-at-all<3,>=2, which is not installed: pip install 'nowhere-at-all<3,>=2'",
        f"requires numpy>=999, and {numpy} is installed: pip install 'numpy>=999'",
        f"requires kosmos-core>=99.1, and {kosmos.__version__} is installed: pip install 'kosmos-core>=99.1', from "
        "where kosmos-core came",
    )
    assert as_dict(checked([sonar()])[0])["problems"] == list(wrong)
    assert detail(checked([sonar()])[0])[1:] == [f"  problem: {line}" for line in wrong]
    table = plain_table(load_plugins(only=["sonar"]))
    assert table[-3:] == [f"problem: sonar (acme-sonar 1.2): {line}" for line in wrong]


def test_what_only_an_extra_or_another_system_requires_is_none(install: Install, site: Path) -> None:
    install("sonar", "")
    require(
        site, 'nowhere-at-all; extra == "fast"', 'nowhere-at-all; sys_platform == "plan9"', "no requirement at all !"
    )
    assert checked([sonar()])[0].problems == ()


def test_a_version_of_before_pep_440_fits_where_any_does_or_it_is_named(install: Install, site: Path) -> None:
    install("sonar", "")
    install("echo", "", version="2.0-custom_build")
    require(site, "acme-echo", "acme-echo===2.0-custom_build", "acme-echo>=1")
    assert unmet("acme-sonar") == [
        "requires acme-echo>=1, and 2.0-custom_build is installed: pip install 'acme-echo>=1'"
    ]


def test_only_our_own_packages_come_from_where_core_came(install: Install, site: Path) -> None:
    install("sonar", "")
    require(site, "kosmos-nowhere", "Kosmos_Vision>=999", "kosmos_core>=999")
    other, ours, core = unmet("acme-sonar")
    assert other == "requires kosmos-nowhere, which is not installed: pip install 'kosmos-nowhere'"
    assert ours.endswith(", from where kosmos-core came") and core.endswith(", from where kosmos-core came")
    assert f"and {kosmos.__version__} is installed" in core


def test_what_a_distribution_of_two_plugins_lacks_is_one_line_and_stands_with_both(install: Install, site) -> None:
    install("sonar", "", value="acme_sonar\nradar = acme_sonar")
    require(site, "nowhere-at-all")
    registry = load_plugins(only=["sonar", "radar"])
    assert sum(line.startswith("problem") and "nowhere-at-all" in line for line in plain_table(registry)) == 1
    both = [plugin for plugin in checked(registry.plugins) if plugin.distribution == "acme-sonar"]
    assert ["nowhere-at-all" in str(plugin.problems) for plugin in both] == [True, True]


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
