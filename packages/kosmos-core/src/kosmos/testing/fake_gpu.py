"""A GPU that computes nothing: without one, it shows whether a forward pass would run on one, and where it would wait.

Tensors on the CPU are what they are; those on ``cuda`` have shapes and types and no values, by PyTorch's fake tensors.
PyTorch refuses operations that mix the two. Gradients are not taken: its backward pass wants a driver.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
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
    """While it is entered, ``cuda`` is a device without values. Values that are asked for are zeros.

    Args:
        most_pinned: bytes of the CPU's memory that can be pinned; None is without limit.
    """

    def __init__(self, most_pinned: int | None = None) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.waits: list[str] = []
        """Operation and line of code of what would have made the CPU wait for the GPU: values that were asked for,
        copies that were not asynchronous or not from or to pinned memory, and events behind which it had nothing more
        to do."""
        self.given = 0
        """Operations that the GPU was given."""
        self.most_pinned = most_pinned
        self.pinned: dict[int, Tensor] = {}
        """What holds pinned memory, by its address."""

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # In inference mode torch hides what operations are made of.
        if torch.is_inference_mode_enabled() and func.namespace == "aten" and func._can_decompose():
            with self:
                return func.decompose(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if func is _ATEN.is_pinned.default:
            return self._is_pinned(args[0])
        if func is _ATEN._pin_memory.default:
            return self._pin(args[0].clone())
        fake = any(isinstance(x, FakeTensor) for x in tensors)
        device = torch.device(kwargs.get("device") or (CUDA if fake else "cpu"))
        if not fake and device.type == "cpu":
            made = func(*args, **{**kwargs, "pin_memory": False} if kwargs.get("pin_memory") else kwargs)
            return self._pin(made) if kwargs.get("pin_memory") else made
        if func is _ATEN._local_scalar_dense.default:
            self.note_wait(func)
            return 0
        if (func in _COPIES and not self._is_asynchronous(args, kwargs)) or (func in _INDEXED and _from_cpu(args[1])):
            self.note_wait(func)
        self.given += 1
        if func is _ATEN._to_copy.default and device.type == "cpu":
            return torch.zeros(tensors[0].shape, dtype=kwargs.get("dtype") or tensors[0].dtype)
        if func is _ATEN.copy_.default and not isinstance(args[0], FakeTensor):
            return args[0].zero_()
        return super().__torch_dispatch__(func, types, args, kwargs)

    def note_wait(self, what: object) -> None:
        """Note what was called, with the line of code that did."""
        frame = sys._getframe(2)
        while frame.f_back is not None and any(part in frame.f_code.co_filename for part in _CALLERS):
            frame = frame.f_back
        self.waits.append(f"{what} at {frame.f_code.co_filename}:{frame.f_lineno}")

    def _pin(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        taken = sum(other.untyped_storage().nbytes() for other in self.pinned.values())
        if self.most_pinned is not None and taken + storage.nbytes() > self.most_pinned:
            raise RuntimeError("CUDA error: out of memory")
        self.pinned[storage.data_ptr()] = tensor
        return tensor

    def _is_pinned(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.pinned

    def _is_asynchronous(self, args: Sequence[Any], kwargs: Any) -> bool:
        """Of ``_to_copy(source, *, device, non_blocking)``, or any ``copy_(target, source, non_blocking)``."""
        source = args[-1] if isinstance(args[-1], Tensor) else args[1]
        asked = kwargs.get("non_blocking", args[-1] is True)
        if not isinstance(source, FakeTensor):
            return asked and self._is_pinned(source)
        if args[0] is source:  # PyTorch pins what it makes on the CPU for an asynchronous copy
            return asked or torch.device(kwargs.get("device") or CUDA).type != "cpu"
        return isinstance(args[0], FakeTensor) or (asked and self._is_pinned(args[0]))


class _Event:
    """A ``torch.cuda.Event``."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu, self.given = gpu, -1

    def record(self) -> None:
        self.given = self.gpu.given

    def synchronize(self) -> None:
        if self.given == self.gpu.given:
            self.gpu.note_wait("Event.synchronize")


def _from_cpu(indices: Sequence[Tensor | None]) -> bool:
    """Whether indices are copied to the GPU on the way."""
    return any(index is not None and not isinstance(index, FakeTensor) for index in indices)


@contextmanager
def fake_gpu(most_pinned: int | None = None) -> Iterator[FakeGpu]:
    """A ``FakeGpu``, entered, which torch takes for one that multiplies in bf16."""
    gpu = FakeGpu(most_pinned)
    known: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (torch.cuda, "get_device_capability", lambda *_: CAPABILITY),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "Event", lambda **_: _Event(gpu)),
        (torch.cuda, "synchronize", lambda *_: gpu.note_wait("synchronize")),
    )
    with ExitStack() as stack:
        for module, name, stand_in in known:
            stack.enter_context(patch.object(module, name, stand_in))
        yield stack.enter_context(gpu)


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
