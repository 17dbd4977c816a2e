"""A lock holds every file of the plugins that a run used, and names what has changed since."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kosmos import load_run
from kosmos.cli import main
from kosmos.errors import PluginError
from kosmos.lock import LOCK_FILE, check_lock, compare, keep_lock, lock_of, read_lock, taken_over
from kosmos.plugins import Registry, load_plugins
from support import ticks
from support.command import SMALL, install_plugin, kosmos

Install = Callable[..., None]
SONAR = (
    "@hookimpl\ndef kosmos_encoders(): yield EncoderSpec(name='s', target='acme_sonar:make', summary='')\n"
    "class make: input = width = forward = 0"
)


def wheel(site: Path, name: str, version: str = "1.2", **files: str) -> None:
    """What pip leaves of a wheel: a package, its metadata and the list of its files."""
    package = site / f"acme_{name}"
    files = {"__init__.py": "", "plugin.py": "KOSMOS_API = 1\n", **files}
    for part, text in files.items():
        (package / part).parent.mkdir(parents=True, exist_ok=True)
        (package / part).write_text(text)
    info = site / f"acme_{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[kosmos]\n{name} = acme_{name}.plugin\n")
    listed = [f"acme_{name}/{part}" for part in files] + [f"{info.name}/METADATA", "../../bin/tool"]
    (info / "RECORD").write_text("".join(f"{entry},,\n" for entry in listed))
    for module in [m for m in sys.modules if m.split(".")[0] == f"acme_{name}"]:  # of another test's
        del sys.modules[module]
    importlib.invalidate_caches()


def files_of(registry: Registry, name: str) -> dict[str, str]:
    (plugin,) = lock_of(registry, [name]).plugins
    return dict(plugin.files)


def test_a_lock_holds_the_hash_of_each_file_of_a_wheel(site: Path) -> None:
    wheel(site, "sonar", **{"net/deep.py": "x = 1\n", "weights.bin": "w"})
    (site / "acme_sonar" / "__pycache__").mkdir()
    (site / "acme_sonar" / "__pycache__" / "plugin.cpython-311.pyc").write_text("cache")
    (site / "acme_sonar" / "added.py").write_text("")  # not in RECORD, but importable
    found = files_of(load_plugins(["sonar"]), "sonar")
    names = ["__init__.py", "added.py", "net/deep.py", "plugin.py", "weights.bin"]
    assert list(found) == [f"acme_sonar/{name}" for name in names]
    assert found["acme_sonar/net/deep.py"] == hashlib.sha256(b"x = 1\n").hexdigest()


def test_a_lone_module_and_a_package_of_a_namespace_are_found_without_a_list_of_files(
    site: Path, install: Install
) -> None:
    install("sonar", SONAR)
    assert list(files_of(load_plugins(["sonar"]), "sonar")) == ["acme_sonar.py"]
    for name in ("one", "two"):
        (site / "shared" / name).mkdir(parents=True)
        (site / "shared" / name / "__init__.py").write_text("KOSMOS_API = 1\n")
    install("space", "", value="shared.one")
    assert list(files_of(load_plugins(["space"]), "space")) == ["shared/one/__init__.py"]


def test_core_and_a_broken_plugin_are_locked_too(install: Install) -> None:
    install("broken", "raise OSError('no')")
    registry = load_plugins(["broken"])
    assert list(files_of(registry, "broken")) == ["acme_broken.py"]
    core = files_of(registry, "core")
    assert {"kosmos/__init__.py", "kosmos/train/run.py", "kosmos/catalogue.json"} <= set(core)
    assert not [name for name in core if "__pycache__" in name]


def test_a_plugin_that_is_not_installed_has_no_version_to_lock() -> None:
    (plugin,) = lock_of(Registry.from_modules({"ticks": ticks}), ["ticks"]).plugins
    assert (plugin.distribution, plugin.version) == ("", "")
    assert "support/ticks.py" in plugin.files


def test_a_lock_is_read_as_it_was_written(site: Path, tmp_path: Path) -> None:
    wheel(site, "sonar")
    lock = lock_of(load_plugins(["sonar"]))
    (tmp_path / "lock.json").write_text(lock.text())
    assert read_lock(tmp_path / "lock.json") == lock
    assert [plugin.name for plugin in lock.plugins] == ["core", "sonar"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"plugins": [{"name": "x"}]}', '{"plugins": [3]}'])
def test_a_file_that_is_no_lock_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(PluginError, match=r"lock\.json: cannot be read as a lock of plugins") as caught:
        read_lock(tmp_path / "lock.json")
    assert "\n" not in str(caught.value)


def test_what_has_changed_is_named_by_plugin_and_file(site: Path) -> None:
    wheel(site, "sonar", **{"net.py": "1", "old.py": ""})
    wheel(site, "radar")
    registry = load_plugins(["sonar", "radar"])
    before = lock_of(registry)
    assert compare(before, lock_of(registry)) == []
    (site / "acme_sonar" / "net.py").write_text("2")
    (label,) = compare(before, lock_of(registry))
    assert label == "plugin sonar (acme-sonar 1.2): acme_sonar/net.py has changed"
    (site / "acme_sonar" / "old.py").unlink()
    (site / "acme_sonar" / "new.py").write_text("")
    (label,) = compare(before, lock_of(registry))
    assert label == (
        "plugin sonar (acme-sonar 1.2): acme_sonar/net.py has changed, acme_sonar/old.py is gone and 1 more"
    )


def test_another_version_or_distribution_and_a_plugin_that_is_gone_are_named(site: Path) -> None:
    wheel(site, "sonar")
    wheel(site, "radar")
    before = lock_of(load_plugins(["sonar", "radar"]))
    (site / "acme_sonar-1.2.dist-info").rename(site / "acme_sonar-1.3.dist-info")
    metadata = site / "acme_sonar-1.3.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: acme-sonar\nVersion: 1.3\n")
    assert compare(before, lock_of(load_plugins(["sonar"]))) == [
        "plugin radar (acme-radar 1.2) is not loaded any more",
        "plugin sonar (acme-sonar 1.2): version 1.2 is now 1.3",
    ]
    metadata.write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.3\n")
    assert compare(before, lock_of(load_plugins(["sonar"])))[1] == (
        "plugin sonar (acme-sonar 1.2) is now of the distribution evil 1.3"
    )


def test_a_plugin_that_came_since_does_not_count(site: Path) -> None:
    wheel(site, "sonar")
    before = lock_of(load_plugins(["sonar"]))
    wheel(site, "radar")
    assert compare(before, lock_of(load_plugins(["sonar", "radar"]))) == []


def test_a_run_keeps_what_it_used_and_is_compared_with_it(site: Path, install: Install, tmp_path: Path) -> None:
    install("sonar", SONAR)
    wheel(site, "radar")
    registry = load_plugins(["sonar", "radar"])
    registry.build("encoder", "s")
    registry.resolve("connector", "mlp")
    keep_lock(tmp_path, registry)
    assert [plugin.name for plugin in read_lock(tmp_path / LOCK_FILE).plugins] == ["sonar"]
    (site / "acme_radar" / "plugin.py").write_text("changed = 1\n")
    assert check_lock(tmp_path, registry) == []
    (site / "acme_sonar.py").write_text("changed = 1\n")
    with pytest.raises(PluginError) as caught:
        check_lock(tmp_path, registry)
    assert str(caught.value) == (
        f"{tmp_path / LOCK_FILE}: plugin sonar (acme-sonar 1.2): acme_sonar.py has changed; install what the run was "
        f"trained with, or go on with what is there now: kosmos train --resume {tmp_path} --accept-plugins"
    )
    assert check_lock(tmp_path, registry, accept=True) == ["plugin sonar (acme-sonar 1.2): acme_sonar.py has changed"]
    with pytest.raises(PluginError, match=r"is not loaded any more; install .*; where the run needs nothing of it: "):
        check_lock(tmp_path, load_plugins(["radar"]))
    keep_lock(tmp_path, registry)
    assert check_lock(tmp_path, registry) == []


def test_a_component_that_another_plugin_brings_by_now_is_named(site: Path, install: Install, tmp_path: Path) -> None:
    install("sonar", SONAR)
    registry = load_plugins(["sonar"])
    registry.build("encoder", "s")
    keep_lock(tmp_path, registry)
    assert read_lock(tmp_path / LOCK_FILE).components == {"encoder s": "sonar"}
    assert registry.given_way() == []
    install("radar", SONAR)  # of two encoders of one name, that of the plugin which comes first
    registry = load_plugins(["sonar", "radar"])
    line = "encoder 's' of plugin sonar (acme-sonar 1.2) now comes from plugin radar (acme-radar 1.2)"
    own = "load the run's own alone (--plugins sonar), or uninstall the other"
    assert taken_over(tmp_path, registry) == f"{line}; {own}"
    assert taken_over(tmp_path, load_plugins(["sonar"])) == ""
    assert taken_over(tmp_path, load_plugins(["radar"])) == f"{line}; install what the run was trained with"
    with pytest.raises(PluginError, match=re.escape(line)):
        check_lock(tmp_path, registry)
    assert check_lock(tmp_path, registry, accept=True) == [line]
    assert registry.given_way() == []
    registry.resolve("encoder", "s")
    assert registry.given_way() == [
        "the encoder 's' of plugin sonar (acme-sonar 1.2) is refused: plugin radar (acme-radar 1.2) brings one of that "
        "name"
    ]


def test_a_lock_of_before_there_were_components_says_nothing_of_them(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text('{"lock": 1, "plugins": []}')
    assert read_lock(tmp_path / LOCK_FILE).components == {}


def test_what_was_registered_by_hand_is_not_kept(tmp_path: Path) -> None:
    registry = Registry.from_modules({"ticks": ticks})
    registry.resolve("encoder", "ticks")
    assert registry.used == {"ticks"}
    keep_lock(tmp_path, registry)
    assert read_lock(tmp_path / LOCK_FILE).plugins == ()


def test_a_run_of_before_there_were_locks_has_nothing_to_compare(tmp_path: Path) -> None:
    assert check_lock(tmp_path, Registry.from_modules({})) == []


def test_the_command_writes_the_lock_of_all_or_of_one_plugin(site: Path) -> None:
    wheel(site, "sonar")
    every = kosmos("plugins", "--lock", path=[site])
    assert every.returncode == 0, every.stderr
    shown = {plugin["name"]: plugin for plugin in json.loads(every.stdout)["plugins"]}
    assert {"core", "sonar"} <= set(shown)
    assert shown["sonar"]["version"] == "1.2"
    assert sorted(shown["sonar"]["files"]) == ["acme_sonar/__init__.py", "acme_sonar/plugin.py"]
    one = json.loads(kosmos("plugins", "sonar", "--lock", path=[site]).stdout)
    assert one["plugins"] == [shown["sonar"]]


def test_a_run_whose_plugin_has_changed_goes_on_only_where_that_is_accepted(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def kosmos_says(*args: object) -> tuple[int, str]:
        """In this process, which looks anew at what is installed."""
        status = main([str(arg) for arg in (*args, "--plugins", "ticks")])
        return status, capsys.readouterr().err

    shutil.copytree(Path(ticks.__file__).parent, site / "series")
    file = site / "series" / "ticks.py"
    file.write_text(file.read_text().replace('"support.ticks', '"series.ticks'))
    install_plugin(site, "ticks", None, module="series.ticks")
    given = ("--modalities", "ticks", *SMALL, "data.workers=0", "evaluate.max_documents=2", "--output", run)
    done = kosmos("train", *given, "--steps", 1, path=[site])
    assert done.returncode == 0, done.stderr
    assert [plugin.name for plugin in read_lock(run / LOCK_FILE).plugins] == ["ticks"]
    file.write_text(file.read_text() + "\n# another\n")
    status, said = kosmos_says("train", "--resume", run, "--steps", 2)
    assert status == 3
    line = "plugin ticks (acme-ticks 1.2): series/ticks.py has changed"
    assert said.startswith(f"error[plugin]: {run / LOCK_FILE}: {line}; install what the run was trained with")
    assert said.count("\n") == 1
    status, said = kosmos_says("eval", run, "--max-documents", 2)
    assert status == 0, said
    assert said.startswith(f"warning: {line}; the run was trained with other code\n")
    with pytest.warns(UserWarning, match=f"^{re.escape(line)}; the run was trained with other code$"):
        load_run(run, device="cpu", registry=load_plugins(["ticks"]))
    monkeypatch.setenv("KOSMOS_PLUGINS", "core")
    assert main(["eval", str(run)]) == 3
    said = capsys.readouterr().err
    assert said.endswith(
        "; the run was trained with other code: plugin ticks (acme-ticks 1.2) is not loaded any more\n"
    )
    monkeypatch.delenv("KOSMOS_PLUGINS")
    status, said = kosmos_says("train", "--resume", run, "--steps", 2, "--accept-plugins")
    assert status == 0, said
    assert f"warning: {line}\n" in said
    status, said = kosmos_says("train", "--resume", run, "--steps", 3)
    assert status == 0, said
