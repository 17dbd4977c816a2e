"""Folders with a manifest, on the sample data where it is there."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from kosmos.data.document import Media, Text
from kosmos.data.sources import texts_of
from kosmos.errors import DataError, SampleError


def test_split_column_of_a_manifest_is_honoured(open_, shared_data):
    folder = shared_data("audio/fsdd")
    train, held_out = (open_(folder, split=split, held_out=0.05) for split in ("train", "held_out"))
    assert (len(train), len(held_out)) == (2250, 250)
    document = train.document(0)
    assert document.origin == f"{folder}/manifest.jsonl:3"
    medium, text = document.segments
    assert isinstance(medium, Media)
    assert medium.source == (folder / "george/0_george_10.flac").resolve()
    assert text == Text("zero", train=True)


def test_manifest_without_a_split_holds_out_a_share(open_, shared_data):
    folder = shared_data("images/flowers")
    parts = [open_(folder, split=split, held_out=0.05) for split in ("train", "held_out")]
    assert [len(part) for part in parts] == [304, 16]
    origins = [part.document(i).origin for part in parts for i in range(len(part))]
    assert len(set(origins)) == 320


def test_columns_name_another_text(open_, shared_data):
    source = open_(shared_data("images/coco"), columns={"text": "captions[1]"})
    assert source.document(0).segments[1].text == "A bathroom with a walk-in closet and a jacuzzi tub."


def test_text_file_of_a_manifest_is_cut_into_documents_without_loss(open_, shared_data):
    folder = shared_data("text")
    source = open_(folder)
    texts = list(texts_of(source))
    assert max(map(len, texts)) <= 2000
    whole = "".join((folder / name).read_text() for name in ("tinyshakespeare.txt", "wikitext2_valid.txt"))
    assert "".join(texts) == whole
    assert source.document(0).origin.endswith("tinyshakespeare.txt:1")


def test_rows_of_modalities_that_were_not_asked_for_are_left_out_and_counted(open_, shared_data):
    source = open_(shared_data("corner"))
    assert source.left_out == {"video": 14}
    held = Counter(m for i in range(len(source)) for m in source.document(i).modalities)
    assert set(held) == {"image", "audio"}
    assert len(source) + 14 == 65


def test_source_with_nothing_but_other_modalities_says_what_to_add(open_, shared_data):
    with pytest.raises(DataError, match=r"no row is left \(49 with video\); .* with video among its --modalities"):
        open_(shared_data("video"))


def test_manifest_of_data_files_says_to_open_them_by_themselves(open_, shared_data):
    with pytest.raises(DataError, match=r"15 with .jsonl\); open data files that a manifest lists by themselves"):
        open_(shared_data("bench"))


def test_class_folders_name_the_text(open_, shared_data, tmp_path: Path):
    folder = tmp_path / "flowers"
    shutil.copytree(shared_data("images/flowers"), folder, ignore=shutil.ignore_patterns("manifest.jsonl"))
    (folder / "roses" / "notes.md").write_text("not a picture")
    source = open_(folder)
    assert len(source) == 320
    assert source.left_out == {".md": 1}
    texts = Counter(source.document(i).segments[1].text for i in range(len(source)))
    assert set(texts) == {"daisy", "dandelion", "roses", "sunflowers", "tulips"}
    assert source.document(0).origin.startswith(f"{folder}/daisy/")


def test_class_folders_in_folders_of_splits(open_, rows, tmp_path: Path):
    for part in ("train/cat", "train/dog", "val/cat"):
        rows(name=f"set/{part}/x.jsonl").unlink()
    assert [len(open_(tmp_path / "set", split=s)) for s in ("train", "held_out")] == [4, 2]


def test_a_folder_called_by_no_split_beside_both_is_trained_on(open_, rows, tmp_path: Path):
    for part in ("train/cat", "val/cat", "more/cat"):
        rows(name=f"set/{part}/x.jsonl").unlink()
    assert [len(open_(tmp_path / "set", split=s)) for s in ("train", "held_out")] == [4, 2]


def test_suffix_that_two_modalities_claim_goes_to_the_one_asked_for(open_, tmp_path: Path):
    (tmp_path / "wave").mkdir()
    (tmp_path / "wave" / "a.gif").write_bytes(b"moving")
    assert open_(tmp_path, modalities=("video",)).document(0).modalities == ("video",)
    assert open_(tmp_path, modalities=("image",)).document(0).modalities == ("image",)


def test_suffix_that_two_modalities_of_the_run_claim_is_the_templates_to_say(open_, tmp_path: Path):
    (tmp_path / "wave").mkdir()
    (tmp_path / "wave" / "a.gif").write_bytes(b"moving")
    both = ("image", "video")
    with pytest.raises(DataError, match=r'wave/a.gif: .gif may be image, video; say .* "\[image\] → {text}", or list'):
        open_(tmp_path, modalities=both)
    document = open_(tmp_path, modalities=both, template="[video] → {text}").document(0)
    assert document.modalities == ("video",)


def test_suffix_that_two_modalities_claim_which_the_run_has_not_is_passed_over(open_, tmp_path: Path):
    (tmp_path / "wave").mkdir()
    (tmp_path / "wave" / "a.gif").write_bytes(b"moving")
    (tmp_path / "wave" / "b.wav").write_bytes(b"sound")
    source = open_(tmp_path, modalities=("audio",))
    assert (len(source), source.left_out) == (1, {"image": 1})


def test_medium_of_a_modality_that_nobody_installed_is_never_taken_for_plain_text(open_, rows):
    path = rows({"id": 1, "thermal": "a.png", "text": "hot"}, {"text": "plain"})
    source = open_(path)
    assert (len(source), source.left_out) == (1, {"thermal": 1})
    with pytest.raises(DataError, match="install the plugin for thermal"):
        open_(rows({"thermal": "a.png", "text": "hot"}))


def test_missing_text_file_of_a_manifest_costs_that_row_alone(open_, tmp_path: Path):
    (tmp_path / "manifest.jsonl").write_text('{"file": "gone.txt", "text": "x"}\n{"file": "b.txt", "text": "x"}\n')
    (tmp_path / "b.txt").write_text("bee")
    source = open_(tmp_path)
    with pytest.raises(SampleError, match=r"gone.txt: no such file"):
        source.document(0)
    assert source.document(1).segments == (Text("bee", train=True),)
