"""What a user gets wrong is one line on standard error with exit status 2 or 3, never a traceback."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kosmos.cli import main
from support.command import SMALL, command, environment

Call = Callable[..., tuple[int, list[str]]]
FEW = (*SMALL, "--steps", 1, "data.workers=0", "evaluate.max_documents=2")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Run the command in this process, in a folder of its own: exit status and the lines on standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, list[str]]:
        status = main([str(a) for a in args])
        captured = capsys.readouterr()
        assert captured.out == ""
        return status, captured.err.splitlines()

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step on pictures."""
    output = tmp_path_factory.mktemp("trained") / "run"
    assert main([str(a) for a in ("train", "--modalities", "image", "--output", output, *FEW)]) == 0
    return output


TRAIN = {
    "--modalties image": (2, "error[config]: --modalties: unknown option; did you mean --modalities?"),
    "--lr 3": (2, "error[config]: --lr: unknown option; a field is set by its path: train.learning_rate=VALUE"),
    "--modalities image backbone.heads=7": (2, "error[config]: backbone.heads: 7 must cut width 128 into even parts"),
    "--modalities audio streams.audio.encoder.heads=7": (2, "error[config]: streams.audio.encoder.heads: 7 does not"),
    "--modalities image --modalities smell": (3, "error[plugin]: modality 'smell': no installed plugin brings it"),
    "--resum run": (2, "error[config]: --resum: unknown option; did you mean --resume?"),
    "--save_steps 9": (
        2,
        "error[config]: --save_steps: unknown option; a field is set by its path: checkpoint.every_steps=VALUE",
    ),
    "--dataset x": (2, "error[config]: --dataset: unknown option; did you mean --data?"),
    "--max_steps 5": (2, "error[config]: --max_steps: unknown option; did you mean --steps?"),
    "--lora_rank 8": (
        2,
        "error[config]: --lora_rank: unknown option; a field is set by its path: backbone.lora.rank=VALUE",
    ),
    "columns.text=caption": (2, "error[config]: command line: columns: unknown field; did you mean data.sources.N.col"),
    "--modalities image backbone.lora_rank=8": (
        2,
        "error[config]: backbone.lora_rank: unknown field; did you mean backbone.lora.rank?",
    ),
    "--modalities image train.optimizer.lr=1": (
        2,
        "error[config]: train.optimizer.lr: unknown field; did you mean train.learning_rate?",
    ),
    "--modalities image backbone=gpt2": (3, "error[plugin]: backbone 'gpt2': no installed plugin brings it"),
    "--data sums data.sources.0.options.largest=-3": (
        2,
        "error[config]: data.sources.0.options.largest: expected 1 to 49, got -3",
    ),
    "--data sums data.sources.0.options.largest=50": (
        2,
        "error[config]: data.sources.0.options.largest: expected 1 to 49, got 50",
    ),
    "trian.steps=3": (2, "error[config]: command line: trian: unknown field; did you mean train?"),
    "data.lanez=3": (2, "error[config]: command line: data.lanez: unknown field; did you mean lanes?"),
    "train.steps=many": (2, "error[config]: command line: train.steps: input should be a valid integer, unable to"),
    "data.workers=-1": (2, "error[config]: command line: data.workers: input should be greater than or equal to 0"),
    "--modalities image streams.image.encoder.modle=x": (
        2,
        "error[config]: streams.image.encoder.modle: unknown field; did you mean model?",
    ),
    "--modalities image modalities.image.processor.max_pixel=9": (
        2,
        "error[config]: modalities.image.processor.max_pixel: unknown field; did you mean max_pixels?",
    ),
    "--modalities image streams.audio.freeze=true": (
        2,
        "error[config]: streams.audio: no modality of the run uses this stream; used: image",
    ),
    "backbone.wdth=3": (2, "error[config]: backbone.wdth: unknown field; did you mean width?"),
    "backbone.width=wide": (2, "error[config]: backbone.width: "),
    "backbone.name=decodr": (2, "error[config]: backbone 'decodr': unknown; did you mean decoder?"),
    "train.optimizer.betaz=1": (2, "error[config]: train.optimizer.betaz: unknown field; did you mean betas?"),
    "trackers=[tensorbord]": (2, "error[config]: tracker 'tensorbord': unknown; did you mean tensorboard?"),
    "evaluate.metrics=wer": (2, "error[config]: metric 'wer': unknown; did you mean word_error_rate? (metrics: "),
    "evaluate.metrics=exact-match": (2, "error[config]: metric 'exact-match': unknown; did you mean exact_match?"),
    "nothere.yaml": (2, "error[config]: nothere.yaml: cannot read the run file (No such file or directory)"),
    "image": (2, "error[config]: image: no such run file; fields are set as FIELD.PATH=VALUE, modalities named as "),
    "a.yaml b.yaml": (2, "error[config]: expected one run file, got a.yaml, b.yaml"),
    "--data nowhere": (3, "error[data]: data 'nowhere': no registered dataset (sums, "),
    "--data .": (
        3,
        "error[data]: {here}: no manifest.jsonl, no Hugging Face dataset, no .jsonl, .parquet, .csv, .tar or .txt",
    ),
    "--modalities smell": (3, "error[plugin]: modality 'smell': no installed plugin brings it (modalities: "),
    "--modalities imag": (2, "error[config]: modality 'imag': unknown; did you mean image?"),
    "--resume nowhere": (2, "error[config]: nowhere: no run is here (no run.yaml)"),
    "--resume .": (2, "error[config]: .: no run is here (no run.yaml)"),
    "--resume . --modalities image": (2, "error[config]: --resume takes the run file of its folder"),
    "tokenizer=nowhere": (2, "error[config]: tokenizer 'nowhere': "),
    "tokenizer=.": (2, "error[config]: tokenizer '.': no tokenizer is in this folder (no tokenizer.json)"),
    "--data=": (2, "error[config]: --data: the value is empty (an unset variable?); give one, or leave the option out"),
    "--modalities=": (2, "error[config]: --modalities: the value is empty (an unset variable?)"),
    "--nproc 0": (2, "error[config]: --nproc 0: expected the number of processes, 1 or more"),
    "--nproc 3 data.lanes=2": (
        2,
        "error[config]: data.lanes: 2 lanes cannot be dealt evenly to 3 processes; set data.lanes=3, ",
    ),
    "--nproc 3 parallel.tensor=2": (2, "error[config]: parallel: 3 processes cannot be split into groups of tensor x"),
    "--steps 3 train.steps=4": (
        2,
        "error[config]: --steps and train.steps=...: both are given, and only one of them ",
    ),
    "--steps 3 --output=": (2, "error[config]: --output: the value is empty (an unset variable?)"),
}


