"""Folders of media with their texts: beside each, or in a file of rows."""

from __future__ import annotations

import json

import pytest

from kosmos.data.document import Text
from kosmos.errors import DataError, SampleError
from kosmos.train.older_rules import as_begun, keep_older
from kosmos.train.order import PIECES


@pytest.fixture
def folder(tmp_path):
    """Write files below a folder: text as it is, None for a medium."""

    def write(**files):
        for name, text in files.pop("named", files).items():
            path = tmp_path / "set" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"medium" if text is None else text if isinstance(text, bytes) else text.encode())
        return tmp_path / "set"

    return write


def pairs(source):
    documents = [source.document(n) for n in range(len(source))]
    return [([m.source.name for m in d.media], d.segments[-1].text) for d in documents]


def test_texts_beside_their_media(open_, folder):
    path = folder(named={"1.png": None, "1.txt": "A cat.\n", "b/2.wav": None, "b/2.txt": "\ufeffMeow", "3.png": None,
                         "readme.txt": "x", "labels.csv": "x"})  # fmt: skip
    source = open_(path)
    assert pairs(source) == [(["1.png"], "A cat."), (["2.wav"], "Meow")]
    assert source.left_out == {"no text of its name": 1, ".txt": 1, ".csv": 1}
    assert source.document(0).origin == str(path / "1.png")


def test_names_that_differ_in_how_accents_are_written_are_pairs(open_, folder):
    """As archives from Macs have them: e and its accent as two characters."""
    path = folder(named={"e\u0301te\u0301/cafe\u0301.png": None, "\u00e9t\u00e9/caf\u00e9.txt": "A cafe.",
                         "\u00fc.png": None, "u\u0308.txt": "Two.", "o\u0308.png": None, "o\u0308.txt": "Apart.",
                         "\u00f6.png": None, "\u00f6.txt": "As one.", "\u00e4.png": None})  # fmt: skip
    source = open_(path)
    assert sorted(pairs(source)) == [
        (["cafe\u0301.png"], "A cafe."),
        (["o\u0308.png"], "Apart."),
        (["\u00f6.png"], "As one."),
        (["\u00fc.png"], "Two."),
    ]
    assert source.left_out == {"no text of its name": 1}


def test_media_of_one_name_are_one_document(open_, folder):
    path = folder(named={"1.png": None, "1.wav": None, "1.jpg": None, "1.txt": "A cat."})
    assert pairs(open_(path)) == [(["1.jpg", "1.png", "1.wav"], "A cat.")]


def test_folders_of_pairs_are_no_classes(open_, folder):
    assert pairs(open_(folder(named={"10_dog/1.png": None, "10_dog/1.txt": "A dog."}))) == [(["1.png"], "A dog.")]


def test_folders_that_are_named_by_splits_split_pairs(open_, folder):
    path = folder(named={"train/1.png": None, "train/1.txt": "x", "test/test.png": None, "test/test.txt": "y"})
    assert pairs(open_(path)) == [(["1.png"], "x")]
    assert pairs(open_(path, split="held_out")) == [(["test.png"], "y")]


def test_a_pair_that_is_broken_costs_itself(open_, folder):
    path = folder(named={"1.png": None, "1.txt": b"\xff", "2.png": None, "2.txt": "", "3.png": None, "3.txt": "x"})
    source = open_(path)
    with pytest.raises(SampleError, match=r"1\.png: 1\.txt: not UTF-8 at byte 0"):
        source.document(0)
    with pytest.raises(SampleError, match="text is empty"):
        source.document(1)
    (path / "3.txt").unlink()
    with pytest.raises(SampleError, match=r"3\.png: .*3\.txt: no such file"):
        source.document(2)


def test_pairs_of_another_modality_are_left_out(open_, folder):
    source = open_(folder(named={"1.png": None, "1.txt": "x", "2.wav": None, "2.txt": "y"}), modalities=("audio",))
    assert (pairs(source), source.left_out) == ([(["2.wav"], "y")], {"image": 1})


def test_a_suffix_of_two_modalities_asks_which(open_, folder):
    path = folder(named={"1.gif": None, "1.txt": "x"})
    with pytest.raises(DataError, match=r"1\.gif: \.gif may be image, video; say which"):
        open_(path, modalities=("image", "video"))
    assert pairs(open_(path, modalities=("image", "video"), template="[video] → {text}")) == [(["1.gif"], "x")]


