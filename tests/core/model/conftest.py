from __future__ import annotations

import pytest

from kosmos.model import attention_compiled, cpu_kernels


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that ran."""
    names: list[str] = []
    call = cpu_kernels.call
    for module in (cpu_kernels, attention_compiled):
        monkeypatch.setattr(module, "call", lambda f, name, *rest: (names.append(name), call(f, name, *rest))[1])
    return names
