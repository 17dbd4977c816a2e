"""Rows in memory are read as those of files are, and trained on."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from kosmos import ConfigError, Text, make_run, open_rows, resume_run, score, train_model
from kosmos.compose import compose
from kosmos.errors import CheckpointError, DataError
from support.runs import small_run, ticks_registry

RUN, CORE = small_run(modalities=[]), ticks_registry()
IMAGES = make_run({"modalities": ["image"]})
SUMS = [{"question": f"{n} + 1 = ", "answer": str(n + 1), "kind": n % 2} for n in range(40)]
TABLE = datasets.Dataset.from_list(SUMS)
TEMPLATE = "{question} → {answer}"


def texts(source):
    return [segment.text for segment in source.document(3).segments if isinstance(segment, Text)]


@pytest.mark.parametrize("rows", [SUMS, tuple(SUMS), TABLE])
def test_rows_are_read_by_a_template_or_by_columns(rows):
    source = open_rows(RUN, rows, name="sums", template="{question}→{answer}", registry=CORE)
    assert (source.name, len(source), texts(source)) == ("sums", 40, ["3 + 1 = ", "4"])
    assert texts(open_rows(RUN, rows, columns={"text": "answer"}, registry=CORE)) == ["4"]
    assert texts(pickle.loads(pickle.dumps(source))) == texts(source)  # as data workers get it


def test_parts_are_split_as_those_of_files():
    run = small_run(modalities=[], data={"held_out": 0.1})
    train, held_out = (
        open_rows(run, SUMS, split=part, template=TEMPLATE, registry=CORE) for part in ("train", "held_out")
    )
    assert (len(train), len(held_out)) == (36, 4)
    stated = [{**row, "split": "test" if row["kind"] else "train"} for row in SUMS]
    assert len(open_rows(run, stated, split="held_out", template=TEMPLATE, registry=CORE)) == 20


def test_media_are_bytes_or_what_datasets_encodes(tmp_path: Path):
    picture = Image.new("RGB", (4, 6), "red")
    picture.save(encoded := io.BytesIO(), "PNG")
    picture.save(tmp_path / "red.png")
    for given in (picture, encoded.getvalue()):
        source = open_rows(IMAGES, [{"image": given, "text": "red"}])
        assert source.document(0).segments[0].source[:4] == b"\x89PNG"
    labels = datasets.ClassLabel(names=["red", "blue"])
    table = datasets.Dataset.from_list([{"img": picture, "label": 1}]).cast_column("label", labels)
    assert open_rows(IMAGES, table).document(0).segments[1].text == "blue"
    named = open_rows(IMAGES, [{"image": Path("red.png"), "text": "red"}], root=tmp_path)
    assert named.document(0).segments[0].source == tmp_path / "red.png"
    for given, why in ((tmp_path / "red.png", "in memory without a root"), (np.zeros((2, 2)), "got a list")):
        with pytest.raises(DataError, match=rf"^rows: none of the first 1 rows can be used; .*{why}"):
            open_rows(IMAGES, [{"image": given, "text": "red"}])


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A file that lies on its side."""
    (turned := Image.Exif())[0x0112] = 6
    Image.effect_noise((6, 4), 50).save(tmp_path / "photo.jpg", exif=turned)
    return tmp_path / "photo.jpg"


def test_pictures_that_were_opened_from_files_are_taken_as_their_files(photo: Path):
    with Image.open(photo) as first, Image.open(photo) as second:
        rows = [{"texts": ["Look", None, None], "images": [None, first, second]}, {"texts": ["A"] * 3, "images": None}]
        source = open_rows(IMAGES, rows)
        assert [medium.source for medium in source.document(0).media] == [photo.read_bytes()] * 2
        assert first.getpixel((0, 0)) is not None  # of which nothing was taken away
        mixed = open_rows(IMAGES, [{"img": one, "text": "red"} for one in (second, Image.new("L", (4, 6)))])
        assert [mixed.document(n).segments[0].source[:2] for n in (0, 1)] == [b"\xff\xd8", b"\x89P"]


def test_pictures_that_were_changed_since_they_were_opened_are_taken_as_they_are(photo: Path):
    with Image.open(photo) as picture:
        picture.putpixel((0, 0), 7)
        medium = open_rows(IMAGES, [{"image": picture, "text": "red"}]).document(0).segments[0]
    with Image.open(io.BytesIO(medium.source)) as shown:
        assert np.array_equal(np.asarray(shown), np.asarray(picture)) and shown.getexif()[0x0112] == 6


