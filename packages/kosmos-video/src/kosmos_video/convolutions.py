"""Convolutions over clips of few frames, around two faults of oneDNN."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FewFramesConv3d(nn.Conv3d):
    """``Conv3d`` that pads few frames itself on a CPU in bf16, and with strides in time in fp32 too.

    With 2 frames and a kernel of 3 in time, with up to 4 and one of 5, oneDNN of torch 2.11 leaves part of the weights'
    gradient unwritten on processors with AVX-512 in bf16: NaN, or whatever memory held. With AMX it does so with 1
    frame too, where channels are grouped. On frames that were padded before, it is right.

    In fp32, and on batches of two or more, its backward pass writes where it must not if it takes strides in time with
    a longer kernel: a kernel of 7 with a stride of 2 and a padding of 3 ended the process on 5 frames and gave wrong
    gradients on 6 and 7. Of kernels of 3, 5 and 7, strides of 1 to 4 and 1 to 8 frames, all that were wrong had a
    stride above 1 and a kernel at least 2 longer. Padded before, all were right. A plain ``nn.Conv3d`` is not safe.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, T, H, W]."""
        assert not isinstance(self.padding, str), self.padding
        frames, *rest = self.padding
        bf16 = x.dtype == torch.bfloat16 or torch.is_autocast_enabled(x.device.type)
        few = bf16 and 0 < x.shape[2] <= 2 * frames
        if x.device.type != "cpu" or not (few or (frames and 1 < self.stride[0] <= self.kernel_size[0] - 2)):
            return super().forward(x)
        padded = F.pad(x, (0, 0, 0, 0, frames, frames))
        return F.conv3d(padded, self.weight, self.bias, self.stride, (0, *rest), self.dilation, self.groups)


def pad_few_frames(module: nn.Module) -> None:
    """Make every ``Conv3d`` below ``module`` a ``FewFramesConv3d``, with the parameters that it has."""
    for child in module.modules():
        if type(child) is nn.Conv3d and child.padding_mode == "zeros" and not isinstance(child.padding, str):
            child.__class__ = FewFramesConv3d
