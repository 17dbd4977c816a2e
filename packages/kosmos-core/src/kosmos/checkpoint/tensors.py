"""The tensors of a checkpoint: named, sharded or whole, written and read by PyTorch's distributed checkpoint.

Every rank writes its own shards as safetensors, whose headers hold the offsets, as ``HuggingFaceStorageReader`` reads
them: there is no pickled metadata. They load into any other number of ranks and any other sharding.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from kosmos.checkpoint.threads import for_each
from kosmos.errors import CheckpointError
from kosmos.names import listed

logging.getLogger("c10d-NullHandler-dcp_logger").setLevel(logging.WARNING)  # two records a tensor, for nobody
MALFORMED = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, OverflowError, MemoryError)
"""What a header that somebody made up may cause, nesting without end (a RuntimeError) among it."""
MODEL, OPTIMIZER = "model.", "optimizer."
FILE_BYTES = 512 * 2**20
"""A rank begins another file past these, so that several threads write and hash what is large."""


ALONE = "torch.distributed is disabled, unavailable or uninitialized"


def expect_alone() -> None:
    """Around a call of DCP, which warns every process that is alone on purpose. Asked before each, as whoever makes
    warnings errors (``pytest``) may have set other filters since; else a checkpoint would be lost to it."""
    for action, message, category, module, _ in warnings.filters:  # the first that is about it decides
        is_about = module is None and issubclass(UserWarning, category)
        if is_about and (message is None or message.match(ALONE)):
            if action == "ignore":
                return  # to set it again would show all warnings again that were shown once
            break
    warnings.filterwarnings("ignore", message=ALONE)


class ShardWriter(HuggingFaceStorageWriter):
    """Writes this rank's shards, in the same format as PyTorch's, from the tensors' own memory.

    PyTorch's joins all of them to one ``bytes`` first, which holds the lock of the interpreter: with 2.35 GB on 2 cores
    training stood still for 7 s, and the process took 4.6 GB more.
    """

    def __init__(self, folder: Path, threads: int = 1, *, kind: str = "shard") -> None:
        """
        Args:
            kind: what the names of the files begin with.
        """
        super().__init__(str(folder), save_distributed=True)
        self.folder, self.threads, self.kind = folder, threads, kind
        self.names: list[str] = []
        """Of the files that it has written."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Raises SafetensorError: the disk is full or not writable."""
        tensors: dict[str, Tensor] = {}
        offsets: dict[str, list[int]] = {}
        for item in plan.items:
            tensor = planner.resolve_data(item)
            assert isinstance(tensor, Tensor) and item.tensor_data is not None
            tensors[item.index.fqn] = tensor.detach()
            offsets[item.index.fqn] = list(item.tensor_data.chunk.offsets)
        files = _in_files(tensors)
        rank = plan.storage_data["shard_index"]
        of = f"of-{len(files):05d}.safetensors"
        names = [f"{self.kind}-{rank:05d}-model-{n:05d}-{of}" for n in range(1, len(files) + 1)]
        parts = list(zip(names, files, strict=True))
        for_each(lambda part: self._write_file(*part, offsets), parts, self.threads)
        self.names += names
        written: Future[list[WriteResult]] = Future()
        written.set_result([])  # read by nobody: the headers say where everything is
        return written

    def _write_file(self, name: str, tensors: dict[str, Tensor], offsets: Mapping[str, list[int]]) -> None:
        sharding = json.dumps({fqn: {"saved_offsets": offsets[fqn]} for fqn in tensors})
        about = {"DCP_SHARDING_INFO": sharding, "DCP_VERSION": "1.0", "format": "pt"}
        save_file(tensors, self.folder / name, about)
        # save_file lets nobody but the owner read it, whatever the umask says.
        (self.folder / name).chmod(self.folder.stat().st_mode & 0o666)


