"""How promises are gathered, checked and told."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np
import pytest

from kosmos import Media, PluginError
from kosmos.cli import main
from kosmos.commands.plugin import _print_messages
from kosmos.plugins import Registry
from kosmos.testing import Conditions, Promise, ScoreCard, Verdict, promises_of
from kosmos.testing.child import ChildFailed
from kosmos.testing.promise import BrokenPromise, NotBuilt, Rule, Unchecked
from kosmos.testing.ranks import train_alone_and_together
from kosmos.testing.search import described, search, stretches_of
from support import ticks, ticks_encoder
from support.command import environment, kosmos
from support.made import make


@dataclasses.dataclass(frozen=True)
class Thing:
    label: str = "encoder thing"
    module: str = "tests_of_nobody"


def promise(function: object) -> Promise:
    return Promise(Rule("encoder", "stays", "it stays as it is", function), Thing())  # type: ignore[arg-type]


def raising(error: Exception) -> Promise:
    def check(subject: object) -> None:
        raise error

    return promise(check)


def test_a_promise_that_holds_passes() -> None:
    assert promise(lambda subject: None).verdict().outcome == "passed"


def test_a_broken_promise_says_which_of_what_and_with_what() -> None:
    with pytest.raises(AssertionError) as broken:
        raising(BrokenPromise("3 cells give 2")).check()
    assert str(broken.value) == "encoder thing breaks stays (it stays as it is): 3 cells give 2"


def test_an_exception_of_the_plugin_breaks_the_promise_and_is_its_cause() -> None:
    error = KeyError("width")
    with pytest.raises(BrokenPromise, match="raised KeyError: 'width'") as broken:
        raising(error).check()
    assert broken.value.__cause__ is error


@pytest.mark.parametrize("reason", [Unchecked("has none"), NotBuilt("needs a file")], ids=["has none", "needs a file"])
def test_what_cannot_be_checked_is_skipped_with_its_reason(reason: Exception) -> None:
    with pytest.raises(unittest.SkipTest, match=str(reason)):
        raising(reason).check()
    assert raising(reason).verdict().outcome == "skipped"


def test_warnings_of_a_plugin_break_nothing() -> None:
    import warnings

    promise(lambda subject: warnings.warn("old", stacklevel=1)).check()


def test_one_reason_of_many_skips_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "not checked: modality ecg: no media to try it on"
    skipped = [Verdict(id, "modality ecg", "skipped", why, 0.0) for id in ("a", "b", "c", "d", "e")]
    _print_messages(ScoreCard("kosmos-ecg", "1.0", (*skipped, Verdict("a", "encoder ecg", "skipped", "slow", 0.0))))
    assert capsys.readouterr().out.splitlines()[:-1] == [
        f"skipped: modality ecg a, b, c and 2 more: {why}",
        "skipped: encoder ecg a: slow",
    ]


def test_the_score_card_counts_and_is_plain_json() -> None:
    verdicts = [raising(BrokenPromise("no")), promise(lambda s: None), raising(Unchecked("none"))]
    card = ScoreCard("kosmos-thing", "1.0", tuple(p.verdict() for p in verdicts))
    told = json.loads(card.to_json())
    assert (told["plugin"], told["passed"], told["failed"], told["skipped"]) == ("kosmos-thing", 1, 1, 1)
    assert [p["outcome"] for p in told["promises"]] == ["failed", "passed", "skipped"]
    assert card.summary == "kosmos-thing 1.0: 1 passed, 1 failed, 1 skipped"


def test_the_example_that_is_told_is_the_smallest() -> None:
    media = [Media("ticks", np.zeros(40, np.float32)), Media("ticks", np.zeros(90, np.float32))]

    def check(medium: Media) -> None:
        if len(medium.source) >= 7:  # type: ignore[arg-type]
            raise BrokenPromise(described(medium))

    with pytest.raises(BrokenPromise) as broken:
        search(stretches_of(media), check)
    assert str(broken.value) == "a float32 array [7]"


def test_a_plugin_module_that_is_not_installed_can_be_checked() -> None:
    imports_none, imports_torch = (
        next(promise for promise in promises_of(module) if promise.id == "discovery-torch-free")
        for module in (ticks, ticks_encoder)
    )
    imports_none.check()
    with pytest.raises(BrokenPromise, match=r"torch is imported by .*ticks_encoder.py:\d+"):
        imports_torch.check()


def test_the_slow_promises_are_left_out_where_only_the_fast_are_wanted() -> None:
    slow = [promise for promise in promises_of(ticks, fast=True) if promise.left_out]
    assert [promise.id for promise in slow] == ["two-ranks", "compiles"]
    assert {promise.verdict().message for promise in slow} == {"left out: slow"}


def test_further_media_and_options_come_from_conditions() -> None:
    wide = Conditions(
        options={"encoder ticks": {"width": 24}},
        examples={"ticks": [Media("ticks", np.ones(3, np.float32))]},
    )
    subjects = {p.component: p.subject for p in promises_of(ticks, conditions=wide)}
    encoder, modality = subjects["encoder ticks"], subjects["modality ticks"]
    assert encoder.fresh().width == 24  # type: ignore[attr-defined]
    assert len(modality.media) == wide.documents + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("conditions", "says"),
    [
        (Conditions(examples={"tickss": []}), "examples: 'tickss': unknown; did you mean 'ticks'?"),
        (Conditions(media={"ticsk": None}), "media: 'ticsk': unknown; did you mean 'ticks'?"),
        (Conditions(media={"sonar": None}), "media: 'sonar': unknown; installed modalities: ticks"),
        (Conditions(options={"encoder tick": {}}), "options: 'encoder tick': unknown; did you mean 'encoder ticks'?"),
        (Conditions(options={"ticks": {}}), "did you mean 'modality ticks' or 'encoder ticks' or 'dataset ticks'?"),
    ],
)
def test_a_name_in_conditions_that_is_not_there_is_told_with_the_nearest(conditions: Conditions, says: str) -> None:
    with pytest.raises(PluginError) as caught:
        promises_of(ticks, conditions=conditions)
    assert str(caught.value).startswith("support.ticks: Conditions: ")
    assert says in str(caught.value)


def test_only_the_plugins_that_are_named_of_a_registry_are_checked() -> None:
    registry = Registry.from_modules({"ticks": "support.ticks", "smaller": "support.smaller_plugin"})
    components = {p.component for p in promises_of(registry, plugins=["smaller"])}
    assert "connector average" in components
    assert "modality ticks" not in components


def test_a_distribution_that_is_not_installed_is_told_with_those_that_are() -> None:
    with pytest.raises(PluginError, match=r"'kosmos-nothing' is installed; installed: .*kosmos-core"):
        promises_of("kosmos-nothing")


def test_what_the_template_makes_keeps_every_fast_promise_and_kosmos_plugin_test_says_so(good: Path) -> None:
    done = kosmos("plugin", "test", "kosmos-sonar", "--fast", "--json", path=[good])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["plugin"], told["version"], told["failed"]) == ("kosmos-sonar", "0.1.0", 0)
    assert {p["id"] for p in told["promises"] if p["outcome"] != "passed"} == {"two-ranks", "compiles"}


def test_kosmos_plugin_test_fails_and_names_what_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = make(tmp_path, "lidar")
    samples = site / "kosmos_lidar" / "samples.py"
    samples.write_text(samples.read_text().replace('self.split == "train", index', "index"))
    monkeypatch.syspath_prepend(str(site))
    assert main(["plugin", "test", "kosmos-lidar", "--fast", "--plugins", "lidar"]) == 1
    printed = capsys.readouterr().out
    assert "failed: dataset lidar-samples breaks parts-disjoint" in printed
    assert printed.splitlines()[-1].startswith("kosmos-lidar 0.1.0: ")


def test_a_run_that_one_process_cannot_train_is_told_as_of_one_process(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match=r"^rank \d, alone: ConfigError: run: trian: unknown field"):
        train_alone_and_together(Registry.from_modules({}), {"trian": {}}, tmp_path, seconds=20)
    assert not (tmp_path / "together").exists()


def test_kosmos_plugin_test_of_what_is_not_installed_is_one_line_and_status_2() -> None:
    """Before torch is imported."""
    script = "import sys; from kosmos.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    asked = [sys.executable, "-c", script, "plugin", "test", "kosmos-nothing"]
    done = subprocess.run(asked, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
    assert done.stderr.startswith(
        "error[config]: no plugin of a distribution 'kosmos-nothing' is installed; installed: "
    )
    assert done.stderr.count("\n") == 1
