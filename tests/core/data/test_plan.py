from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos import Document, Documents, Grid, Mark, Media, MediaPlan, SampleError, Text
from kosmos.data.batch import IGNORED, ReadyDocument, assemble
from kosmos.data.decoding import decode_cells
from kosmos.data.kept_plans import PLAN_PARTS, KeptPlans
from kosmos.data.layout_marks import misspelt_marks
from kosmos.data.marks import ASSISTANT, END, USER
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import Fixed, OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from kosmos.errors import PlanMismatch, PluginError
from support.ticks import TicksProcessor

MARKS = ("<ticks>", "</ticks>")
TOKENIZER = load_tokenizer("bytes", MARKS)


def planner_of(max_tokens=64, slots=None, max_cells=None):
    route = Route(TicksProcessor(4), "ticks", slots or OnePerCell(), frozenset(MARKS))
    return Planner(TOKENIZER, {"ticks": route}, max_tokens, max_cells or {})


def ticks(count):
    return Media("ticks", np.ones(count, np.float32))


def targets(plan):
    """The text that the loss looks at; the end token as '$'."""
    ids = [int(i) for i, t in zip(plan.token_ids, plan.train, strict=True) if t]
    return "".join("$" if i == TOKENIZER.mark_id("</s>") else TOKENIZER.decode([i]) for i in ids)


def test_a_medium_fills_the_slots_that_its_connector_counts():
    for slots, expected in ((OnePerCell(), 3), (Fixed(5), 5)):
        [plan] = planner_of(slots=slots).plan(Document("d", (ticks(10), Text("up", train=True))))
        assert len(plan) == 1 + 1 + expected + 1 + 2 + 1
        assert plan.slots["ticks"].tolist() == list(range(2, 2 + expected))
        assert targets(plan) == "up$"


class BytesProcessor(TicksProcessor):
    """A cell for each byte of a file."""

    asked = 0

    def plan(self, media):
        self.asked += 1
        count = media.source.stat().st_size
        if not count:
            raise SampleError("empty")
        return MediaPlan(("<ticks>", Grid(count, 1, 1), "</ticks>"))


def test_a_file_is_planned_once_until_it_changes(tmp_path):
    processor = BytesProcessor(4)
    planner = Planner(TOKENIZER, {"ticks": Route(processor, "ticks", OnePerCell(), frozenset(MARKS))}, 64, {})
    file = tmp_path / "a.ticks"

    def cells(clip=None):
        return planner.plan(Document("d", (Media("ticks", file, clip), Text("x"))))[0].cells("ticks")

    file.write_bytes(b"abc")
    assert [cells(), cells()] == [3, 3]
    assert processor.asked == 1
    cells(clip=(0.0, 1.0))
    assert processor.asked == 2
    file.write_bytes(b"abcde")
    assert cells() == 5
    later = file.stat().st_mtime_ns + 1
    os.utime(file, ns=(later, later))
    cells()
    assert processor.asked == 4
    file.write_bytes(b"")
    for _ in range(2):  # what cannot be used is looked at anew
        with pytest.raises(SampleError, match="empty"):
            cells()
    assert processor.asked == 6
    assert pickle.loads(pickle.dumps(planner)).kept.plans == {}


def test_no_more_plans_are_kept_than_said(tmp_path, monkeypatch):
    monkeypatch.setattr("kosmos.data.kept_plans.MOST_KEPT", 2 * (3 + PLAN_PARTS))
    processor, kept = BytesProcessor(4), KeptPlans()
    for number in range(5):
        file = tmp_path / str(number)
        file.write_bytes(b"a" * (number + 1))
        assert kept.plan(Media("ticks", file), processor)[1].cells == number + 1
        assert len(kept.plans) <= 2
        assert kept.parts == len(kept.plans) * (3 + PLAN_PARTS)


def test_a_set_of_more_files_than_are_kept_finds_some_of_them_at_its_next_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr("kosmos.data.kept_plans.MOST_KEPT", 20 * (1 + PLAN_PARTS))
    processor, kept = BytesProcessor(4), KeptPlans()
    for number in range(30):
        (tmp_path / str(number)).write_bytes(b"a")
    for _ in range(2):
        for number in range(30):
            kept.plan(Media("ticks", tmp_path / str(number)), processor)
    assert 30 + 10 <= processor.asked <= 55  # ten have no room; measured: 53


