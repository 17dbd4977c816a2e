"""Paths that stand for several files."""

from __future__ import annotations

import gzip
import json
import lzma
from itertools import permutations
from pathlib import Path

import pytest

from kosmos import load_run, make_run, resume_run, train_model
from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.sources.folders import with_compressed
from kosmos.data.sources.places import Places
from kosmos.data.sources.since import opened_before
from kosmos.errors import DataError
from kosmos.patterns import files_of, is_pattern, matched, pattern_name, told_of_brackets
from kosmos.plugins import load_core
from kosmos.run_file import with_absolute_sources
from kosmos.run_sources import open_both, open_named
from support.runs import small_run


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("d", "d/more"):
        Path(folder).mkdir()
        for number in range(8, 12):
            name = f"{folder}/part-{number:03}.jsonl"
            Path(name).write_text("".join(f'{{"text": "{name} {row}"}}\n' for row in range(10)))
    Path("d/[x].jsonl").write_text('{"text": "in brackets"}\n')
    return tmp_path


def run_of(*sources: object, **data: object) -> RunConfig:
    return make_run({"modalities": [], "data": {"sources": list(sources), **data}})


def opened(*sources: object, **data: object) -> tuple[Source, Source]:
    (trained,), (held_out,) = open_both(run_of(*sources, **data), load_core())
    return trained, held_out


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("d/part-*.jsonl", "part", ["part-008.jsonl", "part-009.jsonl", "part-010.jsonl", "part-011.jsonl"]),
        ("d/part-0{08..10}.jsonl", "part-0", ["part-008.jsonl", "part-009.jsonl", "part-010.jsonl"]),
        ("d/part-{008..010}.jsonl", "part", ["part-008.jsonl", "part-009.jsonl", "part-010.jsonl"]),
        ("d/part-0{11,08}.jsonl", "part-0", ["part-008.jsonl", "part-011.jsonl"]),
        ("d/part-0{0{8,9},10}.jsonl", "part-0", ["part-008.jsonl", "part-009.jsonl", "part-010.jsonl"]),
        ("d/{,more/}part-0?8.jsonl", "d", ["more/part-008.jsonl", "part-008.jsonl"]),
        ("d/**/part-0{08,11}.jsonl", "d", ["more/part-008.jsonl", "more/part-011.jsonl", "part-008.jsonl",
         "part-011.jsonl"]),
        ("d/[x]*", "[x]", ["[x].jsonl"]),
    ],
)  # fmt: skip
def test_a_pattern_is_sorted_files_below_one_folder(pattern: str, name: str, found: list[str]) -> None:
    assert is_pattern(pattern)
    assert matched(pattern) == (Path("d"), found)
    assert pattern_name(pattern) == name


def test_what_exists_or_is_an_address_is_no_pattern() -> None:
    Path("what?.jsonl").touch()
    no_patterns = [
        "what?.jsonl",
        "https://kosmos.example/a-{00..11}.tar",
        "d/[x].jsonl",
        "photos [2024]",
        "a/b:c",
        "{}",
    ]
    assert not any(map(is_pattern, no_patterns))
    assert files_of("what?.jsonl") == [Path("what?.jsonl")]


@pytest.mark.parametrize(
    ("pattern", "cause"),
    [
        ("d/x*.jsonl", r"no such file: no file in d/ is called so"),
        ("e/*.jsonl", r"no such file: there is no folder e/"),
        ("d/*re", r"no such file: no file in d/ is called so"),  # but a folder
        ("d/part-{008..013}.jsonl", r"no such file d/part-012.jsonl \(2 of the 6 that it stands for\)"),
        ("d/part-{0..9999999}.jsonl", r"stands for more than 1,000,000 names; name the folder"),
        (f"d/part-{{0..{10**18 - 1}}}-{{0..{10**18 - 1}}}.jsonl", r"stands for more than 1,000,000 names"),
        (f"d/part-{{0..{'9' * 5000}}}.jsonl", r"no such file"),  # which are no numbers of files
    ],
)
def test_a_pattern_without_all_of_its_files_is_refused(pattern: str, cause: str) -> None:
    with pytest.raises(DataError, match=cause):
        opened(pattern)


def test_links_give_no_file_twice() -> None:
    for name in ("again", "more/again"):  # glob would go round and round
        Path(f"d/{name}").symlink_to(Path("d").absolute())
    Path("d/part-012.jsonl").symlink_to("part-008.jsonl")
    Path("e").mkdir()
    Path("e/d").symlink_to("../d/more")
    numbers = ("008", "009", "010", "011")
    names = [f"part-{number}.jsonl" for number in numbers]
    assert matched("d/**/part-*.jsonl")[1] == [*(f"more/{name}" for name in names), *names]
    assert matched("d/**/more/**/part-*.jsonl")[1] == [f"more/{name}" for name in names]
    assert matched("e/*/part-*.jsonl")[1] == [f"d/{name}" for name in names]  # the one link is named
    with pytest.raises(DataError, match="no file in e/ is called so"):
        matched("e/**/*.jsonl")
    assert len(matched("d/**")[1]) == 9


