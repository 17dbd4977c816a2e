from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.errors import CheckpointError, ConfigError, DataError
from kosmos.lock import LOCK_FILE, read_lock
from kosmos.plugins import load_plugins
from kosmos.run_file import make_run
from kosmos.train.order import check_same_order, sample_order
from kosmos.train.progress import Reporter
from kosmos.train.run import resume_run, train_model
from kosmos.train.saved import load_run
from support.runs import SMALL, Listener, rows_of, small_run, ticks_registry
from support.ticks import TicksSource

DROPOUT = {"backbone": {"dropout": 0.1}}
"""Random numbers are part of the state."""


def losses(output):
    return [row["loss"] for row in rows_of(output / "metrics.jsonl")]


def weights(output):
    return read_whole(load_newest(output / "checkpoints").tensors, MODEL)


@pytest.mark.parametrize("optimizer", ["lion", "adamw"])
def test_losses_and_weights_after_a_resume_are_bit_identical(tmp_path, optimizer):
    over = {**DROPOUT, "train": {"optimizer": optimizer}}
    registry = ticks_registry()
    train_model(small_run(tmp_path / "whole", **over), registry=registry)
    every_3 = {**over, "checkpoint": {"every_steps": 3, "keep_last": 9}}
    train_model(small_run(tmp_path / "cut", **every_3), registry=registry)
    newest = tmp_path / "cut" / "checkpoints" / "step-00000006"
    newest.rename(tmp_path / "gone")  # as a run that was killed after step 3
    resume_run(tmp_path / "cut", registry=registry)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert all(torch.equal(t, weights(tmp_path / "whole")[name]) for name, t in weights(tmp_path / "cut").items())


def test_a_resumed_run_may_have_more_steps(tmp_path):
    registry = ticks_registry()
    schedule = {"train": {"schedule": "constant"}}
    train_model(small_run(tmp_path / "whole", **schedule), registry=registry)
    train_model(small_run(tmp_path / "short", train={"schedule": "constant", "steps": 2}), registry=registry)
    resume_run(tmp_path / "short", {"train": {"steps": 6}}, registry=registry)
    assert losses(tmp_path / "short") == losses(tmp_path / "whole")


@pytest.mark.parametrize(
    ("every", "said"), [(1, "no sample of the sources can be used"), (3, "samples were bad and data.quarantine")]
)
def test_steps_before_the_data_fail_are_not_lost(tmp_path, every, said):
    """Nor is what is bad counted twice, once it is mended."""
    rows, output = tmp_path / "rows.jsonl", tmp_path / "cut"
    lines = [json.dumps({"text": f"this is line {number}"}) + "\n" for number in range(200)]
    bad = ["-" * (len(line) - 1) + "\n" if number % every == 0 else line for number, line in enumerate(lines)]
    rows.write_text("".join(lines))
    data = {"sources": [str(rows)], "workers": 0, "quarantine": 0.02}
    over, registry = {"data": data, "train": {"steps": 30}}, ticks_registry()

    class Pulls(Reporter):
        def step(self, row, steps):
            if row["step"] == 13:
                known = rows.stat()  # by which alone a file that was changed is told
                rows.write_text("".join(bad))
                os.utime(rows, ns=(known.st_atime_ns, known.st_mtime_ns))

    with pytest.raises(DataError, match=said):
        train_model(small_run(output, **over), registry=registry, reporter=Pulls())
    taken = losses(output)
    assert 13 <= load_newest(output / "checkpoints").state["step"] == len(taken) < 30
    noted = rows_of(output / "quarantine.jsonl")
    assert len(noted) == len({row["origin"] for row in noted}) > 5
    assert noted[-1]["step"] == len(taken) + 1
    rows.write_text("".join(lines))
    resume_run(output, registry=registry)
    assert losses(output)[: len(taken)] == taken
    assert len(losses(output)) == 30
    assert not rows_of(output / "quarantine.jsonl")


def test_the_folder_of_a_run_may_be_a_str(tmp_path):
    registry, run = ticks_registry(), str(tmp_path / "run")
    train_model(small_run(tmp_path / "run", train={"schedule": "constant", "steps": 2}), registry=registry)
    assert load_run(run, device="cpu", registry=registry).step == 2
    resume_run(run, {"train": {"steps": 3}}, registry=registry)
    assert len(losses(tmp_path / "run")) == 3
    assert read_lock(f"{run}/{LOCK_FILE}") == read_lock(tmp_path / "run" / LOCK_FILE)


