"""Tar files as webdataset writes them: samples by name, media as bytes; a broken sample costs itself alone."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import subprocess
import tarfile
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.document import StoredMedia, Text
from kosmos.data.sources import scan_cache, tar
from kosmos.data.sources.folders import LINK
from kosmos.errors import DataError, SampleError


def pack(path, *files, form=tarfile.PAX_FORMAT):
    """A tar file of (name, content), or of entries that are no plain files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = content
                archive.addfile(entry)
    return path


def segments(source, index=0):
    found = [s for s in source.document(index).segments if isinstance(s, Text | StoredMedia)]
    return [(s.modality, s.load().source) if isinstance(s, StoredMedia) else s for s in found]


def chat(*turns):
    roles = ("user", "assistant")
    messages = [{"role": role, "content": content} for role, content in zip(roles, turns, strict=True)]
    return json.dumps({"id": "7", "image": "named in the json", "messages": messages}).encode()


def test_files_of_one_name_are_a_row(open_, tmp_path):
    path = pack(
        tmp_path / "shard.tar",
        ("./a/0001.jpg", b"picture"), ("a/0001.txt", b"\xef\xbb\xbfa cat\n"), ("./a/0001.json", b'{"width": 3}'),
        ("a/0002.txt", "two é".encode()), ("a/0002.JPG", b"second"), ("a/0002.wav", b"sound"),
        ("b.txt", b"text alone"),
    )  # fmt: skip
    source = open_(path)
    assert (source.name, len(source)) == ("shard", 3)
    assert segments(source, 0) == [("image", b"picture"), Text("a cat", train=True)]
    assert sorted(segments(source, 1)[:2]) == [("audio", b"sound"), ("image", b"second")]
    assert segments(source, 2) == [Text("text alone", train=True)]
    assert source.document(1).origin == f"{path}:a/0002"
    assert segments(pickle.loads(pickle.dumps(source))) == segments(source)


