"""What data workers are told: all of it arrives, large arrays are in memory once, and nobody writes to another's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kosmos.data import orders
from kosmos.data.feeder import open_feeder
from kosmos.data.orders import SharedFeed, received
from kosmos.errors import DataError
from support.faulty import Heavy
from support.feeds import feed_of

ARRAYS = st.one_of(
    arrays.arrays(st.sampled_from([np.uint8, np.int64, np.float32, "U3"]), arrays.array_shapes(min_side=0, max_side=9)),
    arrays.arrays(np.int32, (6, 4)).map(lambda array: array[::2, 1:]),
    arrays.arrays(np.int16, (5, 3)).map(np.asfortranarray),
)


def arrived(shared: SharedFeed) -> Any:
    return received(os.dup(shared.fd), shared.places)


@given(
    feed=st.dictionaries(st.text(max_size=5), ARRAYS | st.binary(max_size=99), max_size=6), large=st.integers(1, 200)
)
def test_all_of_it_arrives(feed, large):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "LARGE_BYTES", large)
        with SharedFeed(feed) as shared:
            found = arrived(shared)
    assert found.keys() == feed.keys()
    for key, value in feed.items():
        assert type(found[key]) is type(value)
        assert getattr(found[key], "dtype", None) == getattr(value, "dtype", None)
        np.testing.assert_array_equal(found[key], value)


def test_what_one_writes_nobody_else_sees():
    feed = {"rows": np.arange(100_000)}
    with SharedFeed(feed) as shared:
        one, other = arrived(shared), arrived(shared)
    one["rows"][:] = 7
    np.testing.assert_array_equal(other["rows"], np.arange(100_000))
    np.testing.assert_array_equal(feed["rows"], np.arange(100_000))


def private_bytes(pid: int) -> int:
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(1024 * int(line[1]) for line in lines if line[0].startswith("Private_"))


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux, which tells whose memory is whose"
)
def test_large_arrays_are_in_memory_once_however_many_workers_there_are():
    numbers = np.ones(64 << 20, np.uint8)
    feeder = open_feeder(feed_of(Heavy(40, numbers=numbers)), range(2), workers=2)
    try:
        feeder.next_step()
        assert all(private_bytes(worker.process.pid) < len(numbers) // 2 for worker in feeder.workers)
    finally:
        feeder.close()


@pytest.mark.parametrize("call", ["truncate", "pwrite"])
def test_a_system_without_memory_is_one_line_and_leaves_nothing_open(monkeypatch, call):
    def full(*given):
        raise OSError(28, "No space left on device")

    def refused(name):
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refused)  # so that it is a file
    before = len(os.listdir("/proc/self/fd"))
    with SharedFeed({"rows": np.arange(100_000)}) as shared:
        np.testing.assert_array_equal(arrived(shared)["rows"], np.arange(100_000))
    monkeypatch.setattr(os, call, full)
    with pytest.raises(DataError, match=r"data workers cannot be told what to read \(OSError: .*No space left"):
        SharedFeed({"rows": np.arange(100_000)})
    assert len(os.listdir("/proc/self/fd")) == before
