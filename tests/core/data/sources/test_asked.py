"""Rows and folders that are there to be continued: none needs anything to learn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kosmos.data.document import Mark, Media, Text
from kosmos.data.sources import scan_cache
from kosmos.data.sources.opening import open_parts
from kosmos.errors import DataError, SampleError


@pytest.fixture
def asked(registry):
    def opened(path, **given):
        settings = {"modalities": ("image", "audio"), "asked": True} | given
        return open_parts(str(path), registry=registry, **settings).whole()

    return opened


def said(source, index=0):
    """A document in short: marks, media by file, text with what is learned in brackets."""
    found = []
    for part in source.document(index).segments:
        match part:
            case Mark(name=name):
                found.append(name)
            case Media(source=file):
                found.append(f"<{file.name}>")
            case Text(text, train):
                found.append(f"[{text}]" if train else text)
    return " ".join(found)


QUESTIONS = [
    (
        {"messages": [{"role": "user", "content": "What?", "images": ["a.png"]}]},
        "<|user|> <a.png> What? <|end|>",
    ),
    ({"image": "a.png"}, "<a.png>"),
    ({"image": "a.png", "text": None}, "<a.png>"),
    ({"file_name": "a.png", "text": ""}, "<a.png>"),
    ({"images": ["a.png", "a.png"], "audio": "b.wav"}, "<a.png> <a.png> <b.wav>"),
    ({"image": "a.png", "text": "a cat"}, "<a.png> [a cat]"),
    ({"query": "What?"}, "<|user|> What? <|end|>"),
    ({"image": "a.png", "query": "What?"}, "<|user|> <a.png> What? <|end|>"),
    ({"query": "What?", "response": "A cat."}, "<|user|> What? <|end|> <|assistant|> [A cat.] <|end|>"),
    ({"image": "a.png", "query": "What?", "text": ""}, "<|user|> <a.png> What? <|end|>"),
    ({"image": "a.png", "query": "What?", "text": None, "response": " "}, "<|user|> <a.png> What? <|end|>"),
    ({"image": "a.png", "text": "  "}, "<a.png>"),
    ({"image": "a.png", "prompt": "It is "}, "<a.png> It is "),
    ({"image": "a.png", "prompt": "It is ", "text": ""}, "<a.png> It is "),
    ({"image": "a.png", "prompt": "It is ", "completion": None}, "<a.png> It is "),
    ({"prompt": "not read in training either", "text": "a cat"}, "[a cat]"),
    ({"segments": [{"image": "a.png"}, {"text": "What?", "train": False}]}, "<a.png> What?"),
    ({"messages": [{"role": "user", "content": "What?"}]}, "<|user|> What? <|end|>"),
    (
        {"image": "a.png", "messages": [{"role": "user", "content": "<image>What?"}], "system": "Brief."},
        "<|system|> Brief. <|end|> <|user|> <a.png> What? <|end|>",
    ),
]


@pytest.mark.parametrize(("row", "document"), QUESTIONS)
def test_a_row_needs_no_answer(asked, rows, row, document):
    assert said(asked(rows(row))).removesuffix(" <|assistant|> <|end|>") == document


@pytest.mark.parametrize("row", [QUESTIONS[0][0], QUESTIONS[-2][0]])
def test_what_is_trained_on_does(open_, rows, row):
    with pytest.raises(DataError):
        open_(rows(row)).document(0)


def test_the_last_turn_of_the_cauldron_may_be_open(asked, rows):
    texts = [{"user": "What?", "assistant": "A cat."}, {"user": "And?"}]
    assert said(asked(rows({"image": "a.png", "texts": texts}))) == (
        "<|user|> <a.png> What? <|end|> <|assistant|> [A cat.] <|end|> <|user|> And? <|end|> <|assistant|> <|end|>"
    )
    with pytest.raises(SampleError, match=r"texts\[0\]\.assistant: expected text, got null"):
        asked(rows({"texts": texts[::-1]})).document(0)


def test_a_table_may_have_one_column_of_media(asked, rows, tmp_path):
    rows()
    (tmp_path / "one.csv").write_text("image\na.png\n")
    assert said(asked(tmp_path / "one.csv")) == "<a.png>"
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"image": ["a.png"]}), tmp_path / "one.parquet")
    assert said(asked(tmp_path / "one.parquet")) == "<a.png>"


def test_a_row_with_nothing_to_ask_is_refused(asked, rows):
    source = asked(rows({"image": "a.png"}, {"text": " "}))
    with pytest.raises(SampleError, match="text is empty"):
        source.document(1)
    with pytest.raises(DataError, match="no column 'text'"):
        asked(rows({"problem": "What?"}))


def test_a_question_is_asked_and_never_passed_over(asked, rows):
    source = asked(rows({"image": "a.png", "question": "What?", "answer": "A cat."}, {"question": "And?"}))
    assert [said(source, number) for number in (0, 1)] == [
        "<|user|> <a.png> What? <|end|> <|assistant|> [A cat.] <|end|>",
        "<|user|> And? <|end|> <|assistant|> <|end|>",
    ]
    for row in (
        {"question": "What?", "options": ["a", "b"]},
        {"problem": "What?"},
        {"question": "What?", "context": "x"},
    ):
        with pytest.raises(DataError, match=r"'(question|problem)' beside media is not read"):
            asked(rows({"image": "a.png", **row}))


def test_a_column_that_was_named_for_the_answer_may_be_absent(asked, rows):
    columns = {"query": "question", "response": "answer"}
    assert said(asked(rows({"question": "What?"}), columns=columns)).startswith("<|user|> What? <|end|>")
    with pytest.raises(DataError, match=r"columns\.query: no column 'question'"):
        asked(rows({"answer": "A cat."}), columns=columns)


def test_all_rows_are_taken_in_their_order_whatever_split_they_state(asked, rows):
    splits = ["test", "train", None, "validation"]
    source = asked(rows(*({"text": str(number), "split": split} for number, split in enumerate(splits))))
    assert [said(source, number) for number in range(len(source))] == ["[0]", "[1]", "[2]", "[3]"]


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"medium")
    return folder


@pytest.mark.parametrize("names", [("1.png", "2.wav"), ("1.png", "more/2.wav"), ("test/1.png", "train/2.wav")])
def test_a_folder_of_media_needs_no_texts(asked, open_, tmp_path, names):
    folder = make(tmp_path / "media", *names, "notes.xyz")
    source = asked(folder)
    assert [said(source, number) for number in range(len(source))] == [f"<{Path(name).name}>" for name in names]
    assert source.left_out == {".xyz": 1}
    (medium,) = asked(folder, root=tmp_path).document(0).media
    assert medium.source == folder / names[0]
    if "/" not in names[0] + names[1]:
        with pytest.raises(DataError, match="holds media and no texts of theirs"):
            open_(folder)


def test_folders_of_classes_and_texts_of_media_still_say_what_is_expected(asked, tmp_path):
    assert said(asked(make(tmp_path / "classes", "cat/1.png", "dog/2.png")), 1) == "<2.png> [dog]"
    assert said(asked(make(tmp_path / "pairs", "1.png", "1.txt"))) == "<1.png> [medium]"


def test_documents_are_named_as_the_data_name_them(asked, rows, tmp_path):
    (tmp_path / "real.png").write_bytes(b"picture")
    (tmp_path / "link.png").symlink_to("real.png")
    whole = str(tmp_path / "a.png")
    file = rows(
        {"id": "x", "image": ["./a.png", "link.png"], "text": "no file"},
        {"id": 7, "messages": [{"role": "user", "content": [{"type": "image", "image": whole}]}]},
        {"text": "t", "id": None},
    )
    source = asked(file)
    names = [source.names(number) for number in range(3)]
    assert [name.document for name in names] == [f"rows.jsonl:{line}" for line in (1, 2, 3)]
    assert [name.row for name in names] == ["x", 7, None]
    called = [[names[n].files[medium.source] for medium in source.document(n).media] for n in range(3)]
    assert called == [["./a.png", "link.png"], [whole], []]
    folder = asked(make(tmp_path / "media", "more/1.png", "2.png"))
    assert [folder.names(number).document for number in range(2)] == ["media/2.png", "media/more/1.png"]
    assert list(folder.names(1).files.values()) == ["more/1.png"]


def test_a_registered_dataset_gives_its_held_out_part(asked):
    assert [said(asked("rhymes"), number) for number in range(2)] == ["[held_out 0]", "[held_out 1]"]


def test_what_was_found_for_training_is_not_taken_for_rows_that_are_asked(
    asked, open_, rows, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    file = rows({"image": "a.png"})
    file.write_text("".join(json.dumps({"image": "a.png"}) + "\n" for _ in range(3)))
    for _ in range(2):
        with pytest.raises(DataError, match="no column 'text'"):
            open_(file)
        assert len(asked(file)) == 3
