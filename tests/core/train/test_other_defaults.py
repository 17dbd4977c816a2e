"""A newer version of a plugin has other defaults: a run that was trained with the old ones keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kosmos import load_run, open_sources, resume_run, score, train_model
from kosmos.errors import ConfigError
from kosmos.lock import LOCK_FILE, check_lock
from kosmos.plugins import Registry
from kosmos.train.progress import Reporter
from support.runs import rows_of, small_run
from support.scaled import Louder, Renamed, Scaled, version

STREAM: dict[str, Any] = {"ticks": {"encoder": {"name": "scaled"}}}


class Said(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("defaults") / "run"
    train_model(small_run(output, streams=STREAM, train={"steps": 2}), registry=version(Scaled))
    return output


def loss(run: Path, registry: Registry, **over: Any) -> float:
    parts = load_run(run, device="cpu", registry=registry, overrides=over or None).composition
    return score(parts, open_sources(parts.config, parts.registry, "held_out"), max_documents=8).overall.loss


def scaled(**options: float) -> dict[str, Any]:
    return {"streams": {"ticks": {"encoder": options}}}


def test_a_trained_run_is_scored_by_the_defaults_that_it_was_trained_with(run: Path) -> None:
    before = loss(run, version(Scaled))
    assert loss(run, version(Louder)) == before
    assert loss(run, version(Louder), **scaled(scale=1.0)) == before  # as it is
    with pytest.raises(ConfigError, match=r"streams\.ticks\.encoder\.scale: 1\.0 in the run, 30\.0 here: the model"):
        loss(run, version(Louder), **scaled(scale=30.0))


def test_it_goes_on_with_them_and_keeps_them(run: Path, tmp_path: Path) -> None:
    outputs = {}
    for number, registry in enumerate((version(Scaled), version(Louder))):
        outputs[number] = tmp_path / str(number)
        train_model(small_run(outputs[number], streams=STREAM, train={"steps": 2}), registry=version(Scaled))
        resume_run(outputs[number], {"train": {"steps": 3}}, registry=registry)
        resume_run(outputs[number], {"train": {"steps": 4}}, registry=registry)
    losses = [[row["loss"] for row in rows_of(of / "metrics.jsonl")] for of in outputs.values()]
    assert losses[0] == losses[1] and len(losses[0]) == 4
    kept = json.loads((outputs[1] / LOCK_FILE).read_text())["defaults"]
    assert kept["encoder scaled"] == {"plus": 0.0, "scale": 1.0}


def test_a_new_run_has_the_defaults_of_today_and_hears_of_it_where_it_begins_with_an_old_one(
    run: Path, tmp_path: Path
) -> None:
    said = Said()
    fresh = small_run(tmp_path / "new", streams=STREAM, init=str(run), train={"steps": 1})
    train_model(fresh, registry=version(Louder), reporter=said)
    assert f"warning: streams.ticks.encoder.scale: 1.0 in {run}, 30.0 here; unless that is meant" in "\n".join(
        said.lines
    )
    recorded = json.loads((tmp_path / "new" / LOCK_FILE).read_text())["defaults"]
    assert recorded["encoder scaled"]["scale"] == 30.0


def test_what_is_kept_and_what_is_gone_is_told_with_the_version(run: Path, tmp_path: Path) -> None:
    lock = json.loads((run / LOCK_FILE).read_text())
    lock["plugins"] = [{"name": "scaled", "distribution": "", "version": "0.9", "files": {}}]
    (tmp_path / LOCK_FILE).write_text(json.dumps(lock))
    (line,) = check_lock(tmp_path, version(Louder), accept=True)
    assert line.endswith("version 0.9 is now ; the run keeps the defaults that encoder scaled had (scale 1.0)")
    (line,) = check_lock(tmp_path, version(Renamed), accept=True)
    assert line.endswith("version 0.9 is now ; encoder scaled has no option scale any more")


def test_an_option_that_is_gone_is_refused_with_the_version_that_has_it_no_more(tmp_path: Path) -> None:
    output, stream = tmp_path / "run", {"ticks": {"encoder": {"name": "scaled", "scale": 2.0}}}
    train_model(small_run(output, streams=stream, train={"steps": 1}), registry=version(Scaled))
    lock = json.loads((output / LOCK_FILE).read_text())
    lock["plugins"] = [{"name": "scaled", "distribution": "acme", "version": "0.9", "files": {}}]
    (output / LOCK_FILE).write_text(json.dumps(lock))
    says = r"encoder\.scale: unknown field \(fields: .*\); the run was trained with other code: plugin scaled \(acme"
    with pytest.raises(ConfigError, match=says):
        resume_run(output, {"train": {"steps": 2}}, registry=version(Renamed), accept_plugins=True)


def test_a_lock_of_before_defaults_were_kept_keeps_none(run: Path, tmp_path: Path) -> None:
    before = loss(run, version(Scaled))
    lock = json.loads((run / LOCK_FILE).read_text())
    (run / LOCK_FILE).write_text(json.dumps({name: of for name, of in lock.items() if name != "defaults"}))
    try:
        assert loss(run, version(Louder)) != before
    finally:
        (run / LOCK_FILE).write_text(json.dumps(lock))
