"""A GPU that computes nothing: without one, it shows whether a forward pass would run on one, and where it would wait.

Tensors on the CPU are what they are; those on ``cuda`` have shapes and types and no values, by PyTorch's fake tensors.
PyTorch refuses operations that mix the two. Gradients are not taken: its backward pass wants a driver.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

CUDA = torch.device("cuda", 0)
CAPABILITY = (9, 0)
"""Of an H100 or H200."""

_ATEN = torch.ops.aten
_COPIES = (_ATEN._to_copy.default, _ATEN.copy_.default)
_INDEXED = (_ATEN.index.Tensor, _ATEN.index_put.default, _ATEN.index_put_.default)
_CALLERS = ("/torch/", "/kosmos/testing/", "/kosmos/data/transfer.py")
"""Code that is not named as the place of a wait."""


class FakeGpu(FakeTensorMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__
    """While it is entered, ``cuda`` is a device without values. Values that are asked for are zeros."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.waits: list[str] = []
        """Operation and line of code of what would have made the CPU wait for the GPU: values that were asked for, and
        copies that were not asynchronous or not from pinned memory."""

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # In inference mode torch hides what operations are made of.
        if torch.is_inference_mode_enabled() and func.namespace == "aten" and func._can_decompose():
            with self:
                return func.decompose(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if func is _ATEN.is_pinned.default:
            return _is_pinned(args[0])
        if func is _ATEN._pin_memory.default:
            pinned = args[0].clone()
            pinned._is_pinned_here = True
            return pinned
        fake = any(isinstance(x, FakeTensor) for x in tensors)
        device = torch.device(kwargs.get("device") or (CUDA if fake else "cpu"))
        if not fake and device.type == "cpu":
            return func(*args, **kwargs)
        if func is _ATEN._local_scalar_dense.default:
            self._waits_in(func)
            return 0
        if func is _ATEN._to_copy.default and device.type == "cpu":
            self._waits_in(func)
            return torch.zeros(tensors[0].shape, dtype=kwargs.get("dtype") or tensors[0].dtype)
        if (func in _COPIES and not _is_asynchronous(args, kwargs)) or (func in _INDEXED and _from_cpu(args[1])):
            self._waits_in(func)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _waits_in(self, func: Any) -> None:
        frame = sys._getframe(2)
        while frame.f_back is not None and any(part in frame.f_code.co_filename for part in _CALLERS):
            frame = frame.f_back
        self.waits.append(f"{func} at {frame.f_code.co_filename}:{frame.f_lineno}")


def _is_pinned(tensor: Tensor) -> bool:
    return hasattr(tensor, "_is_pinned_here")


def _is_asynchronous(args: Sequence[Any], kwargs: Any) -> bool:
    """Of ``_to_copy(source, *, non_blocking)`` to the GPU, or any ``copy_(target, source, non_blocking)``."""
    source = args[-1] if isinstance(args[-1], Tensor) else args[1]
    asked = kwargs.get("non_blocking", args[-1] is True)
    if isinstance(source, FakeTensor):
        return isinstance(args[0], FakeTensor)
    return asked and _is_pinned(source)


def _from_cpu(indices: Sequence[Tensor | None]) -> bool:
    """Whether indices are copied to the GPU on the way."""
    return any(index is not None and not isinstance(index, FakeTensor) for index in indices)


@contextmanager
def fake_gpu() -> Iterator[FakeGpu]:
    """A ``FakeGpu``, entered, which torch takes for one that multiplies in bf16."""
    known = (
        (torch.cuda, "get_device_capability", CAPABILITY),
        (torch.cuda, "is_bf16_supported", True),
        (torch.cuda.amp.common, "amp_definitely_not_available", False),
    )
    with ExitStack() as stack:
        for module, name, answer in known:
            stack.enter_context(patch.object(module, name, lambda *_, answer=answer, **__: answer))
        yield stack.enter_context(FakeGpu())


def put_on(module: nn.Module) -> nn.Module:
    """``module`` with its parameters and buffers on the fake GPU, inside ``fake_gpu()``. They are new ones."""
    moved: dict[int, Any] = {}  # what is shared stays shared

    def there(tensor: Any) -> Any:
        if id(tensor) not in moved:
            new = torch.empty_like(tensor, device=CUDA)
            is_parameter = isinstance(tensor, nn.Parameter)
            moved[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if is_parameter else new
        return moved[id(tensor)]

    for part in module.modules():
        for kept in (part._parameters, part._buffers):
            kept.update({name: there(tensor) for name, tensor in kept.items() if tensor is not None})
    return module
