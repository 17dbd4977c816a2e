"""Checkpoints: whole or invisible. Tensors in safetensors, the rest in JSON; nothing is unpickled.

A folder is written aside, every file hashed and synced, and committed by one rename. Loading verifies the
hashes and falls back to the newest whole checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from kosmos.errors import CheckpointError, TrainingError
from kosmos.names import listed

PARTIAL = ".partial-"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Loaded:
    """A verified checkpoint."""

    folder: Path
    state: dict[str, Any]
    skipped: tuple[str, ...]
    """Newer checkpoints that are damaged, each with what is wrong."""

    def tensors(self, name: str) -> dict[str, Tensor]:
        found: dict[str, Tensor] = load_file(self.folder / f"{name}.safetensors")
        return found


def save(folder: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Write ``folder/step-N`` with one safetensors file for each entry of ``tensors`` and ``state.json``.

    Raises:
        TrainingError: the disk is full or not writable; older checkpoints are intact.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final, partial = folder / f"step-{step:08d}", folder / f"{PARTIAL}step-{step:08d}"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        for name, content in tensors.items():
            save_file({k: t.detach().cpu().contiguous() for k, t in content.items()}, partial / f"{name}.safetensors")
        (partial / "state.json").write_text(json.dumps(state), encoding="utf-8")
        hashes = {f.name: _sha256(f) for f in sorted(partial.iterdir())}
        (partial / MANIFEST).write_text(json.dumps({"step": step, "sha256": hashes}, indent=1), encoding="utf-8")
        for file in partial.iterdir():
            _sync(file)
        _sync(partial)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        _sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        free = shutil.disk_usage(folder).free
        cause = getattr(error, "strerror", None) or error
        raise TrainingError(f"{final}: cannot write the checkpoint ({cause}); {free:,} bytes are free") from error
    return final


def prune(folder: Path, keep_last: int, saved: Path) -> None:
    """Keep ``saved`` and the newest before it, ``keep_last`` in all; delete the rest and what was never committed.

    What stands above ``saved`` is of steps that are being taken again, after a fallback from damaged ones.
    """
    kept = [c for c in committed(folder) if c.name <= saved.name][:keep_last]
    for old in committed(folder):
        if old not in kept:
            shutil.rmtree(old, ignore_errors=True)
    for rest in folder.glob(f"{PARTIAL}*"):
        shutil.rmtree(rest, ignore_errors=True)


def committed(folder: Path) -> list[Path]:
    """Committed checkpoints, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def load_newest(folder: Path) -> Loaded:
    """The newest whole checkpoint.

    Raises:
        CheckpointError: there is none.
    """
    damaged: list[str] = []
    for candidate in committed(folder):
        problem = verify(candidate)
        if problem is None:
            state = json.loads((candidate / "state.json").read_text(encoding="utf-8"))
            return Loaded(candidate, state, tuple(damaged))
        damaged.append(f"{candidate.name}: {problem}")
    found = f"; damaged: {'; '.join(damaged)}" if damaged else ""
    raise CheckpointError(f"{folder}: no whole checkpoint to load{found}")


def verify(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        wanted: dict[str, str] = manifest["sha256"]
        present = {f.name for f in folder.iterdir()} - {MANIFEST}
        if present != set(wanted):
            return f"files differ from the manifest: {', '.join(sorted(present ^ set(wanted)))}"
        for name, digest in wanted.items():
            if _sha256(folder / name) != digest:
                return f"{name} does not match its hash"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} is unreadable ({error})"
    return None


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters (shared ones once) and persistent buffers by name."""
    parameters = dict(model.named_parameters())
    shared = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    buffers = {name: t for name, t in model.state_dict().items() if name not in shared}
    return {**parameters, **buffers}


def load_model(model: nn.Module, tensors: Mapping[str, Tensor], where: Path) -> None:
    """Copy the tensors into the model.

    Raises:
        CheckpointError: names or shapes differ.
    """
    own = model_tensors(model)
    if set(own) != set(tensors):
        raise CheckpointError(
            f"{where}: holds another model than the run file says; "
            f"missing: {_some(own, tensors)}, unknown: {_some(tensors, own)}"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                raise CheckpointError(
                    f"{where}: {name} is {tuple(tensors[name].shape)}, the model has {tuple(tensor.shape)}"
                )
            tensor.copy_(tensors[name])


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
    optimizer: torch.optim.Optimizer, names: Mapping[int, str], tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    """Put back what ``optimizer_tensors`` gave."""
    parameters = {names[id(p)]: p for group in optimizer.param_groups for p in group["params"]}
    for path, value in {**tensors, **values}.items():
        name, _, key = path.rpartition("/")
        if name not in parameters:
            raise CheckpointError(
                f"optimizer state of {name}: the run trains no such parameter; was something frozen since?"
            )
        # Fused optimizers keep their step counts, which have no dimension, beside the parameter too.
        moved = value.to(parameters[name].device) if isinstance(value, Tensor) else value
        optimizer.state[parameters[name]][key] = moved


def _some(names: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> str:
    return listed(sorted(set(names) - set(others)), at_most=3)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