@pytest.mark.parametrize("arguments", TRAIN)
def test_a_mistake_in_training_is_one_line_and_leaves_nothing(call: Call, arguments: str, tmp_path: Path) -> None:
    before = () if "--resume" in arguments or "--output" in arguments else ("--output", "run")
    status, lines = call("train", *before, *arguments.split())
    expected, beginning = TRAIN[arguments]
    assert (status, len(lines)) == (expected, 1), lines
    assert lines[0].startswith(beginning.replace("{here}", str(tmp_path.resolve())))
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_tokenizer_may_have_been_meant_as_bytes(call: Call) -> None:
    status, (line,) = call("train", "tokenizer=byte")
    assert (status, line[-len("; did you mean bytes?") :]) == (2, "; did you mean bytes?")


def test_an_output_folder_that_holds_a_run_is_not_written_over(call: Call, trained: Path) -> None:
    before = (trained / "metrics.jsonl").read_bytes()
    status, lines = call("train", "--output", trained, *FEW)
    hint = f"go on with 'kosmos train --resume {trained}' or name another --output"
    assert (status, lines) == (2, [f"error[config]: {trained}: holds a run already; {hint}"])
    assert (trained / "metrics.jsonl").read_bytes() == before


def test_a_run_is_not_written_into_the_folder_of_its_data(call: Call, tmp_path: Path) -> None:
    data = tmp_path / "texts"
    data.mkdir()
    (data / "1.txt").write_text("one\n")
    status, (line,) = call("train", "--data", data, "--output", tmp_path / "." / "texts", *FEW)
    assert (status, line) == (
        2, f"error[config]: {data}: holds the data, whose files those of the run would lie among; name another --output"
    )  # fmt: skip
    assert [file.name for file in data.iterdir()] == ["1.txt"]