@pytest.mark.parametrize("here", ["w{a,b}", "w*", "w{0..3}/[x]?"])
def test_the_working_folder_may_be_called_as_a_pattern(files: Path, monkeypatch, here: str) -> None:
    Path("d").rename("moved")
    Path(here).mkdir(parents=True)
    Path("moved").rename(f"{here}/d")
    monkeypatch.chdir(files / here)
    config = with_absolute_sources(run_of("d/p*.jsonl", f"{files}/{here}/d/more/p*{{08,09}}.jsonl"), ())
    assert [len(files_of(source.path)) for source in config.data.sources] == [4, 2]
    assert [pattern_name(source.path) for source in config.data.sources] == ["p", "p"]
    assert not is_pattern(f"{files}/{here}/none.jsonl")


def test_a_pattern_is_read_as_a_folder_of_its_files() -> None:
    for number, split in enumerate(("train", "test", "train", "train")):
        Path(f"d/more/part-{number + 8:03}.jsonl").rename(f"d/more/{split}-{number}.jsonl")
    by_pattern, by_folder = opened("d/more/t*.jsonl"), opened("d/more")
    for one, other in zip(by_pattern, by_folder, strict=True):
        assert [one.origin(n) for n in range(len(one))] == [other.origin(n) for n in range(len(other))]
        assert fingerprint_of(one) == fingerprint_of(other)
    trained, held_out = by_pattern
    assert (len(trained), {held_out.origin(n).partition(":")[0] for n in range(10)}) == (30, {"d/more/test-1.jsonl"})


@pytest.mark.parametrize("suffix", ["json", "jsonl.gz", "csv", "txt"])
def test_files_of_all_kinds_are_named_by_a_pattern(files: Path, monkeypatch, suffix: str) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", str(files / "cache"))
    for number in range(2):
        texts = [f"{number} {row}" for row in range(5)]
        lines = [json.dumps({"text": text}) for text in texts] if "json" in suffix else texts
        content = "\n".join(["text", *lines] if suffix == "csv" else lines).encode()
        Path(f"k-{number}.{suffix}").write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    found = opened(f"k-?.{suffix}", held_out=0.5)
    assert {source.name for source in found} == {"k"}
    names = {source.origin(row).partition(":")[0] for source in found for row in range(len(source))}
    assert names == {f"k-0.{suffix}", f"k-1.{suffix}"}


def overlap(one: Path, other: Path) -> bool:
    return Places().overlap(one, other)


def test_files_that_a_pattern_and_another_source_share_are_known() -> None:
    assert overlap(Path("d/part-*.jsonl"), Path("d"))
    assert overlap(Path("d/more"), Path("d/*/part-008.jsonl"))
    assert overlap(Path("d/part-0{08,09}.jsonl"), Path("d/part-*9.jsonl"))
    assert not overlap(Path("d/part-0{08,09}.jsonl"), Path("d/part-01?.jsonl"))
    assert not overlap(Path("d/x-*.jsonl"), Path("d"))
    assert not overlap(Path("d/more"), Path("d/mor"))
    Path("d/manifest.jsonl").touch()
    Path("link").symlink_to("d/more")
    assert overlap(Path("d/manifest.jsonl"), Path("link/part-*.jsonl"))
    assert overlap(Path("link/../more/part-008.jsonl"), Path("."))
    named = [Path(name) for name in ("d", "d/part-*.jsonl", "d/more", "d/*/part-008.jsonl", "d/mor", "link", ".", "d")]
    pairs = permutations(range(len(named)), 2)
    assert [*Places().pairs(named)] == [(i, j) for i, j in pairs if overlap(named[i], named[j])] != []


def test_the_files_of_a_source_are_looked_up_once_however_many_others_there_are() -> None:
    places = Places()
    assert places.overlap(Path("d/part-*.jsonl"), Path("d"))
    Path("d").rename("gone")
    assert places.overlap(Path("d"), Path("d/part-*.jsonl"))
    assert not places.overlap(Path("d"), Path("d/more"))
    assert not overlap(Path("d"), Path("d/part-*.jsonl"))


