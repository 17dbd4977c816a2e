"""Media in class folders whose texts are in files of their names: the folders' names are not learned in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos.data.sources.opening import open_parts
from kosmos.data.sources.since import opened_before
from kosmos.errors import DataError


def make(folder: Path, *names: str, text: str = "zero") -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


TREES = [
    ("wav48/p1/p1_0.flac", "wav48/p2/p2_1.flac", "txt/p1/p1_0.txt", "txt/p2/p2_1.txt"),
    ("wav48/p1/p1_0_mic1.flac", "wav48/p1/p1_0_mic2.flac", "txt/p1/p1_0.txt"),
    ("wavs/0.flac", "wavs/1.flac", "txt/0.txt", "txt/1.txt"),
    ("84/1/84_1_0.flac", "84/1/84_1_1.flac", "84/1/84_1_0.normalized.txt", "84/1/84_1_1.normalized.txt"),
    ("spk1/0.flac", "spk2/0.flac", "spk1/0.lab", "spk2/0.lab"),
    ("show1/ep1.flac", "show1/ep1.srt"),
    ("show1/ep1.flac", "show2/ep2.flac", "TextGrid/ep1.TextGrid"),
]


@pytest.mark.parametrize("names", TREES)
def test_files_of_the_names_of_media_hold_their_texts(open_, tmp_path, names) -> None:
    folder = make(tmp_path / "set", *names)
    first = next(name for name in sorted(names) if name.endswith(".flac"))
    said = rf"set: \d of its \d media in folders have a file of their name .*\({first}, .*(metadata.csv|manifest.jsonl)"
    with pytest.raises(DataError, match=said):
        open_(folder)
    with opened_before():
        assert open_(folder).document(0).segments[-1].text == first.split("/")[-2]


def test_json_of_their_names_holds_texts_if_it_says_so(open_, tmp_path) -> None:
    with pytest.raises(DataError, match=r"\(a/0.flac, a/0.json\)"):
        open_(make(tmp_path / "one", "a/0.flac", "a/0.json", text='{"text": "zero"}'))


@pytest.mark.parametrize(
    "text",
    [
        '{"license": "by us"}',
        '{"segments": [{"id": 1, "bbox": [1, 2]}], "text": "", "caption": null}',
        '{"segments": [{"start": 0, "label": "chorus"}], "caption": "a"}',
        '{"text": "zero',
    ],
)
def test_json_that_holds_no_text_may_lie_there(open_, tmp_path, text) -> None:
    assert len(open_(make(tmp_path / "set", "a/0.flac", "a/0.json", text=text))) == 1


@pytest.mark.parametrize(
    "names",
    [
        ("cat/cat_1.png", "cat/cat_2.png", "cat/cat_3.png", "cat/cat_4.png", "cat/cat_5.png", "cat.txt"),
        ("cat/1.png", "cat/2.png", "dog/3.png", "texts/1.txt"),
        ("cat/1.png", "dog/2.png", "boxes/1.xml", "boxes/2.xml", "LICENSE.txt"),
        ("cat/cat_0.png", "cat/cat_1.png", "cat.txt"),
        (*(f"{name}/{number}.png" for name in "abcdef" for number in range(2)), "folds/0.txt", "folds/1.txt"),
        (*(f"{name}/{view}.png" for name in "ab" for view in ("front", "back")), "front.txt", "back.txt"),
    ],
)
def test_what_is_of_a_class_or_of_few_media_may_lie_there(open_, tmp_path, names) -> None:
    assert len(open_(make(tmp_path / "set", *names))) >= 2


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("images/train/cat/1.png", "labels/train/cat/1.txt"), "0 0.5 0.5 0.2 0.3\n"),
        (("images/train/cat/1.png", "boxes/cat/1.txt"), "cat 10 20 110 220\n"),
        (("a/1.png", "a/1.srt"), "1\n00:00:00,000 --> 00:00:01,000\n<b>GPS(1.5, 2.5)</b> H 24.1m\n"),
    ],
)
def test_files_of_their_names_without_words_may_lie_there(open_, tmp_path, names, text) -> None:
    source = open_(make(tmp_path / "set", *names, text=text))
    assert source.document(0).segments[-1].text == names[0].split("/")[-2]


@pytest.mark.parametrize(
    "names", [TREES[0], ("8/1/8-1-0.flac", "8/1/8-1-1.flac", "8/1/8-1.trans.txt")], ids=["tree", "list"]
)
def test_media_to_be_continued_go_without_the_names_of_their_folders(registry, tmp_path, names) -> None:
    folder = make(tmp_path / "set", *names, text="8-1-0 ZERO\n8-1-1 ONE\n")
    source = open_parts(str(folder), registry=registry, modalities=("audio",), asked=True).whole()
    assert len(source) == 2
    assert [len(source.document(row).segments) for row in range(2)] == [1, 1]
    assert source.remarks[0].endswith("not read, and no answer is expected")
