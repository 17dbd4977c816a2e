"""Train, score, generate and go on, on real pictures and sounds, as a user types it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kosmos.cli import main
from support.command import SMALL, kosmos, kosmos_here
from support.runs import rows_of

DIGITS = "zero one two three four five six seven eight nine".split()
Find = Callable[[str], Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, shared_data: Find) -> Path:
    """A run of two steps on digits and pictures of clothes."""
    output = tmp_path_factory.mktemp("real") / "run"
    data = ("--data", shared_data("images/fashion"), "--data", shared_data("audio/fsdd"))
    few = ("--steps", 2, "data.workers=1", "evaluate.max_documents=4")
    done = kosmos("train", "--modalities", "image,audio", *data, *few, "--output", output, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "fsdd: 2,250 documents, 250 held out" in done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split() == "held out documents loss before after accuracy before after".split()
    assert [line[:20].strip() for line in lines] == ["audio", "image", "source fashion", "source fsdd"]
    return output


def test_a_run_leaves_its_rows_and_one_checkpoint_and_quarantines_nothing(run: Path) -> None:
    rows = rows_of(run / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert all(set(row["loss_by_modality"]) == {"image", "audio"} for row in rows)
    assert (run / "quarantine.jsonl").read_text() == ""
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step-00000002"]


def test_eval_prints_one_json_object_of_the_split_that_the_manifest_states(
    run: Path, shared_data: Find, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = tmp_path / "answers.jsonl"
    given = ("eval", run, "--data", shared_data("audio/fsdd"), "--json", "--generate", 2, "--answers", answers)
    done = kosmos_here(*given)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["step"], found["overall"]["documents"]) == (2, 250)
    assert found["by_modality"] == {"audio": found["overall"]}
    assert found["by_source"] == {"fsdd": found["overall"]}
    assert found["generated"]["fsdd"]["documents"] == 2
    assert found["incidents"] == []
    lines = rows_of(answers)
    assert [line["source"] for line in lines] == ["fsdd", "fsdd"]
    assert all(line["expected"] in DIGITS and "manifest.jsonl" in line["document"] for line in lines)
    assert found["generated"]["fsdd"]["exact_match"] == sum(a["answer"] == a["expected"] for a in lines) / 2
    assert main([str(part) for part in given]) == 2
    again = capsys.readouterr()
    assert again.out == ""
    assert "answers.jsonl: exists already; name another file, or remove it" in again.err
    assert main(["eval", str(run), "--answers", str(tmp_path / "other.jsonl")]) == 2
    assert "--answers: takes what --generate N writes" in capsys.readouterr().err


def test_eval_without_data_prints_a_table_of_what_the_run_held_out(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(run), "--max-documents", "20"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    documents = {line[:20].strip(): int(line[20:].split()[0]) for line in printed.out.splitlines()[2:]}
    assert documents == {"all": 40, "audio": 20, "image": 20, "source fashion": 20, "source fsdd": 20}


def test_generate_reads_media_and_prompts_in_the_order_given(
    run: Path, shared_data: Find, capfd: pytest.CaptureFixture[str]
) -> None:
    picture = next(shared_data("images/fashion").rglob("*.png"))
    sound = next(shared_data("audio/fsdd").rglob("*.flac"))
    media = ["--audio", str(sound), "--prompt", "and", "--image", str(picture), "--prompt", "show "]
    assert main(["generate", str(run), *media, "--max-new-tokens", "4"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert printed.out.endswith("\n")


def test_the_order_of_the_command_line_is_the_order_of_the_document(shared_data: Find) -> None:
    from kosmos import Media, Text
    from kosmos.commands.generate import read_segments

    picture = str(next(shared_data("images/fashion").rglob("*.png")))
    sound = str(next(shared_data("audio/fsdd").rglob("*.flac")))
    arguments = ["--audio", sound, "--prompt", "and", f"--image={picture}", "--audio", sound, "--prompt=a=b"]
    segments = read_segments(arguments, ["image", "audio"])
    order = [s.text if isinstance(s, Text) else s.modality for s in segments]
    assert order == ["audio", "and", "image", "audio", "a=b"]
    assert [s.source for s in segments if isinstance(s, Media)] == [Path(sound), Path(picture), Path(sound)]


def test_resume_goes_on_with_more_steps(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(run), "--steps", "3", "evaluate.max_documents=2"]) == 0
    assert f"going on from step 2 ({run / 'checkpoints' / 'step-00000002'})" in capsys.readouterr().err
    assert [row["step"] for row in rows_of(run / "metrics.jsonl")] == [1, 2, 3]


def test_a_folder_of_shards_is_trained_on_and_gone_on_with(shared_data: Find, tmp_path: Path) -> None:
    """Pictures with captions as img2dataset writes them, and one of them broken."""
    pictures = sorted(shared_data("images/flowers").rglob("*.jpg"))[:60]
    shards = tmp_path / "shards"
    shards.mkdir()
    for shard in range(2):
        with tarfile.open(shards / f"{shard:05d}.tar", "w") as archive:
            for number, picture in enumerate(pictures[shard::2]):
                archive.add(picture, f"{number:04d}.jpg")
                caption = picture.parent.name.encode() if number else b""
                entry = tarfile.TarInfo(f"{number:04d}.txt")
                entry.size = len(caption)
                archive.addfile(entry, io.BytesIO(caption))
    few = ("data.workers=2", "evaluate.max_documents=4")

    def train(output: str, *given: object) -> list[float]:
        assert main(["train", *map(str, given)]) == 0
        return [row["loss"] for row in rows_of(tmp_path / output / "metrics.jsonl")]

    steady = ("train.precision=fp32", "train.schedule=constant")
    fresh = ("--modalities", "image", "--data", shards, *steady, *few, *SMALL)
    whole = train("whole", *fresh, "--steps", 4, "--output", tmp_path / "whole")
    train("half", *fresh, "--steps", 2, "--output", tmp_path / "half")
    assert train("half", "--resume", tmp_path / "half", "--steps", 4) == whole
    bad = rows_of(tmp_path / "whole" / "quarantine.jsonl")
    assert {row["origin"] for row in bad} <= {f"{shards}/{shard:05d}.tar:0000" for shard in range(2)}
    assert bad
