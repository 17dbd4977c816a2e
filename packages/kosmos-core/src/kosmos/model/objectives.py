"""What is minimized in place of the cross entropy of every token: a function of a row's losses, a plugin's or ours.

Its gradient by those losses is all that the model needs of it: the cross entropy of each token then counts as often as
that says, in the same chunks and kernels as ever. So a row's logits are made twice, and never held.

Letters: n = learned tokens of a row, u = units of it, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kosmos.data.batch import DocumentInfo, PackedBatch, owner_of
from kosmos.data.foreign import first_line
from kosmos.data.transfer import to_device
from kosmos.errors import PluginError, own_line
from kosmos.model.loss import TokenLosses, linear_cross_entropy

Unit = Literal["token", "document", "pair"]
ENTROPY = "cross_entropy"
"""The figure that core tells beside those of an objective."""
RIGHT = "right"
"""The figure of an objective that says, by 1 or 0, whether the model is right about a unit."""


class Judged(NamedTuple):
    """A row as an objective sees it."""

    losses: Tensor
    """[n], the cross entropies of the learned tokens in nats, in order, with a gradient in training; fp32, or fp64
    where the model is."""
    owner: Tensor
    """int64 [n]: the number, in ``documents``, of the one that each token is of. On the device of ``losses``."""
    documents: tuple[DocumentInfo, ...]
    reference: Tensor | None = None
    """[n], the losses of the model as the run began with it; None where the objective asks for none."""

    def of_documents(self, values: Tensor) -> Tensor:
        """Sums over the learned tokens of each document: [n] -> [documents]."""
        return values.new_zeros(len(self.documents)).index_add(0, self.owner, values)

    @property
    def learned(self) -> Tensor:
        """How many tokens of each document are learned: [documents], in the type of ``losses``; 1 where none is."""
        return self.of_documents(torch.ones_like(self.losses, requires_grad=False)).clamp(min=1)

    @property
    def log_probs(self) -> Tensor:
        """The logarithm of the probability of what is learned of each document, in nats: [documents]."""
        return -self.of_documents(self.losses)

    @property
    def gains(self) -> Tensor:
        """How far it lies above that of the reference: [documents]."""
        if self.reference is None:
            raise PluginError("gains are those over the reference, which an ObjectiveSpec(reference=True) asks for")
        # Token by token: of long answers both sums are large, and fp32 would keep little of their difference.
        return self.of_documents(self.reference.to(self.losses.dtype) - self.losses)

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Numbers of the better and of the worse document of each pair: int64 [pairs] each."""
        worse = [number for number, document in enumerate(self.documents) if document.is_rejected]
        found = to_device(torch.tensor(worse, dtype=torch.int64), self.losses.device)
        return found - 1, found


@runtime_checkable
class Objective(Protocol):
    """Losses of the units of a row. A step minimizes their mean over all units of the step, whatever the row they are
    in. It keeps nothing from row to row, and is called in the forward pass, under autograd."""

    def __call__(self, judged: Judged) -> Tensor:
        """One number for each unit of the row, in order: [u]. Differentiable in ``judged.losses``."""
        ...


