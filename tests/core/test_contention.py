"""A run on a CPU that others use too says so, once: threads that wait for each other are slow without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from time import perf_counter, sleep

import pytest
import torch

from kosmos.runtime import contention
from kosmos.runtime.contention import Contention
from kosmos.train.progress import Reporter
from kosmos.train.run import train_model
from support.runs import small_run, ticks_registry
from support.steps import threads_of_torch

CPU = torch.device("cpu")
WINDOW_S = 1.0


@pytest.fixture
def window(monkeypatch):
    monkeypatch.setattr(contention, "WINDOW_S", WINDOW_S)


@pytest.fixture
def crowded_core():
    """This thread and another program, on one core."""
    if not contention._COUNTS.is_file():
        pytest.skip("this system does not count how long a thread waits for a core")
    allowed = os.sched_getaffinity(0)
    core = {min(allowed)}
    os.sched_setaffinity(0, core)  # of this thread alone; what it starts inherits it
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        yield
        busy.kill()
    os.sched_setaffinity(0, allowed)


def compute() -> None:
    end = perf_counter() + 1.2 * WINDOW_S
    while perf_counter() < end:
        pass


def test_threads_without_cores_of_their_own_are_told_of_once(window, crowded_core):
    with threads_of_torch(2):
        watched = Contention(CPU)
    assert watched.look() is None
    compute()
    line = watched.look()
    assert line is not None
    assert "each of its 2 threads" in line
    assert "with OMP_NUM_THREADS set" in line
    compute()
    assert watched.look() is None


def test_waiting_for_something_else_is_not_waiting_for_a_core(window, crowded_core):
    with threads_of_torch(2):
        watched = Contention(CPU)
    sleep(1.2 * WINDOW_S)
    assert watched.look() is None


@pytest.mark.parametrize(("threads", "device"), [(1, "cpu"), (2, "cuda")])
def test_where_no_threads_wait_for_each_other_nothing_is_said(window, crowded_core, threads, device):
    with threads_of_torch(threads):
        watched = Contention(torch.device(device))
    compute()
    assert watched.look() is None


def test_a_run_says_so(tmp_path, monkeypatch):
    said: list[str] = []

    class Said(Reporter):
        def say(self, line: str) -> None:
            said.append(line)

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(contention, "WINDOW_S", 0.0)
    monkeypatch.setattr(contention, "TOO_MUCH", 0.0)  # of any machine
    with threads_of_torch(2):
        train_model(small_run(tmp_path / "run"), registry=ticks_registry(), reporter=Said())
    assert sum("had to wait for a core" in line for line in said) == 1