def test_rows_of_steps_that_are_repeated_are_not_kept_twice(tmp_path):
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run", checkpoint={"every_steps": 2}), registry=registry)
    (tmp_path / "run" / "checkpoints" / "step-00000006").rename(tmp_path / "gone")
    resume_run(tmp_path / "run", registry=registry)
    assert [row["step"] for row in rows_of(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path):
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run", checkpoint={"every_steps": 3}), registry=registry)
    (file,) = (tmp_path / "run" / "checkpoints" / "step-00000006" / "tensors").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    loaded = load_newest(tmp_path / "run" / "checkpoints")
    assert loaded.folder.name == "step-00000003"
    assert loaded.skipped == (f"step-00000006: tensors/{file.name} does not match its hash",)


def test_without_a_whole_checkpoint_the_line_says_what_is_wrong_with_each(tmp_path):
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run"), registry=registry)
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        (folder / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"no whole checkpoint to load; damaged: .*state.json"):
        resume_run(tmp_path / "run", registry=registry)


def test_a_run_that_goes_on_begins_with_no_other_weights(tmp_path):
    registry = ticks_registry()
    for name in ("one", "other"):
        train_model(small_run(tmp_path / name, train={"steps": 1}), registry=registry)
    with pytest.raises(ConfigError, match=r"init: the run in .*one goes on with its own weights; leave it out"):
        resume_run(tmp_path / "one", {"init": str(tmp_path / "other")}, registry=registry)


def test_where_weights_lay_is_no_part_of_the_order(tmp_path):
    def order(weights):
        encoder = {"name": "timm", "weights": weights} if weights else "timm"
        run = {"modalities": ["image"], "streams": {"image": {"encoder": encoder, "connector": "mlp"}}}
        return sample_order(make_run(run), [])

    check_same_order(order("a/vit.safetensors"), order("b/vit.safetensors"), tmp_path)
    with pytest.raises(CheckpointError, match=r"streams\.image\.encoder\.weights"):
        check_same_order(order("a/vit.safetensors"), order(None), tmp_path)


def test_the_folder_of_a_checkpoint_is_known(tmp_path):
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=registry)
    with pytest.raises(ConfigError, match=r"step-00000001: is a checkpoint; give the folder of its run, .*run$"):
        resume_run(tmp_path / "run" / "checkpoints" / "step-00000001", registry=registry)


SOURCES = [{"path": "ticks", "name": "a"}, {"path": "ticks", "name": "b", "options": {"size": 50}}]


@pytest.mark.parametrize(
    ("over", "path", "before", "after"),
    [
        ({"data": {"lanes": 4}}, "data.lanes", "2", "4"),
        ({"data": {"seed": 1}}, "data.seed", "0", "1"),
        ({"data": {"look_ahead": 17}}, "data.look_ahead", "16", "17"),
        ({"data": {"tokens_per_pack": 64}}, "data.tokens_per_pack", "128", "64"),
        ({"data": {"cells_per_pack": {"ticks": 30}}}, "data.cells_per_pack.ticks", "null", "30"),
        ({"data": {"sources": SOURCES[::-1]}}, "data.sources.0.name", "'a'", "'b'"),
        (
            {"data": {"sources": [SOURCES[0], {**SOURCES[1], "options": {"size": 60}}]}},
            "data.sources.1.options.size",
            50,
            60,
        ),
        ({"data": {"sources": [{**s, "weight": 1} for s in SOURCES]}}, "data.sources.0.weight", "null", "1.0"),
        ({"modalities": {"ticks": {"processor": {"lie": 1}}}}, "modalities.ticks.processor.lie", "0", "1"),
    ],
)
def test_going_on_with_another_order_of_samples_is_refused_by_the_field_that_differs(
    tmp_path, over, path, before, after
):
    registry = ticks_registry()
    run = small_run(tmp_path / "run", data={**SMALL["data"], "sources": SOURCES}, train={"steps": 1})
    train_model(run, registry=registry)
    with pytest.raises(CheckpointError, match=rf"was made with {path} {before}, the run now has {after};"):
        resume_run(tmp_path / "run", over, registry=registry)


def test_one_value_may_be_stated_in_two_ways(tmp_path):
    def order(**encoder):
        stream = {"encoder": {"name": "timm", "model": "test_vit", **encoder}, "connector": "mlp"}
        return sample_order(make_run({"modalities": ["image"], "streams": {"image": stream}}), [])

    registry, ways = load_plugins(), ({}, {"image_size": 160}, {"image_size": [160, 160]}, {"model_options": {}})
    for one, other in itertools.permutations(ways, 2):
        check_same_order(order(**one), order(**other), tmp_path, registry)
    with pytest.raises(CheckpointError, match=r"image_size \[160, 160\], the run now has \[96, 96\]"):
        check_same_order(order(), order(image_size=96), tmp_path, registry)
    with pytest.raises(CheckpointError, match=r"streams\.image\.encoder\.weights True, the run now has null"):
        check_same_order(order(weights="vit.safetensors"), order(), tmp_path, registry)