def test_a_run_of_a_pattern_goes_on_from_elsewhere_and_is_scored(files: Path, monkeypatch) -> None:
    over = {"modalities": [], "data": {"sources": ["d/part-*.jsonl"]}, "evaluate": {"max_documents": 2}}
    train_model(small_run(Path("run"), train={"steps": 1}, **over))
    Path("elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    assert resume_run(files / "run", overrides={"train": {"steps": 2}}).step == 2
    run = load_run(files / "run", device="cpu")
    for path in (str(files / "d" / "part-*.jsonl"), "part"):
        (source,) = open_named(run.composition.config, run.composition.registry, [path])
        assert len(source) == 2
    said: list[str] = []
    (source,) = open_named(run.composition.config, run.composition.registry, ["../d/*8.jsonl"], said.append)
    assert len(source) == 10
    assert "shares files with the run's source" in said[0]


@pytest.fixture
def packed(files: Path, monkeypatch) -> None:
    """Some of the parts compressed, one of them beside what it was made of."""
    monkeypatch.setenv("KOSMOS_CACHE", str(files / "cache"))
    for number, (suffix, write) in {9: (".gz", gzip.compress), 10: (".xz", lzma.compress)}.items():
        plain = Path(f"d/part-{number:03}.jsonl")
        Path(f"{plain}{suffix}").write_bytes(write(plain.read_bytes()))
        plain.unlink()
    Path("d/part-008.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a copy"}\n'))
    Path("d/part-012.csv.gz").write_bytes(gzip.compress(b"text\nof another kind\n"))


def test_compressed_files_among_those_of_a_pattern_are_read_too(packed: None) -> None:
    trained, held_out = opened("d/part-*", held_out=0.25)
    assert len(trained) + len(held_out) == 40
    assert trained.left_out == {".jsonl.gz": 1, ".csv.gz": 1}
    texts = {source.document(n).segments[0].text for source in (trained, held_out) for n in range(len(source))}
    assert texts == {f"d/part-{number:03}.jsonl {row}" for number in range(8, 12) for row in range(10)}
    assert len(opened("d/part-*.jsonl")[0]) + len(opened("d/part-*.jsonl")[1]) == 20


def test_a_run_begun_before_that_goes_on_with_the_files_that_it_had(packed: None) -> None:
    with opened_before(lacking=["patterns"]):
        trained, held_out = opened("d/part-*", held_out=0.25)
    assert len(trained) + len(held_out) == 20
    assert trained.left_out == {".jsonl.gz": 2, ".jsonl.xz": 1, ".csv.gz": 1}


def test_json_files_of_lines_are_read_compressed_and_not(packed: None) -> None:
    Path("j").mkdir()
    Path("j/a.json").write_text('{"text": "a"}\n{"text": "b"}\n')
    Path("j/b.json.gz").write_bytes(gzip.compress(b'{"text": "c"}\n'))
    trained, held_out = opened("j/*", held_out=0.5)
    assert len(trained) + len(held_out) == 3
    Path("j/a.json").write_text('[{"text": "a"}]')
    with pytest.raises(DataError, match=r"name each file as a source \(--data j/a\.json, --data j/b\.json\.gz\)"):
        opened("j/*")


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        (
            "d/part-00[8-9].jsonl",
            "is no pattern here, since names may hold brackets; write d/part-00{8..9}.jsonl",
        ),
        ("d/part-0[01][89].jsonl", "; write d/part-0{0,1}{8,9}.jsonl"),
        ("d/p[a-cx]rt-*.jsonl", "; write d/p{a,b,c,x}rt-*.jsonl"),
        ("d/part-00[!7].jsonl", "; name the files one by one"),
    ],
)
def test_brackets_of_a_shell_are_told_of_as_braces(path: str, advice: str) -> None:
    with pytest.raises(DataError) as raised:
        opened(path)
    assert str(raised.value).endswith(advice)


def test_brackets_of_a_folder_that_is_there_are_no_pattern() -> None:
    Path("d [2024]").mkdir()
    assert told_of_brackets("d [2024]/x.jsonl") == ""


def test_an_empty_file_is_told_of_before_others_are_opened() -> None:
    Path("empty.jsonl").touch()
    Path("broken.jsonl").write_text("no row\n")
    with pytest.raises(DataError, match=r"^data\.sources\.1: empty\.jsonl: holds no rows \(0 bytes\)"):
        opened("broken.jsonl", "empty.jsonl")


def test_of_two_files_that_were_packed_of_one_the_first_is_read(tmp_path):
    names = ["a.jsonl.bz2", "a.jsonl.gz", "b.jsonl"]
    assert with_compressed(["b.jsonl"], names, ".jsonl") == ["a.jsonl.bz2", "b.jsonl"]
    assert with_compressed(["a.jsonl"], ["a.jsonl", "a.jsonl.gz"], ".jsonl") == ["a.jsonl"]
