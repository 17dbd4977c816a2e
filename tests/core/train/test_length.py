"""Epochs: counted in steps before a run starts, and what it then comes to."""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kosmos import Documents, Text, resume_run, train_model
from kosmos.data.document import Document
from kosmos.data.lane import Feed, Lane, Row
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner
from kosmos.data.tokenizer import load_tokenizer
from kosmos.errors import ConfigError, DataError
from kosmos.run_file import read_run_file
from kosmos.train import length
from kosmos.train.length import LOOKED_AT, count_steps
from support.runs import Listener, rows_of, small_run, ticks_registry
from support.texts import Texts


def feed_of(*sources, weights=None, tokens=256, lanes=1, look_ahead=32):
    shares = weights or tuple(float(len(source)) for source in sources)
    mixture = Mixture(sources, shares, weights is None, 0, num_lanes=lanes)
    return Feed(mixture, Planner(load_tokenizer("bytes"), {}, tokens, {}), look_ahead, ())


def rows_taken(feed, *, lanes, steps):
    """The rows of so many steps, lane by lane."""
    return [[lane.outline() for _ in range(steps)] for lane in (Lane(feed, number) for number in range(lanes))]


@settings(max_examples=20)
@example(seed=0, sizes=[66], longest=900, lanes=5, epochs=0.5)
@example(seed=30, sizes=[182], longest=900, lanes=1, epochs=0.5)
@given(
    seed=st.integers(0, 99), sizes=st.lists(st.integers(60, 200), min_size=1, max_size=3),
    longest=st.sampled_from([20, 120, 900]), lanes=st.sampled_from([1, 2, 5]), epochs=st.sampled_from([0.5, 1.0, 2.0]),
)  # fmt: skip
def test_so_many_steps_take_the_tokens_of_so_many_epochs(seed, sizes, longest, lanes, epochs):
    random = np.random.default_rng(seed)
    sources = [Texts(str(n), random.integers(1, longest, size).tolist()) for n, size in enumerate(sizes)]
    feed = feed_of(*sources, lanes=lanes)
    found = count_steps(feed, lanes=lanes, epochs=epochs)
    assert found.looked_at == found.documents == sum(sizes)
    once = [len(plan) for n, size in enumerate(sizes) for draw in range(size) for plan in Lane(feed, 0).plans(n, draw)]
    rows = rows_taken(feed, lanes=lanes, steps=found.steps)
    of_steps = [sum(len(of_lane[step].arrays.token_ids) for of_lane in rows) for step in range(found.steps)]
    assert sum(of_steps) == pytest.approx(found.comes_to * sum(once))
    assert sum(of_steps[:-1]) < epochs * sum(once) <= sum(of_steps)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("epochs", [1, 2, 5, 50])
def test_documents_that_have_a_row_each_are_counted_to_the_last(epochs, lanes):
    feed = feed_of(Texts("of all lengths", list(range(21, 121))), tokens=128, lanes=lanes, look_ahead=1)
    found = count_steps(feed, lanes=lanes, epochs=float(epochs))
    assert found.steps == 100 * epochs // lanes
    rows = rows_taken(feed, lanes=lanes, steps=found.steps)
    lengths = sorted(len(row.arrays.token_ids) for of_lane in rows for row in of_lane)
    assert lengths == sorted(lengths[0::epochs] * epochs)
    assert len(set(lengths)) == 100


def test_of_many_documents_some_of_each_source_are_looked_at():
    lengths = np.random.default_rng(0).exponential(60, 3 * LOOKED_AT).astype(int).clip(1, 240).tolist()
    feed = feed_of(Texts("many", lengths), Texts("few", [200] * 40))
    found = count_steps(feed, lanes=1, epochs=1.0)
    assert LOOKED_AT <= found.looked_at < LOOKED_AT + 60
    (rows,) = rows_taken(feed, lanes=1, steps=found.steps)
    assert rows[-1].used / found.documents == pytest.approx(1.0, rel=0.03)
    assert found.told().startswith("1 epoch of 12,328 documents: ")


