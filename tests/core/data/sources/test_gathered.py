"""Media of one modality in several columns, and their places by number."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Document, Mark, Text
from kosmos.data.sources.gathered import one_each
from kosmos.data.sources.since import opened_before
from kosmos.errors import ConfigError, DataError, SampleError

FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
ANSWERS = {"choices": ["a cat", "a dog"], "answer": "a dog"}


def parts(document: Document) -> list[str]:
    """Texts and media in order, the media by what they hold."""
    found = [part for part in document.segments if not isinstance(part, Mark)]
    return [part.text if isinstance(part, Text) else part.source.decode() for part in found]  # type: ignore[union-attr]


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    """A table of rows; bytes are files, and of ``typed`` columns the type is noted."""

    def written(*rows: dict[str, Any], typed: Sequence[str] = (), files: Sequence[str] = ()) -> Path:
        files = (*files, *typed)
        columns = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name in files:
                columns[name] = pa.array([v if v is None else {"bytes": v, "path": None} for v in values], FILE)
            else:
                columns[name] = pa.array(values)
        features = {name: {"_type": "Image"} for name in typed}
        noted = {"huggingface": json.dumps({"info": {"features": features}})} if typed else None
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table(columns).replace_schema_metadata(noted), path)
        return path

    return written


def row(question: str, *media: bytes | None, called: str = "image_", **more: Any) -> dict[str, Any]:
    return {"question": question, **{f"{called}{n}": one for n, one in enumerate(media, 1)}, **ANSWERS, **more}


@pytest.fixture
def asked(open_: Callable[..., Any]) -> Callable[..., ChoiceSource]:
    def opened(path: Path, **columns: Any) -> ChoiceSource:
        given = open_(path, modalities=("image",), asked=True, choices=True, columns=columns)
        return ChoiceSource(given, False, 99, str.encode)

    return opened


@pytest.mark.parametrize("noted", ["typed", "files"])
def test_numbered_columns_of_a_question_stand_where_their_numbers_do(table, asked, noted: str) -> None:
    names = ["image_1", "image_2", "image_3"]
    path = table(
        row("<image 1> Is <image 3> one?", b"one", None, b"three"),
        row("Is <image_2>\nlike <image 2>?", b"one", b"two", None),
        row("Which?", b"one", b"two", None),
        row("Is <image 2> it?", b"one", None, None),
        row("Is <image> or <image>?", b"one", None, b"three"),
        row("Which?", None, None, None),
        **{noted: names},
    )
    source = asked(path)
    assert parts(source.question(0)) == ["one", "Is", "three", "one?"]
    assert parts(source.question(1)) == ["one", "Is", "two", "like", "two", "?"]
    assert parts(source.question(2)) == ["one", "two", "Which?"]
    with pytest.raises(SampleError, match=r"<image 2>: the row has 1 of its media; .* name the columns of all"):
        source.question(3)
    assert parts(source.question(4)) == ["Is", "one", "or", "three", "?"]
    assert parts(source.question(5)) == ["Which?"]
    assert parts(source.document(1))[-2:] == [" a dog", ""]


@pytest.mark.parametrize("called", ["photo", "img_"])
def test_columns_of_a_type_that_are_numbered_are_read_in_order(table, asked, called: str) -> None:
    names = [f"{called}{n}" for n in (1, 2)]
    source = asked(table(row("Is <image 2> it?", b"one", b"two", called=called), typed=names))
    assert parts(source.question(0)) == ["one", "Is", "two", "it?"]
    source = asked(table(row("Is it?", b"one", b"two", called=called), files=names), image=[*reversed(names)])
    assert parts(source.question(0)) == ["two", "one", "Is it?"]


def test_rows_of_json_may_lack_some(asked, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_bytes(name.encode())
    rows = [row("<image 2>?", "a.png", "b.png"), row("<image 1>?", "a.png"), row("Which?")]  # type: ignore[arg-type]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    source = asked(tmp_path / "rows.jsonl")
    media = [[m.source.name for m in source.question(n).media] for n in range(3)]  # type: ignore[union-attr]
    assert media == [["a.png", "b.png"], ["a.png"], []]


def test_answers_that_are_media_are_not_scored_as_letters(table, asked) -> None:
    first = {**row("Which?", b"one", b"two"), "choices": ["<image 1>", "<image 2>"], "answer": "B"}
    source = asked(table(first, {**first, "image_1": None, "image_2": None}, files=["image_1", "image_2"]))
    assert [offer.right for offer in source.offers] == [1]  # of the one without media
    assert "offers <image 1>: of a medium there is no likelihood" in source.incidents[0].cause


def test_one_medium_and_its_number(table, asked) -> None:
    source = asked(table({"image": b"one", **row("<image 1> Which?")}, files=["image"]))
    assert parts(source.question(0)) == ["one", "Which?"]
    source = asked(table(row("Is <image 2> it?", b"one", b"two"), files=["image_1", "image_2"]), image="image_2")
    assert parts(source.question(0)) == ["Is", "two", "it?"]
    assert any("its rows have image_1, which holds files and is not read" in line for line in source.source.remarks)


def test_a_column_of_the_name_beside_numbered_ones_is_to_be_named(table, asked) -> None:
    held = {"image": b"own", **row("Which?", b"one", b"two")}
    with pytest.raises(DataError, match=r"name those that are meant \(columns: {image: \[image, image_1, image_2\]}"):
        asked(table(held, files=["image", "image_1", "image_2"]))


@pytest.mark.parametrize("typed", [True, False])
def test_files_that_nothing_reads_are_refused(table, asked, open_, typed: bool) -> None:
    noted = {"typed" if typed else "files": ["left", "right"]}
    path = table({"left": b"one", "right": b"two", **row("Which?"), "text": "It is."}, **noted)
    named = r"columns: {image: \[left, right\]}" if typed else r"columns: {MODALITY|image: \[left, right\]}"
    with pytest.raises(DataError, match=f"left, right hold files, and no column of media is read; name them .{named}"):
        asked(path)
    with pytest.raises(DataError, match=r'for the text alone give a template \(template: "{question}"'):
        open_(path, modalities=("image",))
    with opened_before():
        assert parts(open_(path, modalities=("image",)).document(0)) == ["It is."]
    assert parts(open_(path, modalities=("image",), template="{text}").document(0)) == ["It is."]
    assert parts(open_(path, modalities=("image",), columns={"image": ["left", "right"]}).document(0))[:2] == [
        "one",
        "two",
    ]


def test_several_columns_are_named_for_what_is_learned(table, open_) -> None:
    names = ["image_1", "image_2"]
    path = table(
        row("Is <image 2> like <image 1>?", b"one", b"two"),
        row("Is <image 2> it?", b"one", b"two"),
        row("Which?", b"one", None),
        row("Is <image 2> it?", b"one", None),
        files=names,
    )
    source = open_(path, modalities=("image",), columns={"query": "question", "response": "answer", "image": names})
    assert source.modalities == {"image"}
    assert parts(source.document(0)) == ["Is ", "two", " like ", "one", "?", "a dog"]
    assert parts(source.document(1)) == ["one", "Is ", "two", " it?", "a dog"]
    assert parts(source.document(2)) == ["one", "Which?", "a dog"]
    with pytest.raises(SampleError, match="<image 2>: the row has 1"):
        source.document(3)


def test_several_columns_beside_a_chat(table, open_) -> None:
    chat = [{"role": "user", "content": "Is <image_2> like <image_1>?"}, {"role": "assistant", "content": "No."}]
    path = table({"messages": chat, "one": b"one", "two": b"two"}, files=["one", "two"])
    source = open_(path, modalities=("image",), columns={"image": ["one", "two"]})
    assert parts(source.document(0)) == ["Is ", "two", " like ", "one", "?", "No."]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"columns": {"text": ["a", "b"]}}, "columns.text: expected one column; several may be named for the media"),
        ({"columns": {"image": []}}, r"columns.image: expected a column, or a list of different ones, got \[\]"),
        ({"columns": {"image": ["a", "a"]}}, "columns.image: expected a column, or a list of different ones"),
        ({"columns": {"image": ["a", "b"]}, "template": "[image] {text}"}, "a template names each column in its place"),
    ],
)
def test_lists_of_columns_that_cannot_be_read(table, open_, given: dict[str, Any], line: str) -> None:
    path = table({"a": b"one", "b": b"two", "text": "It is."}, files=["a", "b"])
    with pytest.raises(ConfigError, match=line):
        open_(path, modalities=("image",), **given)


def test_a_column_that_is_not_there_is_told(table, open_) -> None:
    path = table({"left_1": b"one", "left_2": b"two", "text": "It is."}, files=["left_1", "left_2"])
    with pytest.raises(DataError, match=r"columns.image: no column 'left_3'; did you mean left_2"):
        open_(path, modalities=("image",), columns={"image": ["left_1", "left_3"]})


def test_a_list_of_one_is_that_column() -> None:
    assert one_each({"image": ["a"], "text": "b"}) == ({"image": "a", "text": "b"}, {})


def test_media_may_be_base64(open_, tmp_path: Path) -> None:
    png, jpeg = b"\x89PNG, a picture", b"\xff\xd8\xff, another"
    said = [b64encode(one).decode() for one in (png, jpeg, b"no picture at all")]
    lines = ["question\timage\tA\tB\tanswer", *(f"Which?\t{text}\ta\tb\tA" for text in (*said, "", "*"))]
    (tmp_path / "asked.tsv").write_text("\n".join(lines))
    by = {"modalities": ("image",), "options": {"base64": True}}
    source = open_(tmp_path / "asked.tsv", asked=True, choices=True, **by)
    found = ChoiceSource(source, False, 9, str.encode)
    assert [[m.source for m in found.question(n).media] for n in (0, 1, 3)] == [[png], [jpeg], []]  # type: ignore[union-attr]
    with pytest.raises(SampleError, match=r"image: 'bm8g.*'... is the base64 of no known format of media"):
        found.question(2)
    with pytest.raises(SampleError, match="image: base64 data is broken"):
        found.question(4)
    source = open_(tmp_path / "asked.tsv", **by, columns={"query": "question", "response": "A"})
    assert [part.source for part in source.document(0).media] == [png]
    plain = {"image": said[0], "text": "It is."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(plain) + "\n" + json.dumps({**plain, "image": [said[0], said[1]]}))
    source = open_(tmp_path / "rows.jsonl", **by)
    assert [[part.source for part in source.document(n).media] for n in (0, 1)] == [[png], [png, jpeg]]
    with pytest.raises(ConfigError, match=r"options.base64: a template reads no media of base64"):
        open_(tmp_path / "rows.jsonl", **by, template="[image] {text}")


def files_in(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(name.encode())


def names_of_media(document: Document) -> list[str]:
    return [medium.source.name for medium in document.media]  # type: ignore[union-attr]


def test_several_lists_lead_into_one_object(open_, tmp_path: Path) -> None:
    files_in(tmp_path, "a.png", "b.png", "v.mp4", "w.mp4")
    held = {"a": "a.png", "b": "b.png", "v": "v.mp4", "w": "w.mp4", "t": "It is."}
    (tmp_path / "rows.jsonl").write_text(json.dumps({"m": held}))

    def opened(**columns: Any) -> Document:
        return open_(tmp_path / "rows.jsonl", modalities=("image", "video"), columns=columns).document(0)

    document = opened(image=["m.a", "m.b"], video=["m.v", "m.w"], text="m.t")
    assert names_of_media(document) == ["a.png", "b.png", "v.mp4", "w.mp4"]
    assert document.segments[-1].text == "It is."  # type: ignore[union-attr]
    assert names_of_media(opened(image=["m.a", "m.b"], video="m.v", text="m.t")) == ["a.png", "b.png", "v.mp4"]


def test_a_question_stands_in_the_object_of_its_media(asked, tmp_path: Path) -> None:
    files_in(tmp_path, "a.png", "b.png")
    one = {**ANSWERS, "m": {"l": "a.png", "r": "b.png", "t": "Is <image 2> it?"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(one))
    question = asked(tmp_path / "rows.jsonl", image=["m.l", "m.r"], question="m.t").question(0)
    assert names_of_media(question) == ["a.png", "b.png"]


def test_lists_that_begin_and_end_alike_are_two() -> None:
    named, several = one_each({"image": ["a", "b", "z"], "video": ["a", "c", "z"]})
    assert [several[named[role]] for role in ("image", "video")] == [("a", "b", "z"), ("a", "c", "z")]


def test_media_keep_their_places_where_a_row_lacks_one(asked, open_, tmp_path: Path) -> None:
    files_in(tmp_path, "f.png", "l.png", "b.png")
    whole = {"question": "<image 2>?", **ANSWERS, "front": "f.png", "left": "l.png", "back": "b.png"}
    lacks = {key: value for key, value in whole.items() if key != "front"}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, (whole, lacks, {**whole, "front": None}))))
    names = ["front", "left", "back"]
    source = asked(tmp_path / "rows.jsonl", image=names)
    assert [names_of_media(source.question(n))[-1] for n in range(3)] == ["l.png"] * 3
    learned = {"query": "question", "response": "answer", "image": names}
    source = open_(tmp_path / "rows.jsonl", modalities=("image",), columns=learned)
    found = [names_of_media(source.document(n)) for n in range(3)]
    assert found == [["f.png", "b.png", "l.png"], ["b.png", "l.png"], ["b.png", "l.png"]]


@pytest.mark.parametrize("typed", [True, False])
def test_questions_of_text_alone_may_have_files_beside(table, open_, typed: bool) -> None:
    noted = {"typed" if typed else "files": ["small_image", "other_image"]}
    beside = {"small_image": b"one", "other_image": b"two"}
    path = table({**row("Which?"), **beside}, {**row("Which?"), **beside, "small_image": None}, **noted)
    for modalities in ((), ("audio",)):
        source = open_(path, modalities=modalities, asked=True, choices=True)
        assert any("small_image, other_image, which hold files and are not read" in line for line in source.remarks)
    with pytest.raises(DataError, match="small_image, other_image hold files, and no column of media is read"):
        open_(path, modalities=("image",), asked=True, choices=True)


def test_columns_of_files_without_a_file_are_no_reason_to_refuse(table, open_) -> None:
    path = table({**row("Which?"), "text": "It is.", "left": None}, files=["left"])
    for how in ({"asked": True, "choices": True}, {}):
        source = open_(path, modalities=("image",), **how)
        assert any("its rows have left, which holds files and is not read" in line for line in source.remarks)


def test_columns_that_are_gathered_are_not_told_to_be_unread(asked, open_, tmp_path: Path) -> None:
    files_in(tmp_path, "a.png", "b.png", "c.png")
    one = {"l": "a.png", "r": "b.png", "x": "c.png", "text": "It is.", "alt": "It."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(one))
    source = open_(tmp_path / "rows.jsonl", modalities=("image",), columns={"image": ["l", "r"]})
    assert [*source.beside] == ["x"]
    (tmp_path / "asked.jsonl").write_text(json.dumps(row("Which?", "a.png", "b.png")))  # type: ignore[arg-type]
    assert not asked(tmp_path / "asked.jsonl").source.beside  # type: ignore[attr-defined]


def test_columns_to_paste_have_the_lists(open_, tmp_path: Path) -> None:
    files_in(tmp_path, "a.png", "b.png")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"l": "a.png", "r": "b.png", "caption": "It is.", "alt": "It."}))
    named = {"image": ["l", "r"], "references": ["caption", "alt"]}
    told = r"columns: {image: \[l, r\], references: \[caption, alt\], text: caption}"
    with pytest.raises(DataError, match=rf"there are: alt, caption, l, r; .*{told}$"):
        open_(tmp_path / "rows.jsonl", modalities=("image",), columns=named)


def test_base64_in_an_object(asked, open_, tmp_path: Path) -> None:
    png = b"\x89PNG, a picture"
    held = {"a": b64encode(png).decode(), "t": "It is."}
    lines = [{**ANSWERS, "question": "Which?", "m": m} for m in (held, json.dumps(held), {**held, "a": None})]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    by = {"modalities": ("image",), "options": {"base64": True}}
    source = open_(tmp_path / "rows.jsonl", **by, columns={"image": "m.a", "text": "m.t"})
    assert [[medium.source for medium in source.document(n).media] for n in range(3)] == [[png], [png], []]
    source = open_(tmp_path / "rows.jsonl", **by, asked=True, choices=True, columns={"image": "m.a"})
    found = ChoiceSource(source, False, 9, str.encode)
    assert [medium.source for medium in found.question(0).media] == [png]  # type: ignore[union-attr]