def test_rows_beside_pairs_are_asked_about(open_, folder):
    with pytest.raises(DataError, match="several kinds"):
        open_(folder(named={"1.png": None, "1.txt": "x", "rows.jsonl": "{}"}))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_metadata_names_the_media_beside_it(open_, folder, kind):
    named = [{"file_name": "1.png", "text": "A cat."}, {"file_name": "b/2.wav", "text": "Meow"}]
    path = folder(named={"1.png": None, "b/2.wav": None, "b/3.png": None})
    match kind:
        case "csv":
            (path / "metadata.csv").write_text("file_name,text\n1.png,A cat.\nb/2.wav,Meow\n")
        case "jsonl":
            (path / "metadata.jsonl").write_text("\n".join(map(json.dumps, named)))
        case "parquet":
            pyarrow = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            parquet.write_table(pyarrow.Table.from_pylist(named), path / "metadata.parquet")
    assert pairs(open_(path)) == [(["1.png"], "A cat."), (["2.wav"], "Meow")]
    source = open_(path, modalities=("image",))
    assert (pairs(source), source.left_out) == ([(["1.png"], "A cat.")], {"audio": 1})


def test_metadata_of_splits(open_, folder):
    rows = "file_name,caption\n1.png,A cat.\n"
    path = folder(
        named={
            f"{split}/{n}": t for split in ("train", "test") for n, t in {"1.png": None, "metadata.csv": rows}.items()
        }
    )
    given = {"columns": {"text": "caption"}}
    assert pairs(open_(path, **given)) == pairs(open_(path, split="held_out", **given)) == [(["1.png"], "A cat.")]
    assert open_(path, **given).document(0).segments[0].source.parent.name == "train"


def test_files_that_no_metadata_can_name_are_counted(open_, folder):
    rows = "file_name,text\n1.png,A cat.\n"
    path = folder(
        named={"a/1.png": None, "a/metadata.csv": rows, "a/b/2.png": None, "cat/1.png": None, "ab/1.wav": None}
    )
    source = open_(path)
    assert (pairs(source), source.left_out) == (
        [(["1.png"], "A cat.")], {"no metadata file in or above their folder": 2},
    )  # fmt: skip


def test_a_table_that_names_no_media_is_no_metadata(open_, folder):
    path = folder(named={"cat/1.png": None, "metadata.csv": "author,year\nx,1\n"})
    assert pairs(open_(path)) == [(["1.png"], "cat")]


def test_a_named_file_in_a_chat(open_, rows):
    chat = [{"role": "user", "content": "<image>What?"}, {"role": "assistant", "content": "A cat."}]
    document = open_(rows({"file_name": "a.png", "messages": chat})).document(0)
    assert [m.source.name for m in document.media] == ["a.png"]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("a.xyz", r"file_name: '\.xyz' is of no installed modality"),
        ("a", r"file_name: 'a' has no suffix to tell its modality by; name that, .*: columns: \{image: file_name\}"),
        ("a.gif", r"file_name: '\.gif' may be image or video; say which: columns: \{image: file_name\}"),
        ("gone.png", "gone.png: no such file"),
    ],
)
def test_a_named_file_that_is_wrong_costs_its_row(open_, rows, name, cause):
    source = open_(rows({"file_name": name, "text": "x"}, {"text": "good"}), modalities=("image", "video"))
    with pytest.raises(SampleError, match=cause):
        source.document(0)
    assert source.document(1).segments == (Text("good", True),)


@pytest.mark.parametrize("modalities", [(), ("audio",)])
def test_captions_are_not_taken_for_running_text_where_the_modality_was_forgotten(open_, folder, modalities):
    path = folder(named={"1.png": None, "1.txt": "A cat.", "2.png": None, "2.txt": "A dog.", "README.txt": "Pets."})
    with pytest.raises(DataError, match=r"no row is left \(.*2 with image.*\); this needs a run with image among"):
        open_(path, modalities=modalities)
    source = open_(path, modalities=modalities, template="→ {text}")
    assert [d.segments[-1].text for d in map(source.document, range(len(source)))] == ["A cat.", "A dog."]


def test_texts_of_which_a_few_have_pictures_are_running_text_where_no_picture_is_asked_for(open_, folder):
    path = folder(named={"book.txt": "One.", "book.png": None, "other.txt": "Two."})
    assert len(open_(path, modalities=(), held_out=0.0)) == 2