def test_a_json_is_the_row_and_the_files_beside_it_are_its_media(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.jpg", b"picture"), ("1.json", chat("<image>What is it?", "A cat.")))
    found = segments(open_(path))
    assert ("image", b"picture") in found
    assert Text("A cat.", train=True) in found


def test_a_template_asks_for_columns_and_for_files_by_their_suffix(open_, tmp_path):
    path = pack(
        tmp_path / "a.tar",
        ("1.seg.png", b"mask"), ("1.input.png", b"picture"), ("1.cls", b"7\n"), ("1.json", b'{"caption": "a cat"}'),
    )  # fmt: skip
    source = open_(path, template="[image:input.png] {cls} {caption} → [image:seg.png] {cls}")
    texts = [s.text for s in source.document(0).segments if isinstance(s, Text)]
    assert [s.load().source for s in source.document(0).media] == [b"picture", b"mask"]
    assert "7 a cat" in texts[0]


def test_media_stand_in_the_order_of_the_archive(open_, tmp_path):
    renamed = {"image": "x.png", "audio": "y.flac", "text": "z"}
    for order in ("x.png y.flac z", "z y.flac x.png"):
        source = open_(pack(tmp_path / "a.tar", *((f"1.{s}", s.encode()) for s in order.split())), columns=renamed)
        expected = [suffix for suffix in order.split() if suffix != "z"]
        assert [s.load().source.decode() for s in source.document(0).media] == expected


def test_several_media_of_a_sample_stand_in_the_order_of_their_numbers(open_, tmp_path):
    files = [(f"1.{number}.{suffix}", str(number).encode()) for number, suffix in ((10, "jpg"), (2, "PNG"), (0, "jpg"))]
    source = open_(
        pack(tmp_path / "a.tar", *files, ("1.txt", b"three"), ("2.txt", b"one"), ("2.00.jpg", b"x"), ("2.1.wav", b"y"))
    )
    assert segments(source) == [*(("image", n) for n in (b"0", b"2", b"10")), Text("three", train=True)]
    assert segments(source, 1) == [("image", b"x"), ("audio", b"y"), Text("one", train=True)]
    assert source.left_out == {}
    by_template = open_(tmp_path / "a.tar", template="→ {text}: [image]").document(0)
    assert [s.load().source for s in by_template.media] == [b"0", b"2", b"10"]
    with pytest.raises(DataError, match=r"no row is left \(2 with image\)"):
        open_(tmp_path / "a.tar", modalities=("audio",))


def test_several_media_of_a_sample_stand_where_its_json_says(open_, tmp_path):
    first = chat("<image>What is it? <image>", "A cat.")
    row = {"images": ["1.1.jpg", "1.0.jpg"], "text": "two"}
    files = [("1.0.jpg", b"zero"), ("1.1.jpg", b"one"), ("1.json", json.dumps(row).encode())]
    source = open_(pack(tmp_path / "a.tar", *files, ("2.0.jpg", b"a"), ("2.1.jpg", b"b"), ("2.json", first)))
    assert segments(source) == [("image", b"one"), ("image", b"zero"), Text("two", train=True)]
    assert [s.load().source for s in source.document(1).media] == [b"a", b"b"]


@pytest.mark.parametrize("suffixes", ["jpg 0.jpg", "0.jpg 0.png", "0.jpg 00.jpg 1.jpg"])
def test_media_whose_order_nobody_can_tell_cost_their_sample(open_, tmp_path, suffixes):
    named = ", ".join(f".{suffix}" for suffix in suffixes.split())
    files = [(f"1.{suffix}", b"x") for suffix in suffixes.split()]
    source = open_(pack(tmp_path / "a.tar", *files, ("1.txt", b"one"), ("2.txt", b"two")))
    with pytest.raises(SampleError, match=rf"a.tar:1: holds {named}, whose order nobody can tell; give each a number"):
        source.document(0)


def test_of_numbered_media_those_are_meant_that_are_named(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.0.jpg", b"zero"), ("1.1.jpg", b"one"), ("1.txt", b"text"))
    for asked in ({"columns": {"image": "1.jpg"}}, {"template": "[image:1.jpg] → {text}"}):
        source = open_(path, **asked)
        assert [s.load().source for s in source.document(0).media] == [b"one"]
        assert source.left_out == {".0.jpg": 1}


def test_a_text_in_json_is_not_learned_without_the_media_beside_it_either(open_, tmp_path):
    said = json.dumps({"text": "one"}).encode()
    path = pack(tmp_path / "a.tar", ("1.left.jpg", b"x"), ("1.right.jpg", b"y"), ("1.json", said), ("2.json", said))
    source = open_(path)
    with pytest.raises(SampleError, match=r"holds .left.jpg, .right.jpg beside its text; say which is meant"):
        source.document(0)
    assert source.document(1).segments == (Text("one", train=True),)


def test_a_text_is_not_learned_without_the_media_beside_it(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.left.jpg", b"x"), ("1.right.jpg", b"y"), ("1.txt", b"one"), ("2.txt", b"two"))
    with pytest.raises(SampleError, match=r"holds .left.jpg, .right.jpg beside its text; say which .*image: left.jpg"):
        open_(path).document(0)
    assert segments(open_(path, columns={"image": "left.jpg"})) == [("image", b"x"), Text("one", train=True)]
    assert segments(open_(path, template="{text}")) == [Text("one", train=True)]
    assert segments(open_(path), 1) == [Text("two", train=True)]


def test_shards_in_a_folder_state_their_split(open_, tmp_path):
    for split, text in (("train", b"one"), ("val", b"two")):
        pack(tmp_path / "set" / f"{split}-000.tar", ("1.txt", text))
    assert segments(open_(tmp_path / "set")) == [Text("one", train=True)]
    assert segments(open_(tmp_path / "set", split="held_out")) == [Text("two", train=True)]


def test_media_of_other_modalities_are_left_out_and_counted(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.mp4", b"film"), ("1.txt", b"one"), ("2.txt", b"two"))
    source = open_(path)
    assert (len(source), source.left_out) == (1, {"video": 1})


def test_files_of_one_name_need_not_be_neighbours(open_, tmp_path):
    files = [(f"{key}.{suffix}", f"{suffix} {key}".encode()) for suffix in ("jpg", "txt") for key in (1, 2)]
    source = open_(pack(tmp_path / "a.tar", *files))
    expected = [[("image", f"jpg {key}".encode()), Text(f"txt {key}", train=True)] for key in (1, 2)]
    assert [segments(source, index) for index in range(len(source))] == expected


def test_links_to_files_of_the_archive_are_those_files_and_other_entries_none(open_, tmp_path):
    path = pack(
        tmp_path / "a.tar",
        ("dir", (tarfile.DIRTYPE, "")), ("1.txt", b"one"), ("1.jpg", (tarfile.SYMTYPE, "/etc/passwd")),
        ("2.txt", (tarfile.LNKTYPE, "1.txt")), ("3.txt", (tarfile.FIFOTYPE, "")), (".hidden.txt", b"x"),
        ("README", b"x"), ("4.txt", (tarfile.LNKTYPE, "elsewhere.txt")),
    )  # fmt: skip
    source = open_(path)
    assert [segments(source, index) for index in range(len(source))] == [[Text("one", train=True)]] * 2
    assert source.left_out == {LINK: 3}


def test_files_that_nothing_asks_for_are_counted(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.ply", b"x"), ("1.txt", b"one"), ("2.ply", b"x"), ("2.cls", b"3"))
    assert open_(path).left_out == {".cls": 1, ".ply": 2}


def test_what_a_row_is_may_stand_in_files_of_their_own(open_, tmp_path):
    chats = json.dumps([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]).encode()
    files = [(f"{n}.{suffix}", content) for n in range(20) for suffix, content in (
        ("talk.json", chats), ("subset", [b"train", b"test"][n % 2]),
    )]  # fmt: skip
    path = pack(tmp_path / "a.tar", *files)
    parts = [
        open_(path, split=split, columns={"messages": "talk.json", "split": "subset"})
        for split in ("train", "held_out")
    ]
    assert [part.rows.tolist() for part in parts] == [[*range(0, 20, 2)], [*range(1, 20, 2)]]
    assert Text("Hi", train=True) in segments(parts[0])


def test_media_of_a_sample_are_those_that_its_json_names(open_, tmp_path):
    turns = [{"role": "user", "content": "<image>What is it?"}, {"role": "assistant", "content": "A cat."}]
    row = json.dumps({"images": ["of/another/folder.jpg"], "messages": turns}).encode()
    assert ("image", b"picture") in segments(open_(pack(tmp_path / "a.tar", ("1.jpg", b"picture"), ("1.json", row))))


def test_paths_in_a_json_are_below_the_archives_folder(open_, tmp_path):
    (tmp_path / "b.png").write_bytes(b"beside")
    for name, text in (("b.png", b"one"), ("/etc/passwd", b"two"), ("../b.png", b"three")):
        source = open_(pack(tmp_path / "a.tar", ("1.json", json.dumps({"image": name}).encode()), ("1.txt", text)))
        if name == "b.png":
            assert source.document(0).segments[0].source == tmp_path / "b.png"
        else:
            with pytest.raises(SampleError, match="refused"):
                source.document(0)


def test_keys_that_come_again_in_each_shard_are_held_out_one_by_one(open_, tmp_path):
    for shard in range(20):
        pack(tmp_path / "set" / f"{shard}.tar", *((f"{n:03d}.txt", b"text") for n in range(10)))
    held = open_(tmp_path / "set", split="held_out", held_out=0.1)
    assert len(held) == 20
    assert len({held.document(index).origin.rpartition(":")[2] for index in range(20)}) > 2


def test_a_json_under_its_own_name_and_one_that_is_no_object(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.json", b'{"caption": "a cat"}'), ("2.json", b"[1, 2]"))
    assert segments(open_(path, template="→ {json.caption}")) == [Text("a cat", train=True)]
    assert segments(open_(path, template="→ {json}"), 1) == [Text("1, 2", train=True)]
    with pytest.raises(SampleError, match=r"a.tar:2: .json: expected an object, got a list"):
        open_(path, template="→ {caption}").document(1)


def test_the_text_file_goes_before_the_text_of_the_json(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.txt", b"of the file"), ("1.json", b'{"text": "of the json"}'))
    assert segments(open_(path)) == [Text("of the file", train=True)]


def test_a_broken_sample_costs_itself_alone(open_, tmp_path, monkeypatch):
    monkeypatch.setattr(tar, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(tar, "MAX_ROW_BYTES", 20)
    bad = {
        r".json: not JSON \(JSONDecodeError": [("json", b"{"), ("txt", b"one")],
        r".txt: not UTF-8 at byte 0": [("txt", b"\xff")],
        r".jpg: 11 bytes, over the limit of 10": [("jpg", b"x" * 11), ("txt", b"three")],
        r".txt: 21 bytes, over the limit of 20": [("txt", b"x" * 21)],
        r"no 'text'": [("jpg", b"x")],
        r"holds .jpg twice": [("jpg", b"x"), ("JPG", b"y"), ("txt", b"one")],
        r"holds no .txt, .json or medium of this run, but .01.jpg, .01.txt \(a name ends at": [
            ("01.jpg", b"x"), ("01.txt", b"one"),
        ],
    }  # fmt: skip
    files = [(f"{n}.{suffix}", content) for n, sample in enumerate(bad.values()) for suffix, content in sample]
    source = open_(pack(tmp_path / "a.tar", *files, ("good.txt", b"good")))
    for index, cause in enumerate(bad):
        with pytest.raises(SampleError, match=rf"a.tar:{index}: {cause}"):
            source.document(index)
    assert segments(source, len(bad)) == [Text("good", train=True)]


def test_a_file_with_holes_costs_its_sample(open_, tmp_path):
    (tmp_path / "1.jpg").write_bytes(b"")
    os.truncate(tmp_path / "1.jpg", 1 << 20)
    (tmp_path / "1.txt").write_text("one")
    done = subprocess.run(["tar", "--sparse", "-cf", "a.tar", "1.jpg", "1.txt"], cwd=tmp_path, capture_output=True)
    if done.returncode:
        pytest.skip("needs GNU tar")
    with pytest.raises(SampleError, match=r"a.tar:1: .jpg: is stored with holes; write the archive without --sparse"):
        open_(tmp_path / "a.tar").document(0)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar_and_long_names(open_, tmp_path, form):
    folder = "d" * 90 if form == tarfile.USTAR_FORMAT else "é" * 200
    path = pack(tmp_path / "a.tar", (f"{folder}/1.txt", b"one"), (f"{folder}/1.jpg", b"p"), form=form)
    source = open_(path)
    assert source.document(0).origin == f"{path}:{folder}/1"
    assert segments(source) == [("image", b"p"), Text("one", train=True)]


FILES = st.tuples(st.sampled_from(["1", "a/1", "2"]), st.sampled_from(["jpg", "txt", "x.png"]), st.binary(max_size=600))


@given(files=st.lists(FILES, min_size=1, max_size=12))
def test_each_file_is_read_where_it_lies(files, tmp_path_factory):
    path = pack(tmp_path_factory.mktemp("tar") / "a.tar", *((f"{key}.{suffix}", c) for key, suffix, c in files))
    found = tar.index_tar(path)
    content = path.read_bytes()
    places = zip(found["begin"], found["nbytes"], strict=True)
    keys = list(dict.fromkeys(key for key, _, _ in files))
    in_order = sorted(files, key=lambda file: keys.index(file[0]))
    seen = Counter((key, suffix) for key, suffix, _ in files)
    if max(seen.values()) < 3:  # of three of one name two are enough to be told of
        assert [content[begin : begin + nbytes] for begin, nbytes in places] == [c for _, _, c in in_order]
        assert np.diff(found["first"]).tolist() == [sum(key == other for other, _, _ in files) for key in keys]


def flipped(place):
    """A bit of a header: the second file's begins at byte 5,632."""

    def damage(content):
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]

    return damage


def sized(content, size):
    """The second file's header with another size, as a number of 256 to the base."""
    head = bytearray(content[5632:6144])
    head[124:136] = bytes([255 if size < 0 else 128]) + (size % (1 << 88)).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return content[:5632] + bytes(head) + content[6144:]


def chained(count):
    """As many long names of one file, one of the other."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2
    return (header.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(tarfile.BLOCKSIZE, b"\0")) * count


def heading(kind):
    """A header of the next that states more than any has."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = kind, 6 << 30
    return header.tobuf(tarfile.GNU_FORMAT)


DAMAGES = {
    "a long name without end": (
        lambda content: heading(tarfile.GNUTYPE_LONGNAME) + content,
        "a header of 6,442,450,944",
    ),
    "a PAX header without end": (
        lambda content: content[:5632] + heading(tarfile.XHDTYPE) + content,
        "over the limit of",
    ),
    "no archive": (lambda content: b"no archive" * 100, "[a-z ]+"),
    "nothing": (lambda content: b"", "empty file"),
    "cut in a file": (lambda content: content[:612], "breaks off or is damaged at byte 0"),
    "cut before a header": (lambda content: content[:5632], "breaks off, .* at byte 5632"),
    "cut in a header": (lambda content: content[:5700], "breaks off|truncated header"),
    "cut before the end": (lambda content: content[:6656], "breaks off, .* at byte 6656"),
    "a bit of a header": (flipped(5640), "breaks off, is damaged, or another one begins at byte 5632"),
    "another behind it": (lambda content: content + content, "another one begins at byte 6656"),
    "a size below zero": (lambda content: sized(content, -512), "breaks off or is damaged"),
    "a size of minus one": (lambda content: sized(content, -1), "breaks off or is damaged"),
    "a size beyond all": (lambda content: sized(content, (1 << 63) - 1), "breaks off or is damaged"),
    "headers of headers": (lambda content: chained(1200) + content, "headers of headers, without an end"),
    "gzip": (gzip.compress, "it is compressed, and has to be unpacked first"),
}


@pytest.mark.parametrize(("damage", "cause"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_no_whole_tar_file_is_one_line(open_, tmp_path, damage, cause):
    path = pack(tmp_path / "a.tar", ("1.jpg", b"x" * 5000), ("1.txt", b"one"))
    assert segments(open_(path)) == [("image", b"x" * 5000), Text("one", train=True)]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=rf"a.tar: no whole tar file \(.*({cause})") as told:
        open_(path)
    assert "Error" not in str(told.value)


def test_of_an_archive_that_becomes_shorter_nothing_is_read(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.txt", b"one"), ("2.txt", b"two" * 1000))
    source = open_(path)
    with path.open("rb+") as file:
        file.truncate(2048)
    for index, name in enumerate(("1", "2")):
        with pytest.raises(SampleError, match=f"a.tar:{name}: no row is here any more: the file was changed"):
            source.document(index)


def test_where_the_files_are_is_kept(open_, tmp_path, monkeypatch):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    path = pack(tmp_path / "a.tar", ("1.jpg", b"picture"), ("1.txt", b"one"), ("2.wav", b"sound"), ("2.txt", b"two"))
    first = open_(path)
    monkeypatch.setattr(tar, "index_tar", lambda path: pytest.fail("they are looked for again"))
    again = open_(path)
    assert [segments(again, i) for i in range(2)] == [segments(first, i) for i in range(2)]
    fewer = open_(path, modalities=("image",))
    assert (len(fewer), fewer.left_out) == (1, {"audio": 1})


def test_an_archive_beside_what_was_unpacked_from_it_is_no_matter(open_, tmp_path):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "1.png").write_bytes(b"picture")
    pack(tmp_path / "pets.tar", ("cats/1.png", b"picture"))
    source = open_(tmp_path)
    assert (len(source), source.left_out) == (1, {".tar": 1})


def test_a_file_that_nothing_is_learned_from_is_a_column_by_which_scores_are_told_apart(open_, tmp_path):
    files = (
        ("a.txt", b"a cat"), ("a.json", b'{"width": 3, "cls": 1}'), ("a.cls", b"7\n"), ("a.wav", b"sound"),
        ("b.txt", b"a dog"), ("b.meta.json", b'{"who": "anna"}'),
    )  # fmt: skip
    source = open_(pack(tmp_path / "shard.tar", *files), root=tmp_path)
    assert [source.value(0, path) for path in ("cls", "width", "text")] == ["7", 3, "a cat"]
    assert source.value(1, "meta.json") == {"who": "anna"}
    for index, path in ((1, "cls"), (0, "wav")):
        with pytest.raises(SampleError, match=f"no column '{path}'"):
            source.value(index, path)
