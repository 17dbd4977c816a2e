"""Media that a model writes: as tokens of a codec, learned as text is."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kosmos import (
    Codes,
    ConfigError,
    DataError,
    Document,
    Media,
    PluginError,
    Registry,
    SampleError,
    Text,
    chat_prompt,
    make_run,
)
from kosmos.compose import Composition, compose
from kosmos.data.asked import asked_of, prompt_of, text_answer_of
from kosmos.data.fingerprint import digest_of
from kosmos.data.page_document import PageDocument
from kosmos.data.sources.pairs_of_answers import apart
from kosmos.data.waiting_media import let_go, read_again
from kosmos.data.writer import Writer, code_marks
from kosmos.errors import NoSuchPart
from kosmos.run_sources import open_sources
from support import spoken_ticks, ticks
from support.runs import SMALL

SERIES = np.array([-1, 0, 1], np.float32)
CODES = [0, 4, 8]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "codes"


def registry() -> Registry:
    return Registry.from_modules({"ticks": ticks, "spoken": spoken_ticks})


def composed(codec: Any = "steps", **over: Any) -> Composition:
    return compose(make_run(SMALL, {"modalities": {"ticks": {"codec": codec}}}, over), registry())


def writer_of(composition: Composition) -> Writer:
    writer = composition.planner.routes["ticks"].writer
    assert writer is not None
    return writer


def ids_of(composition: Composition, codes: list[int]) -> list[int]:
    begin, end, *marks = map(composition.tokenizer.mark_id, code_marks("ticks", 9))
    return [begin, *(marks[code] for code in codes), end]


@pytest.mark.parametrize("medium", [Media("ticks", SERIES, train=True), Codes("ticks", np.array(CODES), train=True)])
def test_what_is_to_be_written_is_learned_as_tokens(medium: Media | Codes) -> None:
    made = composed()
    (plan,) = made.planner.plan(Document("one", (Text("up"), medium)))
    tokens = ids_of(made, CODES)
    assert plan.token_ids.tolist()[-len(tokens) - 1 : -1] == tokens
    assert plan.train.tolist() == [False] * 3 + [True] * (len(tokens) + 1)  # its beginning and the end of the document
    assert plan.answer_start == 3
    assert not plan.media and not plan.slots and plan.modalities == ("ticks",)


def test_what_was_said_before_comes_as_tokens_and_is_not_learned() -> None:
    made = composed()
    said = [Media("ticks", SERIES, written=True)]
    prompt = chat_prompt([Media("ticks", SERIES), Text("again")], history=[("up", said)])
    (plan,) = made.planner.plan(prompt)
    assert len(plan.media) == 1  # what the user says is read
    assert not plan.train.any()
    begin, *_ = ids_of(made, CODES)
    place = plan.token_ids.tolist().index(begin)
    assert plan.token_ids.tolist()[place : place + 5] == ids_of(made, CODES)


def test_without_a_codec_it_is_a_bad_sample() -> None:
    made = compose(make_run(SMALL), registry())
    with pytest.raises(SampleError, match=r"the run has no codec; state modalities\.ticks\.codec"):
        made.planner.plan(Document("one", (Text("up"), Media("ticks", SERIES, train=True))))


def test_a_document_that_is_written_is_not_cut() -> None:
    made = composed(data={"tokens_per_pack": 16})
    with pytest.raises(SampleError, match="a row holds 16"):
        made.planner.plan(Document("one", (Text("up"), Media("ticks", np.zeros(20, np.float32), train=True))))


@pytest.mark.parametrize(
    ("codes", "says"), [([0, 9], "code 9: its codec has 0 to 8"), ([-1], "code -1: its codec has 0 to 8")]
)
def test_codes_of_another_codec_are_a_bad_sample(codes: list[int], says: str) -> None:
    with pytest.raises(SampleError, match=says):
        composed().planner.plan(Document("one", (Text("up"), Codes("ticks", np.array(codes), train=True))))


@pytest.mark.parametrize("codes", [[1, 2], np.array([0.5]), np.array([], int), np.zeros((1, 2), int)])
def test_codes_are_whole_numbers(codes: Any) -> None:
    with pytest.raises(NoSuchPart, match="expected an array of whole numbers of one dimension"):
        Codes("ticks", codes)


def test_what_a_model_wrote_is_found_and_decoded() -> None:
    made = composed()
    writer = writer_of(made)
    text = made.tokenizer.encode("here: ")
    begin, *_, end = ids_of(made, CODES)
    found = writer.written([*text, *ids_of(made, CODES), *text, *ids_of(made, [0] * 41), begin, end])
    assert [medium.codes.tolist() for medium in found] == [CODES, [0] * 41, []]
    assert [medium.fault for medium in found] == ["", "41 values, expected 40 at most", "it has no codes"]
    assert found[0].suffix == ".ticks"
    assert np.frombuffer(found[0].content, "<f4").tolist() == SERIES.tolist()


def test_what_has_no_end_or_holds_a_text_is_none() -> None:
    made = composed()
    begin, code, *_, end = ids_of(made, CODES)
    found = writer_of(made).written([end, code, begin, code, 65, code, begin, code, begin, code])
    assert [medium.fault for medium in found] == [
        "token 65 stands within it, which is none of its codes",
        "it has no end behind 1 codes",
        "it has no end behind 1 codes",
    ]


def test_a_medium_is_encoded_once(own_cache: Path) -> None:
    medium = Media("ticks", SERIES, train=True)
    first, other = writer_of(composed()), writer_of(composed())
    assert first.tokens(medium) == pickle.loads(pickle.dumps(first)).tokens(medium) == other.tokens(medium)
    assert (first.codec.encoded, other.codec.encoded) == (1, 0)  # type: ignore[attr-defined]
    (kept,) = [file for file in own_cache.rglob("*") if file.is_file()]
    kept.write_bytes(kept.read_bytes()[:-1])  # what is not whole is made anew
    assert other.tokens(medium) == first.tokens(medium)
    assert other.codec.encoded == 1  # type: ignore[attr-defined]


def test_codes_belong_to_the_bytes_of_a_file_its_stretch_and_the_codec(tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "a").write_bytes(SERIES.tobytes())
    (tmp_path / "b").write_bytes(SERIES.tobytes())
    writer = writer_of(composed())
    for medium in (Media("ticks", tmp_path / "a"), Media("ticks", tmp_path / "b")):
        writer.tokens(medium)
    assert writer.codec.encoded == 1  # type: ignore[attr-defined]
    writer.tokens(Media("ticks", tmp_path / "a", clip=(0, 1)))
    assert writer.codec.encoded == 2  # type: ignore[attr-defined]
    finer = writer_of(composed({"name": "steps", "size": 17}))
    finer.tokens(Media("ticks", tmp_path / "a"))
    assert finer.codec.encoded == 1  # type: ignore[attr-defined]
    assert len(list(own_cache.iterdir())) == 2


def test_where_nothing_can_be_kept_it_is_encoded_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", "")
    writer = writer_of(composed())
    assert writer.tokens(Media("ticks", SERIES)) == writer.tokens(Media("ticks", SERIES))
    assert writer.codec.encoded == 2  # type: ignore[attr-defined]


def test_a_codec_that_is_quick_keeps_nothing(own_cache: Path) -> None:
    writer = writer_of(composed({"name": "steps", "keeps": False}))
    assert writer.tokens(Media("ticks", SERIES)) == writer.tokens(Media("ticks", SERIES))
    assert writer.codec.encoded == 2 and not own_cache.exists()  # type: ignore[attr-defined]


@pytest.mark.parametrize("suffix", ["", "ticks", "./x", ".a/../b", "." + "x" * 17])
def test_a_suffix_leads_nowhere_else(suffix: str) -> None:
    made = composed({"name": "steps", "suffix": suffix})
    (medium,) = writer_of(made).written(ids_of(made, CODES))
    assert medium.fault.startswith("StepCodec.decode: suffix: expected one such as .wav, got") and not medium.content


def test_a_broken_medium_is_named(tmp_path: Path) -> None:
    good, bad = Media("ticks", SERIES, train=True), Media("ticks", tmp_path / "no.ticks", train=True)
    with pytest.raises(SampleError, match=r"ticks 2 of 2 \(no\.ticks\): .*|no\.ticks cannot be read"):
        composed().planner.plan(Document("one", (Text("up"), good, bad)))
    nan = Media("ticks", np.array([np.nan], np.float32), train=True)
    with pytest.raises(SampleError, match="ticks 2 of 2: holds values that are no numbers"):
        composed().planner.plan(Document("one", (Text("up"), good, nan)))


def test_an_answer_of_media_is_asked_for_and_compared_with_no_text() -> None:
    document = Document("one", (Text("up: "), Text("here ", train=True), Media("ticks", SERIES, train=True)))
    asked, expected = asked_of(document)
    assert asked.segments == document.segments[:1] and expected is None
    assert prompt_of(document) is not None and text_answer_of(document) is None


ROWS: list[tuple[dict[str, Any], dict[str, Any], list[bool]]] = [
    ({"messages": [{"role": "user", "content": "up"}, {"role": "assistant", "content": "<ticks>"}]}, {}, [True]),
    (
        {
            "messages": [
                {"role": "user", "content": "<ticks> again"},
                {"role": "assistant", "content": [{"type": "ticks"}], "loss": False},
                {"role": "user", "content": "more"},
                {"role": "assistant", "content": "so: <ticks>"},
            ]
        },
        {},
        [False, False, True],
    ),
    ({"instruction": "up", "output": "<ticks>"}, {}, [True]),
    ({"words": "up"}, {"template": "{words} → [ticks:ticks]"}, [True]),
    ({"words": "up"}, {"template": "[ticks:ticks] → {words}"}, [False]),
    ({"segments": [{"text": "up", "train": False}, {"ticks": "a.ticks", "train": True}]}, {}, [True]),
]


@pytest.mark.parametrize(("row", "entry", "learned"), ROWS)
@pytest.mark.parametrize("holds", ["file", "codes"])
def test_what_the_assistant_says_in_rows_is_learned(
    row: dict[str, Any], entry: dict[str, Any], learned: list[bool], holds: str, tmp_path: Path
) -> None:
    (tmp_path / "a.ticks").write_bytes(SERIES.tobytes())
    medium: Any = "a.ticks" if holds == "file" else {"codes": CODES}
    if "segments" in row:
        row = {"segments": [{**part, "ticks": medium} if "ticks" in part else part for part in row["segments"]]}
    else:
        row = {**row, "ticks": [medium] * len(learned) if len(learned) > 1 else medium}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    source = {"path": str(tmp_path / "rows.jsonl"), "held_out": 0.0, **entry}
    config = make_run(SMALL, {"modalities": {"ticks": {"codec": "steps"}}, "data": {"sources": [source]}})
    (opened,) = open_sources(config, registry(), "train")
    media = [segment for segment in opened.document(0).segments if isinstance(segment, Media | Codes)]
    assert [medium.train for medium in media] == learned
    if learned[0]:
        (plan,) = compose(config, registry()).planner.plan(opened.document(0))
        assert not plan.media and plan.train.any()


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        ({"name": "steps", "sizes": 3}, "modalities.ticks.codec"),
        ({"name": "stepz"}, "steps"),
        ({"name": "steps", "size": 0}, "size: expected a whole number from 1"),
    ],
)
def test_a_wrong_codec_is_refused(codec: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigError, PluginError), match=says):
        composed(codec)


def test_what_is_told_of_documents_tells_codes_apart(tmp_path: Path) -> None:
    def told(*segments: Any) -> str:
        return digest_of([Document("one", (Text("up"), *segments))])

    one, other = Codes("ticks", np.array([1])), Codes("ticks", np.array([2]))
    read, learned = Media("ticks", SERIES), Media("ticks", SERIES, train=True)
    assert len({told(one), told(other), told(read), told(learned)}) == 4
    assert told(read) == told(Media("ticks", SERIES + 1))  # as runs begun before have noted it


def test_media_that_wait_are_read_again_but_for_those_that_are_written() -> None:
    made = composed()
    document = Document("one", (Media("ticks", SERIES), Text("so: "), Media("ticks", SERIES, train=True)))
    (plan,) = made.planner.plan(document)
    assert read_again(let_go(plan), document).media[0].media is document.segments[0]


def test_a_document_that_is_cut_may_hold_media_that_are_written() -> None:
    made = composed(data={"tokens_per_pack": 24})
    media = [Media("ticks", SERIES, train=bool(n % 2)) for n in range(8)]
    segments = [part for n, medium in enumerate(media) for part in (Text(f"{n}: "), medium)]
    plans = made.planner.plan(PageDocument("one", tuple(segments), is_cut=True))
    assert len(plans) > 1 and all(len(plan) <= 24 for plan in plans)
    assert sum(len(plan.media) for plan in plans) == 4
    begin, *_ = ids_of(made, CODES)
    assert sum((plan.token_ids == begin).sum() for plan in plans) == 4


PAIRS = [
    ([0], [8], None),
    ([0], [0], "are the same"),
    ("text", [8], None),
]


@pytest.mark.parametrize(("better", "worse", "says"), PAIRS)
def test_of_two_answers_media_may_be_what_differs(better: Any, worse: Any, says: str | None) -> None:
    asked = Text("up: ")

    def said(answer: Any) -> tuple[Any, ...]:
        shown = Text(answer, train=True) if isinstance(answer, str) else Codes("ticks", np.array(answer), train=True)
        return asked, shown

    if says is not None:
        with pytest.raises(SampleError, match=says):
            apart(said(better), said(worse))
        return
    first, second = apart(said(better), said(worse))
    assert [first[-1].train, second[-1].train] == [True, True]  # type: ignore[union-attr]


def test_what_both_answers_begin_with_is_not_learned() -> None:
    same = Codes("ticks", np.array([1]), train=True)
    first, second = apart((same, Text(" good", train=True)), (same, Text(" bad", train=True)))
    assert not first[0].train and not second[0].train and first[1].train  # type: ignore[union-attr]


def test_a_learned_medium_that_is_missing_is_not_left_out(tmp_path: Path) -> None:
    row = {"segments": [{"text": "up", "train": False}, {"ticks": "gone.ticks", "train": True}, {"text": "done"}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    source = {"path": str(tmp_path / "rows.jsonl"), "held_out": 0.0, "options": {"missing_media": "leave_out"}}
    config = make_run(SMALL, {"modalities": {"ticks": {"codec": "steps"}}, "data": {"sources": [source]}})
    with pytest.raises((DataError, SampleError), match="ticks that is to be written is missing"):
        open_sources(config, registry(), "train")[0].document(0)


def test_codes_that_are_wrong_are_not_kept(own_cache: Path) -> None:
    writer = writer_of(composed({"name": "steps", "length": 4}))
    with pytest.raises(SampleError, match="it has 3 codes, expected 4"):
        writer.tokens(Media("ticks", SERIES))
    assert not own_cache.exists()


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ({"codes": CODES, "clip": [0, 1]}, r"clip: codes are of a whole medium, got \[0, 1\] beside them"),
        ({"codes": [[0, 4], [8, 0]]}, "expected a list of whole numbers, those of several codebooks in turn"),
    ],
)
def test_codes_of_rows_that_mean_something_else_are_a_bad_sample(
    held: dict[str, Any], says: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": "up", "ticks": held}))
    source = {"path": str(tmp_path / "rows.jsonl"), "template": "{text} → [ticks]", "held_out": 0.0}
    settings = {"modalities": {"ticks": {"codec": "steps"}}, "data": {"sources": [source]}}
    (opened,) = open_sources(make_run(SMALL, settings), registry(), "train")
    with pytest.raises(SampleError, match=says):
        opened.document(0)
