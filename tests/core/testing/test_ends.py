"""Plugins that end the process, or never come back: the kit says of which promise, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos.errors import PluginError
from kosmos.testing import Promise, ScoreCard, check_plugin, promises_of
from kosmos.testing.promise import Rule
from support import ticks
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
