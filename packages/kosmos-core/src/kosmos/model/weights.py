"""Initial weights, made where they lie: no rank of a sharded run holds more than its share.

A model is made without memory for its parameters, cut, given memory, and filled. Parameters are either drawn, any part
of them by itself and on several threads, or come from a model that the first rank has made whole.

A parameter is drawn in blocks of rows, each from a generator of its own whose seed is the model's, counted on. So a
rank of a sharded run draws the blocks of which it holds something and no others, and has the values that one process
alone would have.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.modules.module import register_module_parameter_registration_hook

from kosmos.errors import ConfigError
from kosmos.model.nf4 import BUFFERS, PACKED, pack

BLOCK = 1 << 18
"""Values of a block, which has one row at least: 1 MiB, so that it stays in a cache until it lies where it belongs."""
UPDATE = ("low_rank_a", "low_rank_b")
"""Last parts of the names of parameters that stand beside a model's own (``kosmos.model.lora``) and are drawn apart."""
SEEDS = 1 << 32
"""Seeds that PyTorch's generator on a CPU tells apart."""


def seed_part(seed: int, name: str) -> None:
    """Seed PyTorch for one part of a model, so that its weights do not depend on what else the model has.

    Raises ConfigError where the part would be drawn in another type than fp32, as somebody has told PyTorch to.
    """
    if (usual := torch.get_default_dtype()) != torch.float32:
        raise ConfigError(
            f"PyTorch's default type is {usual} (torch.set_default_dtype), and parts are made in torch.float32; set "
            "that again, and the type of a run's weights by train.weights"
        )
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=4).digest()
    # As torch.manual_seed does, but for a GPU that nobody has used yet, whose seed may be somebody else's.
    torch.default_generator.manual_seed(drawn := int.from_bytes(digest, "little"))
    if cast(Any, torch.cuda).is_initialized():
        torch.cuda.manual_seed_all(drawn)


class Normal(NamedTuple):
    """Normal values; all ``mean`` where ``std`` is 0."""

    mean: float = 0.0
    std: float = 0.0


def new_seed() -> int:
    """A seed for ``draw_weights``, by PyTorch's own generator, which a run has seeded."""
    return int(torch.randint(SEEDS, (), device="cpu"))


def draw_weights(module: nn.Module, values: Mapping[str, Normal], seed: int) -> None:
    """Fill all parameters of ``module``, on any device, sharded or not, as if they were whole and in fp32.

    Args:
        values: what each is filled with, by name. Those without memory are left as they are, and updates beside others,
            which are drawn apart (``UPDATE``).
        seed: of ``new_seed``; it is taken as the module is made, so that nothing depends on when it is drawn.
    """
    own = {name: parameter for name, parameter in module.named_parameters() if not is_update(name)}
    draw_parameters(own, values, seed)


def draw_parameters(parameters: Mapping[str, Tensor], values: Mapping[str, Normal], seed: int) -> None:
    """As ``draw_weights``, for parameters by their names. Raises KeyError where ``values`` lacks one."""
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        for name, parameter in parameters.items():
            if parameter.is_meta:
                continue
            part = _Part.of(parameter.detach())
            part.fill(values[name], seed, threads)
            seed += part.blocks


def is_update(name: str) -> bool:
    """Whether a parameter of this name is none of the model's own: see ``UPDATE``."""
    return name.rpartition(".")[2] in UPDATE


_LATER: ContextVar[bool] = ContextVar("later", default=False)


@contextmanager
def without_memory() -> Iterator[None]:
    """Parameters that are made inside are on the meta device, without memory; buffers are made as ever."""
    hook = register_module_parameter_registration_hook(cast(Any, _without_memory))
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)
        hook.remove()


def _without_memory(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter:
    other = not filled_later()  # made by another thread: the hook is one for all
    return parameter if parameter.is_meta or other else nn.Parameter(parameter.to("meta"), parameter.requires_grad)


def filled_later() -> bool:
    """Whether a module that is made now is made inside ``without_memory``."""
    return _LATER.get()


def drawn_later(factory: Any) -> bool:
    """Whether what a factory makes can be made without memory and filled afterwards, by its method ``draw_weights``.

    Its own: a class derived from one that has it may have parts that the method does not know.
    """
    return "draw_weights" in vars(factory)


def materialize(model: nn.Module, device: torch.device, *, draw: bool) -> None:
    """Give parameters on the meta device memory on ``device``; the others stay as they are.

    Args:
        draw: their modules are asked to fill them; else they are left unset, to be read from a checkpoint.
    """
    later = [m for m in model.modules() if hasattr(m, "draw_weights") and any(p.is_meta for p in m.parameters())]
    if not later:
        return
    shared = _places(model)
    # What ``to_empty`` does, which would also empty the others.
    cast(Any, model)._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor)
    for (first, own_name), *others in shared:
        for module, name in others:
            module._parameters[name] = first._parameters[own_name]
    if draw:
        for module in later:
            cast(Any, module).draw_weights()


