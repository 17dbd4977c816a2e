"""Tokens of all documents of a source, by some of them and by the bytes of all."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kosmos.data.lane import Feed
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner
from kosmos.data.sources import open_source
from kosmos.data.tokenizer import load_tokenizer
from kosmos.plugins import load_plugins
from kosmos.train import source_tokens
from kosmos.train.length import count_steps, give_or_take
from kosmos.train.source_tokens import HeaderLane, estimated_mean, tokens_of_sources


def feed_of(*sources, seed=0):
    mixture = Mixture(sources, tuple(float(len(one)) for one in sources), True, seed)
    return Feed(mixture, Planner(load_tokenizer("bytes"), {}, 512, {}), 8, ())


@pytest.fixture
def fewer(monkeypatch):
    monkeypatch.setattr(source_tokens, "LOOKED_AT", 128)


def opened(path):
    return open_source(str(path), split="train", registry=load_plugins(), modalities=(), held_out=0.0)


def written(path, lengths, **more):
    rows = [json.dumps({"text": "x" * int(length), **more}) for length in lengths]
    path.write_text("".join(f"{row}\n" for row in rows))
    return opened(path)


def skewed(number, seed=0):
    return np.random.default_rng(seed).lognormal(4, 1.2, number).clip(1, 5000).astype(int)


def pieces_of(length):
    """Tokens of a text of so many bytes, whose pieces share one."""
    return length + 2 + np.maximum(0, np.ceil((length + 1) / 511) - 1)


@pytest.mark.parametrize("order", ["as they come", "by length"])
def test_tokens_of_skewed_lengths_are_known_by_the_bytes_of_all(tmp_path, fewer, order):
    lengths = skewed(2000) if order == "as they come" else np.sort(skewed(2000))
    source = written(tmp_path / "texts.jsonl", lengths)
    for seed in range(3):
        (found,) = tokens_of_sources(HeaderLane(feed_of(source, seed=seed), 0))
        assert found.looked_at < 128 + 6 * source_tokens.FEWEST
        assert found.total == pytest.approx(pieces_of(lengths).sum(), rel=2e-3)  # the mean of so many: 0.1
        assert found.share < 2e-3


def test_rows_that_are_large_for_another_reason_do_not_count_by_their_bytes(tmp_path, fewer):
    lengths = skewed(1000)
    rows = [json.dumps({"text": "x" * int(length)} | ({"raw": "y" * 50_000} if n % 50 == 3 else {}))
            for n, length in enumerate(lengths)]  # fmt: skip
    (tmp_path / "texts.jsonl").write_text("".join(f"{row}\n" for row in rows))
    source = opened(tmp_path / "texts.jsonl")
    for seed in range(5):
        (found,) = tokens_of_sources(HeaderLane(feed_of(source, seed=seed), 0))
        assert found.total == pytest.approx(pieces_of(lengths).sum(), rel=1e-2)


def test_all_documents_are_counted_where_they_are_few(tmp_path):
    lengths = skewed(50)
    (found,) = tokens_of_sources(HeaderLane(feed_of(written(tmp_path / "texts.jsonl", lengths)), 0))
    assert (found.total, found.error, found.looked_at) == (pieces_of(lengths).sum(), 0.0, 50)


def test_a_count_that_may_take_no_time_looks_at_a_few_of_each_source(tmp_path):
    sources = [written(tmp_path / f"{name}.jsonl", skewed(300)) for name in "ab"]
    found = tokens_of_sources(HeaderLane(feed_of(*sources), 0), seconds=0.0)
    assert all(source_tokens.FEWEST <= one.looked_at < 2 * source_tokens.FEWEST for one in found)
    assert all(one.error > 0 for one in found)


@pytest.mark.parametrize("knows", [False, True], ids=["mean", "bytes"])
def test_the_error_that_is_told_is_that_of_many_samples(knows):
    random = np.random.default_rng(3)
    sizes = random.lognormal(5, 1, 100_000)
    lengths = sizes * random.uniform(0.2, 1.0, len(sizes))
    off, told = [], []
    for _ in range(400):
        some = random.integers(0, len(sizes), 500)
        mean, error = estimated_mean(lengths[some], (sizes[some], sizes.mean()) if knows else None)
        off.append(mean / lengths.mean() - 1)
        told.append(error / lengths.mean())
    assert np.mean(told) == pytest.approx(np.std(off), rel=0.15)
    assert np.std(off) == pytest.approx(0.024 if knows else 0.063, rel=0.25)


def test_bytes_that_tell_nothing_leave_the_mean():
    random = np.random.default_rng(4)
    lengths = random.uniform(1, 100, 200)
    assert estimated_mean(lengths, (np.full(200, 7.0), 9.0))[0] == lengths.mean()
    assert estimated_mean(lengths, (np.r_[np.ones(199), 1e6], 5e5))[0] == lengths.mean()


def test_documents_that_were_found_together_tell_less():
    lengths = np.repeat(np.arange(16.0), 20)
    alone, together = (estimated_mean(lengths, None, groups)[1] for groups in (None, np.repeat(np.arange(16), 20)))
    assert together == pytest.approx(alone * 20**0.5, rel=0.05)


def test_steps_are_told_with_their_error_where_it_is_worth_it(tmp_path, fewer):
    source = written(tmp_path / "texts.jsonl", skewed(600))
    found = count_steps(feed_of(source), lanes=1, epochs=1.0)
    assert found.error > 0 and ("±" in found.told()) == (found.error > 0.01)
    assert [give_or_take(error) for error in (0.0, 0.01, 0.0234)] == ["", "", " (± 2.3 %)"]
