"""Tar files as webdataset writes them: samples by name, media as bytes; a broken sample costs itself alone."""

from __future__ import annotations

import io
import json
import pickle
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.document import Media, Text
from kosmos.data.sources import scan_cache, tar
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
    found = source.document(index).segments
    return [(s.modality, s.source) if isinstance(s, Media) else s for s in found if isinstance(s, Text | Media)]


def chat(*turns):
    roles = ("user", "assistant")
    messages = [{"role": role, "content": content} for role, content in zip(roles, turns, strict=True)]
    return json.dumps({"id": "7", "image": "named in the json", "messages": messages}).encode()


def test_files_of_one_name_are_a_row(open_, tmp_path):
    path = pack(
        tmp_path / "shard.tar",
        ("./a/0001.jpg", b"picture"), ("./a/0001.txt", b"\xef\xbb\xbfa cat\n"), ("./a/0001.json", b'{"width": 3}'),
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
    assert [s.source for s in source.document(0).segments if isinstance(s, Media)] == [b"picture", b"mask"]
    assert "7 a cat" in texts[0]


def test_shards_in_a_folder_state_their_split(open_, tmp_path):
    for split, text in (("train", b"one"), ("val", b"two")):
        pack(tmp_path / "set" / f"{split}-000.tar", ("1.txt", text))
    assert segments(open_(tmp_path / "set")) == [Text("one", train=True)]
    assert segments(open_(tmp_path / "set", split="held_out")) == [Text("two", train=True)]


def test_media_of_other_modalities_are_left_out_and_counted(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.mp4", b"film"), ("1.txt", b"one"), ("2.txt", b"two"))
    source = open_(path)
    assert (len(source), source.left_out) == (1, {"video": 1})


def test_what_is_no_file_is_passed_over(open_, tmp_path):
    path = pack(
        tmp_path / "a.tar",
        ("dir", (tarfile.DIRTYPE, "")), ("1.txt", b"one"), ("1.jpg", (tarfile.SYMTYPE, "/etc/passwd")),
        ("2.jpg", (tarfile.LNKTYPE, "1.txt")), ("3.txt", (tarfile.FIFOTYPE, "")), (".hidden.txt", b"x"),
        ("README", b"x"),
    )  # fmt: skip
    source = open_(path)
    assert len(source) == 1
    assert segments(source) == [Text("one", train=True)]


def test_a_broken_sample_costs_itself_alone(open_, tmp_path, monkeypatch):
    monkeypatch.setattr(tar, "MAX_FILE_BYTES", 10)
    path = pack(
        tmp_path / "a.tar",
        ("1.json", b"{"), ("1.txt", b"one"), ("2.txt", b"\xff"), ("3.jpg", b"x" * 11), ("3.txt", b"three"),
        ("4.jpg", b"x"), ("5.txt", b"five"),
    )  # fmt: skip
    source = open_(path)
    causes = [
        r"a.tar:1: not JSON", r"a.tar:2: .txt: not UTF-8 at byte 0", r"a.tar:3: .jpg: 11 bytes, over the limit of 10",
        r"a.tar:4: no 'text'",
    ]  # fmt: skip
    for index, cause in enumerate(causes):
        with pytest.raises(SampleError, match=cause):
            source.document(index)
    assert segments(source, 4) == [Text("five", train=True)]


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
    found = tar._files(path)
    content = path.read_bytes()
    places = zip(found["begin"], found["nbytes"], strict=True)
    assert [content[begin : begin + nbytes] for begin, nbytes in places] == [c for _, _, c in files]
    keys = [key for number, (key, _, _) in enumerate(files) if number == 0 or files[number - 1][0] != key]
    assert found["keys_ends"].tolist() == [sum(map(len, keys[: n + 1])) for n in range(len(keys))]


def truncated(content):
    return content[: 512 + 100]


DAMAGES = [lambda content: b"no archive" * 100, truncated, lambda content: b"\x1f\x8b" + content, lambda content: b""]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_whole_tar_file_is_one_line(open_, tmp_path, damage):
    path = pack(tmp_path / "a.tar", ("1.jpg", b"x" * 5000), ("1.txt", b"one"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"a.tar: no readable tar file \(.*\)$|a.tar: holds no rows"):
        open_(path)


def test_an_archive_that_becomes_shorter_costs_what_is_lost(open_, tmp_path):
    path = pack(tmp_path / "a.tar", ("1.txt", b"one"), ("2.txt", b"two" * 1000))
    source = open_(path)
    with path.open("rb+") as file:
        file.truncate(2048)
    assert segments(source) == [Text("one", train=True)]
    with pytest.raises(SampleError, match=r"a.tar:2: .txt: the archive breaks off in it"):
        source.document(1)


def test_where_the_files_are_is_kept(open_, tmp_path, monkeypatch):
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(scan_cache, "LEAST_BYTES", 0)
    path = pack(tmp_path / "a.tar", ("1.jpg", b"picture"), ("1.txt", b"one"), ("2.wav", b"sound"), ("2.txt", b"two"))
    first = open_(path)
    monkeypatch.setattr(tar, "_files", lambda path: pytest.fail("they are looked for again"))
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