def test_what_cannot_be_looked_up_is_left_to_the_processor(tmp_path):
    processor, kept = BytesProcessor(4), KeptPlans()
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    for _ in range(2):
        assert kept.plan(Media("ticks", file, clip=[0.0, 1.0]), processor)[1].cells == 3
        with pytest.raises(SampleError, match="null"):
            kept.plan(Media("ticks", Path("a\0b")), processor)
    assert [kept.plan(Media("ticks", file, rate_hz=rate), processor)[1].cells for rate in (1.0, 2.0)] == [3, 3]
    assert len(kept.plans) == 2


def test_the_loss_looks_at_trained_text_and_the_end_after_it_alone():
    [plan] = planner_of().plan(Document("d", (Text("a"), Text("bc", train=True), ticks(4), Text("d"))))
    assert targets(plan) == "bc"


def test_text_and_media_may_stand_in_any_order_and_number():
    [plan] = planner_of().plan(Document("d", (ticks(5), ticks(9), Text("x", train=True), ticks(1))))
    assert plan.slots["ticks"].tolist() == [2, 3, 6, 7, 8, 12]
    assert [m.plan.cells for m in plan.media] == [2, 3, 1]


def test_text_that_spells_a_mark_stays_text():
    [plan] = planner_of().plan(Document("d", (Text("<ticks></s>", train=True),)))
    assert targets(plan) == "<ticks></s>$"
    assert TOKENIZER.mark_id("<ticks>") not in plan.token_ids


@pytest.mark.parametrize(
    ("segments", "answer"),
    [
        ((Text("q "), Text("a", train=True)), "a"),
        ((ticks(4), Text("a", train=True)), "a"),
        ((Text("a", train=True),), None),
        ((Text("a", train=True), ticks(4)), None),
        ((Text("q"), Text("a", train=True), Text("b")), None),
        ((Mark(USER), Text("q"), Mark(ASSISTANT), Text("a", train=True), Mark(END, train=True)), "a"),
    ],
)
def test_the_answer_is_the_trained_text_at_the_end_after_a_prompt(segments, answer):
    [plan] = planner_of().plan(Document("d", segments))
    assert (plan.answer_start is None) == (answer is None)
    if answer is not None:
        assert TOKENIZER.decode(plan.token_ids[plan.answer_start :].tolist()) == answer


@given(st.text(min_size=1, max_size=300), st.integers(16, 40))
def test_a_long_text_is_cut_into_rows_that_predict_each_token_once(text, room):
    pieces = planner_of(room).plan(Document("d", (Text(text, train=True),)))
    assert all(len(p) <= room for p in pieces)
    ids = [int(i) for p in pieces for i, t in zip(p.token_ids, p.train, strict=True) if t]
    assert TOKENIZER.decode(ids) == text
    assert ids[-1] == TOKENIZER.mark_id("</s>")
    assert ids.count(TOKENIZER.mark_id("</s>")) == 1


def test_a_long_chat_is_left_out_where_that_is_asked_for_and_a_plain_text_is_cut():
    chat = Document("d", (Text("what is it? " * 8, train=False), Text("a long answer", train=True)))
    text = Document("d", (Text("a long text. " * 8, train=True),))
    planner = replace(planner_of(64), long_chats="leave_out")
    with pytest.raises(SampleError, match=r"takes 111 tokens of 64, and data\.long_chats is leave_out"):
        planner.plan(chat)
    assert [plan.is_torn for plan in planner_of(64).plan(chat)] == [True, True]
    assert [plan.is_torn for plan in planner.plan(text)] == [False, False]
    assert len(replace(planner, max_tokens=128).plan(chat)) == 1


def test_a_document_with_media_that_fits_no_row_is_refused_with_the_remedy():
    with pytest.raises(SampleError, match=r"takes 105 tokens and a row holds 64; raise data.tokens_per_pack"):
        planner_of().plan(Document("d", (ticks(400), Text("x", train=True))))
    with pytest.raises(SampleError, match=r"takes 10 cells of stream ticks and a row holds 8; .*cells_per_pack.ticks"):
        planner_of(max_cells={"ticks": 8}).plan(Document("d", (ticks(40), Text("x", train=True))))


