"""How many cores a run takes: those of its container and of its rank, not of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from math import inf

import pytest
import torch

from kosmos.runtime import cores
from support.steps import threads_of_torch


@pytest.mark.parametrize(
    ("said", "own", "expected"),
    [
        ({}, {"": "/"}, inf),
        ({"cpu.max": "max 100000"}, {"": "/"}, inf),
        ({"cpu.max": "250000 100000"}, {"": "/"}, 2.5),
        ({"job/step/cpu.max": "max 100000", "job/cpu.max": "800000 100000"}, {"": "/job/step"}, 8.0),
        ({"job/cpu.max": "200000 100000", "cpu.max": "400000 100000"}, {"": "/job"}, 2.0),
        ({"job/cpu.max": "200000 100000"}, {"": "/another"}, inf),
        ({"cpu/cpu.cfs_quota_us": "600000", "cpu/cpu.cfs_period_us": "100000"}, {"": "/", "cpu": "/of/the/host"}, 6.0),
        ({"cpu/job/cpu.cfs_quota_us": "50000", "cpu/job/cpu.cfs_period_us": "20000"}, {"cpu": "/job"}, 2.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, {"cpu": "/"}, inf),
        ({"cpu.max": "nonsense"}, {"": "/"}, inf),
        ({"cpu.max": "100000 0"}, {"": "/"}, inf),
        ({"cpu.max": "50000 100000"}, {"": "/../../elsewhere"}, 0.5),
    ],
)
def test_time_that_the_groups_of_a_process_have(tmp_path, said, own, expected):
    for name, text in said.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cores.quota(tmp_path, own) == expected


def test_a_process_that_is_held_to_one_core_uses_one():
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    program += "from kosmos.runtime.cores import usable_cores; print(usable_cores())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_a_group_with_less_time_than_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(96)))
    monkeypatch.setattr(cores, "GROUPS", tmp_path)
    assert cores.usable_cores() == 96
    (tmp_path / "cpu.max").write_text("1650000 100000\n")
    assert cores.usable_cores() == 16
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cores.usable_cores() == 1


@pytest.mark.parametrize(
    ("ranks", "own", "of_launcher", "time", "expected"),
    [
        (1, 96, 96, inf, 8),
        (8, 96, 96, inf, 6),
        (48, 96, 96, inf, 1),
        (96, 96, 96, inf, 1),
        (8, 12, 96, inf, 6),  # each bound to cores of its own
        (8, 12, 12, inf, 1),  # all in a container of twelve
        (8, 12, 96, 32.0, 2),
        (2, 96, 96, 12.5, 3),
    ],
)
def test_helpers_are_half_the_share_of_a_rank_on_its_own_node(monkeypatch, ranks, own, of_launcher, time, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(of_launcher if process else own)))
    monkeypatch.setattr(cores, "quota", lambda groups, own: time)
    assert cores.helpers_of_rank(ranks) == expected


@pytest.mark.parametrize(("cores_there", "told", "expected"), [(3, None, 3), (8, None, 5), (3, "5", 5)])
def test_threads_are_no_more_than_cores(monkeypatch, cores_there, told, expected):
    monkeypatch.setattr(cores, "usable_cores", lambda: cores_there)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if told:
        monkeypatch.setenv("OMP_NUM_THREADS", told)
    with threads_of_torch(5):
        cores.hold_threads()
        assert torch.get_num_threads() == expected
