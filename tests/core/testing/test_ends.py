"""Plugins that end the process, or never come back: the kit says of which promise, and goes on."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from kosmos.cli import main
from kosmos.data.free_memory import Memory
from kosmos.errors import PluginError
from kosmos.testing import Promise, ScoreCard, apart, check_plugin, child, limit, promises_of
from kosmos.testing.promise import Rule
from support import ticks
from support.command import command, environment, install_plugin, kosmos
from support.ticks import TicksProcessor

from .conftest import Plugin

TRACKER = "kosmos_trackers(): yield TrackerSpec(name='odd', target=__name__ + ':made', summary='Odd.')"
OBSERVER = "kosmos_observers(): yield ObserverSpec(name='odd', target=__name__ + ':made', summary='Odd.')"


def failed(card: ScoreCard) -> dict[str, str]:
    """Promise to message, of those that are broken."""
    return {verdict.id: verdict.message for verdict in card.failed}


# a SystemExit


def test_a_plugin_that_ends_the_process_at_its_import_breaks_loads(plugin: Plugin) -> None:
    card = check_plugin(plugin("raise SystemExit(3)"))
    assert "cannot be imported: SystemExit: 3" in failed(card)["loads"]
    assert {verdict.id for verdict in card.verdicts} >= {"loads", "discovery-torch-free"}


@pytest.mark.parametrize("status", ["", "(0)", "('gone')"])
def test_a_part_that_ends_the_process_breaks_the_promise_at_hand(plugin: Plugin, status: str) -> None:
    source = f"@hookimpl\ndef {OBSERVER}\ndef made():\n    def see(row): raise SystemExit{status}\n    return see"
    assert "observer odd breaks sees-rows" in failed(check_plugin(plugin(source)))["sees-rows"]
    assert "raised SystemExit" in failed(check_plugin(plugin(source)))["sees-rows"]


def test_a_decoder_that_ends_the_process_breaks_what_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(self: object, media: object, plan: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(TicksProcessor, "decode", leave)
    (promise,) = (p for p in promises_of(ticks) if p.id == "cells-as-planned")
    assert "raised SystemExit: 0" in promise.verdict().message


def test_a_factory_that_ends_the_process_is_an_error_of_its_plugin(plugin: Plugin) -> None:
    registry = plugin(f"@hookimpl\ndef {OBSERVER}\ndef made(): raise SystemExit(0)")
    with pytest.raises(PluginError, match=r"observer 'odd' of plugin odd_plugin_\d+ .*: SystemExit: 0"):
        registry.build("observer", "odd")


def test_conditions_that_cannot_be_imported_are_told_with_their_cause(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "odd_conditions.py").write_text("raise SystemExit(0)")
    with pytest.raises(PluginError, match="KOSMOS_TESTING = 'odd_conditions:C': SystemExit: 0"):
        promises_of(plugin(f"KOSMOS_TESTING = 'odd_conditions:C'\n@hookimpl\ndef {OBSERVER}\ndef made(): return print"))


def test_ctrl_c_ends_the_kit(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(subject: object) -> None:
        raise KeyboardInterrupt

    (promise, *_) = promises_of(ticks)
    with pytest.raises(KeyboardInterrupt):
        Promise(Rule("plugin", "stays", "it stays", interrupted), promise.subject).verdict()


# what does not come back


def sleeps(line: str) -> str:
    """A plugin of an observer that does not return from a row."""
    return f"import time\n@hookimpl\ndef {OBSERVER}\ndef made():\n    def see(row):\n        {line}\n    return see"


def the(card: Sequence[Promise], id: str) -> Promise:
    return next(promise for promise in card if promise.id == id)


def test_what_passes_the_limit_has_failed_and_says_where_it_stood(plugin: Plugin) -> None:
    before = signal.getsignal(signal.SIGALRM)
    verdict = the(promises_of(plugin(sleeps("time.sleep(1000)"))), "sees-rows").verdict(limit_s=0.3)
    assert (verdict.outcome, verdict.stopped) == ("failed", True)
    assert re.search(r"took more than 0.3 s, and was stopped at /.*/odd_plugin_\d+.py:8 in see$", verdict.message)
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0.0, 0.0))


def test_a_tracker_that_never_closes_is_stopped(plugin: Plugin) -> None:
    made = "class made:\n    def __init__(self, output, run): pass\n    def log(self, row): pass\n"
    source = f"import time\n@hookimpl\ndef {TRACKER}\n{made}    def close(self): time.sleep(1000)"
    assert the(promises_of(plugin(source)), "logs-and-closes").verdict(limit_s=0.3).message.endswith("in close")


def test_what_catches_everything_is_stopped_again(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "AGAIN_S", 0.2)
    stubborn = "try: time.sleep(1000)\n        except BaseException: time.sleep(1000)"
    assert the(promises_of(plugin(sleeps(stubborn))), "sees-rows").verdict(limit_s=0.3).stopped


def test_what_is_within_the_limit_passes(plugin: Plugin) -> None:
    verdict = the(promises_of(plugin(sleeps("time.sleep(0)"))), "sees-rows").verdict(limit_s=100)
    assert (verdict.outcome, verdict.stopped) == ("passed", False)


def test_a_process_of_a_promise_that_is_stopped_does_not_stay(plugin: Plugin, tmp_path: Path) -> None:
    (*_, odd) = plugin("import time\ndef stay(given): time.sleep(1000)").plugins
    process = child.start(f"{odd.module}:stay", folder=tmp_path)
    with pytest.raises(limit.LimitPassed), limit.within(0.3):
        child.finish(process, folder=tmp_path, seconds=600)
    assert process.poll() == -signal.SIGKILL


def test_modules_in_the_working_folder_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "contextlib.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert child.call("pickle:loads", "answer") == ("answer",)


def test_where_nothing_else_stops_it_the_process_ends_and_shows_where_it_stood() -> None:
    """A function in C that looks at no signal."""
    script = "from kosmos.testing import limit\nlimit.GRACE_S = 0.2\nwith limit.within(0.2): sum(range(10**15))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "line 3 in <module>" in done.stderr


def test_after_one_that_was_stopped_no_other_of_its_component_is_tried(tmp_path: Path) -> None:
    source = "from kosmos import ObserverSpec, hookimpl\nKOSMOS_API = 1\n" + sleeps("time.sleep(1000)")
    source = source.replace("def made():\n", "def made():\n    time.sleep(1000)\n")
    site = install_plugin(tmp_path / "site", "odd", source)
    done = kosmos("plugin", "test", "acme-odd", "--json", "--limit-s", "1", path=[site])
    assert done.returncode == 1, done.stderr
    found = {p["id"]: p for p in json.loads(done.stdout)["promises"]}
    assert (found["builds"]["outcome"], found["builds"]["stopped"]) == ("failed", True)
    assert (found["sees-rows"]["outcome"], found["sees-rows"]["message"]) == (
        "skipped", "not tried: builds was stopped"
    )  # fmt: skip


def test_rows_are_shown_as_they_are_done_with_the_promise_at_hand_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    source = "from kosmos import ObserverSpec, hookimpl\nKOSMOS_API = 1\n" + sleeps("time.sleep(1000)")
    site = install_plugin(tmp_path / "site", "odd", source)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("plugin", "test", "acme-odd"), env=environment([site], TERM="dumb"), stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while b"observer odd sees-rows: it is called with each row" not in said:
        said += os.read(ours, 4096)
    assert re.search(rb"observer odd +builds +passed", said)
    status = None
    for _ in range(3):  # a module that is imported from C just then swallows one
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(timeout=20)
            break
    assert status == 130
    os.close(ours)


# what ends the process, or fills the memory


FATAL = """
import os, signal, time
from kosmos import ObserverSpec, hookimpl
KOSMOS_API = 1
KEPT = []

