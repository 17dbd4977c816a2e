"""Pairs of a better and a worse document: planned as one, laid out as two, and never taken apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kosmos import Document, Documents, Mark, Media, SampleError, Text
from kosmos.data.batch import IGNORED, assemble, lay_out, ready_document, to_tensors
from kosmos.data.feeder import open_feeder
from kosmos.data.fingerprint import digest_of
from kosmos.data.lane import Feed, Lane
from kosmos.data.marks import ASSISTANT, END, USER
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner, Route
from kosmos.data.slots import OnePerCell
from kosmos.data.tokenizer import load_tokenizer
from kosmos.data.waiting_media import let_go, read_again
from kosmos.errors import NoSuchPart
from kosmos.train.passes import joined, parts
from support.ticks import TicksProcessor

MARKS = ("<ticks>", "</ticks>")
TOKENIZER = load_tokenizer("bytes", MARKS)
ROUTE = Route(TicksProcessor(4), "ticks", OnePerCell(), frozenset(MARKS))


def planner_of(max_tokens=512, *, pairs=True, max_cells=None, longest=None):
    return Planner(TOKENIZER, {"ticks": ROUTE}, max_tokens, max_cells or {}, longest, pairs=pairs)


def ticks(*values):
    return Media("ticks", np.asarray(values, np.float32))


def asked(prompt, answer, *media):
    return (*media, Text(prompt), Text(answer, train=True))


def pair(prompt, chosen, rejected, *media, origin="d", **more):
    return Document(origin, asked(prompt, chosen, *media), rejected=asked(prompt, rejected, *media), **more)


def alone(document):
    """The plans of both, each as a document of its own."""
    plain = planner_of(pairs=False)
    return [plain.plan(Document("d", segments))[0] for segments in (document.segments, document.rejected)]


def arrays_of(*documents, planner=None):
    plans = [(planner or planner_of()).plan(document)[0] for document in documents]
    ready = [ready_document(plan, {"ticks": ROUTE}, "s") for plan in plans]
    return assemble(ready, {"ticks": ROUTE}, ["ticks"])


WORDS = st.text("ab ", min_size=1, max_size=9)


@given(st.text("ab ", max_size=9), WORDS, WORDS, st.lists(st.integers(1, 9), max_size=3))
def test_a_pair_is_two_documents_planned_alone_one_after_another(prompt, chosen, rejected, media):
    assume(media or chosen != rejected)
    document = pair(prompt, chosen, rejected, *(ticks(*[1.0] * n) for n in media))
    [plan] = planner_of().plan(document)
    better, worse = alone(document)
    assert plan.chosen == len(better)
    assert plan.lengths == (len(better), len(worse))
    for name in ("token_ids", "train"):
        expected = np.concatenate([getattr(better, name), getattr(worse, name)])
        assert np.array_equal(getattr(plan, name), expected)
    assert [m.plan for m in plan.media] == [m.plan for m in (*better.media, *worse.media)]
    assert plan.cells("ticks") == better.cells("ticks") + worse.cells("ticks")
    slots = [better.slots[name] for name in better.slots] + [worse.slots[name] + len(better) for name in worse.slots]
    assert np.array_equal(plan.slots.get("ticks", []), np.concatenate([[], *slots]))


@settings(deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS, WORDS, st.integers(0, 6)), min_size=1, max_size=4))
def test_a_row_of_pairs_is_each_document_laid_out_alone(given):
    given = [(*texts, n) for *texts, n in given if n or texts[1] != texts[2]]
    assume(given)
    documents = [
        pair(prompt, better, worse, *([ticks(*range(n))] if n else []), origin=f"d{i}", weight=i + 1.0)
        for i, (prompt, better, worse, n) in enumerate(given)
    ]
    row = arrays_of(*documents)
    infos = iter(row.documents)
    begin = cells = 0
    for document in documents:
        for number, segments in enumerate((document.segments, document.rejected)):
            one = arrays_of(Document("one", segments), planner=planner_of(pairs=False))
            [own] = one.documents
            found = next(infos)
            place = slice(begin, begin + own.length)
            assert (found.origin, found.source, found.start, found.length) == (document.origin, "s", begin, own.length)
            assert (found.is_rejected, found.counts, found.weight) == (number == 1, number == 0, document.weight)
            assert np.array_equal(row.token_ids[place], one.token_ids)
            assert np.array_equal(row.labels[place], one.labels)
            assert row.labels[place][-1] == IGNORED
            assert np.array_equal(row.position_ids[place], np.arange(own.length))
            slots, values = row.media["ticks"].slots, one.media["ticks"].values
            inside = slots[(slots >= begin) & (slots < begin + own.length)] - begin
            assert np.array_equal(inside, one.media["ticks"].slots)
            assert np.array_equal(row.media["ticks"].values[cells : cells + len(values)], values)
            begin, cells = begin + own.length, cells + len(values)
    assert (begin, cells) == (len(row.token_ids), len(row.media["ticks"].values))
    assert next(infos, None) is None


def test_pairs_and_others_of_a_row_weigh_as_their_documents():
    planner = planner_of()
    plain = replace(planner, pairs=False).plan(Document("p", (Text("abc", train=True),)))
    row = to_tensors(lay_out([*planner.plan(pair("q", "x", "yz", weight=2.0)), *plain], ["s", "s"], {}))
    assert row.weights.tolist() == [2.0] * (2 + 3) + [1.0] * 4
    assert row.lengths == (4, 5, 5)


def test_chats_of_a_pair_learn_the_end_of_both_turns():
    def chat(answer):
        turn = (Mark(ASSISTANT), Text(answer, train=True), Mark(END, train=True))
        return (Mark(USER), Text("q"), Mark(END), *turn)

    [plan] = planner_of().plan(Document("d", chat("yes"), rejected=chat("no")))
    learned = [TOKENIZER.decode([int(i)]) for i in plan.token_ids[plan.train]]
    assert len(learned) == 5 + 4  # of each the end of the turn, and of the text
    assert "".join(learned) == "yesno"


REFUSED = [
    (Document("d", asked("q", "a")), {}, "learns from pairs, and here is no worse answer"),
    (pair("q", "a", "b"), {"pairs": False}, r"of which this run learns nothing.*train.objective=dpo.*columns: {mess"),
    (pair("q", "a" * 30, "b"), {"max_tokens": 36}, r"takes 33 \+ 4 tokens and a row holds 36; raise data.tokens_per"),
    (pair("q", "a", "b" * 30), {"longest": 32}, "rejected: takes 33 tokens and the backbone has positions for 32"),
    (pair("q", "a" * 30, "b"), {"longest": 32}, "chosen: takes 33 tokens"),
    (pair("q", "a", "b", ticks(*range(9))), {"max_cells": {"ticks": 5}}, "takes 6 cells of stream ticks and a row"),
    (Document("d", (Text("q"),), rejected=asked("q", "b")), {}, "chosen: holds nothing to learn"),
    (Document("d", asked("q", "a"), rejected=(Text("q"),)), {}, "rejected: holds nothing to learn"),
    (Document("d", asked("q", "a"), rejected=(Text(""),)), {}, "rejected: is empty"),
    (Document("d", asked("q", "a"), rejected=(Media("tocks", b""),)), {}, "rejected: holds tocks"),
    (pair("q", "a", "a"), {}, "chosen and rejected are the same"),
    (Document("d", asked("q?", "a"), rejected=asked("p?", "b")), {}, "begin with other prompts: from token 1 on"),
    (Document("d", asked("q", "a"), rejected=asked("q?", "b")), {}, r"from token 2 on.*\(of 2 and 3 tokens\)"),
    (Document("d", asked("q", "a", ticks(1)), rejected=asked("q", "b", ticks(*range(9)))), {}, "other prompts"),
    (Document("d", asked("q", "a", ticks(1)), rejected=asked("q", "b")), {}, "begin with other prompts"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "how", "says"), REFUSED, ids=[says[:30] for *_, says in REFUSED])
def test_what_is_no_pair_to_learn_from_is_a_bad_sample(document, how, says):
    with pytest.raises(SampleError, match=says):
        planner_of(**how).plan(document)


def test_a_pair_that_just_fits_is_one_plan():
    document = pair("q", "a" * 30, "b")
    assert len(planner_of(37, longest=33).plan(document)) == 1


@pytest.mark.parametrize("document", [pair("q", "a", "bb"), Document("d", asked("q", "a"))])
def test_scores_and_prompts_look_at_the_better_one_alone(document):
    [expected] = planner_of(pairs=False).plan(Document("d", document.segments))
    [plan] = planner_of().for_scores().plan(document)
    assert np.array_equal(plan.token_ids, expected.token_ids)
    assert plan.chosen is None
    prompt = Document("d", document.segments[:1], rejected=document.rejected)
    assert TOKENIZER.decode(planner_of(pairs=False).prompt(prompt).token_ids.tolist()).endswith("q")
    if document.rejected:
        with pytest.raises(SampleError, match="rejected"):  # who learns from no pairs is told of them in scores, too
            planner_of(pairs=False).for_scores().plan(document)


def test_a_document_with_a_worse_one_holds_the_media_of_both():
    answered = (Text("q"), Text("b", train=True), ticks(2), ticks(3))
    document = Document("d", (Text("q"), Text("a", train=True), ticks(1)), rejected=answered)
    assert [float(m.source[0]) for m in document.media] == [1, 2, 3]
    assert Document("d", asked("q", "a"), rejected=asked("q", "b", ticks(2))).modalities == ("ticks",)
    [plan] = planner_of().plan(document)
    assert [len(m.media.source) for m in read_again(let_go(plan), document).media] == [1, 1, 1]
    assert read_again(let_go(plan), document).chosen == plan.chosen


def test_worse_segments_are_checked_as_others():
    with pytest.raises(NoSuchPart, match=r"rejected segments of a Document are one Text; write \(segment,\)"):
        Document("d", (Text("a"),), rejected=Text("b"))
    with pytest.raises(NoSuchPart, match="Text: train is 'no'"):
        Document("d", (Text("a"),), rejected=(Text("b", train="no"),))


def test_a_worse_answer_tells_documents_from_others():
    told = [digest_of([pair("q", "a", worse)]) for worse in ("b", "b", "c")]
    assert told[0] == told[1] != told[2]
    assert digest_of([Document("d", asked("q", "a"))]) not in told


@dataclass
class Pairs:
    """Pairs with a series each; of those in ``broken`` that of the worse one holds NaN."""

    count: int = 40
    broken: tuple[int, ...] = ()
    name: str = "pairs"

    def __len__(self):
        return self.count

    def document(self, index):
        series = ticks(*[float(index)] * (1 + index % 7))
        worse = ticks(float("nan")) if index in self.broken else series
        answers = "a" * (1 + index % 11), "b" * (1 + index % 5)
        segments = [asked(f"{index}?", answer, one) for answer, one in zip(answers, (series, worse), strict=True)]
        return Document(f"pair {index}", segments[0], rejected=segments[1])


def lane_of(source, *, tokens=128, once=None):
    mixture = Mixture((source,), (1.0,), False, 0, once=once, num_lanes=1)
    return Lane(Feed(mixture, planner_of(tokens), 16, ("ticks",)), 0)


def check_pairs(documents):
    """Each better one is followed by its worse one."""
    firsts, seconds = documents[::2], documents[1::2]
    assert [d.origin for d in firsts] == [d.origin for d in seconds]
    assert not any(d.is_rejected for d in firsts)
    assert all(d.is_rejected for d in seconds)


def test_a_pair_with_a_broken_half_is_left_out_whole_and_told_once():
    lane = lane_of(Pairs(broken=(3, 8)), once=40)
    taken, incidents = [], []
    while (row := lane.turn()) is not None:
        check_pairs(row.arrays.documents)
        taken += [d.origin for d in row.arrays.documents if not d.is_rejected]
        incidents += row.incidents
        assert len(row.arrays.token_ids) == sum(d.length for d in row.arrays.documents)
    assert sorted(taken) == sorted(f"pair {n}" for n in range(40) if n not in (3, 8))
    assert sorted(i.origin for i in incidents) == ["pair 3", "pair 8"]
    assert all("no numbers" in i.cause for i in incidents)
    assert row is None


@pytest.mark.parametrize("stop", [1, 3])
def test_a_lane_of_pairs_goes_on_from_its_state(stop):
    whole, resumed = (lane_of(Pairs(broken=(5,))) for _ in range(2))
    for number in range(8):
        if number == stop:
            state = json.loads(json.dumps(resumed.state()))
            resumed = lane_of(Pairs(broken=(5,)))
            resumed.load(state)
        one, other = whole.turn(), resumed.turn()
        assert one.arrays.documents == other.arrays.documents
        assert np.array_equal(one.arrays.labels, other.arrays.labels)
        assert np.array_equal(one.arrays.media["ticks"].values, other.arrays.media["ticks"].values)
        assert (one.state, one.used) == (other.state, other.used)


def test_pairs_come_from_data_workers_as_they_are():
    source = Documents("pairs", [Pairs(broken=(2,)).document(n) for n in range(12)])
    found = []
    for workers in (0, 1):
        feeder = open_feeder(lane_of(source).feed, [0], workers=workers)
        try:
            found.append([feeder.next_step()[0] for _ in range(4)])
        finally:
            feeder.close()
    for here, there in zip(*found, strict=True):
        check_pairs(there.arrays.documents)
        assert here.arrays.documents == there.arrays.documents
        assert np.array_equal(here.arrays.labels, there.arrays.labels)
        assert here.state == there.state


@pytest.mark.parametrize("number", [2, 3, 5, 100])
def test_a_row_is_never_cut_between_the_two_of_a_pair(number):
    batches = [to_tensors(lane_of(Pairs()).turn().arrays), to_tensors(lane_of(Pairs(), tokens=256).turn().arrays)]
    batch = joined(batches)
    cut = parts(batch, number, {"ticks": OnePerCell()})
    assert 1 < len(cut) <= min(number, len(batch.documents) // 2)
    for part in cut:
        check_pairs(part.documents)
        assert [d.start for d in part.documents] == np.cumsum([0, *(d.length for d in part.documents)])[:-1].tolist()
    assert sum(len(part.token_ids) for part in cut) == len(batch.token_ids)
    assert sum(part.num_targets for part in cut) == batch.num_targets


def test_a_row_of_one_pair_is_one_part():
    batch = to_tensors(arrays_of(pair("q", "a", "b", ticks(1))))
    assert len(parts(batch, 4, {"ticks": OnePerCell()})) == 1