def _places(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """For each parameter the modules that have it, and its name there."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((module, name))
    return list(places.values())


def round_weights(model: nn.Module) -> None:
    """Weights in bf16, and with them what a module beside its weights keeps, such as running statistics.

    What a module without weights has worked out, such as the frequencies of rotations, stays as it is: rounded, far
    positions would be turned by other angles.
    """
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        for tensor in (*own, *module.buffers(recurse=False)) if own else ():
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(torch.bfloat16)


@torch.no_grad()
def take_over(module: nn.Module, whole: nn.Module | None) -> None:
    """Fill ``module``, sharded or not, with parameters and buffers of one made whole. All ranks call this.

    Args:
        whole: the model, on the first rank, which loses its memory on the way; None on the others.
    """
    if dist.is_initialized():
        dist.broadcast(torch.zeros(1), 0)  # by gloo, which lets ranks wait longer for the first one than NCCL does
    found = {} if whole is None else {**dict(whole.named_parameters()), **dict(whole.named_buffers())}
    ours = [(name, parameter) for name, parameter in module.named_parameters() if not is_update(name)]
    buffers = [(name, buffer) for name, buffer in module.named_buffers() if not name.endswith(BUFFERS)]
    for name, tensor in [*ours, *buffers]:
        own = tensor.detach()
        source = torch.empty(own.shape)
        if found:
            there = found[re.sub(f"{PACKED}$", "weight", name)]
            source = pack(there) if name.endswith(PACKED) else there.detach()
            there.data = there.new_empty(0)
        source = source.to(own.device, own.dtype)
        if isinstance(own, DTensor):
            own.to_local().copy_(distribute_tensor(source, own.device_mesh, own.placements).to_local())
        else:
            own.copy_(source)
            if dist.is_initialized():
                dist.broadcast(own, 0)


@dataclass(frozen=True)
class _Part:
    """The part of a parameter that lies here."""

    shape: tuple[int, ...]
    """Of the whole."""
    begin: tuple[int, ...]
    """Where the part begins in it."""
    here: Tensor

    @classmethod
    def of(cls, parameter: Tensor) -> _Part:
        if not isinstance(parameter, DTensor):
            parameter = parameter if parameter.dim() else parameter[None]
            return cls(tuple(parameter.shape), (0,) * parameter.dim(), parameter)
        (chunk,) = cast(Any, parameter).__create_chunk_list__()  # what checkpoints are written by
        return cls(tuple(parameter.shape), tuple(chunk.offsets), parameter.to_local())

    @property
    def rows(self) -> int:
        """Of a block."""
        return max(1, BLOCK // max(1, prod(self.shape[1:])))

    @property
    def blocks(self) -> int:
        """Of the whole."""
        return -(-self.shape[0] // self.rows)

    def fill(self, values: Normal, seed: int, threads: Executor) -> None:
        if not values.std:
            self.here.fill_(values.mean)
        elif self.here.numel():
            drawn = self.here if self.here.is_cpu else torch.empty(self.here.shape, dtype=self.here.dtype, device="cpu")
            numbers = range(self.begin[0] // self.rows, -(-(self.begin[0] + len(drawn)) // self.rows))
            # As a list, so that what a thread raises is raised here.
            list(threads.map(lambda number: self._draw(drawn, number, values, seed), numbers))
            self.here.copy_(drawn)

    def _draw(self, into: Tensor, number: int, values: Normal, seed: int) -> None:
        """Block ``number`` of the whole, as much of it as lies here."""
        top = number * self.rows
        bottom = min(top + self.rows, self.shape[0])
        random = torch.Generator().manual_seed((seed + number) % SEEDS)
        block = torch.empty(bottom - top, *self.shape[1:], dtype=torch.float32, device="cpu")
        block.normal_(values.mean, values.std, generator=random)
        first, last = max(top, self.begin[0]), min(bottom, self.begin[0] + len(into))
        rest = tuple(slice(at, at + size) for at, size in zip(self.begin[1:], into.shape[1:], strict=True))
        into[first - self.begin[0] : last - self.begin[0]] = block[(slice(first - top, last - top), *rest)]