@hookimpl
def kosmos_observers():
    for name in ("dies", "fills", "sees"):
        yield ObserverSpec(name=name, target=f"{__name__}:{name}", summary="Odd.")

def dies(): return lambda row: os.kill(os.getpid(), signal.SIGSEGV)
def sees(): return lambda row: None
def fills():
    def see(row):
        for _ in range(100):  # 1.6 GiB
            KEPT.append(bytearray(2**24))
            time.sleep(0.02)
    return see
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the memory of a process is not known")
def test_what_ends_the_process_or_fills_the_memory_has_failed_and_the_rest_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(install_plugin(tmp_path / "site", "odd", FATAL)))
    monkeypatch.setattr(apart, "memory", lambda: Memory(2**29, 2**33))
    assert main(["plugin", "test", "acme-odd", "--fast", "--plugins", "odd"]) == 1
    printed = capsys.readouterr().out
    assert "leaves the row as it is): the process that checked it was killed by SIGSEGV\n" in printed
    assert re.search(
        r": the process that checked it took 0\.\d+ GiB of memory since .*, of 0\.5 GiB that were", printed
    )
    assert re.search(r"observer sees +sees-rows +passed", printed)
    assert printed.splitlines()[-1] == "acme-odd 1.2: 13 passed, 3 failed, 0 skipped"
