"""Whether a model computes by our kernels on a CPU: a large one does in training, and in bf16 while it is scored.

Texts are written without them, unless a caller has asked for them: a token at a time gains nothing, and what a run
writes while it trains is to be what ``kosmos generate`` writes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch

from kosmos.errors import ConfigError
from kosmos.model.attention_compiled import begin_compiling
from kosmos.model.attention_compiled import binary as attention
from kosmos.model.cpu_kernels import use_kernels
from kosmos.model.nf4 import values_in
from kosmos.model.omni import OmniModel
from kosmos.model.products import has_products, use_products
from kosmos.model.products import pays as products_pay
from kosmos.runtime.native import HAS_THREADS, WORTH

UNCOMPILED = "attention and what stands between products are not compiled"
_one_at_a_time = threading.Lock()


def pays(model: OmniModel, wanted: bool | Literal["auto"], device: torch.device) -> bool:
    """Whether kernels save more than the second or two of their compiling: on a CPU, if it has threads and much to do.

    Args:
        wanted: ``train.compile``.
    """
    large = sum(map(values_in, model.backbone.parameters())) >= WORTH
    return wanted == "auto" and device.type == "cpu" and large and HAS_THREADS


def begin_kernels(model: OmniModel, dtype: torch.dtype) -> None:
    """Have a model compute by kernels from here on.

    Args:
        dtype: of its products.

    Raises:
        ConfigError: there is no compiler, or it fails. Nobody tries it again for this model.
    """
    try:
        begin_compiling(dtype)
        use_kernels(model)
        use_products(model, dtype == torch.float32 and products_pay())
        attention(dtype)
    except ConfigError:
        give_up_kernels(model)
        raise


def follow_kernels(copy: OmniModel, model: OmniModel) -> None:
    """Have a copy of a model compute by kernels where that does, so that what they round cancels out."""
    use_kernels(copy, model.by_kernels)
    use_products(copy, any(map(has_products, model.modules())))


def give_up_kernels(model: OmniModel) -> None:
    """Have a model compute without kernels for good."""
    use_kernels(model, False)
    use_products(model, False)
    model.has_no_kernels = True


@contextmanager
def by_kernels(
    model: OmniModel,
    wanted: bool | Literal["auto"],
    device: torch.device,
    dtype: torch.dtype,
    warn: Callable[[str], object],
) -> Iterator[None]:
    """While it is entered, a model computes by kernels where that pays and products are in bf16.

    Several threads may enter it. What others do with the model meanwhile is by kernels too.

    Args:
        model: and the next three, as of ``pays`` and ``begin_kernels``.
        warn: told where there is no compiler, or it fails; once for a model.
    """
    if dtype != torch.bfloat16 or not pays(model, wanted, device) or not _enter(model, dtype, warn):
        yield
        return
    try:
        yield
    finally:
        with _one_at_a_time:
            model.kernel_users -= 1
            if not model.kernel_users:
                use_kernels(model, False)


def _enter(model: OmniModel, dtype: torch.dtype, warn: Callable[[str], object]) -> bool:
    """Whether the model computes by kernels until this caller leaves; not where it does anyway, or cannot."""
    with _one_at_a_time:
        if not model.kernel_users:
            if model.by_kernels or model.has_no_kernels:
                return False
            try:
                begin_kernels(model, dtype)
            except ConfigError as error:
                warn(f"{UNCOMPILED}, and scoring takes longer: {error}")
                return False
        model.kernel_users += 1
        return True
