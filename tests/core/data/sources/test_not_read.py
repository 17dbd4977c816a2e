"""Files that are passed over though they hold rows, or should."""

from __future__ import annotations

import pytest

from kosmos.data.sources.not_read import warnings_of
from kosmos.errors import DataError

ROW = '{"text": "one"}\n'


@pytest.mark.parametrize(
    ("name", "what", "command", "alone"),
    [
        ("b.jsonl.gz", ".jsonl.gz", "gunzip", True), ("b.json.bz2", ".json.bz2", "bunzip2", True),
        ("b.csv.xz", ".csv.xz", "unxz", True), ("sub/b.parquet.zst", ".parquet.zst", "unzstd", False),
        ("b.tar.gz", ".tar.gz", "gunzip", False), ("b.TGZ", ".tar.gz", "gunzip", False),
    ],
)  # fmt: skip
def test_compressed_rows_beside_rows_are_warned_of(open_, tmp_path, name, what, command, alone):
    (tmp_path / "set" / "sub").mkdir(parents=True)
    (tmp_path / "set" / "a.jsonl").write_text(ROW)
    (tmp_path / "set" / name).write_bytes(b"x")
    left_out = open_(tmp_path / "set").left_out
    assert left_out == {what: 1}
    advice = f"name it as a source ('FOLDER/*{what}')"
    advice = advice if alone else f"decompress it first ({command})"
    said = f"set: 1 file is compressed ({what}) and not read; {advice}"
    assert list(warnings_of("set", left_out)) == [said]


def test_rows_of_another_suffix_are_read_alone_and_warned_of_beside_others(open_, tmp_path):
    (tmp_path / "b.ndjson").write_text(ROW)
    assert len(open_(tmp_path)) == 1
    (tmp_path / "a.jsonl").write_text(ROW + ROW)
    source = open_(tmp_path)
    assert (len(source), source.left_out) == (2, {".ndjson": 1})
    assert list(warnings_of("set", source.left_out)) == [
        "set: 1 file is beside .jsonl files (.ndjson) and not read; rename it, or name it as a source"
    ]


def test_what_is_compressed_and_no_rows_is_no_matter(open_, tmp_path):
    (tmp_path / "a.jsonl").write_text(ROW)
    for name in ("log.gz", "scan.nii.gz", "notes.md"):
        (tmp_path / name).write_bytes(b"x")
    left_out = open_(tmp_path).left_out
    assert left_out == {".gz": 2, ".md": 1}
    assert list(warnings_of("set", left_out)) == []


@pytest.mark.parametrize("rows", [ROW, ""])
def test_empty_files_of_rows_are_warned_of(open_, tmp_path, rows):
    for name, content in {"a": rows, "b": "", "c": ""}.items():
        (tmp_path / f"{name}.jsonl").write_text(content)
    if not rows:
        with pytest.raises(DataError, match=r"holds no rows; passed over: 3 \(0 bytes\)$"):
            open_(tmp_path)
        return
    source = open_(tmp_path)
    assert (len(source), source.left_out) == (1, {"0 bytes": 2})
    (said,) = warnings_of("set", source.left_out)
    assert said == "set: 2 files are empty (0 bytes), as after a copy that failed; replace or remove them"
