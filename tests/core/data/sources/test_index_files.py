"""Media in class folders beside a list that says what is in them: its texts are meant, not the folders' names."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from kosmos.data.sources.list_lines import first_lines
from kosmos.errors import DataError


def make(folder: Path, *media: str, **lists: str) -> Path:
    for name in media:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"medium")
    for name, content in lists.items():
        (folder / name.replace("__", "/").replace("_", ".")).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("media", "lists", "named"),
    [
        (("8/1/8-1-0.wav", "8/1/8-1-1.wav"), {"8__1__t_txt": "8-1-0 HE SAID\n8-1-1 NO\n"}, "8-1-0 HE SAID"),
        (("wavs/LJ1.wav", "wavs/LJ2.wav"), {"metadata_csv": "LJ1|one|One\nLJ2|two|Two\n"}, r"LJ1\|one\|One"),
        (("w/a.wav", "w/b.wav"), {"list_csv": "file,text\nw/a.wav,hello\nw/b.wav,you\n"}, "w/a.wav,hello"),
        (("clips/1.wav", "clips/2.wav"), {"train_tsv": "id\tpath\ttext\nx\t1.wav\thi\nx\t2.wav\tho\n"}, "x 1.wav hi"),
        (("a/1.wav", "b/2.wav"), {"texts_csv": "id|text\n1|hello\n2|you\n"}, r"1\|hello"),
    ],
)  # fmt: skip
def test_a_list_of_texts_is_not_passed_over(open_, tmp_path, media, lists, named) -> None:
    folder = make(tmp_path / "set", *media, **lists)
    with pytest.raises(DataError, match=rf"lists media that lie in folders \({named}.*metadata.csv .*file_name,text.*"):
        open_(folder)


ABSENT = "".join(f"x\tcommon_{number}.wav\tnot fetched\n" for number in range(200))


@pytest.mark.parametrize(
    ("media", "lists", "named"),
    [
        (("clips/1.wav", "clips/2.wav"), {"all_tsv": f"id\tpath\ttext\n{ABSENT}x\t2.wav\tho\n"}, "x 2.wav ho"),
        (("clips/1.wav", "clips/2.wav"), {"all_tsv": f"id\tpath\ttext\n{ABSENT}"}, "x common_0.wav not"),
        (("a/LJ7.wav", "b/LJ9.wav"), {"all_csv": "".join(f"LJ{n}|so|So\n" for n in range(60, 0, -1))}, r"LJ9\|so\|So"),
        (
            ("1/2/1-2-7.wav", "1/3/1-3-9.wav", "1/4/1-4-0.wav"),
            {f"1__{n}__t_txt": "".join(f"1-{n}-{i} HE SAID\n" for i in range(60)) for n in (2, 3)},
            "1-2-7 HE SAID",
        ),
    ],
)
def test_a_list_of_more_than_the_media_that_are_there_is_not_passed_over(open_, tmp_path, media, lists, named) -> None:
    with pytest.raises(DataError, match=rf"lists media that lie in folders \({named}"):
        open_(make(tmp_path / "set", *media, **lists))


@pytest.mark.parametrize(
    "lists",
    [
        {"train_txt": "cat/1.png\ndog/2.png\n"},
        {"labels_csv": "name,label\ncat/1.png,0\ndog/2.png,1\n"},
        {"labels_csv": ",Filename,Label,ClassName\n0,cat/1.png,0,cat\n1,dog/2.png,1,dog\n"},
        {"classes_txt": "cat\ndog\n"},
        {"README_txt": "All are by us.\ncat/1.png is the first.\nAsk before you use them.\nThank you.\nBye.\n"},
        {"words_txt": "1 tench\n2 shark\n3 ray\n4 cock\n5 hen\n"},
        {"notes_txt": "train test split of cat and dog by hand\n"},
        {"words_txt": "cat Felis catus\ndog Canis familiaris\n"},
        {"sums_txt": "d41d8cd98f00b204e9800998ecf8427e  cat/1.png\n0cc175b9c0f1b6a831c399e269772661 *dog/2.png\n"},
        {"features_csv": "name,mean,std\n1.png,-4.52e-05,0.1\n2.png,nan,2\n"},
        {"LICENSE_txt": "1.png is by us\n2.png is by others\n"},
        {"long_txt": "x" * 300_000},
        {"notes_txt": "All of it was drawn by hand.\n" * 60 + "1.png is the first, and was lost for years.\n"},
        {"words_txt": "".join(f"{n} word\n" for n in range(60, 0, -1))},
    ],
)  # fmt: skip
def test_what_says_no_more_than_the_folders_may_lie_there(open_, tmp_path, lists) -> None:
    media = ("cat/1.png", "dog/2.png")
    assert len(open_(make(tmp_path / "set", *media, **lists))) == 2


FIGURES = "".join(f"img{number}.png,{number},0.5\n" for number in range(200))


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ({"exif_csv": f"{FIGURES}2.png,rotated,0.5\n"}, "exif.csv says something of 1 of the 3 files"),
        (
            {"notes_txt": "We cut some.\n" * 35 + "cat/1.png resized to fit\ndog/2.png too\n"},
            r"notes.txt says something of 2 of the 3 files that lie in folders \(cat/1.png resized to fit\)",
        ),
    ],
)
@pytest.mark.parametrize("folders", [("cat", "dog"), ("all", "all")])
def test_what_says_something_of_a_few_is_told_once_and_refuses_nothing(open_, tmp_path, folders, lists, said) -> None:
    first, second = folders
    source = open_(make(tmp_path / "set", f"{first}/1.png", f"{second}/2.png", f"{second}/3.png", **lists))
    assert len(source) == 3
    [remark] = source.remarks
    assert re.match(said, remark), remark


def test_a_long_list_beside_a_few_of_its_clips_is_refused(open_, tmp_path) -> None:
    lines = "".join(f"x\tcommon_voice_{n}.wav\tIt says {n}.\n" for n in range(5000))
    for kind in ("clips", "{n}"):
        media = [f"{kind.format(n=n)}/common_voice_{n}.wav" for n in range(200, 5000, 800)]
        folder = make(tmp_path / f"of-{kind[1]}", *media, validated_tsv=f"id\tpath\ttext\n{lines}")
        with pytest.raises(DataError, match=r"lists media that lie in folders \(x common_voice_200.wav It says 200"):
            open_(folder)


def test_a_list_that_is_a_link_to_what_is_elsewhere_is_not_read(open_, tmp_path) -> None:
    folder = make(tmp_path / "set", "cat/1.png", "dog/2.png")
    (tmp_path / "secret").write_text("1.png the password\n2.png another\n")
    (folder / "list.txt").symlink_to(tmp_path / "secret")
    assert len(open_(folder)) == 2


def rows(*names: str) -> list[dict[str, object]]:
    return [{"audio_filepath": name, "duration": 1.5, "text": "It says seven."} for name in names]


CLIPS = ("wavs/84-1.flac", "wavs/84-2.flac", "wavs/84-3.flac")
SPOKEN = rows(*CLIPS)
LISTS = {
    "manifest.json": "".join(f"{json.dumps(row)}\n" for row in SPOKEN),
    "data.json": json.dumps(SPOKEN, indent=1),
    "set.json": json.dumps({"version": 1, "audios": [{"path": r["audio_filepath"], "said": [r]} for r in SPOKEN]}),
    "by_name.json": json.dumps({"utts": {name: {"words": "seven eight"} for name in CLIPS}}),
    "of_names.json": json.dumps(dict.fromkeys(CLIPS, "seven eight")),
    "data/train/text": "84-1 seven\n84-2 eight\n84-3 nine\n",
    "train.list": "".join(f"{name}|spk1|EN|seven\n" for name in CLIPS),
    "train_filelist.txt.cleaned": "".join(f"{name}|seven\n" for name in CLIPS),
    "dev.yaml": "".join(f"- {{duration: 1.5, offset: 0.2, speaker_id: spk.1, wav: {name}}}\n" for name in CLIPS),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("folders", [("wavs", "wavs", "wavs"), ("a", "b", "c")])
def test_a_list_is_found_whatever_its_suffix(open_, tmp_path, name, folders) -> None:
    media = [f"{folder}/{clip[5:]}" for folder, clip in zip(folders, CLIPS, strict=True)]
    folder = make(tmp_path / "set", *media)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(LISTS[name])
    with pytest.raises(DataError, match=rf"{name} lists media that lie in folders"):
        open_(folder, modalities=("audio",))


def test_a_compressed_list_is_found_too(open_, tmp_path) -> None:
    folder = make(tmp_path / "set", *CLIPS)
    (folder / "cuts.jsonl.gz").write_bytes(gzip.compress(LISTS["manifest.json"].encode()))
    with pytest.raises(DataError, match=r"cuts.jsonl.gz lists media that lie in folders"):
        open_(folder, modalities=("audio",))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("boxes.json", json.dumps([{"file": "cat/1.png", "box": [0, 1, 2, 3]}, {"file": "dog/2.png", "box": [1] * 4}])),
        ("labels.json", json.dumps({"cat/1.png": "cat", "dog/2.png": "dog"})),
        ("names.json", json.dumps({"0": ["n01", "tabby cat"], "1": ["n02", "terrier"]})),
        ("train.json", json.dumps({"cat": ["cat/1"] * 3, "dog": ["dog/2", "dog/20"]})),
        ("files.lst", "cat/1.png 0\ndog/2.png 1\n"),
        ("fetch.log", "cat/1.png saved\ndog/2.png saved\n"),
        ("index.html", "1.png the first\n2.png the second\n"),
        ("packed.bin", "1.png the first\n2.png the second\n\0\1"),
        ("1.json", json.dumps({"file": "1.png", "made_by": "a camera"})),
        ("SHA256SUMS", f"{'0' * 64}  cat/1.png\n{'1' * 64}  dog/2.png\n"),
    ],
)
def test_other_files_of_any_suffix_may_lie_beside_classes(open_, tmp_path, name, content) -> None:
    folder = make(tmp_path / "set", "cat/1.png", "dog/2.png")
    (folder / name).write_text(content)
    source = open_(folder)
    assert len(source) == 2
    assert not source.remarks


def test_of_one_class_it_is_said_that_all_learn_the_same(open_, tmp_path) -> None:
    [remark] = open_(make(tmp_path / "set", "a/wavs/1.png", "b/wavs/2.png")).remarks
    assert "all 2 media lie in folders of one name, so that 'wavs' is learned of each" in remark
    assert not open_(make(tmp_path / "two", "a/1.png", "b/2.png")).remarks


def test_media_named_without_a_suffix_in_any_column_are_found(open_, tmp_path) -> None:
    clips = [f"audio/y000000000{n}.flac" for n in range(3)]
    table = "id,youtube_id,start,caption\n" + "".join(f"{n},y000000000{n},30,A dog barks\n" for n in range(3))
    with pytest.raises(DataError, match=r"test.csv lists media") as refused:
        open_(make(tmp_path / "set", *clips, test_csv=table), modalities=("audio",))
    entry = _pasted(str(refused.value))
    assert entry["columns"] == {"audio": "youtube_id", "text": "caption"}
    assert Path(entry["root"]) == tmp_path / "set/audio"
    assert len(open_(entry.pop("path"), modalities=("audio",), **{**entry, "root": Path(entry["root"])})) == 3


def _pasted(message: str) -> dict[str, object]:
    """The entry of a source that a message says to paste."""
    return yaml.safe_load(shlex.split(message[message.index("(--data ") + 1 : message.index("), or write")])[1])


@pytest.mark.parametrize(
    "line", ["{n},2019,fine weather", "{n},1234,on the shelf", "{n},cat,a small one", "{n},12,three of them"]
)
def test_years_words_and_short_numbers_beyond_the_first_column_name_no_media(open_, tmp_path, line) -> None:
    table = "".join(f"{line.format(n=n)}\n" for n in range(50, 60))
    folder = make(tmp_path / "set", "a/2019.png", "b/1234.png", "b/cat.png", "a/12.png", notes_csv=f"x,y,z\n{table}")
    assert len(open_(folder)) == 4


def test_of_lists_of_splits_all_are_named_with_the_folder_of_their_media(open_, tmp_path) -> None:
    clips = [f"clips/common_{n}.flac" for n in range(6)]
    lists = {"train": range(3), "dev": (3, 4), "test": (5,)}
    table = {
        f"{k}_tsv": "path\tsentence\n" + "".join(f"common_{n}.flac\tHi {n}.\n" for n in v) for k, v in lists.items()
    }
    with pytest.raises(DataError, match=r"dev.tsv lists media") as refused:
        open_(make(tmp_path / "set", *clips, **table), modalities=("audio",))
    entry = _pasted(str(refused.value))
    assert entry["path"] == str(tmp_path / "set/{train,dev,test}.tsv")
    source = open_(entry.pop("path"), modalities=("audio",), **{**entry, "root": Path(entry["root"])})
    assert len(source) == 3
    assert all(medium.source.is_file() for row in range(3) for medium in source.document(row).media)


def test_a_list_without_names_of_columns_is_not_said_to_have_some(open_, tmp_path) -> None:
    table = "84-1.flac,seven\n84-2.flac,eight\n84-3.flac,nine\n"
    with pytest.raises(DataError, match="to learn these write them into"):
        open_(make(tmp_path / "set", *CLIPS, list_csv=table), modalities=("audio",))


def test_folders_that_begin_as_no_class_does_are_told(open_, tmp_path) -> None:
    media = ("yes/1.png", "no/2.png", "_noise_/3.png", "_noise_/4.png")
    [remark] = open_(make(tmp_path / "set", *media)).remarks
    assert remark.startswith("_noise_: a folder is a class as all others are (2 of 4 files)")
    assert not open_(make(tmp_path / "other", "_a/1.png", "_b/2.png")).remarks


def test_a_list_beside_media_in_one_folder_is_told_as_such(open_, tmp_path) -> None:
    folder = make(tmp_path / "set", "84-1.png", "84-2.png", trans_txt="84-1 SEVEN\n84-2 EIGHT\n")
    with pytest.raises(DataError, match=r"trans.txt lists its 2 files of media \(84-1 SEVEN\); .*its lines into a"):
        open_(folder)
    (folder / "trans.txt").write_text("Seven and eight.\n")
    with pytest.raises(DataError, match=r"beside \.txt files of other names"):
        open_(folder)


def test_media_are_continued_whatever_texts_of_other_names_lie_there(open_, tmp_path) -> None:
    folder = make(tmp_path / "set", "84-1.png", "84-2.png", trans_txt="84-1 SEVEN\n84-2 EIGHT\n")
    source = open_(folder, asked=True)
    assert [m.source.name for row in range(2) for m in source.document(row).media] == ["84-1.png", "84-2.png"]
    assert source.left_out == {".txt": 1}
    texts = open_(folder, asked=True, modalities=())
    assert not any([*texts.document(row).media] for row in range(len(texts)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "[" * 20_000 + "\n[1]\n"),
        ("a.json", '{"a":' * 200_000 + "\n{}"),
        ("a.json", '{"a":1}\n' + '{"a":' * 200_000),
        ("a.yaml", "[" * 20_000 + "\nx"),
    ],
)
def test_what_is_nested_deeper_than_can_be_read_may_lie_there(open_, tmp_path, name, content) -> None:
    folder = make(tmp_path / "set", "cat/1.png", "dog/2.png")
    (folder / name).write_text(content)
    assert len(open_(folder)) == 2


def test_of_json_the_bytes_that_are_read_count_and_not_what_comes_out(tmp_path) -> None:
    content = json.dumps({"features": [{"geometry": [[1.25, 2.5]] * 1000}]})
    (tmp_path / "area.json").write_text(content)
    assert first_lines(tmp_path, "area.json", 1 << 20, (".png",), bool).num_bytes == len(content)
    assert first_lines(tmp_path, "area.json", 100, (".png",), bool).num_bytes == 100


@pytest.mark.parametrize(
    ("media", "table"),
    [
        (("cat/0.png", "dog/0.png"), "file,text\n0.png,it sits there\n0.png,it runs off\n"),  # which of two is meant
        (("cat/1.png", "dog/2.png"), "file,text\n1.png,it sits there\n2.png,it runs off\n"),  # in no one folder
        (("cat/1.png", "dog/2.png"), "file,text\n/mnt/x/1.png,it sits there\n/mnt/x/2.png,it runs off\n"),
    ],
)
def test_a_list_whose_names_are_below_no_one_folder_is_not_said_to_be_read_as_it_is(
    open_, tmp_path, media, table
) -> None:
    with pytest.raises(DataError, match=r"to learn these write them into a metadata.csv"):
        open_(make(tmp_path / "set", *media, list_csv=table))


TWENTY = [f"{kind}/{kind}_{n:03}.png" for kind in ("cat", "dog") for n in range(10)]
NUMBERED = [f"{kind:04}/{n:04}.png" for kind in range(5) for n in range(6)]


def each(line: str) -> str:
    return "".join(line.format(file=file, stem=Path(file).stem, n=n) + "\n" for n, file in enumerate(TWENTY))


def each_row(**row: object) -> str:
    return json.dumps([{"file": file, **row} for file in TWENTY])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("checksums.json", json.dumps(dict.fromkeys(TWENTY, f"sha256:{'ab' * 32}"))),
        ("sums.json", json.dumps(dict.fromkeys(TWENTY, f"sha256:{'ab' * 32}"))),
        ("CHECKSUM", each(f"SHA256 ({{file}}) = {'ab' * 32}")),
        ("sums.dat", each(f"SHA256 ({{file}}) = {'ab' * 32}")),
        ("sums.txt", each("{file} 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")),
        ("crc.json", json.dumps(dict.fromkeys(TWENTY, "9f3c21ab"))),
        ("manifest.json", json.dumps({"files": [{"path": f, "md5": "ab" * 16, "mime": "image/png"} for f in TWENTY]})),
        ("train_log", each("loaded {file} ok")),
        ("index", each("-rw-r--r-- 1 root root 1234 Jan  1 12:00 {file}")),
        ("wav.scp", each("{stem} {file}")),
        ("splits.json", json.dumps({file: ("train", "test")[n % 2] for n, file in enumerate(TWENTY)})),
        ("splits.json", each_row(split="train")),
        ("coco.json", each_row(date_captured="2013-11-14T17:02:52Z", license="CC BY")),
        ("sizes.json", json.dumps({"images": {file: {"width": 4} for file in TWENTY}})),
        ("via.json", json.dumps({f"{file}123": {"filename": file, "size": 123, "regions": []} for file in TWENTY})),
        ("times.tsv", each("{file}\t2013-11-14T17:02:52Z")),
        ("exif.json", each_row(SourceFile="x", Make="Canon", Model="EOS", FileType="JPEG")),
        ("ATTRIBUTION", each("{file} by John Doe, CC BY 2.0")),
        ("urls.txt", each("{stem} https://there.org/{n}")),
    ],
)
def test_sums_parts_and_what_is_said_of_files_may_lie_beside_classes(open_, tmp_path, name, content) -> None:
    folder = make(tmp_path / "set", *TWENTY)
    (folder / name).write_text(content)
    source = open_(folder)
    assert len(source) == 20
    assert not source.remarks


@pytest.mark.parametrize("name", ["{}.json", "{}.supplemental-metadata.json", "of/{}.json"])
def test_files_of_one_medium_each_are_no_lists(open_, tmp_path, name) -> None:
    folder = make(tmp_path / "set", *TWENTY)
    for file in TWENTY:
        (folder / name.format(file)).parent.mkdir(parents=True, exist_ok=True)
        (folder / name.format(file)).write_text(json.dumps({"title": Path(file).name, "formatted": "1 Jan 2020"}))
    assert len(open_(folder)) == 20


@pytest.mark.parametrize(
    ("media", "name", "content"),
    [
        (NUMBERED, "classes.json", json.dumps({f"{kind:04}": f"class {kind}" for kind in range(5)})),
        (NUMBERED, "classes.csv", "number,name\n" + "".join(f"{kind:04},a class\n" for kind in range(5))),
        ([f"{k}/{n}.png" for k in "abc" for n in (1, 2, 3)], "labels.json", '{"1": "plane", "2": "car", "3": "bird"}'),
        ([f"{k}/{n}.png" for k in "abc" for n in (0, 1, 2)], "id2label.json", '{"0": "plane", "1": "car", "2": "owl"}'),
    ],
)
def test_names_of_classes_are_no_texts_of_media(open_, tmp_path, media, name, content) -> None:
    folder = make(tmp_path / "set", *media)
    (folder / name).write_text(content)
    source = open_(folder)
    assert len(source) == len(media)
    assert all("names of the folders are learned" in remark for remark in source.remarks)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", json.dumps({"preview": "cat/0001.png", "title": "hello cats"})),
        ("todo", "0001.png is blurry\n"),
        ("conf.yaml", "title: hello cats\npreview: cat/0001.png\n"),
    ],
)
def test_what_names_one_file_may_lie_beside_one_class(open_, tmp_path, name, content) -> None:
    folder = make(tmp_path / "set", *(f"cat/{n:04}.png" for n in range(30)))
    (folder / name).write_text(content)
    assert len(open_(folder)) == 30
    (folder / name).write_text("".join(f"{n:04}.png is a cat that sits\n" for n in range(4)))
    with pytest.raises(DataError, match=f"{name} lists media"):
        open_(folder)
