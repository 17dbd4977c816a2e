"""``kosmos export``: one whole file of the weights, or none and one line that says why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model

from kosmos import prefix_of, save_run
from kosmos.checkpoint.saver import Saver
from kosmos.checkpoint.tensors import MODEL, model_tensors
from kosmos.cli import main
from kosmos.commands.arguments import check_free_folder
from kosmos.compose import compose
from kosmos.runtime.parallel import Parallel
from kosmos.train.output import RunFolder
from support.full_disk import room_for
from support.runs import small_run, ticks_registry


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Checkpoints of the steps 1 to 3, whose weights are their number; with the state of an optimizer."""
    folder = RunFolder.create(small_run(tmp_path / "run"))
    folder.release()
    folder.write_config(small_run(folder.path))
    saver = Saver(folder.checkpoints, Parallel(), keep_last=9)
    for step in (1, 2, 3):
        tensors = {"model.w": torch.full((8, 2), float(step)), "model.b": torch.ones(3, dtype=torch.bfloat16)}
        saver.save(step, {**tensors, "optimizer.w/momentum": torch.zeros(8, 2)}, {"step": step})
    saver.wait()
    return folder


def damage(run: RunFolder, step: int) -> None:
    (run.checkpoints / f"step-{step:08d}" / "state.json").write_text("{}")


def test_the_newest_model_is_written_without_its_optimizer(run: RunFolder, tmp_path: Path, capsys) -> None:
    file = tmp_path / "model.safetensors"
    assert main(["export", str(run.path), str(file)]) == 0
    assert file.stat().st_mode == (run.path / "run.yaml").stat().st_mode
    assert capsys.readouterr().out == f"{file}: 19 values of step 3, 0.0 MiB\n"
    found = load_file(file)
    assert {name: (t.dtype, tuple(t.shape)) for name, t in found.items()} == {
        "w": (torch.float32, (8, 2)),
        "b": (torch.bfloat16, (3,)),
    }
    assert found["w"].unique().item() == 3
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"format": "pt", "step": "3"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.safetensors", "run"]


def test_a_step_chooses_a_checkpoint_and_damaged_ones_are_passed_over(run: RunFolder, tmp_path: Path, capsys) -> None:
    damage(run, 3)
    for name, options, step in (("newest", [], 2), ("first", ["--step", "1"], 1)):
        assert main(["export", str(run.path), str(tmp_path / name), *options]) == 0
        assert load_file(tmp_path / name)["w"].unique().item() == step
    warned = "warning: passed over a damaged checkpoint: step-00000003: state.json does not match its hash\n"
    assert capsys.readouterr().err == warned


