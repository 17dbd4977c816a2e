"""Two processes of torchrun (gloo) against one: same documents, same losses, and one goes on from their checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from kosmos import ConfigError, RunConfig, make_run
from kosmos.checkpoint.folder import load_newest
from kosmos.compose import compose, make_feed
from kosmos.data.feeder import open_feeder
from kosmos.run_file import dump_run
from kosmos.run_sources import open_sources
from kosmos.train.run import resume_run, train_model
from support import ticks
from support.command import Started, install_plugin
from support.runs import SMALL, rows_of, ticks_registry

MIXED = {
    "data": {"tokens_per_pack": 48, "look_ahead": 4, "sources": ["ticks", "sums"]},
    "train": {"schedule": "constant", "clip_norm": 1.0},
    "evaluate": {"max_documents": 16},
}
"""Rows of one or two documents, so that one rank often has none of a modality."""
AT_MOST_S = 60


def mixed(output: Path, **train: object) -> RunConfig:
    return make_run(SMALL, MIXED, {"train": train, "output": str(output)})


def torchrun(site: Path, *args: object) -> None:
    """``kosmos`` in two processes; the test fails where they hang."""
    program = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "kosmos", *map(str, args)]
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}
    run = Started(path=[site], program=[sys.executable, "-m", *program], **loopback)
    status, said = run.end(at_most_s=AT_MOST_S)
    assert status == 0, said


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process, six steps."""
    output = tmp_path_factory.mktemp("alone") / "run"
    train_model(mixed(output), registry=ticks_registry())
    return output


def assert_same(output: Path, alone: Path) -> None:
    rows, expected = rows_of(output / "metrics.jsonl"), rows_of(alone / "metrics.jsonl")
    assert len(rows) == len(expected) == 6
    for row, one in zip(rows, expected, strict=True):
        for name in ("step", "documents", "tokens", "media_tokens", "target_tokens"):
            assert row[name] == one[name]
        for name in ("loss", "grad_norm"):  # measured: 0, since two addends have one order
            assert row[name] == pytest.approx(one[name], rel=1e-5)
        assert row["loss_by_source"] == pytest.approx(one["loss_by_source"], rel=1e-5)
    (state, one_state) = (load_newest(folder / "checkpoints").state for folder in (output, alone))
    assert state["data"] == one_state["data"]  # which documents every lane has drawn and which wait
    assert state["budget"] == one_state["budget"]
    before, after = rows_of(output / "held_out.jsonl")[-1], rows_of(alone / "held_out.jsonl")[-1]
    for part in ("ticks", "sums"):
        scored, one = (row["held_out"]["source"][part] for row in (before, after))
        assert scored["documents"] == one["documents"]
        assert scored["loss"] == pytest.approx(one["loss"], rel=1e-5)


def test_the_mixture_has_steps_in_which_one_rank_lacks_a_modality(tmp_path: Path) -> None:
    """What the tests below rely on."""
    config, registry = mixed(tmp_path), ticks_registry()
    parts = compose(config, registry)
    feed = make_feed(parts, open_sources(config, registry, "train"))
    feeder = open_feeder(feed, [0, 1], workers=0)
    have = [tuple(len(row.arrays.media["ticks"].values) > 0 for row in feeder.next_step()) for _ in range(6)]
    assert {(True, False), (False, True)} & set(have)


def test_two_processes_train_as_one_and_one_goes_on_from_their_checkpoint(
    tmp_path: Path, site: Path, alone: Path
) -> None:
    output = tmp_path / "run"
    file = tmp_path / "run.yaml"
    file.write_text(dump_run(mixed(output, steps=3)))
    torchrun(site, "train", file)
    assert yaml.safe_load((output / "run.yaml").read_text())["data"]["lanes"] == 2
    resume_run(output, {"train": {"steps": 6}}, registry=ticks_registry(), accept_plugins=True)
    assert_same(output, alone)


def test_one_process_that_is_to_offload_is_told_both_ways_out(tmp_path: Path) -> None:
    run = make_run(SMALL, {"output": str(tmp_path / "run"), "parallel": {"offload": True}})
    with pytest.raises(ConfigError, match=r"start several processes .*, or set parallel\.offload=false"):
        train_model(run, registry=ticks_registry())
