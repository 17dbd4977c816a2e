"""Ways to break a good plugin that are seen only where it runs: in a process of its own, on ranks, compiled."""

from __future__ import annotations

import dataclasses
import sys
import unittest

import pytest

from kosmos.testing import BrokenPromise, Conditions, Promise
from kosmos.testing.subjects import ModalityUnderTest

from .conftest import Mutate
from .test_mutants import ENCODER_INIT, LIFT, OPENED, RETURN, the


def with_conditions(promise: Promise, **conditions: float) -> Promise:
    subject = promise.subject
    assert isinstance(subject, ModalityUnderTest)
    subject.conditions = dataclasses.replace(Conditions(), **conditions)
    return promise


def test_a_processor_that_never_ends_is_told_with_what_it_was_given(mutate: Mutate) -> None:
    new = f"while source == b'':\n                pass\n            {OPENED}"
    (promise,) = the(mutate("processor.py", OPENED, new), "hostile-input")
    with pytest.raises(BrokenPromise, match=r"0 bytes b'' took more than 0.5 s"):
        with_conditions(promise, seconds=0.5).check()


def test_a_processor_that_kills_its_process_is_told_with_the_signal_and_what_it_was_given(mutate: Mutate) -> None:
    new = f"if source == b'':\n                import os\n\n                os.abort()\n            {OPENED}"
    (promise,) = the(mutate("processor.py", OPENED, new), "hostile-input")
    with pytest.raises(BrokenPromise, match=r"was killed by SIGABRT at 0 bytes b''"):
        promise.check()


def test_where_memory_is_not_limited_the_kit_says_so(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (promise,) = the(mutate("processor.py", OPENED, OPENED), "hostile-input")  # the good one
    with pytest.raises(unittest.SkipTest, match="all but the memory was checked and holds"):
        promise.check()


def test_advice_about_devices_is_for_errors_of_devices_alone(mutate: Mutate) -> None:
    cpu = f"import torch\n\n        {RETURN} + torch.zeros(len(x), 1)"
    for new, advised in ((f"assert len(values)\n        {RETURN}", False), (cpu, True)):
        (promise,) = the(mutate("encoder.py", RETURN, new), "gpu")
        with pytest.raises(BrokenPromise, match=r"at encoder\.py:\d+") as broken:
            promise.check()
        assert ("kosmos.to_device" in str(broken.value)) is advised


@pytest.mark.slow
def test_an_encoder_that_waits_for_the_other_rank_only_with_media_is_caught_by_two_ranks(mutate: Mutate) -> None:
    waits = "import torch\n\n        if torch.distributed.is_initialized() and len(values):\n"
    waits += f"            torch.distributed.barrier()\n        {LIFT}"
    (promise,) = the(mutate("encoder.py", LIFT, waits), "two-ranks")
    with pytest.raises(BrokenPromise, match=r"together, did not come to an end within|rank \d, together: "):
        with_conditions(promise, ranks_seconds=4.0).check()


@pytest.mark.slow
def test_an_encoder_that_is_another_in_two_processes_is_caught_by_two_ranks(mutate: Mutate) -> None:
    scaled = f"import torch\n\n        {LIFT} * (2 if torch.distributed.is_initialized() else 1)"
    (promise,) = the(mutate("encoder.py", LIFT, scaled), "two-ranks")
    with pytest.raises(BrokenPromise, match=r"step \d: (loss|grad_norm)"):
        promise.check()


@pytest.mark.slow
def test_an_encoder_that_claims_to_compile_and_gives_other_features_is_caught(mutate: Mutate) -> None:
    new = f"import torch\n\n        {ENCODER_INIT}\n        self.blocks[0].norm_1.register_forward_hook(\n"
    new += "            lambda module, given, out: out * (2 if torch.compiler.is_compiling() else 1))"
    (promise,) = the(mutate("encoder.py", ENCODER_INIT, new), "compiles")
    with pytest.raises(BrokenPromise, match="of the largest apart"):
        promise.check()