def test_exports_of_one_checkpoint_are_the_same_bytes(run: RunFolder, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.safetensors" for number in range(5)]
    assert not any(main(["export", str(run.path), str(file)]) for file in files)
    assert len({file.read_bytes() for file in files}) == 1


def test_a_full_disk_is_one_line_and_leaves_nothing(run: RunFolder, tmp_path: Path, capsys) -> None:
    with room_for(100):
        assert main(["export", str(run.path), str(tmp_path / "model")]) == 4
    line = "cannot write (File too large); nothing is left there; name another file\n"
    assert capsys.readouterr().err == f"error[training]: {tmp_path}/model: {line}"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_the_file_fills_the_model_that_was_saved(tmp_path: Path) -> None:
    config = small_run(tmp_path / "run")
    folder = RunFolder.create(config)
    folder.release()
    folder.write_config(config)
    trained = compose(config, ticks_registry()).model
    saver = Saver(folder.checkpoints, Parallel(), keep_last=1)
    saver.save(1, {MODEL + name: t for name, t in model_tensors(trained).items()}, {"step": 1})
    saver.wait()
    assert main(["export", str(folder.path), str(tmp_path / "model.safetensors")]) == 0
    other = compose(small_run(train={"seed": 5}), ticks_registry()).model
    assert load_model(other, tmp_path / "model.safetensors") == (set(), [])
    assert all(torch.equal(t, model_tensors(trained)[name]) for name, t in model_tensors(other).items())


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("RUN there", 2, "error[config]: there: exists already; name another file, or remove it"),
        ("RUN .", 2, "error[config]: .: exists already"),
        ("RUN no/model", 2, "error[config]: no/model: no is no folder; make it first"),
        ("nowhere model", 2, "error[config]: nowhere: no run is here"),
        ("RUN model --step 7", 3, "error[checkpoint]: RUN/checkpoints: no checkpoint of step 7; steps: 1, 2, 3"),
        (
            "RUN/checkpoints/step-00000001 model --step 2",
            2,
            "error[config]: step 2: RUN/checkpoints/step-00000001 is the checkpoint of step 1; leave one of them out",
        ),
        (
            "RUN m.gguf",
            2,
            "error[config]: m.gguf: a file of safetensors is written, and .gguf is another format; name it "
            "m.safetensors, or write the language model with --for transformers and convert that",
        ),
        ("RUN new.PT", 2, "error[config]: new.PT: a file of safetensors is written, and .pt is another format"),
        ("RUN model --step 2", 3, "error[checkpoint]: RUN/checkpoints/step-00000002: state.json does not match its"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    run: RunFolder, capsys, monkeypatch, tmp_path: Path, arguments: str, status: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").write_text("mine")
    damage(run, 2)
    assert main(["export", *arguments.replace("RUN", "run").split()]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said.replace("RUN", "run"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "there"]
    assert Path("there").read_text() == "mine"


def test_a_folder_of_a_checkpoint_may_be_named_as_a_person_writes_it(run: RunFolder, tmp_path: Path) -> None:
    assert main(["export", str(run.checkpoints / "step-2"), str(tmp_path / "x")]) == 0
    assert load_file(tmp_path / "x")["w"].unique().item() == 2


def test_a_part_is_written_by_the_names_that_it_has_in_itself(tmp_path: Path, capsys) -> None:
    parts = compose(small_run(tmp_path / "run"), ticks_registry())
    save_run(parts, tmp_path / "run", step=1)
    export, encoder = ["export", str(tmp_path / "run"), str(tmp_path / "part")], parts.model.streams["ticks"].encoder
    assert main([*export, "--part", "streams.ticks.encoder"]) == 0
    found = load_file(tmp_path / "part")
    assert found.keys() == encoder.state_dict().keys() and found
    assert all(torch.equal(tensor, found[name]) for name, tensor in encoder.state_dict().items())
    assert prefix_of(found, [f"a.{name}" for name in found]) == "a." and prefix_of(found, found) == ""
    (tmp_path / "part").unlink()
    capsys.readouterr()
    for wrong, line in {
        (
            "--part",
            "streams.ticks.encodr",
        ): "no such part; did you mean streams.ticks.encoder? (parts: backbone, streams.ti",
        ("--part", "backbone", "--for", "transformers"): "--part: --for transformers writes the language model; leave",
        ("--part", ""): "--part: the value is empty",
    }.items():
        assert main([*export, *wrong]) == 2
        assert line in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("name", "line"), [("model" * 60, "cannot write ("), ("new/", "is the name of a folder; name a file")]
)
def test_a_name_that_no_file_can_have_is_one_line(run: RunFolder, tmp_path: Path, capsys, name: str, line: str) -> None:
    assert main(["export", str(run.path), f"{tmp_path}/{name}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error[config]: {tmp_path}/{name}: {line}") and said.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_folders_above_the_one_for_transformers_are_made_and_a_file_in_their_place_is_refused(
    run: RunFolder, tmp_path: Path, capsys
) -> None:
    (tmp_path / "file").write_text("mine")
    check_free_folder("FOLDER", str(tmp_path / "no" / "such" / "model"))
    assert main(["export", str(run.path), f"{tmp_path}/file/model", "--for", "transformers"]) == 2
    assert capsys.readouterr().err == f"error[config]: {tmp_path}/file: is no folder; name one to write to\n"


def test_a_run_without_checkpoints_is_one_line(tmp_path: Path, capsys) -> None:
    folder = RunFolder.create(small_run(tmp_path / "run"))
    folder.release()
    folder.write_config(small_run(folder.path))
    assert main(["export", str(folder.path), str(tmp_path / "model")]) == 3
    said = capsys.readouterr().err
    assert f"/checkpoints: no checkpoint was saved yet; go on with 'kosmos train --resume {folder.path}'" in said


def test_step_0_is_a_step(tmp_path, capsys):
    run = RunFolder.create(small_run(tmp_path / "run"))
    run.release()
    run.write_config(small_run(run.path))
    saver = Saver(run.checkpoints, Parallel(), keep_last=1)
    saver.save(3, {"model.w": torch.ones(3)}, {"step": 3})
    saver.wait()
    assert main(["export", str(run.path), str(tmp_path / "m"), "--step", "0"]) == 3
    assert "no checkpoint of step 0; steps: 3" in capsys.readouterr().err