def test_an_option_that_states_its_default_is_the_one_left_out(tmp_path):
    registry = ticks_registry()
    parts = {"encoder": {"name": "ticks"}, "connector": {"name": "mlp"}}
    train_model(small_run(tmp_path / "run", streams={"ticks": parts}, train={"steps": 1}), registry=registry)
    stated = {
        "modalities": {"ticks": {"processor": {"lie": 0}}},
        "streams": {"ticks": {"encoder": {"name": "ticks", "width": 8}, "connector": {"name": "mlp", "hidden": None}}},
    }
    assert resume_run(tmp_path / "run", {**stated, "train": {"steps": 2}}, registry=registry).step == 2
    with pytest.raises(CheckpointError, match=r"streams\.ticks\.encoder\.width 8, the run now has 7;"):
        resume_run(tmp_path / "run", {"streams": {"ticks": {"encoder": {"width": 7}}}}, registry=registry)


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"data": {"seed": 3}}, "the order of samples would not go on"),
        ({"data": {"sources": [{"path": "ticks", "limit": 60}]}}, "the order of samples would not go on"),
        ({"data": {"sources": [{"path": "ticks", "template": "→ {a}"}]}}, "what the model is shown would be another"),
        ({"modalities": {"ticks": {"processor": {"lie": 1}}}}, "what the model is shown would be another"),
        ({"streams": {"ticks": {"encoder": {"name": "ticks", "width": 5}}}}, "the model would be another"),
    ],
)
def test_the_reason_why_a_run_cannot_go_on_is_that_of_the_field(tmp_path, over, why):
    def order(over):
        return sample_order(small_run(**{"data": {"sources": ["ticks"]}, **over}), [TicksSource("train")])

    with pytest.raises(CheckpointError, match=rf"; {why}\. "):
        check_same_order(order({}), order(over), tmp_path / "checkpoints" / "step-00000001")


def test_what_a_run_cannot_go_on_with_is_refused_and_leaves_its_run_file_as_it_was(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, train={"steps": 2}), registry=registry)
    before = (run / "run.yaml").read_text()
    for over, line in (
        ({"train": {"optimizer": "adamw"}}, r"was made with train\.optimizer lion, whose state adamw has no use for"),
        (
            {"train": {"optimizer": {"master": "bits8"}, "weights": "bf16", "precision": "bf16"}},
            r"train\.weights 'fp32', the run now has 'bf16'",
        ),
        ({"output": str(tmp_path / "other")}, r"output: the run in .* goes on there"),
        ({"tokenizer": "some/folder"}, "tokenizer: some/folder in place of bytes: the run in .* keeps what"),
    ):
        with pytest.raises((CheckpointError, ConfigError), match=line):
            resume_run(run, {**over, "train": {**over.get("train", {}), "steps": 4}}, registry=registry)
        assert (run / "run.yaml").read_text() == before
    assert resume_run(run, {"train": {"steps": 4}}, registry=registry).step == 4
    assert "steps: 4" in (run / "run.yaml").read_text()


@pytest.mark.parametrize(
    ("over", "line"),
    [
        (
            {"backbone": {"rope_base": 100.0}},
            r"backbone\.rope_base 10000\.0, the run now has 100\.0; its weights are of an",
        ),
        ({"backbone": {"freeze": True}}, r"backbone\.freeze False, the run now has True; its optimizer knows"),
        (
            {"streams": {"ticks": {"freeze": True}}},
            r"streams\.ticks\.freeze False, the run now has True; its optimizer",
        ),
        (
            {"streams": {"ticks": {"freeze_connector": True}}},
            r"streams\.ticks\.freeze_connector False, the run now has True; its optimizer",
        ),
        (
            {"train": {"weights": "bf16", "precision": "bf16"}},
            r"train\.weights 'fp32', the run now has 'bf16'; its weights are",
        ),
    ],
)
def test_going_on_with_another_model_of_the_same_shapes_is_refused_by_its_field(tmp_path, over, line):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, train={"steps": 1}), registry=registry)
    with pytest.raises(CheckpointError, match=rf"was made with {line}"):
        resume_run(run, {**over, "train": {**over.get("train", {}), "steps": 2}}, registry=registry)


def test_a_run_goes_on_where_its_backbone_is_said_to_be_what_it_was_without_words(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, train={"steps": 1}), registry=registry)
    assert resume_run(run, {"backbone": {"rope_base": 10_000.0}, "train": {"steps": 2}}, registry=registry).step == 2
    with pytest.raises(
        CheckpointError, match=r"backbone\.ffn_width \d+, the run now has 80; its weights are of another"
    ):
        resume_run(run, {"backbone": {"ffn_width": 80}, "train": {"steps": 3}}, registry=registry)


