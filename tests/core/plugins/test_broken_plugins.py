"""A broken plugin is named with its version and cause in one line, and breaks nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import typer

from kosmos.cli import GLOBAL_OPTIONS
from kosmos.commands import chat, generate, train
from kosmos.components import API_VERSION
from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.file_column import FILE_NAME
from kosmos.data.sources.file_names import ALIKE
from kosmos.data.sources.folders import DATA
from kosmos.data.sources.layouts import ROLES
from kosmos.discovery import DATA_SUFFIXES, OPTIONS, ROW_KEYS, PluginRecord
from kosmos.errors import ConfigError, PluginError
from kosmos.plugins import Registry, load_plugins
from kosmos.train.flops import BACKBONE, HEAD

Install = Callable[..., None]

HOOK = "@hookimpl\ndef kosmos_encoders(): "
MODALITY = "@hookimpl\ndef kosmos_modalities(): yield ModalitySpec(name='{}', target='a:b', summary='', encoder='c')"
HEALTHY = (
    f"{HOOK}yield EncoderSpec(name='healthy', target='acme_healthy:make', summary='One.')\n"
    "class make: input = width = forward = 7"
)
OURS = f"kosmos-core 26.11.0 has version {API_VERSION}"

BROKEN: dict[str, tuple[str, str]] = {
    "absent": ("import acme_lost", "cannot be imported: ModuleNotFoundError: No module named 'acme_lost'"),
    "leaves": ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
    "syntax": ("def broken(:", "cannot be imported: SyntaxError: invalid syntax"),
    "raises": ("raise RuntimeError('no\\n licence')", "cannot be imported: RuntimeError: no licence"),
    "unversioned": ("del KOSMOS_API", f"states no KOSMOS_API; {OURS} of the plugin API: write KOSMOS_API = 1"),
    "text": ("KOSMOS_API = '1'", "states KOSMOS_API = '1', not a whole number"),
    "newer": ("KOSMOS_API = 2", f"is written for version 2 of the plugin API, {OURS}: install a newer kosmos-core"),
    "older": ("KOSMOS_API = 0", f"is written for version 0 of the plugin API, {OURS}: install a newer acme-older"),
    "misspelt": ("@hookimpl\ndef kosmos_encoder(): ...", "kosmos_encoder is no hook; did you mean kosmos_encoders?"),
    "plain": ("def kosmos_enocders(): ...", "kosmos_enocders is no hook; did you mean kosmos_encoders?"),
    "unheard": ("@hookimpl\ndef brings(): ...", "brings is no hook; hooks: kosmos_modalities, kosmos_encoders"),
    "unmarked": ("def kosmos_encoders(): return []", "kosmos_encoders lacks @hookimpl"),
    "takes": ("@hookimpl\ndef kosmos_encoders(config): ...", "kosmos_encoders takes arguments (config); hooks have"),
    "wraps": ("@hookimpl(wrapper=True)\ndef kosmos_encoders(): return (yield)", "kosmos_encoders is a hook wrapper"),
    "divides": (f"{HOOK}return 1 / 0", "kosmos_encoders raised ZeroDivisionError: division by zero"),
    "none": (f"{HOOK}...", "kosmos_encoders returned None, not a list of EncoderSpec"),
    "single": (
        f"{HOOK}return EncoderSpec(name='x', target='a:b', summary='')",
        "kosmos_encoders returned one EncoderSpec, not a list of EncoderSpec",
    ),
    "string": (f"{HOOK}return ['acme:make']", "kosmos_encoders brought 'acme:make', not an EncoderSpec"),
    "metric": (
        f"{HOOK}yield MetricSpec(name='m', target='a:b', summary='')",
        "kosmos_encoders brought the MetricSpec 'm', not an EncoderSpec",
    ),
    "option": (MODALITY.format("seed"), "modality 'seed' is refused: --seed is an option of kosmos generate or kosmos"),
    "key": (MODALITY.format("text"), "modality 'text' is refused: rows of data and the core mean something else by"),
    "dotted": (MODALITY.format("a.b"), "modality 'a.b' is refused: expected letters, digits and single - or _ between"),
    "lists": (
        f"{HOOK}yield EncoderSpec(name='a,b', target='a:b', summary='')",
        "encoder 'a,b' is refused: expected letters, digits and single - or _ between them, a letter first; give it",
    ),
    "strung": (
        "@hookimpl\ndef kosmos_datasets(): yield DatasetSpec(name='d', target='a:b', summary='', modalities='imu')",
        "kosmos_datasets: dataset 'd': modalities: expected a tuple of strings, got 'imu'; did you mean ('imu',)?",
    ),
    "target": (
        f"{HOOK}yield EncoderSpec(name='x', target='no_colon', summary='')",
        "kosmos_encoders: EncoderSpec(name='x', target='no_colon'): need a name and 'package.module:attribute'",
    ),
}
"""Name to (source, how its problem begins)."""


def record(registry: Registry, name: str) -> PluginRecord:
    (found,) = [plugin for plugin in registry.plugins if plugin.name == name]
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_a_plugin_is_one_line_beside_its_name_and_version(name: str, install: Install) -> None:
    source, problem = BROKEN[name]
    install(name, source)
    install("healthy", HEALTHY)
    registry = load_plugins(only=[name, "healthy"])
    plugin = record(registry, name)
    assert plugin.label == f"{name} (acme-{name} 1.2)"
    assert [line[: len(problem)] for line in plugin.problems] == [problem]
    assert "\n" not in plugin.problems[0]
    assert plugin.components == ()
    assert registry.build("encoder", "healthy").width == 7


def test_twenty_broken_plugins_at_once_leave_the_command_and_every_other_plugin_alone(
    install: Install, site: Path
) -> None:
    for name, (source, _) in BROKEN.items():
        install(name, source)
    install("healthy", HEALTHY)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "kosmos", "plugins", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = {plugin["name"]: plugin for plugin in json.loads(done.stdout)["plugins"]}
    assert {name for name, plugin in shown.items() if plugin["problems"]} == set(BROKEN)
    assert [component["name"] for component in shown["healthy"]["components"]] == ["healthy"]
    listed = subprocess.run(command[:-1], env=environment, capture_output=True, text=True, check=True).stdout
    for name, (_, problem) in BROKEN.items():
        assert f"problem: {name} (acme-{name} 1.2): {problem}" in listed
    assert {point.name for point in metadata.entry_points(group="kosmos")} <= set(shown)


@pytest.mark.parametrize("value", ["acme_point:nothing", "acme point", ":", "acme_point.", ""])
def test_an_entry_point_that_leads_nowhere_is_a_problem_of_its_plugin(value: str, install: Install, site: Path) -> None:
    install("point", HEALTHY)
    (site / "acme_point-1.2.dist-info" / "entry_points.txt").write_text(f"[kosmos]\npoint = {value}\n")
    registry = load_plugins(only=["point"])
    assert record(registry, "point").problems[0].startswith("cannot be imported: ")


def test_metadata_that_cannot_be_read_hides_no_other_plugin(install: Install, site: Path) -> None:
    install("healthy", HEALTHY)
    install("point", HEALTHY)
    (site / "acme_point-1.2.dist-info" / "entry_points.txt").write_bytes(b"[kosmos]\n\xff\xfe\n")
    assert record(load_plugins(only=["healthy"]), "healthy").problems == ()


def test_no_modality_can_have_the_name_of_an_option_beside_which_its_own_stands() -> None:
    found = {"prompt", *chat.SAID, *(option.lstrip("-").split()[0] for option, _ in GLOBAL_OPTIONS)}
    for command in (generate.app, train.app):
        parameters = typer.main.get_command(command).params
        found |= {option.removeprefix("--") for p in parameters for option in p.opts if option.startswith("--")}
    assert found == set(OPTIONS)
    assert {*ROLES, FILE_NAME} <= set(ROW_KEYS)
    assert {BACKBONE, HEAD} <= set(ROW_KEYS)  # beside which a modality's operations are counted


def test_what_a_plugin_prints_leaves_standard_output_to_the_command(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("healthy", "print('welcome')\n" + HEALTHY.replace("yield", "print('hello'); yield"))
    assert record(load_plugins(only=["healthy"]), "healthy").problems == ()
    assert capsys.readouterr() == ("", "welcome\nhello\n")


def test_a_misspelt_hook_does_not_discard_the_others(install: Install) -> None:
    install("healthy", HEALTHY + "\n@hookimpl\ndef kosmos_metric(): return []\n")
    registry = load_plugins(only=["healthy"])
    assert record(registry, "healthy").problems == ("kosmos_metric is no hook; did you mean kosmos_metrics?",)
    assert registry.build("encoder", "healthy").width == 7


def test_what_a_hook_brought_before_it_raised_stays(install: Install) -> None:
    install("healthy", HEALTHY.replace("\nclass make", "; raise OSError('disk')\nclass make"))
    registry = load_plugins(only=["healthy"])
    assert record(registry, "healthy").problems == ("kosmos_encoders raised OSError: disk (acme_healthy.py:6)",)
    assert "healthy" in registry.specs("encoder")


def test_a_descriptor_that_is_wrong_costs_none_behind_it(install: Install) -> None:
    wrong, right = MODALITY.format("dotless").replace("'c'", "'c', suffixes=('npy',)"), MODALITY.format("right")
    install("two", f"{wrong}; yield{right.partition('yield')[2]}")
    plugin = record(load_plugins(only=["two"]), "two")
    assert [spec.name for spec in plugin.components] == ["right"]
    assert plugin.problems == (
        "kosmos_modalities: modality 'dotless': suffixes: expected lower case with the dot, got 'npy'; passed over",
    )


def test_files_that_are_data_themselves_are_the_media_of_none(install: Install) -> None:
    assert {*DATA, ".json", *ALIKE} - {*DELIMITED} == DATA_SUFFIXES
    install("dna", MODALITY.format("dna").replace("'c'", "'c', suffixes=('.txt', '.fasta', '.jsonl')"))
    plugin = record(load_plugins(only=["dna"]), "dna")
    assert [spec.suffixes for spec in plugin.components] == [(".fasta",)]
    assert plugin.problems == (
        "modality 'dna': suffixes: .txt, .jsonl is left out: files of it are read as data; rows may name them",
    )


def test_of_two_components_of_one_name_the_first_stays_and_both_plugins_are_named(install: Install) -> None:
    install("healthy", HEALTHY)
    install("later", HEALTHY + "\nassert True")
    registry = load_plugins(only=["later", "healthy"])
    assert registry.owner("encoder", "healthy").name == "healthy"
    assert record(registry, "later").problems == (
        "encoder 'healthy' is refused: plugin healthy (acme-healthy 1.2) brings one of that name",
    )
    with pytest.raises(
        ConfigError, match=r"size: .*; the encoder 'healthy' of plugin later .* is refused: plugin healthy"
    ):
        registry.build("encoder", "healthy", options={"size": 3})


def test_core_wins_over_any_plugin_that_takes_one_of_its_names(install: Install) -> None:
    install("a", "@hookimpl\ndef kosmos_commands(): yield CommandSpec(name='plugins', target='a:b', summary='')")
    registry = load_plugins(only=["a"])
    assert registry.owner("command", "plugins").name == "core"
    assert "is refused: plugin core (kosmos-core 26.11.0)" in record(registry, "a").problems[0]


def test_a_plugin_that_brings_a_name_twice_keeps_the_first(install: Install) -> None:
    twice = "for _ in range(2): yield EncoderSpec(name='x', target='a:b', summary='')"
    install("a", f"@hookimpl\ndef kosmos_encoders():\n    {twice}")
    plugin = record(load_plugins(only=["a"]), "a")
    assert [spec.name for spec in plugin.components] == ["x"]
    assert plugin.problems == ("encoder 'x' is brought twice; the first stays",)


def test_of_two_plugins_of_one_name_the_second_is_ignored_and_says_so(install: Install) -> None:
    install("healthy", HEALTHY)
    install("other", HEALTHY, point="healthy")
    first, second = [plugin for plugin in load_plugins(only=["healthy"]).plugins if plugin.name == "healthy"]
    assert first.components
    assert first.problems == ()
    assert second.distribution == "acme-other"
    assert second.components == ()
    assert second.problems == ("ignored: plugin healthy (acme-healthy 1.2) has the same name; uninstall one of them",)


def test_a_stranger_cannot_take_the_name_of_core(install: Install) -> None:
    install("fake", HEALTHY, point="core")
    first, second = [plugin for plugin in load_plugins(only=[]).plugins if plugin.name == "core"]
    assert (first.distribution, first.problems) == ("kosmos-core", ())
    assert second.distribution == "acme-fake"
    assert second.components == ()


def test_an_interrupt_while_a_plugin_is_imported_is_no_problem_of_the_plugin(install: Install) -> None:
    install("slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugins(only=["slow"])


def test_the_broken_plugin_that_names_what_is_missing_is_told_first_and_no_plugin_whose_component_gave_way(
    install: Install,
) -> None:
    install("able", BROKEN["absent"][0])
    install("dull", f"{HOOK}yield EncoderSpec(name='bad', target='nowhere', summary='')")
    install("same", "@hookimpl\ndef kosmos_metrics(): yield MetricSpec(name='bleu', target='a:b', summary='')")
    registry = load_plugins(only=["able", "dull", "same"])
    assert record(registry, "same").problems
    with pytest.raises(PluginError, match=r"broken plugin dull \(acme-dull 1\.2\): .*'bad'.*, able \(") as caught:
        registry.get("encoder", "bad")
    assert "same (" not in str(caught.value)


def test_a_plugin_that_failed_otherwise_is_no_reason_why_something_is_missing(install: Install) -> None:
    twice = "for _ in range(2): yield DatasetSpec(name='x', target='a:b', summary='')"
    install("twice", f"@hookimpl\ndef kosmos_datasets():\n    {twice}")
    install("other", f"{HOOK}yield EncoderSpec(name='else', target='nowhere', summary='')")
    install("hook", "@hookimpl\ndef kosmos_metrics(): return 1 / 0")
    registry = load_plugins(only=["twice", "other", "hook"])
    with pytest.raises(PluginError) as caught:
        registry.get("encoder", "bad")
    assert "broken plugin" not in str(caught.value)
    with pytest.raises(PluginError, match="because of the broken plugin hook"):
        registry.get("metric", "bad")


def test_asking_for_what_a_broken_plugin_should_have_brought_names_it_and_the_cause(install: Install) -> None:
    install("depth", BROKEN["absent"][0])
    with pytest.raises(PluginError) as caught:
        load_plugins(only=["depth"]).get("modality", "depth")
    assert str(caught.value).startswith(
        "modality 'depth': no installed plugin brings it (modalities: none); install the package that does "
        "(by convention it is named kosmos-depth); it may be missing because of the broken plugin "
        "depth (acme-depth 1.2): cannot be imported: ModuleNotFoundError: No module named 'acme_lost'"
    )


def test_of_many_broken_plugins_the_one_whose_code_names_what_is_missing_is_told_first(install: Install) -> None:
    broken = "@hookimpl\ndef kosmos_encoder(): pass"  # which names the hook that would bring it
    for name in ("able", "bold", "calm", "dull"):
        install(name, broken)
    install("mine", HEALTHY)
    install("other", f"{HOOK}yield EncoderSpec(name='wanted', target='a:b', summary='')", point="mine")
    registry = load_plugins(only=["able", "bold", "calm", "dull", "mine"])
    with pytest.raises(PluginError, match=r"broken plugin mine \(acme-other 1\.2\): ignored: .* and 2 more"):
        registry.get("encoder", "wanted")
