"""What a row may name: nothing outside the folder of its file, and no URL."""

from __future__ import annotations

import base64
import os
import re
from functools import partial

import numpy as np
import pytest

from kosmos.data.sources.arrays import Taken
from kosmos.data.sources.lost import LostMediumError
from kosmos.data.sources.media import MediaRoot, NoSuchFileError, read_media, read_source, resolve, without_rates
from kosmos.errors import ConfigError, SampleError

REFUSED = {
    "../secret.txt": "'..' is refused",
    "in/../../secret.txt": "'..' is refused",
    "..\\secret.txt": "'..' is refused",
    "/etc/passwd": "absolute paths out of .* are refused",
    "\\\\server\\share": "absolute paths are refused",
    "C:\\x.png": "absolute paths are refused",
    "http://example.com/a.png": "URLs of kind 'http'",
    "HTTPS://example.com/a.png": "URLs of kind 'HTTPS'",
    "ftp://example.com/a.png": "URLs of kind 'ftp'",
    "s3://bucket/a.png": "URLs of kind 's3'",
    "file:///etc/passwd": "^/etc/passwd: absolute paths out of .* are refused",
    "FILE:///etc/%2e%2e/etc/passwd": "absolute paths out of .* are refused",
    "file:///etc/pass%00wd": "NUL",
    "file:////etc/passwd": "absolute paths out of .* are refused",
    "file://etc/passwd": "URLs of kind 'file' are never opened; write the path itself",
    "file:a.png": "URLs of kind 'file' are never opened; write the path itself",
    "concat:a.png|b.png": "URLs of kind 'concat'",
    "": "empty",
    "a\0.png": "NUL",
    "x" * 5000: "cannot be read|no such file",
    "folder": "is no file, but a folder",
    "out.png": "a link that leads out",
    "linked/secret.txt": "a link that leads out",
    "loop.png": "cannot be read|no such file",
}


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "a.png").write_bytes(b"a")
    (root / "inner.png").symlink_to("a.png")
    (root / "out.png").symlink_to(tmp_path / "secret.txt")
    (root / "linked").symlink_to(tmp_path)
    (root / "loop.png").symlink_to("loop.png")
    return root


@pytest.mark.parametrize("name", REFUSED, ids=[name[:30].replace("\0", "NUL") for name in REFUSED])
def test_paths_that_lead_out_are_refused(root, name):
    with pytest.raises(SampleError, match=REFUSED[name]):
        resolve(root, name)


def test_files_and_links_inside_are_found(root):
    assert resolve(root, "a.png") == resolve(root, "inner.png") == (root / "a.png").resolve()
    (root / "folder" / "b.png").write_bytes(b"b")
    (root / "there").symlink_to("folder")
    for name in ("folder/b.png", "./folder//b.png", "there/b.png"):
        assert resolve(root, name) == (root / "folder" / "b.png").resolve()


def test_a_url_of_an_absolute_path_is_that_path(root):
    (root / "a b.png").write_bytes(b"b")
    assert resolve(root, f"file://{root}/a.png") == (root / "a.png").resolve()
    assert read_source("image", {"url": f"file://{root}/a%20b.png"}, MediaRoot(root)) == (root / "a b.png").resolve()
    for name in ("out.png", "folder/../../secret.txt", "linked/secret.txt"):
        with pytest.raises(SampleError, match="refused"):
            resolve(root, f"file://{root}/{name}")


