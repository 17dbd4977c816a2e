"""What becomes of BatchNorm, so that no item's features depend on the others in its batch, and of Swish."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS_A_GROUP = 8
"""At least; GroupNorm over fewer loses the differences between channels."""


class FrozenBatchNorm(nn.Module):
    """BatchNorm with its running statistics as constants, in training too. Scale and shift still learn."""

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        assert norm.track_running_stats, norm
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, ...] -> the same shape."""
        mean, var = cast(Tensor, self.running_mean), cast(Tensor, self.running_var)
        return F.batch_norm(x, mean, var, self.weight, self.bias, training=False, eps=self.eps)


def freeze_batch_norm(module: nn.Module) -> None:
    """Put ``FrozenBatchNorm`` in the place of every BatchNorm below ``module``."""
    for name, child in module.named_children():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            setattr(module, name, FrozenBatchNorm(child))
        else:
            freeze_batch_norm(child)


def group_batch_norm(module: nn.Module) -> None:
    """Put a fresh GroupNorm in the place of every BatchNorm below ``module``."""
    for name, child in module.named_children():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            channels = child.num_features
            groups = max(n for n in range(1, max(1, channels // CHANNELS_A_GROUP) + 1) if channels % n == 0)
            setattr(module, name, nn.GroupNorm(groups, channels, eps=child.eps))
        else:
            group_batch_norm(child)


def replace_swish(module: nn.Module) -> None:
    """Put torch's SiLU, the same function, in the place of pytorchvideo's Swish, whose backward torch deprecates."""
    for name, child in module.named_children():
        if type(child).__name__ == "Swish":
            setattr(module, name, nn.SiLU())
        else:
            replace_swish(child)
