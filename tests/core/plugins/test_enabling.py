"""Which of the installed plugins are loaded: what a user disabled, KOSMOS_PLUGINS, --plugins and the run file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kosmos import cli
from kosmos.enabled import config_file, enabling
from kosmos.errors import ConfigError, PluginError
from kosmos.plugins import Registry, load_plugins
from kosmos.selection import asked_plugins, only_plugins
from support.command import install_plugin, kosmos

Install = Callable[..., None]

SONAR = """
@hookimpl
def kosmos_modalities(): yield ModalitySpec(name='echo', target='a:b', summary='', encoder='e')
@hookimpl
def kosmos_encoders(): yield EncoderSpec(name='sonar-net', target='a:b', summary='')
"""


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has disabled nothing yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KOSMOS_PLUGINS")
    return tmp_path / "config" / "kosmos" / "plugins.json"


@pytest.fixture
def sonar(install: Install) -> None:
    """Two installed plugins; loading is anew each time."""
    install("sonar", SONAR)
    install("radar", "")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``run("plugins")``: the exit status as text, standard output, standard error. Plugins are found anew."""
    from kosmos import plugins

    def call(*args: str) -> list[str]:
        plugins._load_once.cache_clear()
        status = cli.main(args)
        plugins._load_once.cache_clear()
        out, err = capsys.readouterr()
        return [str(status), out, err]

    return call


Run = Callable[..., list[str]]


def loaded(registry: Registry) -> set[str]:
    return {plugin.name for plugin in registry.plugins}


def fresh() -> Registry:
    from kosmos import plugins

    plugins._load_once.cache_clear()
    found = load_plugins()
    plugins._load_once.cache_clear()
    return found


def test_a_disabled_plugin_is_listed_as_disabled_and_not_imported(sonar: None, run: Run, own_settings: Path) -> None:
    assert run("plugins", "disable", "sonar") == ["0", f"sonar (acme-sonar 1.2) is disabled ({own_settings})\n", ""]
    sys.modules.pop("acme_sonar", None)
    status, out, _ = run("plugins")
    assert status == "0"
    (line,) = [line for line in out.splitlines() if line.startswith("sonar")]
    assert line.split() == "sonar 1.2 acme-sonar disabled; enable it with: kosmos plugins enable sonar".split()
    assert "acme_sonar" not in sys.modules
    assert run("plugins", "sonar")[1] == (
        "sonar (acme-sonar 1.2)\n  disabled; enable it with: kosmos plugins enable sonar\n"
    )
    shown = {plugin["name"]: plugin for plugin in json.loads(run("plugins", "--json")[1])["plugins"]}
    assert (shown["sonar"]["off"], shown["sonar"]["components"], shown["radar"]["off"]) == ("disabled", [], None)
    assert "acme_sonar" not in sys.modules


def test_an_enabled_plugin_is_there_again(sonar: None, run: Run) -> None:
    run("plugins", "disable", "sonar", "radar")
    assert not {"sonar", "radar"} & loaded(fresh())
    status, out, _ = run("plugins", "enable", "sonar")
    assert (status, out.startswith("sonar (acme-sonar 1.2) is enabled")) == ("0", True)
    registry = fresh()
    assert "sonar" in loaded(registry)
    assert [plugin.name for plugin in registry.off] == ["radar"]
    assert registry.get("modality", "echo").name == "echo"


@pytest.mark.parametrize(("kind", "name"), [("modality", "echo"), ("encoder", "sonar-net")])
def test_asking_for_what_a_disabled_plugin_brought_says_how_to_enable_it(
    kind: str, name: str, sonar: None, run: Run
) -> None:
    run("plugins", "disable", "sonar")
    with pytest.raises(PluginError) as caught:
        fresh().get(kind, name)
    assert str(caught.value) == (
        f"{kind} {name!r}: plugin sonar (acme-sonar 1.2) brings it and is disabled; "
        "enable it with: kosmos plugins enable sonar"
    )


def test_asking_for_what_a_disabled_plugin_may_have_brought_says_so(
    sonar: None, install: Install, own_settings: Path
) -> None:
    own_settings.parent.mkdir(parents=True)
    own_settings.write_text('{"disabled": {"radar": [], "sonar": []}}')
    with pytest.raises(PluginError, match=r"may, and is disabled; enable it with: kosmos plugins enable sonar$"):
        fresh().get("modality", "sonar")
    with pytest.raises(PluginError, match=r"; installed and not loaded: radar \(disabled\), sonar \(disabled\)$"):
        fresh().get("modality", "echo")


