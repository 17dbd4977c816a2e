"""What every part of a model promises on a GPU: to make nothing on the CPU and mix it with what is on the GPU.

Checked without a GPU, by ``kosmos.testing.fake_gpu``; what cannot be followed there is not checked.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from kosmos.data.transfer import to_device
from kosmos.errors import cause
from kosmos.model.segments import Segments
from kosmos.testing.fake_gpu import CUDA, fake_gpu, put_on
from kosmos.testing.items import output, row
from kosmos.testing.promise import BrokenPromise, Unchecked, rule
from kosmos.testing.rules import backbone as backbones
from kosmos.testing.rules import connector as connectors
from kosmos.testing.subjects import ComponentUnderTest, EncoderUnderTest

SAYS = (
    "its forward pass, followed as on a GPU but without one, mixes no tensors of CPU and GPU, in fp32 and under bf16 "
    "autocast, and its result is on the GPU"
)
NOT_FOLLOWED = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    torch.AcceleratorError,
)
"""What asks a GPU for values or, as recurrent networks do, for its driver."""


def _check(make: Callable[[], nn.Module], run: Callable[[Any], torch.Tensor]) -> None:
    if torch.version.cuda is None:
        raise Unchecked("this build of torch knows no CUDA")
    for autocast in (False, True):
        module = make()
        try:
            with fake_gpu(), torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                out = run(put_on(module))
        except NOT_FOLLOWED as error:
            raise Unchecked(f"{_line(error)} asks for more than can be followed without a GPU") from error
        except Exception as error:  # a seam: the plugin's own code
            if "NVIDIA driver" in str(error):
                raise Unchecked(f"{_line(error)} asks for the driver of a GPU") from error
            raise BrokenPromise(f"{cause(error)} at {_line(error)}{_remedy(error)}") from error
        if out.device != CUDA:
            raise BrokenPromise(f"its result is on {out.device}; expected {CUDA}")


def _remedy(error: BaseException) -> str:
    """What to do about an error of devices; nothing for others, which the CPU may have as well."""
    if not re.search(r"(?i)device|cuda|fake ?tensor|data pointer", str(error)):
        return ""
    return "; make tensors on the device of its input, or move them with kosmos.to_device"


def _line(error: BaseException) -> str:
    """File and line of the innermost code that is not PyTorch's nor this kit's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/torch/" not in f.filename and "/kosmos/testing/" not in f.filename]
    last = (own or list(frames))[-1]
    return f"{last.filename.rpartition('/')[2]}:{last.lineno}"


def _on(values: torch.Tensor, grids: torch.Tensor) -> Callable[[Any], torch.Tensor]:
    """Call a part with these, as a row on the GPU has them: ``grids`` stay on the CPU."""
    return lambda module: output(module, to_device(values, CUDA), grids.clone())


@rule("encoder", "gpu", SAYS)
def encoder_on_a_gpu(encoder: EncoderUnderTest) -> None:
    for count in (3, 0):
        values, grids = row(encoder.items[:count], encoder.items[0])
        _check(encoder.fresh, _on(values, grids))


@rule("connector", "gpu", SAYS)
def connector_on_a_gpu(connector: ComponentUnderTest) -> None:
    items = connectors.features()
    for some in (items, items[:0]):
        values, grids = row(some, items[0])
        _check(lambda: connectors.fresh(connector).float(), _on(values.float(), grids))


@rule("backbone", "gpu", SAYS)
def backbone_on_a_gpu(backbone: ComponentUnderTest) -> None:
    lengths = backbones.LENGTHS
    positions = torch.cat([torch.arange(length) for length in lengths])

    def run(module: Any) -> torch.Tensor:
        x = module.embed(to_device(backbones.some_tokens(), CUDA))
        return output(module, x, to_device(positions, CUDA), Segments(lengths))

    _check(lambda: backbones.fresh(backbone), run)


RULES = (encoder_on_a_gpu, connector_on_a_gpu, backbone_on_a_gpu)
