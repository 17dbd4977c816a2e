"""What is measured on a GPU runs where there is none: a call on one must not be lost to a mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


PRINTS = {
    "attention": "% of the products' limit",
    "loss": "of the limit",
    "muon": "| PyTorch's Muon |",
    "generation": "generation of 3 together, transformers",
    "fp8": "rowwise: ",
    "lora": "text 7 B, bf16 weights, LoRA 16: ",
}


@pytest.mark.slow
def test_the_parts_of_the_measurements_on_a_gpu_run_at_a_small_size() -> None:
    command = [sys.executable, "benchmarks/gpu.py", "--tiny", *(word for part in PRINTS for word in ("--only", part))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [part for part, prints in PRINTS.items() if prints not in done.stdout] == []