def test_8_bit_momentum_goes_on_in_the_blocks_that_it_has(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, train={"steps": 1, "optimizer": "lion8bit"}), registry=registry)
    with pytest.raises(CheckpointError, match=r"was made with train\.optimizer\.block 256, the run now has 64; leave"):
        resume_run(run, {"train": {"steps": 2, "optimizer": {"block": 64}}}, registry=registry)
    over = {"train": {"steps": 2, "optimizer": {"compile": True}}}
    assert resume_run(run, over, registry=registry).step == 2


@pytest.mark.parametrize(
    ("field", "jumped"), [("learning_rate", "streams.ticks"), ("connector_learning_rate", "streams.ticks.connector")]
)
def test_a_stream_or_its_connector_may_learn_faster_from_here_on(tmp_path, field, jumped):
    registry, lines = ticks_registry(), Listener()
    train_model(small_run(tmp_path / "run", train={"steps": 1, "warmup_steps": 0}), registry=registry)
    over = {"train": {"steps": 2}, "streams": {"ticks": {field: 1e-2}}}
    assert resume_run(tmp_path / "run", over, registry=registry, reporter=lines).step == 2
    assert any(
        f"the learning rate of {jumped} was" in line and f"streams.ticks.{field}=" in line for line in lines.said
    )
    assert rows_of(tmp_path / "run" / "metrics.jsonl")[1]["learning_rate_by_part"][jumped] > 1e-4


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(tmp_path):
    registry = ticks_registry()
    train_model(small_run(tmp_path / "whole", **DROPOUT), registry=registry)
    train_model(small_run(tmp_path / "cut", **DROPOUT), registry=registry)
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000006")
    (tmp_path / "cut" / "goodput.jsonl").unlink()  # which tells of it
    assert resume_run(tmp_path / "cut", registry=registry).step == 6
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert len(rows_of(tmp_path / "cut" / "held_out.jsonl")) == 2


def test_a_run_whose_checkpoints_were_taken_away_is_left_as_it_is(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, train={"steps": 2}), registry=registry)
    (run / "checkpoints").rename(tmp_path / "moved")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=r"checkpoints: is not there, and metrics\.jsonl tells of 2 steps; bring"):
        resume_run(run, {"train": {"steps": 3}}, registry=registry)
    assert (run / "metrics.jsonl").read_bytes() == before
    (tmp_path / "moved").rename(run / "checkpoints")
    assert resume_run(run, {"train": {"steps": 3}}, registry=registry).step == 3


def test_a_run_without_a_folder_of_checkpoints_begins_again_where_it_has_taken_no_step(tmp_path):
    registry, run = ticks_registry(), tmp_path / "run"
    train_model(small_run(run, train={"steps": 1}), registry=registry)
    shutil.rmtree(run / "checkpoints")
    (run / "metrics.jsonl").write_text("")
    assert resume_run(run, registry=registry).step == 1


def test_a_run_goes_on_from_another_working_directory(tmp_path, monkeypatch):
    registry = ticks_registry()
    (tmp_path / "texts.txt").write_text("one line of text\nand another\n" * 40)
    monkeypatch.chdir(tmp_path)
    run = small_run(Path("run"), data={**SMALL["data"], "sources": ["texts.txt", "ticks"]}, train={"steps": 1})
    train_model(run, registry=registry)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume_run(tmp_path / "run", {"train": {"steps": 2}}, registry=registry).step == 2


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=registry)
    with pytest.raises(ConfigError, match="holds a run already"):
        train_model(small_run(tmp_path / "run"), registry=registry)


def test_a_folder_whose_checkpoints_could_not_be_read_again_is_refused_before_anything_is_trained(tmp_path):
    output = tmp_path / os.fsdecode(b"run\xff")  # safetensors opens no such path
    with pytest.raises(ConfigError, match=r"run.* is not UTF-8, and no checkpoint could be read there; name another"):
        train_model(small_run(output), registry=ticks_registry())
    assert not output.exists()


def test_a_folder_without_a_run_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"no run is here"):
        resume_run(tmp_path)


def test_a_run_leaves_what_it_promises(tmp_path):
    result = train_model(small_run(tmp_path / "run", trackers=["tensorboard"]), registry=ticks_registry())
    left = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"run.yaml", "metrics.jsonl", "quarantine.jsonl", "checkpoints", "tokenizer", "tensorboard"} <= left
    rows = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    for row in rows:
        assert row["tokens"] == row["text_tokens"] + row["media_tokens"] <= 256
        assert set(row["loss_by_modality"]) == {"ticks"}
    assert result.after.by_modality["ticks"].documents == 20
    files = [p for p in (tmp_path / "run" / "checkpoints").rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".safetensors", ".json"}
    assert all(json.loads(p.read_text()) is not None for p in files if p.suffix == ".json")
