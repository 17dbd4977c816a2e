"""Pictures of pages that cannot be used, where all of a run take the same tokens and no plan needs a header."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from kosmos.cli import main


def picture(seed: int = 0) -> bytes:
    with io.BytesIO() as file:
        Image.effect_noise((64, 64), 50 + seed).save(file, "PNG")
        return file.getvalue()


def pages(folder: Path, count: int) -> Path:
    """Of two pictures each that are there, one that is cut short, and two that are none."""
    whole = picture()
    files = {"a.png": whole, "short.png": whole[:-1000], "empty.png": b"", "junk.png": b"no picture"}
    for name, content in files.items():
        folder.joinpath(name).write_bytes(content)
    rows = folder / "pages.jsonl"
    row = {"texts": ["One", None, "two", None, "three"], "images": [None, "a.png", None, "{}", None]}
    names = [("empty.png", "junk.png", "short.png", "a.png")[number % 4] for number in range(count)]
    rows.write_text("".join(json.dumps(row).replace("{}", name) + "\n" for name in names))
    return rows


def looked_at(capsys: pytest.CaptureFixture[str], rows: Path, *more: str, **options: str) -> tuple[int, Any, str]:
    source = f"data.sources=[{{path: {rows}, options: {json.dumps(options)}}}]"
    code = main(["data", "--modalities", "image", source, "data.held_out=0", "--json", *more])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def test_files_of_nothing_and_of_no_picture_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, told, _ = looked_at(capsys, pages(tmp_path, 4), missing_media="leave_out")
    figures = told["sources"][0]["figures"]
    assert (figures["looked_at"], figures["lost"]) == (4, 2)
    assert "image 2 of 2 (empty.png): " in figures["first_lost"]


def test_each_document_with_a_broken_piece_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pages(tmp_path, 2)
    rows.write_text(rows.read_text().replace("a.png", "junk.png"))  # both pictures of each
    small = ("data.tokens_per_pack=18", "--check")
    code, told, err = looked_at(capsys, rows, *small, long_documents="cut")
    assert code == 3
    assert len(told["incidents"]) == 4
    assert all("share" not in incident for incident in told["incidents"])
    assert "2 of 2 documents cannot be used (2 of them in part)" in err
