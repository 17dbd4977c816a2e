"""What is frozen is written twice; later checkpoints link these two copies in turn.

So no two checkpoints in a row have a file in common, and a damaged file takes one of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from kosmos.checkpoint.folder import TENSORS, mismatch, sync
from kosmos.names import listed

FROZEN = "frozen"
"""What the names of its files begin with."""
Marks = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Copy:
    """Files of all that is frozen, in one checkpoint."""

    folder: Path
    """The newest checkpoint that has them."""
    hashes: dict[str, str]
    """SHA-256 by relative path. Another copy has others: safetensors writes its headers in no fixed order."""


class FrozenCopies:
    """The copies that this process has written. Only the first rank has any."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        """At most two. The newest checkpoint has the last one."""
        self.linked: Copy | None = None
        """What the checkpoint has that is being written, where it has it by links."""

    def forget(self) -> None:
        """The next two checkpoints are written in full."""
        self.copies, self.linked = [], None

    def link_into(self, partial: Path, before: Path | None) -> bool:
        """Whether ``partial`` has all that is frozen by links. If not, it has nothing of it.

        Args:
            before: the checkpoint before it, with which it must have no file in common.
        """
        self.linked = None
        if len(self.copies) < 2:
            return False
        try:
            for file in self.copies[0].hashes:
                _link(self.copies[0].folder, partial, file, before)
        except OSError:  # such as a disk without links, or a checkpoint that is kept no more
            for file in self.copies[0].hashes:
                (partial / file).unlink(missing_ok=True)
            return False
        self.linked = self.copies[0]
        return True

    def hashes(self) -> dict[str, str]:
        """SHA-256 by relative path of the files that the checkpoint has by links."""
        return dict(self.linked.hashes) if self.linked is not None else {}

    def heal(self, partial: Path) -> str | None:
        """Where a file is damaged that ``partial`` has by a link, the other copy takes the place of all its links.

        Returns:
            What was damaged; None where that is nothing, or the other copy is too. What was linked is linked no more.
        """
        linked, self.linked = self.linked, None
        if linked is None:
            return None
        self.copies.remove(linked)
        damaged = [file for file, wanted in linked.hashes.items() if mismatch(partial, file, wanted)]
        other = self.copies[0]
        if not damaged or any(mismatch(other.folder, file, wanted) for file, wanted in other.hashes.items()):
            return None
        for file in linked.hashes:
            (partial / file).unlink()
        for file in other.hashes:
            shutil.copy(other.folder / file, partial / file)
            sync(partial / file)
        self.linked = Copy(linked.folder, other.hashes)
        return f"{linked.folder.name}: {listed(damaged)} changed on the disk"

    def committed(self, final: Path, hashes: Mapping[str, str]) -> None:
        """Note what the checkpoint ``final`` has; ``hashes`` are of all its files."""
        copy = Copy(final, {file: h for file, h in hashes.items() if file.startswith(f"{TENSORS}/{FROZEN}-")})
        others = [other for other in self.copies if other is not self.linked]
        self.copies, self.linked = [*others[-1:], copy] if copy.hashes else [], None


def _link(checkpoint: Path, partial: Path, file: str, before: Path | None) -> None:
    os.link(checkpoint / file, partial / file)
    if before is not None and (before / file).exists() and (partial / file).samefile(before / file):
        raise FileExistsError(f"{before / file} is the same file")


def marks(tensors: Mapping[str, Tensor]) -> Marks:
    """By which a change of this rank's part of each is noticed: how often it was written to, and a sum of its bits.

    It is for what a plugin does behind the optimizer's back, not for damage.
    """
    local = {name: t.to_local() if isinstance(t, DTensor) else t for name, t in tensors.items()}
    sums = {name: _sum_of_bits(tensor.detach()) for name, tensor in local.items()}  # a GPU is waited for after all
    return {name: (0 if t.is_inference() else t._version, int(sums[name])) for name, t in local.items()}


def _sum_of_bits(tensor: Tensor) -> Tensor:
    """In words of 8 bytes: those of 4 take 25 times as long on a CPU."""
    octets = tensor.contiguous().view(-1).view(torch.uint8)
    if octets.numel() < 16:
        return octets.sum()
    begin = -octets.storage_offset() % 8
    end = begin + (octets.numel() - begin) // 8 * 8
    return octets[begin:end].view(torch.int64).sum() + octets[:begin].sum() + octets[end:].sum()