def test_a_source_that_is_named_twice_comes_twice_in_an_epoch():
    lengths = np.random.default_rng(5).integers(20, 200, 60).tolist()
    feed = feed_of(Texts("a", lengths), Texts("a again", lengths), Texts("b", lengths))
    found = count_steps(feed, lanes=1, epochs=1.0)
    (rows,) = rows_taken(feed, lanes=1, steps=found.steps)
    drawn = [document.source for row in rows for document in row.arrays.documents]
    assert sum(name.startswith("a") for name in drawn) == pytest.approx(2 * drawn.count("b"), rel=0.1)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(2, 120), min_size=1, max_size=12), bad=st.sets(st.integers(0, 11), max_size=4),
    tokens=st.sampled_from([32, 64]), lanes=st.sampled_from([1, 3]), look_ahead=st.sampled_from([1, 4, 32]),
)  # fmt: skip
def test_what_has_come_of_the_documents_never_falls(lengths, bad, tokens, lanes, look_ahead):
    source = Texts("longer than rows, too", [0 if number in bad else length for number, length in enumerate(lengths)])
    assume(any(source.lengths))
    feed = feed_of(source, tokens=tokens, lanes=lanes, look_ahead=look_ahead)
    for of_lane in rows_taken(feed, lanes=lanes, steps=25):
        used = [row.used for row in of_lane if isinstance(row, Row)]
        assert used[0] > 0
        if not bad:
            assert all(after >= before - 1e-9 for before, after in pairwise(used))


def test_of_few_documents_each_is_read_once_for_all_lanes():
    class Read(Texts):
        def document(self, index: int) -> Document:
            read.append(index)
            return super().document(index)

    read: list[int] = []
    assert count_steps(feed_of(Read("few", [20] * 30), lanes=32, look_ahead=64), lanes=32, epochs=4.0).steps == 1
    assert sorted(read) == list(range(30))


def test_of_documents_that_cannot_be_used_as_many_have_come_as_of_the_others():
    feed = feed_of(Texts("bad", [0, 50, 50] * 100), lanes=2)
    found = count_steps(feed, lanes=2, epochs=2.0)
    rows = rows_taken(feed, lanes=2, steps=found.steps)
    assert sum(of_lane[-1].used for of_lane in rows) / 300 == pytest.approx(2.0, rel=0.05)


def test_a_step_that_takes_more_than_all_epochs_is_told():
    found = count_steps(feed_of(Texts("tiny", [20] * 10), lanes=8), lanes=8, epochs=3.0)
    assert found.steps == 1
    assert "that is 8.8 epochs, fewer by lower data.lanes or data.tokens_per_pack" in found.told()


class Broken(Texts):
    def document(self, index: int) -> Document:
        return Document(f"{self.name} {index}", ())


def test_documents_of_which_none_can_be_used_have_no_epochs():
    with pytest.raises(
        DataError, match=r"train.epochs: of 9 documents that were looked at none .*; the last: bad \d: "
    ):
        count_steps(feed_of(Broken("bad", [1] * 9)), lanes=1, epochs=1.0)


def test_a_run_of_epochs_has_the_steps_that_they_come_to_and_tells_where_it_is(tmp_path):
    listener = Listener()
    result = train_model(small_run(tmp_path, train={"epochs": 1}), registry=ticks_registry(), reporter=listener)
    rows = rows_of(tmp_path / "metrics.jsonl")
    assert [line for line in listener.said if "epoch" in line] == [
        f"1 epoch of 200 documents: {result.step} steps, by the tokens of all 200 of them and rows of 128"
    ]
    epochs = [row["epoch"] for row in rows]
    assert epochs == sorted(epochs)
    assert epochs[-1] == pytest.approx(1.0, abs=0.05)
    assert sum(row["documents"] for row in rows) == round(200 * epochs[-1])
    written = read_run_file(tmp_path / "run.yaml")["train"]
    assert (written["steps"], written["epochs"]) == (result.step, None)