@pytest.mark.parametrize(
    "labels",
    ["0.000000\t2.000000\tdog\n2.5\t3.0\tcat\n", "0,5\t2,5\tein Hund\n", "0.5\t2.0\tdog\n\\\t100.0\t900.0\n1.0\t2.0\n"],
)
def test_labels_of_pieces_are_no_text_of_the_whole(open_, folder, labels):
    source = open_(folder(named={"a.wav": None, "a.txt": labels, "b.wav": None, "b.txt": "1\t2\tthree\nfour\n"}))
    with pytest.raises(
        SampleError, match=r"a\.txt: its lines are two times and a label .* \(\{\"audio\": \"a\.wav\", \"clip\": \["
    ):
        source.document(0)
    assert source.document(1).segments[-1].text == "1\t2\tthree\nfour"


SRT = "1\n00:00:00,500 --> 00:00:02,000\nHello you.\n\n2\n00:00:02,000 --> 00:00:03,000\nBye.\n"


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (
            SRT,
            r'holds subtitles, .*manifest.jsonl \({"audio": "a.wav", "clip": \[0.5, 2.0\], "text": "Hello you."}; docs',
        ),
        ("WEBVTT\n\n00:00.500 --> 00:02.000 align:start\nHello.\n", r'"clip": \[0.5, 2.0\], "text": "Hello."}'),
        ("0 1500 She had your dark suit.\n", r"begins with the first and the last sample of the medium \(0 1500\)"),
        ("0 2000 h#\n2000 4559 she\n4559 9000 had\n", "its lines are the first and the last sample of a piece"),
    ],
)
def test_subtitles_and_samples_beside_a_medium_are_no_text_of_the_whole(open_, folder, pieces, said):
    source = open_(folder(named={"a.wav": bytes(1024 + 2 * 1500), "a.txt": pieces}))
    with pytest.raises(SampleError, match=rf"a\.txt: .*{said}"):
        source.document(0)
    older, newer = ({"data": {"sources": [{"name": "other", **fact}]}} for fact in ({}, {PIECES: "lengths"}))
    for order in (newer, {**older, PIECES: "lengths"}):
        as_begun(order, [source])  # which is scored alone
        assert source.refuses_pieces
    keep_older(older, newer, [source])
    assert newer == older
    assert source.document(0).segments[-1].text == pieces.strip()  # as a run has learned it that was begun before


@pytest.mark.parametrize(
    ("medium", "text"),
    [
        ("a.png", SRT),
        *(("a.wav", text) for text in ("Go --> there", "00:01 --> 00:02", "1:2.5 --> 3:4.5 is a ratio")),
        *(("a.wav", text) for text in ("0 5000 reasons", "0 1 2\n1 2 3\n998 1000 4", "0 1200 cats\n5 1300 dogs")),
        ("a.wav", "0 1 Once"),
        ("a.wav", "3 4000 Thousands"),
        ("a.wav", "0 9000 a\nb"),
    ],
)
def test_other_arrows_and_numbers_are_a_text(open_, folder, medium, text):
    assert open_(folder(named={medium: None, "a.txt": text})).document(0).segments[-1].text == text.strip()


@pytest.mark.parametrize(
    ("medium", "text"),
    [("a.png", "12.5\t33.1\tdog"), ("a.wav", "12.5\t33.1"), ("a.wav", "1\t2\tcat"), ("a.wav", "1.5\t2\tcat")],
)
def test_figures_with_tabs_are_a_text_as_others(open_, folder, medium, text):
    source = open_(folder(named={medium: None, "a.txt": text}))
    assert source.document(0).segments[-1].text == text


@pytest.mark.parametrize(("question", "answer"), [("input", "output"), ("output", "input")])
def test_a_column_that_is_named_for_a_question_or_its_answer_is_not_added_to_the_question(
    open_, rows, question, answer
):
    source = open_(rows({"input": "Ask", "output": "Say"}), columns={"query": question, "response": answer})
    said = {"input": "Ask", "output": "Say"}

    def texts() -> list[str]:
        return [segment.text for segment in source.document(0).segments if isinstance(segment, Text)]

    assert texts() == [said[question], said[answer]]
    source.reads_more = False  # as of a run that was begun before
    assert texts() == [f"{said[question]}\nAsk", said[answer]]
