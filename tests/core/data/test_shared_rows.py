"""What a worker sends arrives whole, whatever its size and however many rows wait."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kosmos.data import shared_rows
from kosmos.data.shared_rows import SLOT_BYTES, SLOTS, RowReceiver, RowSender, open_memory

ANY_ARRAY = arrays.arrays(
    st.sampled_from([np.uint8, np.int64, np.float32, np.bool_]),
    arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=9),
)


def ends() -> tuple[RowSender, RowReceiver]:
    out, into = os.pipe()
    memory = open_memory()
    sender = RowSender(Connection(into, readable=False), memory)
    receiver = RowReceiver(Connection(out, writable=False), memory)
    os.close(memory)
    return sender, receiver


@pytest.fixture
def both() -> Iterator[tuple[RowSender, RowReceiver]]:
    sender, receiver = ends()
    yield sender, receiver
    sender.pipe.close()
    receiver.pipe.close()


def passed_on(both: tuple[RowSender, RowReceiver], items: list[Any]) -> list[Any]:
    """Sent by a thread, as a pipe that is full holds its sender up."""
    sender, receiver = both
    thread = Thread(target=lambda: [sender.send(item) for item in items])
    thread.start()
    found = [receiver.receive() for _ in items]
    thread.join()
    return found


@settings(max_examples=60, deadline=None)
@given(items=st.lists(st.lists(ANY_ARRAY, max_size=4), max_size=5), transposed=st.booleans())
def test_arrays_of_any_kind_arrive_in_order(items: list[list[Any]], transposed: bool) -> None:
    if transposed:  # not contiguous, or in the order of columns
        items = [[array.T[::2] for array in row] for row in items]
    sender, receiver = ends()
    with sender.pipe, receiver.pipe:
        found = passed_on((sender, receiver), items)
    for row, same in zip(items, found, strict=True):
        assert [(a.dtype, a.shape) for a in row] == [(b.dtype, b.shape) for b in same]
        assert all(array.flags.aligned for array in same)
        for a, b in zip(row, same, strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_that_wait_keep_what_they_hold(both: tuple[RowSender, RowReceiver]) -> None:
    sender, receiver = both
    rows = [(number, np.full(1000, number, np.int64)) for number in range(SLOTS)]
    for row in rows:
        sender.send(row)
    assert sender.full.all()
    first = receiver.receive()
    sender.send((9, np.full(1000, 9, np.int64)))  # into the memory that the first had
    rest = [receiver.receive() for _ in range(SLOTS)]
    assert [int(number) for number, _ in (first, *rest)] == [*range(SLOTS), 9]
    assert all((array == number).all() for number, array in (first, *rest))
    assert not sender.full.any()


@pytest.mark.parametrize("nbytes", [SLOT_BYTES, SLOT_BYTES + 1])
def test_rows_of_a_slot_and_larger_ones_arrive(both: tuple[RowSender, RowReceiver], nbytes: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    for found in passed_on(both, [values] * 3):
        np.testing.assert_array_equal(found, values)


def test_what_arrives_may_be_written_to(both: tuple[RowSender, RowReceiver], monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (SLOT_BYTES, 10):  # through the memory, through the pipe
        monkeypatch.setattr(shared_rows, "SLOT_BYTES", most)
        (found,) = passed_on(both, [np.zeros(100)])
        found += 1
        assert found.sum() == 100


def test_the_end_of_a_worker_is_the_end_of_its_rows(both: tuple[RowSender, RowReceiver]) -> None:
    both[0].pipe.close()
    with pytest.raises(EOFError):
        both[1].receive()