def test_a_run_may_be_called_as_a_data_set_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(part) for part in ("train", "--data", "sums", "--output", "sums", *FEW)]) == 0


def test_a_run_goes_on_that_lies_in_a_folder_of_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(30):
        Path(f"{number}.txt").write_text(f"text {number}\n")
    train = [str(part) for part in ("train", "--data", ".", "--modalities", "text", *FEW)]
    assert main(train) == 0
    assert main(["train", "--resume", "runs/text-001", "--steps", "2"]) == 0
    assert main(train) == 0


def test_a_run_cannot_go_on_in_other_lanes(call: Call, trained: Path) -> None:
    status, lines = call("train", "--resume", trained, "data.lanes=4")
    assert (status, len(lines)) == (3, 1)
    assert "was made with data.lanes 1, the run now has 4; the order of samples would not go on" in lines[0]
    both = f"init={trained}, and init.optimizer=true to take what its optimizer knows"
    anew = "schedule and order of samples begin anew"
    assert lines[0].endswith(f"or start a new run that begins with its weights ({both}); {anew}")


def test_more_processes_than_lanes_are_refused_before_any_is_started(call: Call, trained: Path) -> None:
    status, (line,) = call("train", "--resume", trained, "--nproc", 2)
    assert status == 2
    assert line == (
        "error[config]: data.lanes: 1 lane cannot be dealt evenly to 2 processes; a run goes on in the lanes that it "
        "began with, so use a number of processes that divides them"
    )


def test_what_cannot_be_written_is_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output, reason in (
        ("file", "Not a directory"), ("file/run", "Not a directory"), (f"r/{'x' * 300}", "File name too long"),
    ):  # fmt: skip
        status, lines = call("train", *FEW, "--output", output)
        said = f"error[config]: {output}: cannot make the output folder ({reason}); name another --output"
        assert (status, lines) == (2, [said])


GENERATE = {
    "": (2, "error[config]: nothing to continue: give --prompt TEXT or a medium, such as --image FILE"),
    "--imag x.png": (2, "error[config]: --imag: unknown option; did you mean --image?"),
    "--audio x.flac": (2, "error[config]: --audio: the run was not trained on audio; it has image"),
    "--sound x.flac": (2, "error[config]: --sound: unknown option; options: --prompt, --image, --max-new-tokens"),
    "--clip 1,2": (
        2,
        "error[config]: --clip: unknown option; a row of a .jsonl file says it of its medium, for --data: ",
    ),
    "x.png": (2, "error[config]: x.png: belongs to no option; a medium is named as --image FILE, and a prompt of"),
    "--prompt What now": (2, "error[config]: now: belongs to no option; a medium is named as --image FILE, and a"),
    "--image": (2, "error[config]: --image: needs a value"),
    "--image nowhere.png": (3, "error[sample]: nowhere.png: no such file"),
    "--image words.png": (3, "error[sample]: words.png: not a picture that can be read"),
    "--image empty.png": (3, "error[sample]: empty.png: picture empty.png is empty: 0 bytes"),
    "--image .": (3, "error[sample]: .: is a folder; give one file"),
    "--prompt x --temperature inf": (2, "error[config]: temperature: expected a number from 0 on, got inf"),
    "--prompt x --seed 99999999999999999999": (2, "error[usage]: --seed: expected a number up to 1844674407"),
    "--prompt x --system \udcff": (2, "error[config]: --system: not UTF-8 text, from character 1 on"),
}


@pytest.mark.parametrize("arguments", GENERATE)
def test_a_mistake_in_generating_is_one_line(call: Call, trained: Path, arguments: str, tmp_path: Path) -> None:
    (tmp_path / "words.png").write_text("these are words")
    (tmp_path / "empty.png").write_text("")
    status, lines = call("generate", trained, *arguments.split())
    expected, beginning = GENERATE[arguments]
    assert (status, len(lines)) == (expected, 1), lines
    assert lines[0].startswith(beginning)


