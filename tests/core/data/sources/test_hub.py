"""Hugging Face dataset folders."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos.data.document import Media, Text
from kosmos.data.sources import texts_of
from kosmos.data.sources.hub import HubTable, join_splits, open_hub
from kosmos.data.sources.layouts import DefaultLayout
from kosmos.data.sources.media import NO_FILES
from kosmos.data.sources.template import parse_template
from kosmos.errors import DataError, SampleError

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def pictures():
    """Ten pictures with a class each; the last class is hidden."""
    image = pytest.importorskip("PIL.Image")

    def png(shade):
        out = io.BytesIO()
        image.new("RGB", (4, 3), (shade, 0, 0)).save(out, "png")
        return out.getvalue()

    columns = {
        "picture": [{"bytes": png(i), "path": None} for i in range(10)],
        "label": [0, 1] * 4 + [1, -1],
        "n": list(range(10)),
    }
    features = datasets.Features(
        picture=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"]), n=datasets.Value("int64")
    )
    return datasets.Dataset.from_dict(columns, features=features)


def test_saved_dataset_gives_encoded_pictures_and_class_names(open_, pictures, tmp_path):
    pictures.save_to_disk(tmp_path / "set")
    source = open_(tmp_path / "set", template="[image] The photo of the → {label}")
    medium, _, answer = source.document(1).segments
    assert isinstance(medium, Media)
    assert medium.source[:4] == b"\x89PNG"
    assert answer.text == " dog"
    assert source.document(1).origin == f"{tmp_path / 'set'}:row 1"
    with pytest.raises(SampleError, match="set:row 9: label: expected text, got null"):
        source.document(9)


def test_saved_dataset_with_columns(open_, pictures, tmp_path):
    pictures.save_to_disk(tmp_path / "set")
    assert open_(tmp_path / "set", columns={"text": "label"}).document(0).modalities == ("image",)
    with pytest.raises(DataError, match=r"set: columns.text: no column 'labels'; did you mean label\?"):
        open_(tmp_path / "set", columns={"text": "labels"})
    with pytest.raises(DataError, match=r"no row is left \(10 with image\); .* with image among its --modalities"):
        open_(tmp_path / "set", columns={"text": "label"}, modalities=("audio",))


def test_shuffled_dataset_keeps_its_order(open_, pictures, tmp_path):
    pictures.select([7, 2, 5]).save_to_disk(tmp_path / "set")
    assert list(texts_of(open_(tmp_path / "set", template="Number {n}"))) == ["Number 7", "Number 2", "Number 5"]


def test_splits_of_a_dataset_are_honoured(open_, pictures, tmp_path):
    parts = {
        "train.100": pictures.select(range(6)),
        "validation": pictures.select([6, 7]),
        "test": pictures.select([8]),
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "set")
    train, held_out = (open_(tmp_path / "set", template="{n}", split=split) for split in ("train", "held_out"))
    assert (len(train), list(texts_of(held_out))) == (6, ["6", "7", "8"])
    assert held_out.document(0).origin == f"{tmp_path / 'set'}/validation:row 0"


def test_dataset_of_one_split_holds_out_a_share(open_, pictures, tmp_path):
    datasets.DatasetDict(full=pictures).save_to_disk(tmp_path / "set")
    found = [
        set(texts_of(open_(tmp_path / "set", template="{n}", split=split, held_out=0.2)))
        for split in ("train", "held_out")
    ]
    assert (len(found[0]), len(found[1])) == (8, 2)
    assert not found[0] & found[1]


def test_unknown_split_beside_others_is_one_error(open_, pictures, tmp_path):
    datasets.DatasetDict(train=pictures, restval=pictures).save_to_disk(tmp_path / "set")
    folder = tmp_path / "set"
    with pytest.raises(
        DataError,
        match=r"unknown split restval beside train; expected names that begin with train, .*; name those that are "
        rf"meant as sources of their own, in data\.sources or evaluate\.sources \({folder}/train\)$",
    ):
        open_(folder, template="{n}")
    assert len(open_(folder / "train", template="{n}", held_out=0)) == len(pictures)


def test_a_split_of_the_hub_is_to_be_saved_where_another_is_unknown(pictures):
    parts = [(name, HubTable(pictures, f"org/set/{name}", NO_FILES)) for name in ("more", "test")]
    for name, asked in (("org/set", "'org/set'"), ("org/set:en", "'org/set', 'en'")):
        with pytest.raises(
            DataError, match=rf"unknown split more beside test; .*load_dataset\({asked}, split='test'\)"
        ):
            join_splits(parts, name, parse_template("{n}", (), {}))


def test_a_split_of_class_labels_is_read_by_its_names(open_, tmp_path):
    features = datasets.Features(text=datasets.Value("string"), split=datasets.ClassLabel(names=["train", "test"]))
    rows = {"text": ["a", "b", "c"], "split": [0, 1, 0]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "set")
    assert list(texts_of(open_(tmp_path / "set"))) == ["a", "c"]
    assert list(texts_of(open_(tmp_path / "set", split="held_out"))) == ["b"]


def test_a_value_that_cannot_be_read_costs_its_row_alone(open_, tmp_path):
    ids = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    datasets.Dataset(pa.table({"text": ["one", "two", "three"], "id": ids})).save_to_disk(tmp_path / "set")
    source = open_(tmp_path / "set")
    assert list(texts_of(source)) == ["one", "three"]
    with pytest.raises(SampleError, match=r"set:row 1: column 'id' cannot be read \(UnicodeDecodeError: "):
        source.document(1)


def test_damaged_dataset_is_one_line(open_, pictures, tmp_path):
    pictures.save_to_disk(tmp_path / "set")
    (tmp_path / "set" / "state.json").write_text("{")
    with pytest.raises(DataError, match="set: no readable Hugging Face dataset") as caught:
        open_(tmp_path / "set", template="{n}")
    assert "\n" not in caught.value.line()


def test_pickled_dataset_reads_in_another_process_without_torch(open_, pictures, tmp_path):
    pictures.save_to_disk(tmp_path / "set")
    source = open_(tmp_path / "set", columns={"text": "label"})
    (tmp_path / "source.pickle").write_bytes(pickle.dumps(source))
    program = (
        f"import pickle, sys; source = pickle.load(open({str(tmp_path / 'source.pickle')!r}, 'rb'))\n"
        "print(source.document(5).segments[1].text, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "dog False\n"


def test_rows_of_a_hub_dataset_cannot_name_files_of_the_cache(open_, pictures, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    (tmp_path / "owner" / "set").mkdir(parents=True)
    (cache / "private").mkdir(parents=True)
    (cache / "private" / "secret.png").write_bytes(pictures.with_format("arrow")[0]["picture"][0]["bytes"].as_py())
    rows = {
        "picture": [{"bytes": None, "path": "private/secret.png"}, {"bytes": b"picture", "path": "private/secret.png"}],
        "n": [0, 1],
    }
    pq.write_table(pa.table(rows), tmp_path / "owner" / "set" / "train.parquet")
    monkeypatch.chdir(tmp_path)
    [(_, table)] = open_hub("owner/set")
    layout = DefaultLayout(("image",), {"image": "picture", "text": "n"})
    with pytest.raises(SampleError, match=r"private/secret.png: rows of a hub dataset, or in memory .* name no files"):
        layout.segments(table.row(0), table.root(0))
    assert layout.segments(table.row(1), table.root(1))[0].source == b"picture"


def test_rows_of_a_saved_dataset_name_files_of_its_own_folder_alone(open_, pictures, tmp_path):
    (tmp_path / "other.png").write_bytes(b"picture")
    rows = {"image": ["own.png", "../other.png"], "text": ["a", "b"]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "set")
    (tmp_path / "set" / "own.png").write_bytes(b"picture")
    source = open_(tmp_path / "set")
    assert source.document(0).segments[0].source == tmp_path / "set" / "own.png"
    with pytest.raises(SampleError, match=r"'..' is refused"):
        source.document(1)


def test_a_class_beside_a_picture_is_its_text(open_, tmp_path):
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"]))
    rows = {"image": [{"bytes": b"a picture", "path": None}] * 2, "label": [1, 0]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "set")
    source = open_(tmp_path / "set", modalities=("image",))
    assert [source.document(n).segments[1] for n in range(2)] == [Text("dog", train=True), Text("cat", train=True)]
