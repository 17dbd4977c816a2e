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
from kosmos.data.shared_rows import MOST_SLOTS, RowReceiver, RowSender, open_slots

SLOTS, SLOT_BYTES = 3, 1 << 20

ANY_ARRAY = arrays.arrays(
    st.sampled_from([np.uint8, np.int64, np.float32, np.bool_]),
    arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=9),
)


def ends() -> tuple[RowSender, RowReceiver]:
    out, into = os.pipe()
    memory = open_slots(SLOTS)
    sender = RowSender(Connection(into, readable=False), memory)
    receiver = RowReceiver(Connection(out, writable=False), memory)
    os.close(memory)
    return sender, receiver


@pytest.fixture(autouse=True, scope="module")
def small_slots() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_rows, "SLOT_BYTES", SLOT_BYTES)
        yield


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


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_rows_keep_what_they_hold_however_long_they_are_held(data: st.DataObject) -> None:
    """Any order of sending, receiving and letting go; arrays made in the shared memory and elsewhere."""
    sender, receiver = ends()
    waiting: list[int] = []
    held: list[tuple[int, Any]] = []
    with sender.pipe, receiver.pipe:
        for number in range(data.draw(st.integers(1, 20))):
            here, elsewhere = sender.room((100, number % 5), np.int64), np.full(number, number, np.float32)
            here[:] = number
            sender.send((here, elsewhere, here[::2, ::2]))
            waiting.append(number)
            while waiting and data.draw(st.booleans()):
                held.append((waiting.pop(0), receiver.receive()))
                held[-1][1][0][:50] += 1  # by whom it is held, as it is its own
            while held and data.draw(st.booleans()):
                held.pop(data.draw(st.integers(0, len(held) - 1)))
            for at, (first, second, part) in held:
                assert (first[:50] == at + 1).all()
                assert (first[50:] == at).all()
                assert (second == at).all()
                assert (part == at).all()


def test_a_slot_is_empty_when_the_last_array_in_it_is_gone(both: tuple[RowSender, RowReceiver]) -> None:
    sender, receiver = both
    for number in range(SLOTS):
        sender.send((np.full(1000, number), np.full(10, number)))
    assert sender.full.all()
    one, other = receiver.receive()
    last = one[-3:]
    del one, other
    assert sender.full.all()
    del last
    assert sender.full.tolist() == [0, *[1] * (SLOTS - 1)]


def test_what_is_made_in_the_memory_is_not_copied(both: tuple[RowSender, RowReceiver]) -> None:
    sender, receiver = both
    made = sender.room((7, 3), np.float32)
    made[:] = 1
    sender.send(made)
    found = receiver.receive()
    made[0, 0] = 5  # the sender's end of the same memory
    assert found[0, 0] == 5


def test_slots_have_a_limit() -> None:
    fd = open_slots(MOST_SLOTS + 5)
    try:
        assert os.fstat(fd).st_size == shared_rows.mmap.PAGESIZE + MOST_SLOTS * SLOT_BYTES
    finally:
        os.close(fd)


@pytest.mark.parametrize("nbytes", [SLOT_BYTES, SLOT_BYTES + 1])
def test_rows_of_a_slot_and_larger_ones_arrive(both: tuple[RowSender, RowReceiver], nbytes: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    for found in passed_on(both, [values] * 3):
        np.testing.assert_array_equal(found, values)


def test_what_arrives_may_be_written_to(both: tuple[RowSender, RowReceiver], monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (SLOT_BYTES, 10):  # through the memory, through the pipe
        both = ends() if most == 10 else both
        monkeypatch.setattr(shared_rows, "SLOT_BYTES", most)
        (found,) = passed_on(both, [np.zeros(100)])
        found += 1
        assert found.sum() == 100


def test_the_end_of_a_worker_is_the_end_of_its_rows(both: tuple[RowSender, RowReceiver]) -> None:
    both[0].pipe.close()
    with pytest.raises(EOFError):
        both[1].receive()