def test_media_in_front_of_the_runs_folder_are_not_taken_for_it(call: Call, trained: Path) -> None:
    status, lines = call("generate", "--image=x.png", trained)
    said = "--image: the run's folder comes first: kosmos generate OUTPUT --image ..."
    assert (status, lines) == (2, [f"error[config]: {said}"])


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (
            "nowhere",
            2,
            "error[config]: nowhere: no run is here (no run.yaml); give the output folder of 'kosmos train'",
        ),
        ("RUN --data shapes --data shapes", 2, "error[config]: --data shapes: is given twice; give each source once"),
        ("RUN --data=", 2, "error[config]: --data: the value is empty (an unset variable?)"),
        ("RUN --data nowhere", 3, "error[data]: data 'nowhere': no registered dataset"),
        (
            "RUN --data tones",
            3,
            "error[data]: dataset 'tones' holds audio, which this run has not; this needs a run with audio",
        ),
        ("RUN --max-documents 0", 2, "error[usage]: --max-documents: expected a number from 1 on, got '0'"),
        ("RUN --workers -1", 2, "error[usage]: --workers: expected a number from 0 on, got '-1'"),
        ("RUN --jsn", 2, "error[config]: --jsn: unknown option; did you mean --json?"),
        ("RUN --data image", 3, "error[data]: data 'image': is a modality, not a data set; name a data set"),
        ("", 2, "error[usage]: OUTPUT: is missing (folder of a run); see 'kosmos eval --help'"),
    ],
)
def test_a_mistake_in_scoring_is_named_in_the_last_line(
    call: Call, trained: Path, arguments: str, status: int, line: str
) -> None:
    found, lines = call("eval", *arguments.replace("RUN", str(trained)).split())
    assert found == status
    assert lines[-1].startswith(line)
    assert len(lines) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("tokenizer", "train", "", "--data", "sums"),
        ("plugin", "new", "sonar", "--defaults", "--output", ""),
        ("export", "run", ""),
    ],
)
def test_an_empty_value_is_not_the_current_folder(call: Call, arguments: tuple[str, ...], tmp_path: Path) -> None:
    status, (line,) = call(*arguments)
    assert status == 2
    assert "the value is empty (an unset variable?)" in line
    assert list(tmp_path.iterdir()) == []


TOKENIZER = {
    "tok": (2, "error[config]: nothing to learn from: name data with --data"),
    "tok --data sums --modalities imag": (2, "error[config]: modality 'imag': unknown; did you mean image?"),
    "tok --data=": (2, "error[config]: --data: the value is empty (an unset variable?)"),
    "words.txt --data sums": (2, "error[config]: words.txt: is no folder; name one to write to"),
    "words.txt/tok --data sums": (2, "error[config]: words.txt: is no folder; name one to write to"),
    "there --data sums": (2, "error[config]: there: holds a tokenizer already; name another folder, or remove it"),
}


@pytest.mark.parametrize("arguments", TOKENIZER)
def test_a_mistake_in_training_a_tokenizer_is_one_line_before_any_text_is_read(
    call: Call, arguments: str, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("some words")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "tokenizer.json").write_text("mine")
    status, lines = call("tokenizer", "train", *arguments.split())
    expected, beginning = TOKENIZER[arguments]
    assert (status, len(lines)) == (expected, 1), lines
    assert lines[0].startswith(beginning)
    assert (tmp_path / "there" / "tokenizer.json").read_text() == "mine"
    assert not (tmp_path / "tok").exists()


