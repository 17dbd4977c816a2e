"""Lion in plain PyTorch: a few passes over parts of the parameter that stay in a cache.

One part at a time, memory is read and written once, whatever the number of passes. Each pass is the operation of
PyTorch that does most: both means are linear interpolations, weight decay and update together are a step of its fused
SGD. What is in fp32 is changed in place, the rest passes through scratch memory in fp32, but for means in bf16: an
interpolation computes them in fp32 and rounds once. Small parameters take the same passes together (``Batch``).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from kosmos.train.optim import blocks, masters
from kosmos.train.optim.operands import Operands, Step

CPU_ELEMENTS = 393_216
"""Most elements of a part on each thread, of which up to four buffers are needed. Longer parts start the threads less
often, shorter ones stay in nearer caches. Measured from 16,384 to 1,048,576."""
CPU_SCRATCH_ELEMENTS = 1 << 22
"""Most elements of a part on all threads, so that many threads take no more than 64 MiB of scratch memory. Above ten
threads, where it counts, nothing was measured."""
ACCELERATOR_ELEMENTS = 1 << 24
"""Where there is no such cache, parts only bound the scratch memory."""

_move = partial(sgd, fused=True, momentum=0.0, dampening=0.0, nesterov=False, maximize=False)
"""In fp32 only: on a CPU it leaves most of bf16 weights as they are (github.com/pytorch/pytorch/issues/191763)."""


class Passes:
    """The passes with their scratch memory, which is kept from step to step."""

    def __init__(self) -> None:
        self._scratch: dict[torch.device, Tensor] = {}

    def lion(self, whole: Operands, step: Step) -> None:
        """One step of Lion (arXiv 2302.06675, algorithm 2) on all elements."""
        four = self.scratch(whole.weight.device)
        for start, part in whole.parts(four.shape[1]):
            _lion_part(part, step, start, four[:, : part.weight.numel()])

    def scratch(self, device: torch.device) -> Tensor:
        """fp32 [4, elements]."""
        elements = ACCELERATOR_ELEMENTS
        if device.type == "cpu":
            elements = min(CPU_ELEMENTS * torch.get_num_threads(), CPU_SCRATCH_ELEMENTS)
        found = self._scratch.get(device)
        if found is None or found.shape[1] != elements:
            found = self._scratch[device] = torch.empty(4, elements, device=device)
        return found


class Batch:
    """Small tensors that take the same step in the same calls: on its own each would wait for the calls."""

    SMALL = 65_536
    """Most elements of a tensor."""
    MOST = 131_072
    """Elements of a batch on each thread."""

    def __init__(self) -> None:
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []
        self._elements = 0

    def add(self, weight: Tensor, gradient: Tensor, momentum: Tensor) -> None:
        """All are [n] of one dtype, fp32 or bf16."""
        self._rows.append((weight, gradient, momentum))
        self._elements += len(weight)

    @property
    def is_full(self) -> bool:
        """Whether more would fall out of a CPU's caches, or take a GPU much memory."""
        on_cpu = bool(self._rows) and self._rows[0][0].device.type == "cpu"
        return self._elements >= (self.MOST * torch.get_num_threads() if on_cpu else ACCELERATOR_ELEMENTS)

    def lion(self, step: Step) -> None:
        """One step of Lion, by the arithmetic of ``Passes``; the batch is empty afterwards."""
        if not self._rows:
            return
        weights, gradients, momenta = (list(of) for of in zip(*self._rows, strict=True))
        updates = list(torch._foreach_lerp(momenta, gradients, 1 - step.beta1))
        torch._foreach_sign_(updates)
        torch._foreach_lerp_(momenta, gradients, 1 - step.beta2)
        values, moves = _in_fp32(weights), _in_fp32(updates)
        if weights[0].device.type == "cpu":
            _move(values, moves, [], lr=step.rate, weight_decay=step.decay)
        else:
            _move_lists(values, moves, step)
        if values is not weights:
            torch._foreach_copy_(weights, values)
        self._rows, self._elements = [], 0


def _in_fp32(tensors: list[Tensor]) -> list[Tensor]:
    """[n] each, themselves where they are in fp32: one copy for all."""
    if _is_float32(tensors[0]):
        return tensors
    room = torch.empty(sum(map(len, tensors)), device=tensors[0].device)
    found = list(torch.split(room, [len(x) for x in tensors]))
    torch._foreach_copy_(found, tensors)
    return found


def _move_lists(weights: list[Tensor], updates: list[Tensor], step: Step) -> None:
    """As ``_move``, which is one call on a CPU; on a GPU these two are a kernel each for all tensors."""
    torch._foreach_mul_(weights, 1 - step.rate * step.decay)
    torch._foreach_add_(weights, updates, alpha=-step.rate)


def _means(gradient: Tensor, momentum: Tensor, update: Tensor, step: Step) -> None:
    """Write the sign of the update, and move the momentum. All are [n] of one dtype."""
    torch.lerp(momentum, gradient, 1 - step.beta1, out=update).sign_()
    momentum.lerp_(gradient, 1 - step.beta2)


def _bf16_means(gradient: Tensor, momentum: Tensor, update: Tensor, spare: Tensor, step: Step) -> None:
    """As ``_means`` in bf16, with ``update`` in fp32. PyTorch's sign of bf16 takes longer than all of this.

    The sign of NaN is 1 or -1 here and 0 elsewhere: the trainer's guard leaves such steps out.
    """
    signed = torch.lerp(momentum, gradient, 1 - step.beta1, out=spare.view(torch.bfloat16)[: len(update)])
    update.copy_(signed.view(torch.int16).clamp_(-1, 1))  # a number and its bits as an integer have one sign
    momentum.lerp_(gradient, 1 - step.beta2)


def _is_float32(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32


def _lion_part(part: Operands, step: Step, start: int, scratch: Tensor) -> None:
    weight, slope, mean, update = scratch
    spare, other = update.view(torch.int32), slope.view(torch.int32)
    is_bf16 = part.gradient.dtype is part.momentum.dtype is torch.bfloat16
    if is_bf16 and step.beta1 > 0.5:  # with smaller ones -0.0 can come out, whose bits are less than 0
        _bf16_means(part.gradient, part.momentum, update, slope, step)
    else:
        slope = part.gradient if _is_float32(part.gradient) else slope.copy_(part.gradient)
        if part.scales is not None:
            blocks.decode(part.momentum, part.scales, mean, update)
        else:
            mean = part.momentum if _is_float32(part.momentum) else mean.copy_(part.momentum)
        _means(slope, mean, update, step)
        if part.scales is None and mean is not part.momentum:
            part.momentum.copy_(mean)
    own = _is_float32(part.weight)
    if own:
        weight = part.weight
    else:
        masters.load(part.weight, part.low, weight, other)
    _move([weight], [update], [], lr=step.rate, weight_decay=step.decay)
    if not own:
        noise = step.noise if step.stochastic else None
        masters.store(part.weight, part.low, weight, spare, other, noise=noise, start=start)
    if part.scales is not None:
        blocks.encode(mean, part.momentum, part.scales, update, other, noise=step.noise, start=start)
