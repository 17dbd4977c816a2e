"""Triton kernels without a GPU: run by Triton's interpreter, and compiled for one.

The interpreter takes what the compiler refuses, and the compiler takes what is wrong: a kernel is tried by both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]


def interpreted(module: str) -> Any:
    """What ``python -m module`` prints as JSON, with kernels run by the interpreter."""
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-m", module], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class H100:
    """What Triton asks of a GPU before it compiles for it."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_only(kernel: Any, patch: pytest.MonkeyPatch) -> list[Any]:
    """From here on launching ``kernel`` compiles it for an H100 and runs nothing. The list fills with its programs."""
    from triton.runtime import driver
    from triton.runtime.jit import MockTensor

    made: list[Any] = []
    run = kernel.run

    def warm_up(*given: Any, warmup: bool, **options: Any) -> None:
        types = [MockTensor.wrap_dtype(x.dtype) if isinstance(x, torch.Tensor) else x for x in given]
        made.append(run(*types, warmup=True, **options))

    patch.setattr(kernel, "run", warm_up)
    patch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))  # those of a real GPU stay as they are
    patch.setattr(driver, "_active", H100())
    return made


def check_program(program: Any) -> None:
    """It is machine code of an H100."""
    assert "sm_90" in program.asm["ptx"]
    assert program.asm["cubin"]
