"""Our kernels in C++ for models of any size: a test's are too small for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kosmos.model import cpu_kernels
from kosmos.train import compiling


@contextmanager
def small_models_train_by_kernels() -> Iterator[list[str]]:
    """Gives the names of those that run; some have to."""
    names: list[str] = []
    call = cpu_kernels._call

    def noted(name: str, *rest: Any) -> None:
        names.append(name)
        call(name, *rest)

    with patch.object(compiling, "WORTH", 0), patch.object(cpu_kernels, "_call", noted):
        yield names
    assert names
