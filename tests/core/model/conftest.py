from __future__ import annotations

import pytest

from kosmos.model import cpu_kernels


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that ran."""
    names: list[str] = []
    call = cpu_kernels._call
    monkeypatch.setattr(cpu_kernels, "_call", lambda name, *rest: (names.append(name), call(name, *rest))[1])
    return names
