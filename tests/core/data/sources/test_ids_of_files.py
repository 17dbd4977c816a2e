"""Media that rows name by an id: by the name of their file without its suffix."""

from __future__ import annotations

import json
import tarfile

import pytest

from kosmos.errors import SampleError

ASKED = [{"role": "user", "content": "<image>What is it?"}, {"role": "assistant", "content": "A cat."}]


def media_of(source):
    return [(medium.modality, medium.source) for medium in source.document(0).media]


@pytest.mark.parametrize(
    ("row", "given"),
    [
        ({"image": "a", "text": "x"}, {}),
        ({"images": ["a"], "text": "x"}, {}),
        ({"image": {"path": "a"}, "text": "x"}, {}),
        ({"image_id": "a", "question": "q", "answer": "x"}, {"columns": {"image": "image_id"}}),
        ({"image_id": "a", "text": "x"}, {"template": "[image:image_id] → {text}"}),
        ({"segments": [{"image": "a"}, {"text": "x"}]}, {}),
        ({"messages": ASKED, "images": ["a"]}, {}),
    ],
)
def test_in_every_form_of_rows_an_id_is_the_file_with_a_suffix_of_its_modality(open_, rows, tmp_path, row, given):
    path = rows(row)
    (tmp_path / "a.wav").write_bytes(b"sound")
    assert media_of(open_(path, **given)) == [("image", (tmp_path / "a.png").resolve())]


def test_ids_are_looked_for_in_the_named_folder_of_tables_and_of_archives(open_, rows, table, tmp_path):
    path = rows({"audio": "clips/one", "text": "x"})
    (media := tmp_path / "elsewhere" / "clips").mkdir(parents=True)
    (media / "one.FLAC").write_bytes(b"sound")
    expected = [("audio", (media / "one.FLAC").resolve())]
    columns = table({"audio": ["clips/one"], "text": ["x"]})
    (tmp_path / "0.json").write_text(json.dumps({"audio": "clips/one", "text": "x"}))
    with tarfile.open(tmp_path / "shard.tar", "w") as archive:
        archive.add(tmp_path / "0.json", "0.json")
    for file in (path, columns, tmp_path / "shard.tar"):
        assert media_of(open_(file, root=media.parent)) == expected
    assert media_of(open_(rows({"audio": f"file://{media}/one", "text": "x"}), root=media.parent)) == expected


def test_a_file_of_that_very_name_goes_before_and_a_folder_does_not(open_, rows, tmp_path):
    source = open_(rows({"image": "a", "text": "x"}))
    (tmp_path / "a").mkdir()
    assert media_of(source) == [("image", (tmp_path / "a.png").resolve())]
    (tmp_path / "a").rmdir()
    (tmp_path / "a").write_bytes(b"picture")
    assert media_of(source) == [("image", (tmp_path / "a").resolve())]


def test_of_several_such_files_none_is_guessed(open_, rows, tmp_path):
    source = open_(rows({"image": "a", "text": "x"}))
    (tmp_path / "a.jpg").symlink_to("a.png")
    assert media_of(source) == [("image", (tmp_path / "a.png").resolve())]
    (tmp_path / "a.GIF").write_bytes(b"picture")
    with pytest.raises(SampleError, match=r"image: .*/a: no such file, and a.png, a.GIF beside it may be meant; write"):
        source.document(0)


@pytest.mark.parametrize("name", ["b", "a.jpg", "a.v2", "gone"])
def test_no_other_file_is_taken(open_, rows, tmp_path, name):
    source = open_(rows({"image": name, "text": "x"}))
    (tmp_path / "a.v2.png").write_bytes(b"picture")
    with pytest.raises(SampleError, match=f"/{name}: no such file"):
        source.document(0)


def test_an_id_leads_no_further_than_a_name(open_, rows, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"picture")
    path = rows({"image": "../secret", "text": "x"}, {"image": "linked", "text": "x"}, name="in/rows.jsonl")
    (path.parent / "linked.png").symlink_to(tmp_path / "secret.png")
    for row, reason in enumerate(("'..' is refused", "a link that leads out")):
        with pytest.raises(SampleError, match=reason):
            open_(path).document(row)
