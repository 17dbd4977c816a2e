"""Run by torchrun: a loss of one's own under DistributedDataParallel, whose gradients are the mean of all ranks'."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kosmos import Document, Text, log_probs
from kosmos.compose import compose
from support.runs import small_run, ticks_registry


class LogProbs(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, row):
        return log_probs(self.model, row)


def main() -> None:
    dist.init_process_group("gloo")
    parts = compose(small_run(), ticks_registry())
    rows = [parts.pack([Document(f"row {n}", (Text("1 + 1 = "), Text(str(n), train=True)))]) for n in range(2)]
    sum(log_probs(parts.model, row)[0].sum() / 2 for row in rows).backward()
    expected = {name: p.grad.clone() for name, p in parts.model.named_parameters()}
    parts.model.zero_grad()
    wrapped = DistributedDataParallel(LogProbs(parts.model))
    wrapped(rows[dist.get_rank()])[0].sum().backward()
    for name, parameter in parts.model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])
    print("as one process")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
