"""Losses and gradients of logits by the Triton kernel, beside those of torch in fp64.

TRITON_INTERPRET=1 python -m support.loss_cases    # on a CPU, as JSON
"""

from __future__ import annotations

import json
import sys

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 6
Z = 1e-2
CASES = {
    "bytes": (torch.float32, 300),
    "one block": (torch.float32, 4096),
    "blocks and a rest": (torch.float32, 9001),
    "bf16": (torch.bfloat16, 9001),
    "fp16": (torch.float16, 5000),
    "offset": (torch.float32, 301),
}
"""Dtype and vocabulary."""
OFFSETS = {301: 1e4}
"""By vocabulary, what is added to all logits."""


def logits(dtype: torch.dtype, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Of rows with large and small logits, whose targets are the first, the last and others."""
    random = torch.Generator().manual_seed(vocabulary)
    scales = torch.tensor([0.0, 1e-3, 1.0, 10.0, 100.0, 3.0])[:, None]
    made = (
        torch.randn(ROWS, vocabulary, generator=random) * scales - 50 * (scales == 3) + OFFSETS.get(vocabulary, 0.0)
    ).to(dtype)
    targets = torch.randint(vocabulary, (ROWS,), generator=random)
    targets[0], targets[1] = vocabulary - 1, 0
    return made, targets


def padded(logits: Tensor) -> Tensor:
    """The same with rows apart as the loss has them; what is between them is no number."""
    from kosmos.model.loss_kernels import padded_width

    room = torch.full((len(logits), padded_width(logits.shape[1])), float("nan")).to(logits)
    room[:, : logits.shape[1]] = logits
    return room[:, : logits.shape[1]]


def differences(case: str, device: str = "cpu") -> dict[str, float]:
    """Largest differences: of losses relative to one or to the loss, of gradients (at most 1), of what is to stay.

    With ``z`` too: of losses then, of what it adds, and of gradients relative to the largest.
    """
    from kosmos.model.loss_kernels import cross_entropy_

    given, targets = (x.to(device) for x in logits(*CASES[case]))
    exact = given.double().requires_grad_()
    expected = F.cross_entropy(exact, targets, reduction="none")
    expected.sum().backward()
    expected = expected.detach()
    assert exact.grad is not None
    losses, scored = (torch.empty(ROWS, device=device) for _ in range(2))
    predictions = torch.empty(ROWS, dtype=torch.int64, device=device)
    kept, changed = given.clone(), padded(given)
    cross_entropy_(kept, targets, scored, predictions, False, None, 0.0)
    cross_entropy_(changed, targets, losses, None, True, None, 0.0)
    also, added, pulled = torch.empty_like(losses), torch.empty_like(losses), padded(given)
    cross_entropy_(pulled, targets, also, None, True, added, Z)
    gradient = exact.grad.clone()
    more = Z * exact.logsumexp(1).square()
    more.sum().backward()
    return {
        "loss": float(((losses - expected).abs() / expected.abs().clamp(min=1)).max()),
        "gradient": float((changed - gradient).abs().max()),
        "loss with z": float((also - losses).abs().max()),
        "added": float(((added - more).abs() / more.abs().clamp(min=1)).max().detach()),
        "gradient with z": float((pulled - exact.grad).abs().max() / exact.grad.abs().max()),
        "scored": float((scored - losses).abs().max()),
        "kept": float((kept - given).abs().max()),
        "predictions": float((predictions != given.float().argmax(1)).sum()),
    }


if __name__ == "__main__":
    json.dump({case: differences(case) for case in CASES}, sys.stdout)