def test_a_trained_tokenizer_is_told_with_its_size_and_what_it_was_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, folder = tmp_path / "rows.jsonl", tmp_path / "tok"
    rows.write_text('{"text": "aa"}\n{"text": ""}\n' * 40)
    assert main(["tokenizer", "train", str(folder), "--data", str(rows), "--vocab-size", "60000"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{folder}: 264 tokens (60,000 were asked for, and the text has no more to merge), of ")
    assert "of 38 documents with 0.0 MB of text; use it with " in said  # 5 % are held out


def test_a_model_that_memory_does_not_hold_is_said_to_be_too_large(tmp_path: Path) -> None:
    train = command("train", "--data", "sums", "backbone.preset=18b", "--output", tmp_path / "run", "trackers=[]")
    limited = ["bash", "-c", 'ulimit -v 24000000; exec "$@"', "-", *train]  # a third of its weights
    done = subprocess.run(limited, env=environment(), timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith("error[training]: out of memory: RuntimeError: ")
    assert "; take a smaller model" in done.stderr
    assert not (tmp_path / "run").exists()
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_at_the_start_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    train = [str(part) for part in ("train", "--modalities", "image", "--output", "run", *FEW)]
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "-", *command(*train)]
    done = subprocess.run(limited, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        4, "error[training]: run: cannot write (File too large); nothing was trained\n",
    )  # fmt: skip
    assert not (tmp_path / "run" / "run.yaml").exists()


@pytest.mark.parametrize("command", ["train", "plan", "tune"])
def test_of_the_folder_of_a_run_only_train_advises_to_resume(call: Call, command: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("train: {steps: 3}\n")
    status, (line,) = call(command, tmp_path)
    assert status == 2
    go_on = f", or go on with the run that is there by --resume {tmp_path}" if command == "train" else ""
    assert line.endswith(f"name {tmp_path}/run.yaml in it{go_on}")


def test_help_has_a_short_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "-h"]) == 0
    assert capsys.readouterr().out.startswith("Usage: kosmos train")


def test_earlier_checkpoints_are_scored_and_asked(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for of_step in ([str(trained), "--step", "1"], [str(trained / "checkpoints" / "step-00000001")]):
        assert main(["eval", *of_step, "--max-documents", "2"]) == 0
        assert main(["generate", *of_step, "--prompt", "a", "--max-new-tokens", "1"]) == 0
    capsys.readouterr()
    assert main(["eval", str(trained), "--step", "7"]) == 3
    assert capsys.readouterr().err == (f"error[checkpoint]: {trained}/checkpoints: no checkpoint of step 7; steps: 1\n")


def test_of_many_documents_with_one_cause_scoring_names_the_first_and_counts_the_others(
    trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    gone = "".join(f'{{"image": "none{number}/a.png", "text": "gone"}}\n' for number in range(50))
    rows.write_text('{"text": "here"}\n' + gone)
    assert main(["eval", str(trained), "--data", str(rows), "--workers", "0"]) == 0
    printed = capsys.readouterr()
    said = [line for line in printed.out.splitlines() if line.startswith("left out: ")]
    advice = "if their media are in another folder, name it with --root"
    assert printed.err == f"warning: some are left out for want of their media; {advice}\n"
    assert (len(said), said[-1]) == (21, "left out: 30 more: image: ...: no such file (--json names all)")
    assert said[0].startswith(f"left out: {rows}:2: image: ")
    assert main(["eval", str(trained), "--data", str(rows), "--workers", "0", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["incidents"]) == 50


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_scoring_none_of_the_documents_is_an_error_behind_what_was_left_out(
    trained: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": null}\n{"text": ""}\n')
    assert main(["eval", str(trained), "--data", str(rows), "--workers", "0", *more]) == 3
    said = capsys.readouterr()
    assert f"{rows}:1" in said.out and f"{rows}:2" in said.out
    assert said.err == f"error[data]: {rows}: no document could be scored; those left out are named with why\n"


def test_a_model_in_the_place_of_a_component_is_said_to_be_an_option_of_some(call: Call) -> None:
    _, (line,) = call("train", "--modalities", "image", "backbone=gpt2")
    assert line.endswith("; where it is a model, hf may have it: {name: hf, model: gpt2}")
    _, (line,) = call("train", "--modalities", "image", "streams.image.encoder=resnet18")
    assert " or timm may have it: {name: NAME, model: resnet18}" in line


def test_columns_of_what_is_scored_are_named_with_it(call: Call, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("image,caption\na.png,a cat\n")
    _, (line,) = call("eval", trained, "--data", "rows.csv")
    assert "name it (columns: {text: COLUMN})" in line
    assert line.endswith("; on the command line that is --data '{path: rows.csv, columns: ...}'")
    (tmp_path / "rows.csv").rename(tmp_path / "a1.csv")
    _, (line,) = call("eval", trained, "--data", "a{1..1}.csv")
    assert line.endswith("""--data '{path: "a{1..1}.csv", columns: ...}'""")
