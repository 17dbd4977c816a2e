"""Keep batch statistics out of encoders: a BatchNorm would let the pictures of a pack influence each other."""

from __future__ import annotations

from math import gcd

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_GROUP_CHANNELS = 16


class ItemNorm(nn.GroupNorm):
    """GroupNorm in place of a BatchNorm, with the dropout and activation that timm's BatchNorms may hold."""

    def __init__(self, source: _BatchNorm) -> None:
        channels = source.num_features
        groups = max(1, channels // gcd(channels, _GROUP_CHANNELS))
        device = None if source.weight is None else source.weight.device
        super().__init__(groups, channels, eps=source.eps, affine=source.affine, device=device)
        if source.affine:
            # keeps the start that the model gave it, such as zero at the end of a residual branch
            self.load_state_dict({"weight": source.weight.detach(), "bias": source.bias.detach()}, assign=True)
            self.weight.requires_grad_(True)
            self.bias.requires_grad_(True)
        self.drop = getattr(source, "drop", None) or nn.Identity()
        self.act = getattr(source, "act", None) or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.drop(super().forward(x)))
        return out


def replace_batch_norms(module: nn.Module) -> int:
    """Put an ``ItemNorm`` for every BatchNorm below ``module``; returns how many there were."""
    count = 0
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm):
            setattr(module, name, ItemNorm(child))
            count += 1
        else:
            count += replace_batch_norms(child)
    return count


def batch_norms(module: nn.Module) -> list[nn.Module]:
    """Modules that keep running statistics of batches."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm)]