def test_a_modality_that_the_run_has_not_is_refused():
    with pytest.raises(SampleError, match="holds smell, which is not among the modalities"):
        planner_of().plan(Document("d", (Media("smell", b""), Text("x", train=True))))


def test_an_empty_document_is_refused():
    with pytest.raises(SampleError, match="is empty"):
        planner_of().plan(Document("d", (Text("", train=True),)))


def test_labels_are_the_next_tokens_and_never_cross_documents():
    planner = planner_of()
    documents = [Document("a", (Text("ab", train=True),)), Document("b", (ticks(6), Text("c", train=True)))]
    plans = [planner.plan(d)[0] for d in documents]
    cells = [{}, {"ticks": [decode_cells(plans[1].media[0], planner.routes["ticks"].processor)]}]
    ready = [ReadyDocument(p, "s", c) for p, c in zip(plans, cells, strict=True)]
    row = assemble(ready, planner.routes, ("ticks",))
    assert row.position_ids.tolist() == [*range(4), *range(7)]
    trained = row.labels != IGNORED
    assert trained.tolist() == [True, True, True, False, *[False] * 4, True, True, False]
    assert np.array_equal(row.labels[trained], row.token_ids[1:][trained[:-1]])
    assert row.media["ticks"].slots.tolist() == [6, 7]
    assert row.media["ticks"].grids.tolist() == [[2, 1, 1]]


def test_a_row_without_a_stream_holds_it_with_length_zero():
    planner = planner_of()
    [plan] = planner.plan(Document("a", (Text("ab", train=True),)))
    media = assemble([ReadyDocument(plan, "s", {})], planner.routes, ("ticks",)).media["ticks"]
    assert media.values.shape == (0, 4)
    assert media.grids.shape == (0, 3)
    assert media.slots.shape == (0,)


def test_an_answer_that_media_follow_is_none():
    [plan] = planner_of().plan(Document("d", (Text("q"), Text("a", train=True), ticks(4))))
    assert plan.answer_start is None


def test_a_file_of_another_size_is_planned_anew(tmp_path):
    file, kept, processor = tmp_path / "a", KeptPlans(), BytesProcessor(4)
    for size in (3, 5):
        file.write_bytes(b"a" * size)
        os.utime(file, ns=(0, 0))
        assert kept.plan(Media("ticks", file), processor)[1].cells == size


def test_a_file_of_two_modalities_has_two_plans(tmp_path):
    file, kept = tmp_path / "a", KeptPlans()
    file.write_bytes(b"abc")
    made = [kept.plan(Media(name, file), BytesProcessor(4))[1] for name in ("image", "video")]
    assert made[0] is not made[1]


def test_cells_of_another_type_are_refused():
    [plan] = planner_of().plan(Document("d", (ticks(8), Text("x", train=True))))

    class Wide(TicksProcessor):
        def decode(self, media, plan):
            return super().decode(media, plan).astype(np.float64)

    wide = Wide(4)
    with pytest.raises(PlanMismatch, match="float64"):
        decode_cells(plan.media[0], wide)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: MediaPlan(("<ticks>", (3, 1, 1))),
            r" raised TypeError: .*expected texts and Grids, got the tuple",
        ),
        (
            lambda: MediaPlan(("<ticks>", Grid(9.1, 1, 1))),
            r" raised TypeError: grid \(9\.1, 1, 1\): expected whole numbers \(test_plan\.py:\d+\)$",
        ),
        (lambda: MediaPlan((Grid(None, 1, 1),)), r" raised TypeError: grid \(None, 1, 1\): expected whole numbers"),
        (lambda: ["<ticks>", Grid(3, 1, 1)], r": expected a MediaPlan, got list"),
        (lambda: None, r": expected a MediaPlan, got NoneType"),
    ],
)
def test_a_processor_that_gives_no_plan_is_named(made, said):
    class Odd(TicksProcessor):
        def plan(self, media):
            return made()

    planner = Planner(TOKENIZER, {"ticks": Route(Odd(4), "ticks", OnePerCell(), frozenset(MARKS))}, 64, {})
    with pytest.raises(SampleError, match=rf"^Odd\.plan{said}"):
        planner.plan(Document("d", (ticks(8), Text("x", train=True))))


