"""Lion in plain PyTorch: several passes over parts of the parameter that stay in a core's cache.

One part at a time, memory is read and written once, whatever the number of passes. Parts that are in fp32 are
changed in place by the very operations of lion-pytorch; others pass through scratch memory in fp32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kosmos.train.optim import blocks, masters
from kosmos.train.optim.operands import Operands, Step

CPU_ELEMENTS = 65_536
"""Elements of a part on each thread: four buffers of 256 KiB lie in a second-level cache, and PyTorch gives a thread no
less than half as many. Measured from 8,192 to 262,144."""
ACCELERATOR_ELEMENTS = 1 << 24
"""Where there is no such cache, parts only bound the scratch memory."""


class Passes:
    """The passes with their scratch memory, which is kept from step to step."""

    def __init__(self) -> None:
        self._scratch: dict[torch.device, Tensor] = {}

    def lion(self, whole: Operands, step: Step) -> None:
        """One step of Lion (arXiv 2302.06675, algorithm 2) on all elements."""
        four = self.scratch(whole.weight.device)
        in_place = [_is_float32(t) for t in (whole.weight, whole.gradient, whole.momentum)]
        most = four.shape[1] if all(in_place) and whole.low is None else four.shape[1] // 2
        for start, part in whole.parts(most if whole.weight.device.type == "cpu" else four.shape[1]):
            _lion_part(part, step, start, four[:, : part.weight.numel()])

    def scratch(self, device: torch.device) -> Tensor:
        """fp32 [4, elements]."""
        elements = 2 * CPU_ELEMENTS * torch.get_num_threads() if device.type == "cpu" else ACCELERATOR_ELEMENTS
        found = self._scratch.get(device)
        if found is None or found.shape[1] != elements:
            found = self._scratch[device] = torch.empty(4, elements, device=device)
        return found


def _is_float32(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32


def _lion_part(part: Operands, step: Step, start: int, scratch: Tensor) -> None:
    weight, gradient, momentum, update = scratch
    spare, other = update.view(torch.int32), gradient.view(torch.int32)
    own = _is_float32(part.weight)
    if own:
        weight = part.weight
    else:
        masters.load(part.weight, part.low, weight, spare)
    gradient = part.gradient if _is_float32(part.gradient) else gradient.copy_(part.gradient)
    if part.scales is not None:
        blocks.decode(part.momentum, part.scales, momentum, update)
    else:
        momentum = part.momentum if _is_float32(part.momentum) else momentum.copy_(part.momentum)
    torch.mul(momentum, step.beta1, out=update).add_(gradient, alpha=1 - step.beta1).sign_()
    weight.mul_(step.keep).add_(update, alpha=-step.rate)
    momentum.mul_(step.beta2).add_(gradient, alpha=1 - step.beta2)
    if not own:
        noise = step.noise if step.stochastic else None
        masters.store(part.weight, part.low, weight, spare, other, noise=noise, start=start)
    if part.scales is not None:
        blocks.encode(momentum, part.momentum, part.scales, update, other, noise=step.noise, start=start)
    elif momentum is not part.momentum:
        part.momentum.copy_(momentum)
