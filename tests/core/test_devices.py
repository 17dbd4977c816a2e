"""Which device a process computes on."""

from __future__ import annotations

import pytest
import torch

from kosmos.errors import ConfigError
from kosmos.runtime.devices import pick_device


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch tells of a machine that has one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)


@pytest.mark.usefixtures("one_gpu")
def test_a_process_without_a_gpu_of_its_own_is_told_so() -> None:
    assert pick_device("auto", 0) == torch.device("cuda", 0)
    for wanted in ("auto", "cuda"):
        with pytest.raises(ConfigError, match="process 2 of this machine has no GPU of its own, torch finds 1"):
            pick_device(wanted, 1)  # type: ignore[arg-type]
    assert pick_device("cpu", 1) == torch.device("cpu")


def test_a_gpu_that_is_wanted_and_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto", 3) == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"train\.device: cuda is wanted and torch finds none"):
        pick_device("cuda")