@pytest.mark.parametrize("number", [int, np.int64, np.uint8, np.array])
def test_whole_numbers_of_numpy_plan_as_pythons_do(number):
    plan = MediaPlan(("<ticks>", Grid(number(24), 1, 2)))
    assert (plan, plan.cells) == (MediaPlan(("<ticks>", Grid(24, 1, 2))), 48)
    assert {type(size) for size in plan.grids[0]} == {type(plan.cells)} == {int}


def half(grid):
    return grid.cells / 2


def fails(grid):
    return grid.cells // 0


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        (half, r"half, asked for the grid \(3, 1, 1\), gave 1\.5; expected a whole number of slots$"),
        (fails, r"fails, asked for the grid \(3, 1, 1\), failed: ZeroDivisionError: .* \(test_plan\.py:\d+\)$"),
        (Fixed("2"), r"Fixed, asked for the grid \(3, 1, 1\), gave '2'; expected"),
    ],
)
def test_a_slot_count_that_counts_nothing_is_named_with_its_stream(slots, said):
    with pytest.raises(PluginError, match=rf"^streams\.ticks\.connector: its slot count {said}"):
        planner_of(slots=slots).plan(Document("d", (ticks(10), Text("up", train=True))))


def test_a_slot_count_may_give_numbers_of_numpy():
    document = Document("d", (ticks(10), Text("up", train=True)))
    [plan], [same] = (planner_of(slots=Fixed(number(5))).plan(document) for number in (int, np.int64))
    assert plan.token_ids.tolist() == same.token_ids.tolist()


def test_a_plan_of_more_slots_than_any_row_holds_costs_its_sample_and_no_memory():
    document = Document("d", (ticks(10), Text("up", train=True)))
    with pytest.raises(SampleError, match=r"takes 1,099,511,627,776 slots of stream ticks, which no row can hold"):
        planner_of(slots=Fixed(2**40)).plan(document)


def test_a_document_may_fill_a_row():
    [plan] = planner_of(max_cells={"ticks": 10}).plan(Document("d", (ticks(40), Text("x", train=True))))
    assert plan.cells("ticks") == 10
    length = len(plan)
    [plan] = planner_of(max_tokens=length).plan(Document("d", (ticks(40), Text("x", train=True))))


def test_an_answer_in_two_texts_begins_with_the_first():
    [plan] = planner_of().plan(Document("d", (Text("q"), Text("a", train=True), Text("b", train=True))))
    assert TOKENIZER.decode(plan.token_ids[plan.answer_start :].tolist()) == "ab"


def test_answers_begin_where_their_documents_do():
    planner = planner_of()
    [plan] = planner.plan(Document("d", (Text("q "), Text("a", train=True))))
    row = assemble([ReadyDocument(plan, "s", {})] * 3, planner.routes, ("ticks",))
    assert [d.answer_start for d in row.documents] == [3, 8, 13]
    assert all(TOKENIZER.decode([int(row.token_ids[d.answer_start])]) == "a" for d in row.documents)


class Spells(TicksProcessor):
    """Puts a text of its own into its layouts."""

    def __init__(self, text):
        super().__init__(4)
        self.text = text

    def plan(self, media):
        return MediaPlan(("<ticks>", self.text, Grid(1, 1, 1), "</ticks>"))


def told_of(text):
    route = replace(planner_of().routes["ticks"], processor=Spells(text))
    documents = [Document("no media", (Text("t"),)), Document("d", (ticks(4),)), Document("e", (ticks(5),))]
    return list(misspelt_marks({"ticks": route}, [Documents("some", documents)]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "<tick>",
            r"modality ticks: .* puts '<tick>' into a layout, .* \(</ticks>, <ticks>\) .*; did you mean <tick",
        ),
        ("</tiks>\n", r"'</tiks>\\n' into a layout, which is none of its marks .*; did you mean </ticks>\?"),
        ("<row>", "'<row>' into a layout, .*; where it is meant as a mark, add it to the marks of its ModalitySpec"),
    ],
)
def test_a_text_of_a_layout_that_looks_like_a_mark_and_is_none_is_told_once(text, says):
    [line] = told_of(text)
    assert re.search(says, line)


@pytest.mark.parametrize("text", ["<0.5 s>", "at 3 <s", "<1.25s>", "<a> and <b>", "<>", "x", "<ticks>"])
def test_other_texts_of_layouts_are_texts(text):
    assert told_of(text) == []
