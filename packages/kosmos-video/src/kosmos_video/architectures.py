"""The pytorchvideo networks by name. Their builders are imported from their own files, and nothing is downloaded."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, cast

from torch import nn

from kosmos import ConfigError


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to build a network and the clips that it was made for."""

    build: Callable[[int, int], nn.Module]
    """(frames, size_px) -> the network with its head."""
    frames: int
    size_px: int
    is_transformer: bool = False

    def head_prefix(self, net: nn.Module) -> str:
        """How the names of the head's tensors start."""
        return "head." if self.is_transformer else f"blocks.{len(cast(nn.ModuleList, net.blocks)) - 1}."


def find_architecture(name: str) -> Architecture:
    """
    Raises:
        ConfigError: no network has this name.
    """
    if name not in ARCHITECTURES:
        near = get_close_matches(name, ARCHITECTURES, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(ARCHITECTURES)}"
        raise ConfigError(f"model: unknown video model {name!r}; {hint}")
    return ARCHITECTURES[name]


def _builder(module: str, name: str) -> Callable[..., Any]:
    """A builder of ``pytorchvideo.models``."""
    with warnings.catch_warnings():
        # pytorchvideo and fvcore script functions on import, which torch deprecates (in 2.14 by a FutureWarning, which
        # Python shows); no user can help it.
        warnings.filterwarnings("ignore", message=".*torch.jit.*")
        return cast(Callable[..., Any], getattr(import_module(f"pytorchvideo.models.{module}"), name))


def _x3d(frames: int, size_px: int, **options: Any) -> nn.Module:
    create_x3d = _builder("x3d", "create_x3d")
    return cast(nn.Module, create_x3d(input_clip_length=frames, input_crop_size=size_px, **options))


def _slow(frames: int, size_px: int, **options: Any) -> nn.Module:
    create_resnet = _builder("resnet", "create_resnet")
    return cast(nn.Module, create_resnet(stem_conv_kernel_size=(1, 7, 7), **options))


def _resnet_tiny(frames: int, size_px: int) -> nn.Module:
    """The stem and stages of ``create_resnet``, which itself builds nothing below 50 layers; one block a stage."""
    create_res_basic_stem, net = _builder("stem", "create_res_basic_stem"), _builder("net", "Net")
    create_res_stage, bottleneck = (_builder("resnet", n) for n in ("create_res_stage", "create_bottleneck_block"))
    blocks = [
        create_res_basic_stem(
            in_channels=3,
            out_channels=48,
            conv_kernel_size=(1, 7, 7),
            conv_stride=(1, 4, 4),
            conv_padding=(0, 3, 3),
            pool=None,
        )
    ]
    for dim_in, dim_out, kernel_t, stride in (
        (48, 64, 1, (1, 1, 1)),
        (64, 128, 3, (2, 2, 2)),
        (128, 192, 3, (1, 2, 2)),
    ):
        blocks.append(
            create_res_stage(
                depth=1,
                dim_in=dim_in,
                dim_inner=dim_out // 2,
                dim_out=dim_out,
                bottleneck=bottleneck,
                conv_a_kernel_size=(kernel_t, 1, 1),
                conv_a_stride=(stride[0], 1, 1),
                conv_a_padding=(kernel_t // 2, 0, 0),
                conv_b_kernel_size=(1, 3, 3),
                conv_b_stride=(1, *stride[1:]),
                conv_b_padding=(0, 1, 1),
            )
        )
    blocks.append(nn.Identity())  # where the head would be
    return cast(nn.Module, net(blocks=nn.ModuleList(blocks)))


def _csn(frames: int, size_px: int, **options: Any) -> nn.Module:
    create_csn = _builder("csn", "create_csn")
    return cast(nn.Module, create_csn(stem_pool=nn.MaxPool3d, **options))


def _r2plus1d(frames: int, size_px: int) -> nn.Module:
    create_r2plus1d = _builder("r2plus1d", "create_r2plus1d")
    return cast(nn.Module, create_r2plus1d(dropout_rate=0.5))


def _mvit(frames: int, size_px: int, **options: Any) -> nn.Module:
    create_mvit = _builder("vision_transformers", "create_multiscale_vision_transformers")
    # The builder changes the lists that it is given, so each network gets its own.
    own = {
        name: [list(row) if isinstance(row, tuple) else row for row in rows]
        for name, rows in options.pop("lists").items()
    }
    return cast(nn.Module, create_mvit(spatial_size=size_px, temporal_size=frames, **own, **options))


_MVIT_BASE = {
    "embed_dim_mul": ((1, 2.0), (3, 2.0), (14, 2.0)),
    "atten_head_mul": ((1, 2.0), (3, 2.0), (14, 2.0)),
    "pool_q_stride_size": ((1, 1, 2, 2), (3, 1, 2, 2), (14, 1, 2, 2)),
    "pool_kv_stride_adaptive": (1, 8, 8),
    "pool_kvq_kernel": (3, 3, 3),
}
_MVIT_TINY = {
    "embed_dim_mul": ((1, 2.0), (2, 2.0)),
    "atten_head_mul": ((1, 2.0), (2, 2.0)),
    "pool_q_stride_size": ((1, 1, 2, 2), (2, 1, 2, 2)),
    "pool_kv_stride_adaptive": (1, 4, 4),
    "pool_kvq_kernel": (3, 3, 3),
}

ARCHITECTURES: dict[str, Architecture] = {
    "resnet_tiny": Architecture(_resnet_tiny, 4, 48),
    "x3d_tiny": Architecture(
        partial(
            _x3d,
            width_factor=2.0,
            depth_factor=0.5,
            stage_spatial_stride=(2, 2, 2, 1),
            stage_temporal_stride=(1, 2, 2, 1),
        ),
        8,
        48,
    ),
    "mvit_tiny": Architecture(
        partial(_mvit, depth=4, patch_embed_dim=32, lists=_MVIT_TINY), 8, 48, is_transformer=True
    ),
    "x3d_xs": Architecture(_x3d, 4, 160),
    "x3d_s": Architecture(_x3d, 13, 160),
    "x3d_m": Architecture(_x3d, 16, 224),
    "x3d_l": Architecture(partial(_x3d, depth_factor=5.0), 16, 320),
    "slow_r50": Architecture(partial(_slow, model_depth=50), 8, 224),
    "csn_r101": Architecture(partial(_csn, model_depth=101), 32, 224),
    "r2plus1d_r50": Architecture(_r2plus1d, 16, 224),
    "mvit_base_16x4": Architecture(partial(_mvit, lists=_MVIT_BASE), 16, 224, is_transformer=True),
    "mvit_base_32x3": Architecture(partial(_mvit, lists=_MVIT_BASE), 32, 224, is_transformer=True),
}
"""Clips as in the papers, but x3d_l at 320 pixels for 312, which its stride of 32 does not divide."""
