"""Fields that ``kosmos eval``, ``kosmos generate`` and ``load_run`` lay over the file of a trained run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from kosmos import CheckpointError, ConfigError, load_run, resume_run, train_model
from kosmos.cli import main
from kosmos.commands.unfinished import made_by
from kosmos.train.laid_over import laid_over
from kosmos.train.output import RunFolder
from support.runs import small_run, ticks_registry


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on texts that have moved since."""
    folder = tmp_path_factory.mktemp("laid")
    rows = [{"prompt": f"{number} is", "completion": " a number"} for number in range(40)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"sources": [str(folder / "rows.jsonl")], "tokens_per_pack": 128, "workers": 0}
    train_model(small_run(folder / "run", modalities=[], data=data, train={"steps": 1, "precision": "fp32"}))
    (folder / "rows.jsonl").rename(folder / "moved.jsonl")
    return folder


def test_data_that_have_moved_are_named_and_keep_their_name(run: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(run)
    for command in (["eval", "run", "--workers", "0"], ["train", "--resume", "run", "--steps", "2"]):
        assert main(command) == 3
        advice = "where data have moved, give data.sources.N.path=PATH (N from 0 on), with data.sources.N.name=NAME"
        assert advice in capsys.readouterr().err
    assert main(["eval", "run", "--workers", "0", "data.sources.0.path=moved.jsonl", "--json"]) == 0
    said = capsys.readouterr()
    assert list(json.loads(said.out)["by_source"]) == ["rows"] and not said.err
    generate = ("generate", "run", "--max-new-tokens", "2")
    assert main([*generate, "--data", "rows", "data.sources.0.path=moved.jsonl", "--max-documents", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["document"] == "moved.jsonl:1"
    assert "rows.jsonl" in Path("run/run.yaml").read_text()  # which stays as it is


def test_a_device_and_a_precision_may_be_others(run: Path, monkeypatch) -> None:
    saved = load_run(run / "run", overrides={"train": {"device": "cpu", "precision": "bf16", "compile": False}})
    assert (saved.device, saved.dtype) == (torch.device("cpu"), torch.bfloat16)
    assert saved.composition.config.train.compile is False  # by which it is scored
    assert load_run(run / "run", device="cpu").dtype == torch.float32


def test_a_field_behind_a_prompt_is_none_within_it(run: Path, capsys) -> None:
    few = ("--max-new-tokens", "2", "--json")
    for field in (["train.device=cpu"], ["--train.device=cpu"], ["--train.device", "cpu"]):
        assert main(["generate", str(run / "run"), "--prompt", "train.steps=3", *field, *few]) == 0
        assert json.loads(capsys.readouterr().out)["prompt"] == "train.steps=3"
    assert main(["generate", str(run / "run"), "--prompt", "solve", "x=3", *few]) == 2
    assert "x=3: belongs to no option; a prompt of several words needs quotes" in capsys.readouterr().err


REFUSED = {
    "backbone.width=64": "backbone.width: 32 in the run, 64 here: the model would be another; leave it out",
    "train.weights=bf16": "train.weights: 'fp32' in the run, 'bf16' here: the model would be another",
    "modalities=ticks": "modalities.ticks: null in the run, ",
    "data.sources.0.template=a{text}": "data.sources.0.template: null in the run, 'a{text}' here: what the model is",
    "data.sources.0.columns.text=x": "data.sources.0.columns.text: null in the run, 'x' here: what the model is shown",
    "data.held_out=0.5": "data.held_out: 0.05 in the run, 0.5 here: what is held out would be another",
    "tokenizer=other": "tokenizer: other in place of bytes: the run in ",
    "train.steps=9": "train.steps: has no effect on a trained run, as nothing is trained; leave it out",
    "backbone.learning_rate=1": "backbone.learning_rate: has no effect on a trained run",
    "data.workers=3": "data.workers: has no effect on a trained run; give --workers",
    "train.devic=cpu": "changes to ",
    "extra": "extra: belongs to no option; one run is scored",
    "--bogus": "--bogus: unknown option; options: ",
    "--batch-size": "--batch-size: unknown option; documents are scored in rows",
    "--seed": "--seed: unknown option; answers of --generate are greedy",
    "--limit": "--limit: unknown option; --max-documents",
    "--max-document": "--max-document: unknown option; did you mean --max-documents?",
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_would_make_another_run_or_has_no_effect_is_refused(run: Path, capsys, field: str) -> None:
    assert main(["eval", str(run / "run"), field]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error[config]: {REFUSED[field]}")


def test_chats_longer_than_a_row_are_told_of_and_scored_whole_in_longer_rows(run: Path, tmp_path: Path, capsys) -> None:
    rows = [{"query": "x" * long, "response": "yes"} for long in (300, 5, 300)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["eval", str(run / "run"), "--data", str(tmp_path / "long.jsonl"), "--json", "--workers", "0"]
    assert main(given) == 0
    cut = capsys.readouterr()
    assert "warning: long: 2 of 3 documents take more than the 128 tokens of a row and are cut, so that" in cut.err
    assert main([*given, "data.tokens_per_pack=512"]) == 0
    whole = capsys.readouterr()
    assert "are cut" not in whole.err
    told = [json.loads(found.out)["overall"] for found in (cut, whole)]
    assert [(one["documents"], one["answers"], one["torn"]) for one in told] == [(3, 1, 2), (3, 3, 0)]


def test_what_states_the_default_that_the_run_has_is_no_other_model(run: Path) -> None:
    over = {"backbone": {"tie_embeddings": False, "ffn_width": 48}}
    assert load_run(run / "run", overrides=over).composition.config.backbone.options["tie_embeddings"] is False
    with pytest.raises(ConfigError, match=r"^backbone\.tie_embeddings: False in the run, True here: the model would"):
        load_run(run / "run", overrides={"backbone": {"tie_embeddings": True}})


def test_a_folder_may_be_called_like_a_field(run: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(run)
    for name in ("lr=0.1", "train.lr=0.1", "runs/train.lr=0.1"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).symlink_to(run / "run")
        given = ("eval", name, "--workers", "0", "data.sources.0.path=moved.jsonl", "--max-documents", "1", "--json")
        assert main(list(given)) == 0
        assert json.loads(capsys.readouterr().out)["output"] == name
    assert main(["eval", "runs/lr=0.2"]) == 2
    assert "comes first" not in (said := capsys.readouterr().err) and "runs/lr=0.2" in said


def test_the_folder_comes_first(run: Path, capsys) -> None:
    assert main(["eval", "--bogus", str(run / "run")]) == 2
    assert "error[config]: --bogus: unknown option; options: " in capsys.readouterr().err
    assert main(["eval", "--train.device", "cpu", str(run / "run")]) == 2
    assert "--train.device: the run's folder comes first: kosmos eval OUTPUT" in capsys.readouterr().err
    assert main(["eval", "train.device=cpu", str(run / "run")]) == 2
    assert "train.device=cpu: the run's folder comes first: kosmos eval OUTPUT" in capsys.readouterr().err


def test_the_options_of_parts_and_other_sources_are_compared_too(tmp_path: Path) -> None:
    train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=ticks_registry())
    for over, said in {
        "connector": r"^streams\.ticks: null in the run, .* the model would be another; leave it out",
        "freeze": r"^streams\.ticks\.freeze: False in the run, True here: the model would be another",
    }.items():
        layer = {"streams": {"ticks": {over: True if over == "freeze" else {"name": "mlp", "factor": 2}}}}
        with pytest.raises(ConfigError, match=said):
            load_run(tmp_path / "run", overrides=layer, registry=ticks_registry())


def shown(**options: object) -> dict[str, object]:
    return {"modalities": {"ticks": {"processor": options}}}


def test_media_may_be_shown_otherwise_than_in_training_which_is_told(tmp_path: Path) -> None:
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=registry)
    line = (
        "modalities.ticks.processor.lie: 0 in the run, 1 here: the model is shown something else than it was trained on"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(line)}$"):
        other = load_run(tmp_path / "run", overrides=shown(lie=1), registry=registry)
    assert other.composition.processors["ticks"].lie == 1 and other.warnings() == [line]  # type: ignore[attr-defined]
    same = load_run(tmp_path / "run", overrides=shown(lie=0), registry=registry)  # as it is where nothing is said
    assert same.warnings() == []
    by = [made_by(run, [], [], {}) for run in (other, load_run(tmp_path / "run", registry=registry))]
    assert by[0] != by[1]  # answers go on with the same alone

    with pytest.raises(
        ConfigError, match=r"^modalities\.ticks\.processor: its cells would be \(2,\) float32, and the run's"
    ):
        load_run(tmp_path / "run", overrides=shown(cell_shape=[2]), registry=registry)
    with pytest.raises(ConfigError, match=r"modalities\.ticks\.processor\.lye: unknown field"):
        load_run(tmp_path / "run", overrides=shown(lye=2), registry=registry)
    with pytest.raises(ConfigError, match=r"^modalities\.other: null in the run"):
        load_run(tmp_path / "run", overrides={"modalities": {"other": {}}}, registry=registry)
    with pytest.raises(ConfigError, match=r"0 in the run, 1 here: the model is shown something else; leave it out$"):
        laid_over(RunFolder.open(tmp_path / "run"), shown(lie=1), registry)  # of what it was trained on


def test_a_run_goes_on_with_what_it_was_shown(tmp_path: Path) -> None:
    registry = ticks_registry()
    train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=registry)
    with pytest.raises(CheckpointError, match="what the model is shown would be another"):
        resume_run(tmp_path / "run", {**shown(lie=1), "train": {"steps": 2}}, registry=registry)