def test_root_may_itself_be_a_link(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    assert resolve(tmp_path / "alias", "a.png").read_bytes() == b"a"


def test_pipes_are_no_files(root):
    os.mkfifo(root / "pipe.png")
    with pytest.raises(SampleError, match=r"pipe\.png: is no file, but a folder, a pipe or the like"):
        resolve(root, "pipe.png")


def test_paths_in_objects_are_held_to_the_same_rules(root):
    assert read_source("image", {"bytes": b"x", "path": "/etc/passwd"}, MediaRoot(root)) == b"x"
    for value in ({"bytes": None, "path": "/etc/passwd"}, {"url": "http://x/a.png"}, {"path": "../secret.txt"}):
        with pytest.raises(SampleError, match=r"refused|never opened"):
            read_source("image", value, MediaRoot(root))
    with pytest.raises(SampleError, match="zero bytes"):
        read_source("image", {"bytes": b""}, MediaRoot(root))


def test_an_object_may_name_its_file_by_the_modality_too(root):
    (medium,) = read_media("image", [{"image": "a.png"}], MediaRoot(root))
    assert medium.source == (root / "a.png").resolve()
    (medium,) = read_media("image", {"image": "gone.png", "path": "a.png"}, MediaRoot(root))
    assert medium.source == (root / "a.png").resolve()
    for value in ({"film": "a.png"}, {"image": {"image": "a.png"}}):
        with pytest.raises(SampleError, match=r"image: expected .* got an object without path, url, bytes, data$"):
            list(read_media("image", value, MediaRoot(root)))
    with pytest.raises(SampleError, match=r"'\.\.' is refused"):
        list(read_media("image", {"image": "../secret.txt"}, MediaRoot(root)))


def test_row_cannot_reach_out_of_its_folder(open_, rows, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    path = rows({"image": "../secret.png", "text": "x"}, {"image": "a.png", "text": "y"}, name="set/rows.jsonl")
    source = open_(path)
    with pytest.raises(SampleError, match=r"rows.jsonl:1: image: ../secret.png: '..' is refused"):
        source.document(0)
    assert source.document(1).modalities == ("image",)


def test_media_may_be_in_another_folder_that_is_named(open_, rows, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.png").write_bytes(b"a")
    (tmp_path / "secret.png").write_bytes(b"s")
    names = ["a.png", str(elsewhere / "a.png"), "../secret.png", str(tmp_path / "secret.png")]
    path = rows(*({"image": name, "text": "t"} for name in names), name="set/rows.jsonl")
    with pytest.raises(SampleError, match=r"are refused; name files below it, or the folder that .* as root$"):
        open_(path).document(1)
    source = open_(path, root=elsewhere)
    assert [m.source for i in (0, 1) for m in source.document(i).media] == [elsewhere / "a.png"] * 2
    for outside in (2, 3):
        with pytest.raises(SampleError, match="refused"):
            source.document(outside)
    with pytest.raises(ConfigError, match=r"root: .*nowhere is no folder; name the one that the rows' media are in"):
        open_(path, root=tmp_path / "nowhere")


@pytest.mark.parametrize("kind", ["classes", "pairs", "asked"])
def test_links_in_a_folder_of_media_may_lead_into_the_root_around_it(open_, tmp_path, kind):
    real, links = tmp_path / "all" / "full", tmp_path / "all" / "some"
    for name in ("full/1.png", "secret.png", "full/cat/1.png"):
        (tmp_path / "all" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / name).write_bytes(b"medium")
    (links / "cat").mkdir(parents=True)
    (links / "cat" / "1.png").symlink_to(real / "cat" / "1.png")
    if kind == "pairs":
        (real / "1.txt").write_text("a cat")
        (links / "cat" / "1.txt").symlink_to(real / "1.txt")
    more = {"asked": True} if kind == "asked" else {}
    with pytest.raises(SampleError, match=r"a link that leads out of .*some is refused; .* that holds them as root$"):
        open_(links, **more).document(0)
    source = open_(links, root=tmp_path / "all", **more)
    (medium,) = source.document(0).media
    assert medium.source == real / "cat" / "1.png"
    assert source.document(0).origin.endswith("some/cat/1.png")
    with pytest.raises(ConfigError, match=r"some: root .*full does not hold it; of a folder of media root is a folder"):
        open_(links, root=real, **more)


SOUNDS = partial(MediaRoot, taken=Taken(scales={"audio": 1.0}))


def test_a_sound_that_datasets_has_decoded_is_its_samples_with_their_rate(root):
    row = {"array": [0.5, -0.25], "path": "a.wav", "sampling_rate": 16000, "bytes": None}
    (medium,) = read_media("audio", row, MediaRoot(root), [0.0, 1.0])
    assert (medium.source.tolist(), medium.rate_hz, medium.clip) == ([0.5, -0.25], 16000.0, (0.0, 1.0))
    for array in ([0, 1, -1], [1.2, -0.25], []):
        (medium,) = read_media("audio", {**row, "array": array}, SOUNDS(root))
        assert medium.source.tolist() == pytest.approx(array)
    (encoded,) = read_media("audio", {**row, "bytes": b"RIFF"}, MediaRoot(root))
    (alone,) = without_rates((encoded,), ())  # its header says it: no other rate may stand for that
    assert (alone.source, alone.rate_hz) == (b"RIFF", None)
    assert without_rates((encoded,), ("audio",))[0].rate_hz == 16000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"array": [[0.5], [0.5]]}, r"audio: array: expected the samples of one channel, got \[2, 1\] values"),
        ({"array": ["a"]}, "audio: array: expected a list of numbers"),
        ({"array": [10**400]}, "audio: array: expected a list of numbers"),
        ({"array": [0, 12000, -8000]}, "audio: array: expected floats from -1 to 1, got whole numbers up to 12000"),
        ({"array": [0.0, 5.0, -8000.0]}, "audio: array: expected floats from -1 to 1, got whole numbers up to 8000"),
        ({"sampling_rate": "16 kHz"}, "audio: sampling_rate: expected a number, got '16 kHz'"),
    ],
)
def test_decoded_sounds_of_another_form_are_refused(root, change, said):
    with pytest.raises(SampleError, match=said):
        list(read_media("audio", {"array": [0.5], "sampling_rate": 16000, **change}, SOUNDS(root)))