def test_a_long_count_is_told_of_once_before_anything_else(tmp_path, monkeypatch):
    monkeypatch.setattr(length, "TOLD_AFTER_S", 0.0)
    listener = Listener()
    config = small_run(tmp_path, train={"epochs": 0.25})
    train_model(config, registry=ticks_registry(), reporter=listener)
    line = "counting the steps of 0.25 epochs: reading the headers of 200 documents"
    assert [listener.said[0], listener.said.count(line)] == [line, 1]


def test_rows_that_take_long_to_fill_are_told_of_too(monkeypatch):
    looks = itertools.count()
    monkeypatch.setattr(length.time, "monotonic", lambda: next(looks))  # a second a look, the first 150 after headers
    monkeypatch.setattr(length, "TOLD_AFTER_S", 151.0)
    told: list[str] = []
    count_steps(feed_of(Texts("few", [20] * 150)), lanes=1, epochs=1.0, report=told.append)
    assert told == ["counting the steps of 1 epoch: reading the headers of 150 documents"]


def test_a_run_goes_on_to_the_epochs_that_a_resume_asks_for(tmp_path):
    train_model(small_run(tmp_path, train={"epochs": 0.25}), registry=ticks_registry())
    before = rows_of(tmp_path / "metrics.jsonl")
    result = resume_run(tmp_path, {"train": {"epochs": 0.5}}, registry=ticks_registry())
    assert result.step == pytest.approx(2 * len(before), abs=1)
    rows = rows_of(tmp_path / "metrics.jsonl")
    assert rows[-1]["epoch"] == pytest.approx(0.5, abs=0.1)
    (changed,) = rows_of(tmp_path / "changes.jsonl")
    assert changed["changed"] == {"train.steps": [len(before), result.step]}


@pytest.mark.parametrize(
    ("over", "line"),
    [
        (
            {"data": {"sources": [{"path": "ticks", "weight": 2}]}},
            "train.epochs: by the weights of the sources their documents do not come equally often; say train.steps or",
        ),
        ({"profile": {"after_steps": 200}}, r"the run has \d+ \(train.steps\); lower profile.after_steps"),
    ],
)
def test_what_does_not_go_with_epochs_is_one_line_before_anything_is_made(tmp_path, over, line):
    config = small_run(tmp_path / "run", **{**over, "train": {"epochs": 1, **over.get("train", {})}})
    with pytest.raises(ConfigError, match=line):
        train_model(config, registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_sources_with_weights_have_no_epoch_in_their_rows(tmp_path):
    weighted = {"sources": [{"path": "ticks", "weight": 2}]}
    train_model(small_run(tmp_path, data=weighted, train={"steps": 1}), registry=ticks_registry())
    assert "epoch" not in rows_of(tmp_path / "metrics.jsonl")[0]


def words(many: int) -> Documents:
    return Documents("words", [Document(f"word {n}", (Text(f"word {n}", train=True),)) for n in range(many)])


@pytest.mark.parametrize("documents", [1, 3])
def test_a_run_that_takes_its_few_documents_many_more_times_than_was_asked_for_warns(tmp_path, documents):
    listener = Listener()
    config = small_run(tmp_path, modalities=[], train={"epochs": 1})
    result = train_model(config, sources=[words(documents)], reporter=listener)
    drawn = sum(row["documents"] for row in rows_of(tmp_path / "metrics.jsonl"))
    (line,) = [line for line in result.warnings if "epochs" in line]
    assert line == (
        f"train.epochs 1: it will be {drawn / documents:.3g} epochs in fact, since a step fills 2 rows (data.lanes) of "
        "128 tokens (data.tokens_per_pack); lower one of these, or set train.steps if so many are meant"
    )
    assert [said for said in listener.said if "that is" in said] == []


@pytest.mark.parametrize("asked", [{"steps": 2}, {"epochs": 1}], ids=["steps", "epochs"])
def test_a_run_that_takes_about_what_was_asked_for_does_not_warn(tmp_path, asked):
    config = small_run(tmp_path, modalities=[], train=asked)
    result = train_model(config, sources=[words(200)])
    assert [line for line in result.warnings if "epochs" in line] == []
