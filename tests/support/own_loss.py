"""Run by torchrun: a loss of one's own under DistributedDataParallel, whose gradients are the mean of all ranks', and
rows of a run that are dealt out to ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kosmos import Document, Text, log_probs, open_training_rows
from kosmos.compose import Composition, compose
from support.runs import small_run, ticks_registry


class LogProbs(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, row):
        return log_probs(self.model, row)


def tokens(parts: Composition, state=None) -> tuple[list[list[list[int]]], dict]:
    """Those of the rows of two steps, and the state behind them."""
    with open_training_rows(parts, state=state) as rows:
        return [[batch.token_ids.tolist() for batch in next(rows)] for _ in range(2)], rows.state()


def main() -> None:
    parts = compose(small_run(), ticks_registry())
    alone, state = tokens(parts)
    dist.init_process_group("gloo")
    own = [dist.get_rank()]  # lanes
    found, state_here = tokens(parts)
    assert found == [[step[lane] for lane in own] for step in alone]
    states = [None, None]
    dist.all_gather_object(states, state_here)
    goes_on = [tokens(parts, of)[0] for of in (state_here, states, state)]
    assert goes_on[0] == goes_on[1] == goes_on[2] != found
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