def test_numbers_of_modalities_without_a_full_scale_are_of_any_size(root):
    (medium,) = read_media("ecg", {"array": [0, 12000, -8000], "rate_hz": 500}, MediaRoot(root))
    assert (medium.source.tolist(), medium.source.dtype, medium.rate_hz) == ([0, 12000, -8000], np.float32, 500)
    with pytest.raises(SampleError, match=r"^ecg: an array without its rate; write sampling_rate beside it$"):
        list(read_media("ecg", {"array": [0, 12000, -8000]}, MediaRoot(root)))


def test_where_a_row_names_a_file_outside_the_folder_the_field_of_its_root_is_named(open_, rows):
    source = open_(rows({"image": "/elsewhere/a.png", "text": "x"}), where="data.sources.3")
    with pytest.raises(SampleError, match=r"or the folder that holds them as root \(data\.sources\.3\.root\)$"):
        source.document(0)


def test_where_a_file_that_a_row_names_is_missing_the_field_of_its_folder_is_named(open_, rows, tmp_path):
    source = open_(rows({"image": ["a.png", "gone.png"], "text": "x"}), where="data.sources.3")
    said = f"gone.png: no such file; if the media are in another folder than {tmp_path}, set data.sources.3.root to it"
    with pytest.raises(SampleError, match=re.escape(said)):
        source.document(0)
    for given in ({}, {"root": tmp_path, "where": "data.sources.3"}):
        with pytest.raises(SampleError, match=r"gone\.png: no such file$"):
            open_(rows({"image": "gone.png", "text": "x"}), **given).document(0)
    with pytest.raises(SampleError, match=r"'\.\.' is refused; files have to be inside .*[^t]$"):
        open_(rows({"image": "../gone.png", "text": "x"}), where="data.sources.3").document(0)


def test_of_a_folder_of_media_no_other_folder_is_asked_for(open_, tmp_path):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "1.png").write_bytes(b"picture")
    source = open_(tmp_path, where="data.sources.0")
    (tmp_path / "cats" / "1.png").unlink()
    with pytest.raises(SampleError, match=r"1\.png: no such file$"):
        source.document(0)


def test_base64_in_the_place_of_a_path_is_told_in_a_short_line(root):
    text = base64.b64encode(os.urandom(100_000)).decode()
    with pytest.raises(
        SampleError, match=r"base64 in the place of a path; write data:TYPE;base64, in front of it"
    ) as told:
        read_source("image", text, MediaRoot(root))
    assert len(str(told.value)) < 200
    assert read_source("image", f"data:image/png;base64,{text}", MediaRoot(root)) == base64.b64decode(text)


@pytest.mark.parametrize(
    "begins", [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n", b"RIFF....WAVE", b"OggS", b"\0\0\0\x20ftypisom", b"any" * 300]
)
@pytest.mark.parametrize("named", [lambda text: text, lambda text: {"url": text}, lambda text: [text + "\n"]])
def test_base64_of_media_is_no_medium_that_is_missing(root, begins, named):
    text = base64.b64encode(begins + bytes(range(60))).decode()
    with pytest.raises(SampleError, match="base64 in the place of a path; write data:TYPE;base64") as told:
        list(read_media("image", named(text), MediaRoot(root)))
    assert not isinstance(told.value, LostMediumError)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("name", ["iVBORw0KGgo", "a" * 64, "set/" * 100 + "a1B", f"iVBORw0KGgo{'a' * 60}.png"])
def test_names_of_files_that_are_not_there_are_no_base64(root, name):
    with pytest.raises(NoSuchFileError):
        read_source("image", name, MediaRoot(root))


def test_a_long_name_is_told_by_its_ends(root):
    with pytest.raises(SampleError, match=r"set/.*\.\.\..*/a\.png: ") as told:
        read_source("image", f"set/{'b/' * 2000}a.png", MediaRoot(root))
    assert len(str(told.value)) < 500
