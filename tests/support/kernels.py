"""Our kernels in C++ for models of any size: a test's are too small for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from kosmos.model import attention_compiled, cpu_kernels, kernels_in_use, products


@contextmanager
def small_models_train_by_kernels() -> Iterator[list[str]]:
    """Gives the names of those that run; some have to."""
    names: list[str] = []
    call = cpu_kernels.call

    def noted(function: Any, name: str, *rest: Any) -> None:
        names.append(name)
        call(function, name, *rest)

    with ExitStack() as patched:
        patched.enter_context(patch.object(kernels_in_use, "WORTH", 0))
        for module in (cpu_kernels, attention_compiled):
            patched.enter_context(patch.object(module, "call", noted))
        yield names
    assert names


def multiply_as_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels in fp32 multiply as they do on processors where it pays, and matrices of any size."""
    monkeypatch.setattr(products, "pays", lambda: True)
    monkeypatch.setattr(products, "LEAST", 0)
    monkeypatch.setattr(products, "THREADS", 1)
