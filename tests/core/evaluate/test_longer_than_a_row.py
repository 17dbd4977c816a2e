"""Documents that a row does not hold, whose answers can be generated all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from kosmos import make_run
from kosmos.cli import main
from kosmos.train.run import train_model
from support.runs import rows_of


def test_answers_to_documents_that_are_left_out_of_the_table_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "rows.jsonl").write_text(8 * (json.dumps({"text": "A cat."}) + "\n"))
    chats = [
        {"image": "a.png", "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": "A cat."}]}
        for asked in ("What?", 40 * "What? ")
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    config = {
        "modalities": ["image"],
        "data": {"sources": [str(tmp_path / "rows.jsonl")], "tokens_per_pack": 96, "workers": 0},
        "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
        "train": {"steps": 1, "warmup_steps": 0, "precision": "fp32"}, "trackers": [], "output": str(tmp_path / "run"),
    }  # fmt: skip
    train_model(make_run(config))
    capsys.readouterr()
    few = ["--generate", "2", "--max-new-tokens", "2", "--workers", "0", "--json"]
    answers = tmp_path / "answers.jsonl"
    data = ["--data", str(tmp_path / "asked.jsonl"), "--answers", str(answers)]
    assert main(["eval", str(tmp_path / "run"), *data, *few]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["overall"]["documents"], found["generated"]["asked"]["documents"]) == (1, 2)
    assert len(rows_of(answers)) == 2
    line = next(line for line in err.splitlines() if "leaves out" in line)
    assert "asked: 1 of the 2 answers that were generated are of documents that the table leaves out" in line
    assert "(the first: asked.jsonl:2)" in line
