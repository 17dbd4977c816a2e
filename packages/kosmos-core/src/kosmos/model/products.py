"""Products in fp32 on a CPU whose widest units PyTorch's own leave alone.

PyTorch multiplies matrices in fp32 by Intel's MKL, which takes a processor of another maker for one without AVX-512,
and convolutions by oneDNN, which asks what the processor can do. A product is a convolution too: the rows of a matrix
are its cells, one beside the other, and nothing is copied. On processors whose units for 512 bits are whole (AMD's from
family 26 on, Zen 5) that multiplies at twice the rate of MKL: forward, for the input's gradient and the weight's.

Letters: T = rows, I = features of the input, O = of the output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kosmos.model.cpu_kernels import is_plain
from kosmos.model.precision import product_type
from kosmos.model.recurring import padded_rows

LEAST, THREADS = 20_480, 2
"""Numbers of an input up to which PyTorch convolves by MKL as well, after copying it, and threads from which on not."""
FAMILY = 26
"""Of AMD's processors, from which on they have units for 512 bits. Those before compute them in two halves, about as
fast as MKL."""
BATCH = 16
"""Items of one length, such as pictures, whose rows are not filled up: of one length so few are few sizes as they are.
Of encoders that take items of many lengths in batches oneDNN may come to keep a gigabyte, and then lets go of what it
has not used for longest."""
KINDS: list[type[nn.Linear]] = [nn.Linear]
"""Classes of layers that are products as PyTorch computes them, and others that add their ``update`` to one."""
_OF_A_STEP: ContextVar[bool] = ContextVar("_OF_A_STEP", default=False)
_HOW = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
"""A convolution's stride, padding, dilation, whether it is transposed, padding of the output, groups."""


@cache
def pays() -> bool:
    """Whether this machine multiplies faster so. It depends on the processor alone, so that a run is the same again."""
    backends: Any = torch.backends
    has_both = backends.mkl.is_available() and backends.mkldnn.is_available()
    return has_both and backends.cpu.get_cpu_capability().startswith("AVX512") and _is_of_amd(_processor(), FAMILY)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear``, but for rounding: x [.., I], weight [O, I], bias [O] -> [.., O].

    PyTorch's own where the input is small, of another type or device, or of one thread.
    """
    if not _can_take(x, weight):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    filled = rows if x.dim() == 3 and 1 < len(x) <= BATCH else _filled(rows)
    out = _matrix(F.conv2d(_cells(filled), _kernel(weight), bias))
    out = out if len(out) == len(rows) else out[: len(rows)]  # backward even a slice of all of it clears and copies
    return out.reshape(*x.shape[:-1], len(weight))


def times(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight``, but for rounding: x [T, O], weight [O, I] -> [T, I]. No gradients."""
    like = x.new_empty(recurring_rows(len(x)), weight.shape[1])
    if not _can_take(like, weight):
        return x @ weight
    given = _cells(_filled(x)), _cells(like), _kernel(weight)
    return _matrix(torch.ops.aten.convolution_backward(*given, None, *_HOW, [True, False, False])[0])[: len(x)]


def over_rows(x: Tensor, y: Tensor) -> Tensor:
    """``x.T @ y``, but for rounding: x [T, O], y [T, I] -> [O, I]. No gradients."""
    if not _can_take(y, x):
        return x.T @ y
    given = _cells(_filled(x)), _cells(_filled(y)), _kernel(y.new_empty(x.shape[1], y.shape[1]))
    found: Tensor = torch.ops.aten.convolution_backward(*given, None, *_HOW, [False, True, False])[1]
    return found.permute(0, 2, 3, 1).reshape(x.shape[1], y.shape[1])


def recurring_rows(count: int) -> int:
    """``count`` rounded up to one of eight sizes between a power of two and the next, but to a multiple of 64 at least.

    oneDNN builds a kernel for every number of rows, in a millisecond or two, and keeps it with memory of its own, up to
    a third of the weight's: of encoders and losses, whose rows differ from step to step, it would come to gigabytes.
    """
    step = max(64, 1 << max(0, (count - 1).bit_length() - 4))
    return -(-count // step) * step


def use_products(model: nn.Module, wanted: bool) -> None:
    """Have the linear layers of a model multiply so in steps, or none of them.

    What is scored or written is to be the same to the last bit whether a run trains by it or not.
    """
    for layer in model.modules():
        if has_products(layer):
            del vars(layer)["forward"]
        if wanted and type(layer) in KINDS and "forward" not in vars(layer):
            vars(layer)["forward"] = partial(_forward, layer)  # which is copied and pickled as the layer is


@contextmanager
def frozen(gradients: bool) -> Iterator[None]:
    """In which a part takes no gradients, though its step does.

    Args:
        gradients: whether its step does.
    """
    before = _OF_A_STEP.set(gradients)
    try:
        with torch.no_grad():
            yield
    finally:
        _OF_A_STEP.reset(before)


def in_step() -> bool:
    """Whether what is computed is of a step: it takes gradients, or is frozen within what does."""
    return torch.is_grad_enabled() or _OF_A_STEP.get()


def has_products(layer: nn.Module) -> bool:
    """Whether it is a layer that ``use_products`` has changed."""
    forward = vars(layer).get("forward")
    return isinstance(forward, partial) and forward.func is _forward


def _forward(layer: Any, x: Tensor) -> Tensor:
    if not in_step():
        as_it_was: Tensor = type(layer).forward(layer, x)
        return as_it_was
    found = linear(x, layer.weight, layer.bias)
    return found if type(layer) is nn.Linear else found + layer.update(x)


def _can_take(x: Tensor, weight: Tensor) -> bool:
    known = is_plain(x) and is_plain(weight) and product_type(x) == torch.float32 == x.dtype == weight.dtype
    return known and x.numel() > LEAST and weight.is_contiguous() and torch.get_num_threads() >= THREADS


def _cells(x: Tensor) -> Tensor:
    """[T, I] -> [1, I, 1, T], whose numbers lie as they did.

    In one row: of cells one below the other oneDNN sums up weights' gradients at a fraction of its rate.
    """
    return x.reshape(1, 1, *x.shape).permute(0, 3, 1, 2)


def _filled(rows: Tensor) -> Tensor:
    """[T, I] -> [recurring T, I], zeros behind."""
    return padded_rows(rows, recurring_rows(len(rows)))


def _kernel(weight: Tensor) -> Tensor:
    """[O, I] -> [O, I, 1, 1], likewise."""
    return weight.view(len(weight), 1, 1, -1).permute(0, 3, 1, 2)


def _matrix(cells: Tensor) -> Tensor:
    """[1, O, 1, T] -> [T, O]."""
    return cells.permute(0, 2, 3, 1).flatten(0, 2)


def _processor() -> str:
    """What the system tells of it; nothing where it tells nothing, as on a Mac."""
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""


def _is_of_amd(processor: str, family: int) -> bool:
    """Whether it is AMD's, of that family or a later one."""
    found = re.search(r"^cpu family\s*:\s*(\d+)$", processor, re.MULTILINE)
    return "AuthenticAMD" in processor and found is not None and int(found[1]) >= family
