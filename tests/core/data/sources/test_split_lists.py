"""Media in class folders beside lists of those that are to be held out."""

from __future__ import annotations

from pathlib import Path

import pytest

from kosmos.data.sources import split_lists
from kosmos.data.sources.chosen import Chosen
from kosmos.errors import DataError


def make(folder: Path, **lists: str) -> Path:
    for name in (f"{kind}/w{number}.wav" for kind in ("cat", "dog") for number in range(5)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"medium")
    for name, content in lists.items():
        (folder / f"{name}.txt").write_text(content)
    return folder


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cat/w0.wav\ndog/w1.wav\ndog/gone.wav\n", "cat/w2.wav\n"),
        ("cat/w0\ndog/w1\n", "set/cat/w2\n"),
        ("cat/w0.wav 0\ndog/w1.wav 1\n", "cat/w2.wav 0\n"),
    ],
)
def test_what_lists_name_is_told_of_and_may_be_held_out(open_, tmp_path: Path, first: str, second: str) -> None:
    folder = make(tmp_path / "words", testing_list=first, validation_list=second, train_list="cat/w3.wav\n")
    assert len(open_(folder)) == 10
    assert open_(folder, root=tmp_path).remarks == open_(folder).remarks == (
        "testing_list, validation_list beside the media name 3 of its 10 files, which are trained on as all others "
        "are; to hold them out, and no others, set the source's held_out ({path: ..., held_out: {list: "
        "[testing_list, validation_list]}})",
    )  # fmt: skip
    for values, expected in (
        (["testing_list"], {"cat/w0.wav", "dog/w1.wav"}),
        (["testing_list", "validation_list"], {"cat/w0.wav", "dog/w1.wav", "cat/w2.wav"}),
    ):
        held = open_(folder, split="held_out", chosen=Chosen.of({"list": values}, ""))
        assert {str(Path(held.origin(n)).relative_to(folder)) for n in range(len(held))} == expected
        assert held.remarks == ()


@pytest.mark.parametrize(
    "lists", [{}, {"train_list": "cat/w0.wav\n"}, {"test_list": "w0.wav\n"}, {"words": "cat/w0.wav\n"}]
)
def test_lists_of_what_is_trained_on_and_of_names_that_several_have_say_nothing(open_, tmp_path: Path, lists) -> None:
    assert open_(make(tmp_path / "words", **lists)).remarks == ()


@pytest.mark.parametrize("name", ["testlist01", "test-set", "ValFiles", "dev", "test_split_2"])
def test_a_list_is_told_by_its_split_whatever_word_stands_behind(open_, tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "words", **{name: "cat/w0.wav 1\n", "trainlist01": "dog/w1.wav 2\n"})
    assert open_(folder).remarks[0].startswith(f"{name} beside the media names 1 of its 10 files")
    held = open_(folder, split="held_out", chosen=Chosen.of({"list": [name]}, ""))
    assert [Path(held.origin(n)).name for n in range(len(held))] == ["w0.wav"]


def test_a_list_that_is_not_read_to_its_end_is_told_of_or_refused(open_, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(split_lists, "MOST_BYTES", 1000)
    named = "cat/w0.wav\n"
    long = make(tmp_path / "long", test=named + "gone/w.wav\n" * (split_lists.MOST_BYTES // 11) + "dog/w1.wav\n")
    several = make(tmp_path / "several", **{f"test_{letter}": named for letter in "abcdefghijklmnopq"})
    for folder, cut in ((long, "test"), (several, "test_q")):
        with pytest.raises(DataError, match=rf"held_out: .*{cut}\.txt is not read to its end .*file_name,text,split"):
            open_(folder, chosen=Chosen.of({"list": [cut]}, ""))
        remarks = open_(folder).remarks
        assert len(remarks) == 2
        assert remarks[0].startswith(
            f"{cut}.txt beside the media: not read to the end (of lists 16 are read, and 16 MB"
        )
    assert open_(several, split="held_out", chosen=Chosen.of({"list": ["test_a"]}, ""))
