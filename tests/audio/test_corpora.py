"""Published speech corpora are read as they lie on disk."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from kosmos import DataError, Media, SampleError, Source, load_plugins
from kosmos.data.sources.opening import open_parts
from support.sounds import tone

RATE = 8_000


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path_factory.mktemp("cache")))


def sound(path: Path, seconds: float = 1.0, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.stack([tone(seconds, RATE)] * channels, 1), RATE)


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def opened(path: Path, **given: Any) -> Any:
    return open_parts(str(path), registry=load_plugins(), modalities=["audio"], **given)


def said(source: Source) -> list[tuple[str, tuple[float, float] | None, str]]:
    """The file, the clip and the text of each document."""
    found = []
    for number in range(len(source)):
        medium, text = source.document(number).segments
        assert isinstance(medium, Media) and isinstance(medium.source, Path)
        found.append((medium.source.name, medium.clip, text.text))
    return found


def values(source: Any, column: str) -> list[Any]:
    return [source.value(number, column) for number in range(len(source))]


def error_of(source: Source, number: int) -> str:
    with pytest.raises(SampleError) as caught:
        source.document(number)
    return str(caught.value)


def librispeech(folder: Path, split: str, speaker: int, lines: Mapping[str, str]) -> None:
    chapter = folder / split / f"{speaker}" / "121"
    name = f"{speaker}-121"
    written(chapter / f"{name}.trans.txt", "".join(f"{name}-{n} {text}\n" for n, text in lines.items()))
    for number in lines:
        sound(chapter / f"{name}-{number}.flac")


def test_librispeech_is_read_from_its_folder_a_split_or_a_chapter(tmp_path: Path) -> None:
    librispeech(tmp_path, "train-clean-5", 84, {"0000": "ONE TWO", "0001": "THREE"})
    librispeech(tmp_path, "train-clean-5", 174, {"0000": "FOUR"})
    (tmp_path / "SPEAKERS.TXT").write_text("; ID\n84 | F\n")
    sound(tmp_path / "train-clean-5/84/121/84-121-0002.flac")
    source = opened(tmp_path).whole()
    assert said(source) == [
        ("174-121-0000.flac", None, "FOUR"), ("84-121-0000.flac", None, "ONE TWO"), ("84-121-0001.flac", None, "THREE"),
    ]  # fmt: skip
    assert values(source, "speaker") == ["174", "84", "84"]
    assert values(source, "chapter") == ["121"] * 3
    assert values(source, "id")[0] == "174-121-0000"
    assert source.left_out["no text of its name"] == 1
    assert source.origin(2) == f"{tmp_path}/train-clean-5/84/121/84-121.trans.txt:2"
    for folder in ("train-clean-5/84", "train-clean-5/84/121"):
        assert [text for *_, text in said(opened(tmp_path / folder).whole())] == ["ONE TWO", "THREE"]


def test_speakers_of_librispeech_are_held_out_together_and_templates_apply(tmp_path: Path) -> None:
    for speaker in (84, 174):
        librispeech(tmp_path, "train-clean-5", speaker, {"0000": "ONE", "0001": "TWO"})
    parts = opened(tmp_path, columns={"group": "speaker"}, template="[audio]\nSay it: → {text}")
    assert len(set(values(parts.part("held_out", 0.5), "speaker"))) == 1
    assert parts.part("train", 0.5).document(0).segments[1].text == "\nSay it:"


def test_folders_of_splits_are_followed_where_there_are_both(tmp_path: Path) -> None:
    librispeech(tmp_path, "train-clean-5", 84, {"0000": "ONE"})
    librispeech(tmp_path, "dev-clean", 174, {"0000": "TWO"})
    parts = opened(tmp_path)
    assert [text for *_, text in said(parts.part("train", 0.5))] == ["ONE"]
    assert [text for *_, text in said(parts.part("held_out", 0.5))] == ["TWO"]
    assert len(opened(tmp_path / "dev-clean").part("train", 0.0)) == 1


def test_rows_of_librispeech_that_are_broken_are_bad_samples(tmp_path: Path) -> None:
    chapter = tmp_path / "84/121"
    sound(chapter / "84-121-0000.flac")
    lines = [
        b"84-121-0000 ONE\r",
        b"",
        b"84-121-0001 TWO",
        b"84-121-0000 AGAIN",
        b"84-121-0002",
        b"84-121-0003 caf\xe9",
    ]
    (chapter / "84-121.trans.txt").write_bytes(b"\n".join(lines))
    source = opened(tmp_path).whole()
    assert len(source) == 5
    assert source.document(0).segments[1].text == "ONE"
    assert "84-121-0001.flac: no such file" in error_of(source, 1)
    assert "id '84-121-0000' is that of a row before it too" in error_of(source, 2)
    assert "84-121.trans.txt:5: audio" in error_of(source, 3)
    assert "84-121.trans.txt:6: not UTF-8 at byte 3 of the text" in error_of(source, 4)


def test_a_transcript_without_words_is_a_bad_sample(tmp_path: Path) -> None:
    librispeech(tmp_path, "train", 84, {"0000": "ONE", "0001": ""})
    assert "text is empty" in error_of(opened(tmp_path).whole(), 1)


def test_ljspeech_has_no_line_of_names_and_no_quotes(tmp_path: Path) -> None:
    written(tmp_path / "metadata.csv", 'a|"One 1,|One one\nb|Two|Two\nc|only\nd|a|b|c\n')
    for name in "abce":
        sound(tmp_path / f"wavs/{name}.wav")
    source = opened(tmp_path).whole()
    normalized = opened(tmp_path, columns={"text": "normalized_text"}).whole()
    assert normalized.document(0).segments[1].text == "One one"
    texts = [source.document(number).segments[1].text for number in range(3)]
    assert texts == ['"One 1,', "Two", "only"]
    assert error_of(source, 3).endswith("metadata.csv:4: expected ID|text or ID|text|normalized text, got 4")
    assert source.left_out == {"no text of its name": 1}


def test_a_metadata_csv_that_names_its_columns_is_no_ljspeech(tmp_path: Path) -> None:
    written(tmp_path / "metadata.csv", "file_name,text\nwavs/a.wav,A|B\n")
    sound(tmp_path / "wavs/a.wav")
    assert said(opened(tmp_path).whole()) == [("a.wav", None, "A|B")]


@pytest.mark.parametrize(
    ("sounds", "names"), [("wav48_silence_trimmed", ["_mic1.flac", "_mic2.flac"]), ("wav48", [".wav"])]
)
def test_vctk_is_read_with_its_first_microphone(tmp_path: Path, sounds: str, names: list[str]) -> None:
    written(tmp_path / "txt/p225/p225_001.txt", "Please call\nStella.\n")
    for number in ("001", "002"):  # the second has no text
        for name in names:
            sound(tmp_path / sounds / "p225" / f"p225_{number}{name}")
    source = opened(tmp_path).whole()
    assert said(source) == [(f"p225_001{names[0]}", None, "Please call Stella.")]
    assert values(source, "speaker") == ["p225"]
    assert source.left_out == {"no text of its name": 1}


def kaldi(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        written(folder / name.replace("wav_scp", "wav.scp"), text)
    return folder


def test_kaldi_is_read_by_recordings_and_by_segments(tmp_path: Path) -> None:
    for name in ("a", "b"):
        sound(tmp_path / f"{name}.wav", 2.0)
    kaldi(tmp_path, wav_scp="a a.wav\nb b.wav\n", text="a one two\nb three\n", utt2spk="a anna\nb ben\n")
    source = opened(tmp_path).whole()
    assert said(source) == [("a.wav", None, "one two"), ("b.wav", None, "three")]
    assert values(source, "speaker") == ["anna", "ben"]
    kaldi(
        tmp_path, text="u3 three\nu1 one\nu2 two\nu4 four\n", utt2spk="",
        segments="u1 a 0.0 0.5\nu2 a 0.5 1.0\nu3 b 0 -1\nu5 b 0 1\n",
    )  # fmt: skip
    source = opened(tmp_path).whole()
    assert error_of(source, 3).endswith("text:4: u4: not in segments")
    three = [source.document(number) for number in range(3)]
    assert [(d.segments[0].clip, d.segments[1].text) for d in three] == [
        (None, "three"), ((0.0, 0.5), "one"), ((0.5, 1.0), "two"),
    ]  # fmt: skip
    assert source.left_out == {"no text of its name": 1}


def test_a_channel_of_a_segment_is_told_and_not_lost_in_silence(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", 2.0, channels=2)
    folder = kaldi(
        tmp_path, wav_scp="a a.wav\n", text="u1 one\nu2 two\nu3 three\n", segments="u1 a 0 1 0\nu2 a 0 1 1\nu3 a 1 -1\n"
    )
    source = opened(folder).whole()
    assert [source.value(number, "channel") for number in range(2)] == ["0", "1"]
    assert "an end of -1 behind a start of 1" in error_of(source, 2)


def test_paths_of_kaldi_lead_into_the_folder_or_its_root(tmp_path: Path) -> None:
    sound(tmp_path / "wav/a.wav")
    folder = kaldi(
        tmp_path / "data", wav_scp=f"a {tmp_path}/wav/a.wav\nb wav/a.wav\nc ../wav/a.wav\n", text="a A\nb B\nc C\n"
    )
    source = opened(folder).whole()
    assert "absolute paths out of" in error_of(source, 0)
    assert "no such file" in error_of(source, 1)
    source = opened(folder, root=tmp_path).whole()
    assert [source.document(number).segments[1].text for number in range(2)] == ["A", "B"]
    assert "'..' is refused" in error_of(source, 2)


@pytest.mark.parametrize("line", ["sph2pipe -f wav {made} |", "| touch {made}", "wav.ark:123", ""])
def test_a_command_in_wav_scp_is_refused_and_never_run(tmp_path: Path, line: str) -> None:
    kaldi(tmp_path, wav_scp=f"a {line.format(made=tmp_path / 'made')}\n", text="a one\n")
    with pytest.raises(DataError, match=r"wav\.scp:1: .*; write the sounds as files"):
        opened(tmp_path)
    assert not (tmp_path / "made").exists()


def test_a_folder_around_one_of_kaldi_says_where_it_is(tmp_path: Path) -> None:
    files = {f"u{number:04}": tmp_path / "wav" / f"u{number:04}.wav" for number in range(12)}
    for file in files.values():
        sound(file, 0.1)
    folder = kaldi(
        tmp_path / "data" / "train",
        wav_scp="".join(f"{key} {file}\n" for key, file in files.items()),
        text="".join(f"{key} one two\n" for key in files),
    )
    with pytest.raises(DataError) as caught:
        opened(tmp_path)
    assert "data/train in it is a corpus (kaldi): name that folder, and this one as the root" in str(caught.value)
    assert f"--data '{{path: {folder}, root: {tmp_path}}}'" in str(caught.value)
    assert len(opened(folder, root=tmp_path).whole()) == 12


def test_keys_of_kaldi_that_are_there_twice_are_an_error(tmp_path: Path) -> None:
    kaldi(tmp_path, wav_scp="a a.wav\na b.wav\nb b.wav\n", text="a one\nb two\n")
    with pytest.raises(DataError, match=r"wav\.scp:2: a is there twice"):
        opened(tmp_path)


def recording(source: str, duration: float = 2.0, channels: int = 1, kind: str = "file") -> dict[str, Any]:
    return {
        "id": "r1", "sources": [{"type": kind, "channels": list(range(channels)), "source": source}],
        "sampling_rate": RATE, "num_samples": round(duration * RATE), "duration": duration,
    }  # fmt: skip


def supervision(start: float, duration: float, text: str | None, speaker: str = "anna") -> dict[str, Any]:
    held = {"recording_id": "r1", "start": start, "duration": duration, "text": text, "speaker": speaker}
    return {"id": f"s{start}", **held}


def cut(source: str = "a.wav", start: float = 0.0, duration: float = 1.0, **more: Any) -> dict[str, Any]:
    said = [supervision(0.5, 0.5, "two"), supervision(0.0, 0.5, "one", more.pop("speaker", "anna"))]
    held = {"start": start, "duration": duration, "supervisions": said, "recording": recording(source)}
    return {"id": f"c{start}", "type": "MonoCut", **held, **more}


def rows(path: Path, *lines: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def test_cuts_of_lhotse_are_documents_with_their_texts_in_the_order_of_time(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", 2.0)
    rows(
        tmp_path / "train_cuts.jsonl.gz", cut(), cut(start=1.0, speaker="ben"), cut(start=0.0, duration=2.0, id="whole")
    )
    expected = [("a.wav", (0.0, 1.0), "one two"), ("a.wav", (1.0, 2.0), "one two"), ("a.wav", None, "one two")]
    for place in (tmp_path, tmp_path / "train_cuts.jsonl.gz"):
        source = opened(place).whole()
        assert said(source) == expected
        assert source.value(0, "speaker") == "anna"
        with pytest.raises(SampleError):
            source.value(1, "speaker")  # two speakers


def test_parts_of_cuts_may_be_named_as_those_of_any_row(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", 2.0)
    file = rows(tmp_path / "cuts.jsonl.gz", cut())
    template = "[audio:recording.sources[0].source] → {supervisions[0].text}"
    assert said(opened(file, template=template).whole()) == [("a.wav", None, "two")]


def test_recordings_and_supervisions_of_lhotse_are_a_document_a_supervision(tmp_path: Path) -> None:
    sound(tmp_path / "a.wav", 2.0)
    rows(tmp_path / "recordings.jsonl.gz", recording("a.wav", channels=2))
    more = {**supervision(0.0, 1.0, "x"), "id": "lost", "recording_id": "r2"}
    rows(tmp_path / "supervisions.jsonl.gz", supervision(0.0, 0.5, "one"), supervision(0.5, 9.0, "two"), more)
    source = opened(tmp_path).whole()
    assert [source.document(0).segments[0].clip, source.document(0).segments[1].text] == [(0.0, 0.5), "one"]
    assert "recording r2: not in recordings.jsonl.gz" in error_of(source, 2)
    assert source.value(0, "channel") is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"type": "MixedCut", "tracks": []}, "a MixedCut is made of several sounds"),
        (
            {"recording": {**recording("a.wav"), "transforms": [{"name": "Speed", "kwargs": {}}]}},
            "changed after it is read",
        ),
        ({"start": "0"}, "start: expected seconds, got '0'"),
        ({"supervisions": [supervision(0, 1, None)]}, "text is empty"),
    ],
)
def test_cuts_of_lhotse_that_cannot_be_read_are_bad_samples(tmp_path: Path, changed: Any, told: str) -> None:
    sound(tmp_path / "a.wav", 2.0)
    rows(tmp_path / "cuts.jsonl.gz", cut(), {**cut(), "id": "other", **changed})
    assert told in error_of(opened(tmp_path).whole(), 1)


@pytest.mark.parametrize("kind", ["command", "url"])
def test_commands_and_addresses_of_lhotse_are_refused(tmp_path: Path, kind: str) -> None:
    rows(tmp_path / "cuts.jsonl.gz", {**cut(), "recording": recording("touch made", kind=kind)})
    with pytest.raises(DataError, match=rf"cuts\.jsonl\.gz:1: a recording of type '{kind}' .*no command is run"):
        opened(tmp_path)


def test_several_sets_of_cuts_are_to_be_named_one_by_one(tmp_path: Path) -> None:
    for name in ("a_cuts_train.jsonl.gz", "a_cuts_dev.jsonl.gz"):
        rows(tmp_path / name, cut())
    with pytest.raises(DataError, match=r"several manifests of Lhotse .*--data .*a_cuts_dev\.jsonl\.gz"):
        opened(tmp_path)
