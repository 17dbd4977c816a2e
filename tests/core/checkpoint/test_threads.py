"""Work that several threads share."""

from __future__ import annotations

import threading
import time

import pytest

from kosmos.checkpoint.threads import for_each


@pytest.mark.parametrize("threads", [1, 3, 40])
def test_results_stand_in_the_order_of_the_items(threads):
    assert for_each(lambda item: item * 2, range(20), threads) == [2 * item for item in range(20)]
    assert for_each(str, [], threads) == []


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt, BaseException])
@pytest.mark.parametrize("threads", [1, 3])
def test_whatever_is_raised_reaches_the_caller_and_ends_the_work_of_all(kind, threads):
    begun = []
    gate = threading.Event()

    def act(item):
        begun.append(item)
        if item == 2:
            try:
                raise kind("at 2")
            finally:
                gate.set()
        elif item > 2 or threads > 1:
            gate.wait(10)
            time.sleep(0.02)  # for the error to be noted

    with pytest.raises(kind, match="at 2"):
        for_each(act, range(1000), threads)
    assert len(begun) < 20


def test_threads_that_the_system_does_not_give_are_done_without(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert for_each(str, range(5), 3) == [*"01234"]