def test_what_is_known_of_a_disabled_plugin_stays_when_it_is_disabled_again(sonar: None, run: Run) -> None:
    run("plugins", "disable", "sonar")
    run("plugins", "disable", "sonar")
    assert enabling().disabled == (("sonar", ("modality echo", "encoder sonar-net")),)


@pytest.mark.parametrize(
    ("args", "status", "line"),
    [
        (("disable", "sonr"), "3", "error[plugin]: plugin 'sonr' is not installed; did you mean sonar?"),
        (("enable", "sonr"), "3", "error[plugin]: plugin 'sonr' is not installed; did you mean sonar?"),
        (("disable", "core"), "3", "error[plugin]: core cannot be disabled"),
        (("disable",), "2", "error[usage]: disable: the name of a plugin is missing; see"),
        (("disable", "sonar", "--json"), "2", "error[usage]: --json: not expected here; see"),
        (("--lock", "--json"), "2", "error[usage]: --json: not expected here; see"),
    ],
)
def test_wrong_use_of_the_switches_is_one_line(
    args: tuple[str, ...], status: str, line: str, sonar: None, run: Run, own_settings: Path
) -> None:
    found, out, err = run("plugins", *args)
    assert (found, out) == (status, "")
    assert err.startswith(line)
    assert err.count("\n") == 1
    assert not own_settings.exists()


def test_a_plugin_that_was_uninstalled_can_still_be_taken_off_the_list(run: Run, own_settings: Path) -> None:
    own_settings.parent.mkdir(parents=True)
    own_settings.write_text('{"disabled": {"gone": []}}')
    assert run("plugins", "enable", "gone")[1] == f"gone is enabled ({own_settings})\n"
    assert enabling().disabled == ()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"disabled": ["sonar"]}', "{}", '{"disabled": {"sonar": 3}}'])
def test_a_damaged_file_is_one_line_and_nothing_is_imported(
    text: str, sonar: None, run: Run, own_settings: Path
) -> None:
    own_settings.parent.mkdir(parents=True)
    own_settings.write_text(text)
    sys.modules.pop("acme_sonar", None)
    status, _, err = run("plugins")
    assert status == "2"
    assert err.startswith(f"error[config]: {own_settings}: cannot tell which plugins are disabled: ")
    assert err.count("\n") == 1
    assert "acme_sonar" not in sys.modules