@pytest.mark.parametrize("mode", ["P", "PA", "HSV", "CMYK", "I;16"])
def test_pictures_of_any_kind_show_what_they_showed_in_their_files(tmp_path: Path, mode: str):
    """With what is transparent in them."""
    whole = Image.new("RGBA", (4, 6), (200, 10, 10, 255))
    whole.paste((0, 0, 0, 0), (0, 0, 4, 3))
    if mode == "P":
        whole.quantize(4).save(tmp_path / "a.png")
        with Image.open(tmp_path / "a.png") as picture:
            picture.load()  # so that its file is not taken
    else:
        made = {"I;16": Image.new("I;16", (4, 6), 40_000), "PA": whole.quantize(4).convert("PA")}
        picture = made.get(mode) or whole.convert("RGB").convert(mode)
        picture.filename = str(tmp_path / "a.png")
    medium = open_rows(IMAGES, [{"image": picture, "text": "red"}]).document(0).segments[0]
    with Image.open(io.BytesIO(medium.source)) as shown:
        kind = picture.mode if mode == "I;16" else "RGBA"
        assert np.array_equal(np.asarray(shown.convert(kind)), np.asarray(picture.convert(kind)))


def test_a_file_that_was_opened_by_a_name_of_bytes_is_one(photo: Path):
    with Image.open(bytes(photo)) as picture:
        rows = [{"image": picture, "text": "red"}]
        assert open_rows(IMAGES, rows, root=photo.parent).document(0).segments[0].source == photo
        assert open_rows(IMAGES, rows).document(0).segments[0].source == photo.read_bytes()


def test_pictures_that_were_closed_before_they_were_read_are_refused(photo: Path):
    with Image.open(photo) as picture:
        pass
    with pytest.raises(
        ConfigError, match=r"rows\[0\]\.image: .*photo\.jpg cannot be read .* load\(\) it before, or give its"
    ):
        open_rows(IMAGES, [{"image": picture, "text": "red"}])


def test_pictures_below_the_root_stay_files(photo: Path):
    with Image.open(photo) as picture:
        rows = [{"image": picture, "text": "red"}]
        assert open_rows(IMAGES, rows, root=photo.parent).document(0).segments[0].source == photo
        (photo.parent / "other").mkdir()
        other = open_rows(IMAGES, rows, root=photo.parent / "other").document(0).segments[0]
    assert other.source == photo.read_bytes()


def test_a_run_trains_on_rows_and_goes_on_with_the_same_alone(tmp_path: Path):
    def given(rows):
        return [open_rows(RUN, rows, name="sums", template=TEMPLATE, registry=CORE)]

    run = small_run(tmp_path / "run", modalities=[], train={"steps": 2, "warmup_steps": 1})
    result = train_model(run, sources=given(SUMS), held_out=given(SUMS[:4]), registry=CORE)
    assert result.after.by_source["sums"].documents == 4
    assert score(compose(RUN, CORE), given(SUMS[:4]), workers=0).overall.answers == 4
    with pytest.raises(CheckpointError, match="fingerprint"):
        resume_run(result.output, {"train": {"steps": 3}}, sources=given(SUMS[::-1]), registry=CORE)
    assert resume_run(result.output, {"train": {"steps": 3}}, sources=given(SUMS), registry=CORE).step == 3


@pytest.mark.parametrize("array", [np.zeros((4, 4, 3), np.uint8), np.zeros(9, np.uint8)])
def test_an_array_in_a_row_is_to_be_given_as_a_document(array):
    with pytest.raises(DataError, match=r"image: .*, got a (list|number); write values of arrays .* as Documents of M"):
        open_rows(IMAGES, [{"image": array, "text": "a"}])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("a.jsonl", r"rows: expected a datasets\.Dataset .* or a list of mappings, got 'a\.jsonl'"),
        ([], r"rows: expected .*, got \[\]"),
        ([{"text": "a"}, "b"], "rows: expected .*, got 'b'"),
        ([{"text": "a"}, {"text": 3}], r"rows: no table can be made of them \(.*\); give each key values of one type"),
        (
            datasets.DatasetDict(a=TABLE),
            r"rows: .*, got a DatasetDict; give one of its splits \(a",
        ),
        (
            TABLE.with_transform(dict),
            "rows: the dataset has a transform, which is not applied",
        ),
        (TABLE.to_iterable_dataset(), "rows: the dataset is read in turn"),
    ],
)
def test_what_are_no_rows_is_refused_in_a_line(rows, says):
    with pytest.raises(ConfigError, match=says):
        open_rows(RUN, rows, registry=CORE)


@pytest.mark.parametrize("rows", [TABLE, SUMS, SUMS[0]])
def test_who_gives_rows_in_place_of_sources_is_told_of_open_rows(rows):
    for call in (
        lambda: train_model(RUN, sources=[rows], registry=CORE),
        lambda: score(compose(RUN, CORE), [rows]),
    ):
        with pytest.raises(
            ConfigError, match=r"^sources: expected a list of Sources .*; open_rows\(config, rows\) reads rows, "
        ):
            call()