@dataclass(frozen=True)
class Learning:
    """An objective as a run has it."""

    objective: Objective
    unit: Unit
    reference: bool
    """Whether it is told the losses of the model as the run began with it."""
    name: str = "objective"
    """What errors call it."""

    def losses(self, hidden: Tensor, head: Tensor, row: PackedBatch, *, by_kernels: bool) -> TokenLosses:
        """As ``linear_cross_entropy`` of a row's learned positions, with the sum of the objective as ``total``.

        Args:
            hidden: [n, D].
            head: [V, D].

        Raises:
            PluginError: as of ``values``.
        """
        targets = row.labels.index_select(0, row.trained)
        found = linear_cross_entropy(hidden.detach(), head.detach(), targets)
        if not torch.is_grad_enabled():
            return found._replace(reference=row.reference)
        with torch.autocast(hidden.device.type, enabled=False):
            leaf = found.per_token.detach().requires_grad_()
            total = (self.values(self.judged(leaf, row)) * self._weights(row, leaf)).sum()
            (slopes,) = torch.autograd.grad(total, leaf, allow_unused=True) if total.requires_grad else (None,)
        each = torch.zeros_like(leaf) if slopes is None else slopes
        found = linear_cross_entropy(hidden, head, targets, weights=each.detach(), by_kernels=by_kernels)
        total = found.total + (total - found.total).detach()
        return TokenLosses(total, found.per_token, found.predictions, row.reference)

    def judged(self, losses: Tensor, row: PackedBatch, reference: Tensor | None = None) -> Judged:
        """A row with its losses.

        Args:
            losses: [n], where the row is.
            reference: as of ``Judged``; None takes that of the row.
        """
        owner = to_device(torch.from_numpy(_owner_of(row)), losses.device)
        given = row.reference if reference is None else reference
        return Judged(losses, owner, row.documents, given if self.reference else None)

    def judged_of(self, told: Tensor, row: PackedBatch) -> Judged:
        """A row with what came of it to the CPU, in fp64.

        Args:
            told: losses of the row's learned tokens [n], or with those of the reference [2, n].
        """
        exact = told.double()
        return self.judged(exact[0], row, exact[1]) if exact.dim() == 2 else self.judged(exact, row)

    def values(self, judged: Judged) -> Tensor:
        """The losses of the units: [u].

        Raises:
            PluginError: it fails, or gives another number of them, or none that gradients can be taken of.
        """
        units = self.units_in(judged.documents, judged.owner)
        if not units:
            return judged.losses.new_zeros(0)
        try:
            found: Any = self.objective(judged)
        except Exception as error:  # a seam: code of plugins
            where = own_line(error, getattr(self.objective, "__module__", ""))
            raise PluginError(f"train.objective: {self.name} raised {first_line(error)}{where}") from error
        if not isinstance(found, Tensor) or found.shape != (units,) or not found.is_floating_point():
            given = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise PluginError(
                f"train.objective: {self.name} gave {given}; expected floats [{units}], one a {self.unit}"
            )
        if judged.losses.requires_grad and not found.requires_grad:
            raise PluginError(
                f"train.objective: {self.name} gave numbers without a gradient; compute them of the losses"
            )
        return found

    def figures(self, judged: Judged) -> dict[str, Tensor]:
        """What else it tells of the units, by name: [u] each.

        Raises:
            PluginError: it fails, or tells of another number of units.
        """
        method = getattr(self.objective, "figures", None)
        units = self.units_in(judged.documents, judged.owner)
        if method is None or not units:
            return {}
        try:
            found: Mapping[str, Tensor] = method(judged)
            told = {name: torch.as_tensor(values).double() for name, values in found.items()}
        except Exception as error:  # a seam: code of plugins
            where = own_line(error, getattr(self.objective, "__module__", ""))
            raise PluginError(f"train.objective: figures of {self.name} raised {first_line(error)}{where}") from error
        if ENTROPY in told:
            raise PluginError(
                f"train.objective: a figure of {self.name} is called {ENTROPY}, which core tells; rename it"
            )
        if wrong := next((name for name, values in told.items() if values.shape != (units,)), None):
            raise PluginError(
                f"train.objective: figure {wrong} of {self.name} is {list(told[wrong].shape)}; expected [{units}], one "
                f"a {self.unit}"
            )
        return told

    def units_in(self, documents: Sequence[DocumentInfo], owner: Tensor | NDArray[np.int64]) -> int:
        """How many there are in a row.

        Args:
            owner: of each learned token, the number of its document.
        """
        return len(owner) if self.unit == "token" else len(self.documents_of(documents, owner))

    def documents_of(self, documents: Sequence[DocumentInfo], owner: Tensor | NDArray[np.int64]) -> list[int]:
        """Numbers of the documents that are units, or the first of one, in order."""
        if self.unit == "pair":
            return [number - 1 for number, document in enumerate(documents) if document.is_rejected]
        return sorted(set(owner.tolist()))

    def owners(self, judged: Judged) -> list[int]:
        """The number of the document that each unit of a row is of, or of its better one."""
        if self.unit == "token":
            owners: list[int] = judged.owner.tolist()
            return owners
        return self.documents_of(judged.documents, judged.owner)

    def _weights(self, row: PackedBatch, like: Tensor) -> Tensor:
        """How often each unit counts: [u], or one for all."""
        if row.weights is None:
            return like.new_ones(1)
        if self.unit == "token":
            return row.weights
        of = [row.documents[number].weight for number in self.documents_of(row.documents, _owner_of(row))]
        return to_device(torch.tensor(of, dtype=like.dtype), like.device)


def _owner_of(row: PackedBatch) -> NDArray[np.int64]:
    return owner_of(row.documents, (row.host or row).trained.numpy())