def test_settings_that_cannot_be_written_are_one_line(sonar: None, run: Run, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file")
    status, _, err = run("plugins", "disable", "sonar")
    assert status == "2"
    assert err.startswith("error[config]: ")
    assert "cannot be written" in err


def test_the_settings_are_where_the_user_keeps_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert config_file() == tmp_path / "config" / "kosmos" / "plugins.json"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_file() == tmp_path / ".config" / "kosmos" / "plugins.json"


def test_the_environment_goes_before_what_is_disabled(sonar: None, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("plugins", "disable", "sonar")
    monkeypatch.setenv("KOSMOS_PLUGINS", "sonar")
    assert loaded(fresh()) == {"core", "sonar"}
    monkeypatch.setenv("KOSMOS_PLUGINS", " core ")
    assert loaded(fresh()) == {"core"}
    monkeypatch.setenv("KOSMOS_PLUGINS", "all")
    assert {"sonar", "radar"} <= loaded(fresh())
    monkeypatch.setenv("KOSMOS_PLUGINS", "")
    assert "sonar" not in loaded(fresh())
    monkeypatch.setenv("KOSMOS_PLUGINS", "sonr")
    with pytest.raises(PluginError, match=r"^KOSMOS_PLUGINS: plugin 'sonr' is not installed; did you mean sonar\?$"):
        fresh()


def test_a_run_file_and_plugins_on_the_command_line_only_narrow(sonar: None, run: Run) -> None:
    assert loaded(load_plugins(["sonar"])) == {"core", "sonar"}
    run("plugins", "disable", "sonar")
    message = r"^plugin sonar \(acme-sonar 1\.2\) is disabled; enable it with: kosmos plugins enable sonar$"
    with pytest.raises(PluginError, match=message):
        load_plugins(["sonar"])
    with only_plugins(["sonar"]), pytest.raises(PluginError, match=message):
        fresh()


def test_what_a_run_leaves_out_is_named_when_it_is_asked_for(sonar: None) -> None:
    with pytest.raises(PluginError, match=r"plugin sonar .* may, and is not among the plugins named; add it"):
        load_plugins(["radar"]).get("modality", "sonar")


def test_the_command_line_goes_before_the_run_file(sonar: None) -> None:
    with only_plugins(["radar"]):
        assert loaded(load_plugins(["sonar"])) == {"core", "radar"}
        assert loaded(fresh()) == {"core", "radar"}
        assert asked_plugins() == ("radar",)
    assert asked_plugins() is None


@pytest.mark.parametrize(
    "args",
    ["--plugins sonar plugins", "plugins --plugins sonar", "plugins --plugins=sonar,", "--plugins=core,sonar plugins"],
)
def test_the_option_may_stand_anywhere(args: str, sonar: None, run: Run) -> None:
    status, out, _ = run(*args.split())
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert status == "0"
    assert "modality: echo" in lines["sonar"]
    assert "not among the plugins named" in lines["radar"]


@pytest.mark.parametrize(
    "args", ["plugins --plugins", "plugins --plugins=", "plugins --plugins --json", "--plugins , x"]
)
def test_the_option_needs_names(args: str, run: Run) -> None:
    status, _, err = run(*args.split())
    assert status == "2"
    assert err.startswith("error[config]: --plugins: expected names, such as --plugins audio,vision")


def test_a_command_of_core_imports_no_plugin_that_the_run_file_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plugin that the run file names trains; the other leaves a file if it is imported."""
    site, mark = tmp_path / "site", tmp_path / "imported"
    install_plugin(site, "ticks", None, module="support.ticks")
    install_plugin(site, "nosy", f"open({str(mark)!r}, 'w').close()\nKOSMOS_API = 1\n")
    settings = {
        "plugins": ["ticks"],
        "modalities": ["ticks"],
        "data": {"tokens_per_pack": 128, "lanes": 1, "look_ahead": 8, "workers": 0},
        "backbone": {"width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
        "train": {"steps": 2, "warmup_steps": 1},
        "evaluate": {"max_documents": 4},
        "trackers": [],
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    done = kosmos("train", tmp_path / "run.yaml", "--output", tmp_path / "out", path=[site])
    assert done.returncode == 0, done.stderr
    done = kosmos("generate", tmp_path / "out", "--prompt", "x", "--max-new-tokens", 2, path=[site])
    assert done.returncode == 0, done.stderr
    assert not mark.exists()
    monkeypatch.syspath_prepend(str(site))
    over = [str(tmp_path / "run.yaml"), "--plugins", "nosy", "--output", str(tmp_path / "other")]
    assert cli.main(["train", *over]) == 3
    said = capsys.readouterr().err
    assert "modality 'ticks'" in said
    assert "plugin ticks (acme-ticks 1.2) may, and is not among the plugins named; add it to" in said
    assert mark.exists()


def test_the_option_stands_in_the_run_file_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from kosmos.commands.arguments import short_options

    with only_plugins(["audio"]):
        assert short_options(modalities=None, data=None, steps=None, output=None) == {"plugins": ["audio"]}
    assert short_options(modalities=None, data=None, steps=None, output=None) == {}


def test_an_unreadable_file_is_an_error_of_settings(own_settings: Path) -> None:
    own_settings.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot tell which plugins are disabled"):
        enabling()


def test_testing_a_plugin_that_is_not_loaded_says_why_and_what_to_do(
    sonar: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("plugins", "disable", "sonar")
    is_off = "plugin sonar (acme-sonar 1.2) is"
    remedy = "disabled; enable it with: kosmos plugins enable sonar"
    assert run("plugin", "test", "acme-sonar") == ["2", "", f"error[config]: {is_off} {remedy}\n"]
    run("plugins", "enable", "sonar")
    status, _, said = run("plugin", "test", "acme-sonar", "--plugins", "radar")
    assert (status, said.startswith(f"error[config]: {is_off} not among the plugins named; add it")) == ("2", True)
    monkeypatch.setenv("KOSMOS_PLUGINS", "radar")
    assert (
        run("plugin", "test", "acme_sonar")[2] == f"error[config]: {is_off} not among KOSMOS_PLUGINS; name it there\n"
    )
