"""Parameters are taken in parts, and it does not show."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kosmos.train.optim import passes
from kosmos.train.optim.adamw import MasterAdamW
from kosmos.train.optim.lion import Lion
from kosmos.train.optim.operands import Step, equal_parts
from support.steps import stepped

SHAPES = [(130, 256), (70_001,)]


@given(st.integers(0, 400), st.integers(1, 5000), st.sampled_from([1, 64, 256]))
def test_parts_are_few_of_nearly_one_length_and_cut_no_block(blocks, most, block):
    count = blocks * block
    parts = list(equal_parts(count, most, block))
    assert [i for p in parts for i in (p.start, p.stop)] == sorted(i for p in parts for i in (p.start, p.stop))
    assert all(before.stop == after.start for before, after in pairwise(parts))
    assert sum(p.stop - p.start for p in parts) == count
    lengths = {p.stop - p.start for p in parts}
    assert all(0 < n <= max(most, block) and n % block == 0 for n in lengths)
    assert max(lengths, default=0) - min(lengths, default=0) <= block
    assert (len(parts) - 1) * max(1, most // block) < max(1, blocks)


@pytest.mark.parametrize(
    ("kind", "settings", "dtype"),
    [
        (Lion, {}, torch.bfloat16),
        (Lion, {"block": 256}, torch.float32),
        (Lion, {"block": 256, "master": "bits8"}, torch.bfloat16),
        (Lion, {"master": "stochastic"}, torch.bfloat16),
        (MasterAdamW, {"master": "bits16"}, torch.bfloat16),
        (MasterAdamW, {"master": "stochastic"}, torch.bfloat16),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_step_in_many_parts_is_the_step_in_one(kind, settings, dtype, monkeypatch):
    def run():
        found, optimizer = stepped(lambda p: kind(p, lr=1e-2, **settings), steps=3, dtype=dtype, shapes=SHAPES)
        state = [v for own in optimizer.state.values() for v in own.values() if isinstance(v, torch.Tensor)]
        return [*found, *state]

    whole = run()
    monkeypatch.setattr(passes, "CPU_ELEMENTS", 5000 // torch.get_num_threads())
    for one, other in zip(whole, run(), strict=True):
        if other.dtype.is_floating_point:  # ends of parts are not computed in vectors: the last bit may differ there
            torch.testing.assert_close(other, one, rtol=2**-7 if dtype is torch.bfloat16 else 1e-5, atol=1e-7)
        assert (one != other).float().mean() < 1e-3  # measured: 8 of 33,280


def test_small_weights_of_a_gpu_are_moved_as_those_of_a_cpu() -> None:
    torch.manual_seed(0)
    step = Step(1e-2, 0.1, 0.9, 0.99)
    weights, updates = ([torch.randn(n) for n in (3, 50, 700)] for _ in range(2))
    moved, expected = ([w.clone() for w in weights] for _ in range(2))
    passes._move_lists(moved, updates, step)
    passes._move(expected, updates, [], lr=step.rate, weight_decay=step.decay)
    torch.testing.assert_close(moved, expected)
    assert not any(torch.equal(one, other) for one, other in zip(moved, weights, strict=True))
