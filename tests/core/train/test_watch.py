"""What the watches of many ranks ask of the one store, and what they find."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
import torch.distributed as dist

from kosmos.errors import RankHangs
from kosmos.runtime.parallel import Parallel
from kosmos.train import watch as watching
from kosmos.train.watch import Progress, Watch


class Counted:
    """A store of torch that counts what it is asked."""

    def __init__(self, store):
        self.store, self.asked = store, Counter()

    def __getattr__(self, name):
        def ask(*given):
            self.asked[name] += 1
            return getattr(self.store, name)(*given)

        return ask


@pytest.fixture
def store():
    return Counted(dist.HashStore())


def watches(store, count, hang_s=1000.0):
    stopped = []
    made = [
        Watch(replace(Parallel(), rank=rank, world_size=count), hang_s=hang_s, store=store, stop=stopped.append)
        for rank in range(count)
    ]
    return made, stopped


def beat(made):
    """Each looks once; what each sees of the others."""
    return [watch._exchange() for watch in made]


def test_a_rank_whose_store_does_not_answer_ends_by_its_own_clock(monkeypatch):
    class Frozen:
        def check(self, keys):
            threading.Event().wait()  # as of a process that is stopped

    monkeypatch.setattr(watching, "BEAT_S", 0.02)
    stopped, was = [], threading.Event()
    watch = Watch(
        replace(Parallel(), rank=1, world_size=2), hang_s=0.3, store=Frozen(),
        stop=lambda found: (stopped.append(found), was.set()),
    )  # fmt: skip
    watch.at("forward", step=7)
    watch.start()
    for _ in range(10):  # whoever moves is not ended
        time.sleep(0.05)
        watch.moved()
    assert not stopped
    assert was.wait(20)
    (found,) = stopped
    assert "the node of rank 0" in str(found) and "does not answer, and rank 1 on" in str(found)
    assert "is in forward of step 7" in str(found)
    watch.ended.set()


def test_each_rank_sees_all(store):
    made, _ = watches(store, 5)
    made[3].at("forward", step=7, document="x")
    assert len(beat(made)[0]) == 5  # some say nothing yet
    for seen in beat(made):
        assert [seen[rank].phase for rank in range(5)] == ["starting"] * 3 + ["forward", "starting"]
        assert (seen[3].step, seen[3].document) == (7, "x")


def test_a_rank_that_says_nothing_starts(store):
    made, _ = watches(store, 3)
    made[0].at("forward")
    seen = made[0]._exchange()
    assert (seen[0].phase, seen[1], seen[2]) == ("forward", Progress(where="start"), Progress(where="start"))


@pytest.mark.parametrize(("count", "beats"), [(2, 1), (64, 1), (65, 2), (300, 5)])
def test_a_look_is_three_requests_whatever_the_number_of_ranks(store, count, beats):
    made, _ = watches(store, count)
    for watch in made:
        watch._exchange()
    store.asked.clear()
    looks = [made[0]._exchange() for _ in range(10 * beats)]
    assert sum(look is not None for look in looks) == 10
    assert store.asked == {"set": 10 * beats, "check": 10, "multi_get": 10}


def test_a_document_stays_until_another_or_none_is_begun(store):
    made, _ = watches(store, 1)
    said = []
    for phase, more in (("forward", {"document": "a"}), ("backward", {}), ("reading data", {"document": ""})):
        made[0].at(phase, **more)
        said.append(made[0].progress.document)
    assert said == ["a", "a", ""]


def test_ranks_that_stand_still_are_named_once(store, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    made, _ = watches(store, 3, hang_s=10.0)
    made[1].at("decoding", step=4, document="film.mp4")
    found: list[RankHangs] = []
    while not found and now[0] < 30:
        now[0] += 1
        found = [hangs for watch in made if (hangs := watch._hanging(watch._exchange())) is not None]
    assert 10 < now[0] < 14
    assert len(found) == 1  # the first of them says it
    assert "rank 1 is in decoding of step 4, last document film.mp4" in found[0].line()
