"""Two models compared on the same documents: intervals hold what they promise, and other documents are refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import comb

import numpy as np
import pytest

from kosmos.errors import DataError
from kosmos.evaluate.paired import FEW, Counted, Key, differences, mcnemar, of_ratios, of_shares, paired
from kosmos.train.json_lines import printed_json

TRIALS = 1000


def test_the_interval_of_a_loss_covers_the_difference_in_95_of_100() -> None:
    draw = np.random.default_rng(0)
    covered = sure = 0
    for _ in range(TRIALS):
        tokens = draw.geometric(0.02, 100)  # of very different lengths, whose losses vary together
        hard = draw.normal(2.0, 1.0, 100)
        one, other = (tokens * (hard + apart + draw.normal(0, 0.2, 100)) for apart in (0.0, 0.05))
        found = of_ratios(
            [((a, n), (b, n)) for a, b, n in zip(one.tolist(), other.tolist(), tokens.tolist(), strict=True)]
        )
        assert found.low is not None and found.high is not None and found.p is not None
        covered += found.low < -0.05 < found.high
        sure += found.p < 0.05
        assert (found.low < 0 < found.high) == (found.p > 0.05)
    assert 0.92 < covered / TRIALS < 0.97  # measured: 0.924 to 0.945 for ten seeds
    assert sure / TRIALS > 0.2  # measured: 0.25 to 0.29, though each figure's own error is 0.14


def test_the_interval_of_shares_covers_the_difference_in_95_of_100() -> None:
    draw = np.random.default_rng(0)
    covered = wrong = 0
    for _ in range(TRIALS):
        hard = draw.random(40)
        one, other = ((hard + draw.normal(0, 0.2, 40) < share).astype(float).tolist() for share in (0.6, 0.6))
        found = of_shares([((a, 1.0), (b, 1.0)) for a, b in zip(one, other, strict=True)])
        assert found.low is not None and found.high is not None and found.p is not None
        covered += found.low <= 0 <= found.high
        wrong += found.p < 0.05
    assert covered / TRIALS > 0.94
    assert wrong / TRIALS < 0.05


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (1, 0), (6, 0), (3, 9), (9, 3), (20, 20), (400, 300)])
def test_mcnemar_is_the_two_sided_tail_of_a_fair_coin(better: int, worse: int) -> None:
    differ = better + worse
    tail = sum(comb(differ, k) for k in range(min(better, worse) + 1))
    assert mcnemar(better, worse) == pytest.approx(min(1.0, 2 * tail / 2**differ), rel=1e-9)


def key(number: int, source: str = "s") -> Key:
    return "source", source, f"f:{number}"


def counted(loss: float, tokens: int = 4, *, right: int = 1, size: int = 9, modality: str = "a") -> Counted:
    figures = {"loss": (loss, tokens), "bits_per_byte": (2 * loss, size), "exact_match": (right, 1)}
    return Counted(figures, ("text", modality), size)


def test_a_loss_a_token_weighs_long_documents_and_a_figure_is_of_the_group_that_has_it() -> None:
    first = {key(n, "st"[n % 2]): counted(n, n + 1, right=n % 3 == 0, modality="ab"[n % 2]) for n in range(40)}
    second = {
        k: counted(2 * c.figures["loss"][0], c.figures["loss"][1], modality=c.modalities[1]) for k, c in first.items()
    }
    found = {(one.kind, one.name, one.figure): one for one in differences(paired(first, second))}
    every = range(40)
    loss = found["all", "", "loss"]
    assert loss.first == pytest.approx(sum(every) / sum(n + 1 for n in every))
    assert loss.second == pytest.approx(2 * loss.first) and loss.difference == pytest.approx(-loss.first)
    right = found["all", "", "exact_match"]
    assert (right.only_first, right.only_second) == (0, 26) and right.difference == pytest.approx(14 / 40 - 1)
    odd = found["source", "t", "loss"]
    assert odd.documents == 20 and odd.first == pytest.approx(400 / 420)
    assert odd.low is None and odd.p is None and odd.documents < FEW
    assert replace(odd, kind="modality", name="b") == found["modality", "b", "loss"]
    assert not any(figure == "bits_per_byte" for _, _, figure in found)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("other", [1.0, float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_has_no_interval_and_is_null_as_json(bad: float, other: float) -> None:
    found = of_ratios([((bad, 4), (other, 4)), *[((n, 4), (1.0, 4)) for n in range(FEW)]])
    assert found.documents > FEW and (found.low, found.high, found.p) == (None, None, None)
    told = json.loads(printed_json(asdict(found)))
    assert told["first"] is None and told["difference"] is None


def test_bytes_are_compared_where_tokenizers_differ_and_a_cut_document_is_one() -> None:
    cut = counted(1.0, 2, size=4)
    cut.add(counted(2.0, 3, size=4))
    first, second = {key(n): cut for n in range(30)}, {key(n): counted(3.0, 4, size=8) for n in range(30)}
    (bits, right) = [one for one in differences(paired(first, second)) if one.kind == "all"]
    assert bits.figure == "bits_per_byte" and bits.first == bits.second == 6 / 8 and bits.p == 1
    assert right.figure == "exact_match" and right.documents == 30


def test_other_documents_are_refused_with_how_many_are_the_same() -> None:
    first, second = ({key(n): counted(1.0) for n in numbers} for numbers in (range(8), range(5, 9)))
    with pytest.raises(DataError, match=r"8 of A and 4 of B were scored, and 3 are the same; f:0 of source s is of A"):
        paired(first, second, names=("A", "B"))
    found = paired(first, second, unread=[key(n) for n in (0, 1, 2, 3, 4, 8)])
    assert [*found.pairs] == [key(5), key(6), key(7)] and found.left_out == 6
    with pytest.raises(DataError, match="no document was scored by A and by B"):
        paired({}, {}, names=("A", "B"))


def test_a_document_of_which_other_text_is_learned_is_refused() -> None:
    with pytest.raises(DataError, match=r"f:1 of source s: A learns 9 bytes of it and B 7; lay it out alike"):
        paired({key(1): counted(1.0)}, {key(1): counted(1.0, size=7)}, names=("A", "B"))
    assert paired({key(1): counted(1.0)}, {key(1): counted(1.0, size=8)}).pairs  # a space at the start