def _in_files(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """In their order; every file but the last reaches ``FILE_BYTES``."""
    files: list[dict[str, Tensor]] = []
    filled = FILE_BYTES
    for name, tensor in tensors.items():
        if filled >= FILE_BYTES:
            files.append({})
            filled = 0
        files[-1][name] = tensor
        filled += tensor.nbytes
    return files


def read_into(folder: Path, targets: Mapping[str, Tensor], *, alone: bool = False) -> None:
    """Fill tensors, sharded or not, by name.

    Args:
        folder: that ``ShardWriter`` filled.
        alone: this process reads by itself; otherwise all ranks read together.

    Raises:
        CheckpointError: a name is missing or of another shape.
    """
    found = shapes(folder)
    for name, target in targets.items():
        if found.get(name) != tuple(target.shape):
            is_there = f"is {found[name]}" if name in found else "is missing"
            raise CheckpointError(f"{folder}: {name} {is_there}, the run has {tuple(target.shape)}")
    if not targets:
        return
    try:
        expect_alone()
        load(dict(targets), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=alone)
    except CheckpointException as error:  # a BaseException
        raise CheckpointError(f"{folder}: cannot be read: {cause_of(error)}") from error


def read_whole(folder: Path, prefix: str = "", *, only: Callable[[str], bool] = lambda name: True) -> dict[str, Tensor]:
    """Every tensor whose name begins with ``prefix``, whole, without the prefix; of these, ``only`` some by name."""
    targets = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in _stored(folder).items()
        if name.startswith(prefix) and only(name)
    }
    read_into(folder, targets, alone=True)
    return {name.removeprefix(prefix): tensor for name, tensor in targets.items()}


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name to shape of what stands in ``folder``. Raises CheckpointError as ``read_into``."""
    return {name: tuple(entry.size) for name, entry in _stored(folder).items()}


def dtypes(folder: Path) -> dict[str, torch.dtype]:
    """Name to type, likewise."""
    return {name: entry.properties.dtype for name, entry in _stored(folder).items()}


def _stored(folder: Path) -> dict[str, TensorStorageMetadata]:
    """What stands in ``folder``, by name, from the headers of its files.

    Raises:
        CheckpointError: a file is not safetensors, or its header is none that ``ShardWriter`` writes.
    """
    try:
        found: dict[str, Any] = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
        for name, entry in found.items():
            covered = sum(chunk.sizes.numel() for chunk in entry.chunks)
            if covered != entry.size.numel() or any(start < 0 for chunk in entry.chunks for start in chunk.offsets):
                raise ValueError(f"{name}: shards of {covered} values for shape {tuple(entry.size)}")
    except (*MALFORMED, SafetensorError) as error:
        raise CheckpointError(f"{folder}: is no set of shards ({type(error).__name__}: {error})") from error
    return found


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters (shared ones once) and persistent buffers by name."""
    parameters = dict(model.named_parameters())
    shared = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name: t for name, t in model.state_dict().items() if name not in shared}
    return {**parameters, **buffers}


def load_model(model: nn.Module, folder: Path, *, alone: bool = False) -> None:
    """Read the model's tensors.

    Raises:
        CheckpointError: names or shapes differ.
    """
    own = model_tensors(model)
    stored = {n.removeprefix(MODEL) for n in shapes(folder) if n.startswith(MODEL)}
    if set(own) != stored:
        raise CheckpointError(
            f"{folder}: holds another model than the run file says; "
            f"missing: {_some(set(own) - stored)}, unknown: {_some(stored - set(own))}"
        )
    with torch.no_grad():
        read_into(folder, {MODEL + name: tensor.detach() for name, tensor in own.items()}, alone=alone)


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[int, str]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """State by parameter name: tensors as ``parameter/key``, other values apart. ``names`` is by ``id(parameter)``."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            target = tensors if isinstance(value, Tensor) else values
            target[f"{names[id(parameter)]}/{key}"] = value
    return tensors, values


def load_optimizer(
    optimizer: torch.optim.Optimizer,
    names: Mapping[int, str],
    folder: Path,
    values: Mapping[str, Any],
    *,
    alone: bool = False,
    only: Container[str] | None = None,
) -> None:
    """Read back what ``optimizer_tensors`` gave, in the sharding of the parameters.

    Args:
        only: names of the parameters whose state is read; None reads that of all.

    Raises:
        CheckpointError: it holds the state of a parameter that is not trained now.
    """
    parameters = {names[id(p)]: p for group in optimizer.param_groups for p in group["params"]}
    targets: dict[str, Tensor] = {}
    values = {path: value for path, value in values.items() if only is None or parameter_of(path) in only}
    for name, entry in _stored(folder).items():
        path = name.removeprefix(OPTIMIZER)
        if name.startswith(OPTIMIZER) and (only is None or parameter_of(path) in only):
            parameter = _parameter(parameters, path)
            targets[path] = _like(parameter, tuple(entry.size), entry.properties.dtype)
    read_into(folder, {OPTIMIZER + path: t for path, t in targets.items()}, alone=alone)
    for path, value in {**targets, **values}.items():
        state = optimizer.state[_parameter(parameters, path)]
        state[path.rpartition("/")[2]] = value


def parameter_of(path: str) -> str:
    """Name of the parameter that a state is of, by the path that ``optimizer_tensors`` gave it."""
    return path.rpartition("/")[0]


def _parameter(parameters: Mapping[str, nn.Parameter], path: str) -> nn.Parameter:
    name = parameter_of(path)
    if name not in parameters:
        raise CheckpointError(
            f"optimizer state of {name}: the run trains no such parameter; was something frozen since?"
        )
    return parameters[name]


def _like(parameter: nn.Parameter, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Room for a state: sharded as its parameter where it has its shape, else whole beside it.

    Fused optimizers keep their step counts, which have no dimension, beside the parameter too.
    """
    if shape == tuple(parameter.shape):
        return torch.empty_like(
            parameter, dtype=dtype, requires_grad=False, memory_format=torch.contiguous_format
        )  # whatever the parameter is: optimizers keep states so
    return torch.empty(shape, dtype=dtype, device=parameter.device)


def _some(names: set[str]) -> str:
    return listed(sorted(names), at_most=3)


def cause_of(error: BaseException) -> str:
    """The innermost cause in a few words: DCP wraps what went wrong on each rank."""
    failures = getattr(error, "failures", None)
    if failures:
        inner = next(iter(failures.values()))
        error = inner[0] if isinstance(inner, tuple) else inner
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
