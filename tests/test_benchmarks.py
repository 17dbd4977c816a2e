"""What is measured on a GPU runs where there is none: a call on one must not be lost to a mistake."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kosmos.model.loss import linear_cross_entropy

ROOT = Path(__file__).resolve().parent.parent


PRINTS = {
    "optimizers": "| AdamW, 16 extra bits |",
    "text": "text 7 B, bf16 weights, gradients released: ",
    "pictures": "image and text, decoder of 1.3 B, 4 rows of 8,192, two as one: ",
    "joined": "rows as one: ",
    "lane": "one lane, 2 data workers: ",
    "attention": "% of the products' limit",
    "loss": "of the limit",
    "muon": "| PyTorch's Muon |",
    "sounds": "clips ",
    "layers": "layers of transformers: ",
    "generation": "generation of 3 together, transformers",
    "fp8": "rowwise: ",
    "lora": "text 7 B, bf16 weights, LoRA 16: ",
    "nf4": "weights in 4 bits: ",
}


@pytest.mark.slow
def test_the_parts_of_the_measurements_on_a_gpu_run_at_a_small_size() -> None:
    done = measured()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [part for part, prints in PRINTS.items() if prints not in done.stdout] == []
    assert {line.split(":")[0][1:] for line in done.stdout.splitlines() if line.startswith("(")} == {*PRINTS, "in all"}


def test_a_part_that_would_begin_too_late_is_left_out_and_named() -> None:
    done = measured("--only", "loss", "--only", "muon", "--seconds", "0")
    assert done.returncode == 1
    assert "left out, for want of time: --only loss --only muon" in done.stdout


def measured(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/gpu.py", "--tiny", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
def test_the_products_of_a_loss_in_chunks_are_all_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from products import Operands, Products

    rows, width, vocabulary = 1500, 128, 500
    hidden = torch.randn(rows, width, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(vocabulary, width, dtype=torch.bfloat16, requires_grad=True)
    with Products() as seen:
        targets = torch.randint(vocabulary, (rows,))
        linear_cross_entropy(hidden, weight, targets, chunk=256, by_kernels=True).total.backward()
    shapes = [(arguments[-2][1], arguments[-1][1]) for _, arguments, _ in seen.calls]
    found = sum(one[0] * one[1] * other[1] for one, other in shapes)
    assert found == pytest.approx(3 * rows * width * vocabulary, rel=0.03)  # the last chunk is padded
    operands = Operands()
    for _ in range(2):  # the second time has those of the first
        assert seen.in_order(operands)() > 0
        assert seen.again()() > 0
    assert operands.taken.total() == sum(len(args) + len(kwargs) for _, args, kwargs in seen.calls)
