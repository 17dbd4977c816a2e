"""Cross entropy of a linear projection without ever holding the logits of all tokens.

Letters: n = trained positions, D = model width, V = vocabulary, c = positions of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

from kosmos.model import cpu_kernels, products
from kosmos.model.cpu_kernels import can_take
from kosmos.model.precision import exact_type, product_type
from kosmos.model.recurring import MULTIPLE, padded_rows, recurring_size
from kosmos.runtime.devices import has_triton

CHUNK_LOGITS = 2**24
"""Most logits of a chunk on a CPU without its kernel (64 MiB in fp32); 32 times as many for the kernel of a GPU (1 GiB
in bf16), eight for PyTorch's operations on an accelerator, which want fp32 logits beside them."""
CACHED_LOGITS, LEAST_ROWS = 2**21, 256
"""A CPU's chunk is smaller where a vocabulary allows it: so many logits stay in its caches (1,536 positions of 4,160
logits took 20 ms instead of 36 at once), but below so many rows reading the weights takes longer than the products."""

KERNEL_ROWS = 1024
"""By a CPU's kernel a chunk has as many rows as the model is wide, up to so many, where those above allow fewer. Its
logits take as much memory as the weights of the products then, and fewer chunks sum up the gradients of these (1,000
positions of width 896 and 151,936 logits in bf16 take 1.8 s in place of 4.2)."""

PART = 2**21
"""So many numbers at a time a CPU adds a product in bf16 to a sum in fp32: its caches hold them, and memory no product
of [V, D] (width 576, 49,152 tokens: 0.22 s in place of 0.34)."""

GPU_ROWS = 256
"""Chunks of a GPU have a multiple of so many rows, if that many: its products are cut into tiles."""


class TokenLosses(NamedTuple):
    """What ``linear_cross_entropy`` returns, and the model."""

    total: Tensor
    """Scalar, the sum of the losses and what ``z`` adds, by their weights, with a gradient; fp32, or fp64 where the
    inputs are fp64."""
    per_token: Tensor
    """[n], the cross entropies alone, of no weight, without gradient, in the type of ``total``."""
    predictions: Tensor
    """int64 [n]: the likeliest token at each position. Empty where gradients are taken: training does not ask."""
    reference: Tensor | None = None
    """[n], what objectives compare ``per_token`` with (``kosmos.model.objectives``)."""
    modules: Mapping[str, Tensor] = {}
    """Scalars without gradient, which are in ``total``: what parts of the model hand on, as ``backbone.router``."""


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    z: float = 0.0,
    chunk: int | None = None,
    by_kernels: bool = False,
) -> TokenLosses:
    """Sum of the cross entropies of ``hidden @ weight.T`` against ``targets``.

    The logits are made a chunk of positions at a time, and their gradients at once with them, so that memory holds
    [c, V] and the gradient of ``weight``, and [n, V] only where a row is one chunk: by default a CPU takes at most 256
    positions at a time, or as many as have 2^21 logits (by kernels min(1,024, D), where that is more), and a GPU 2^29
    logits. Products run in the autocast type where autocast is on, else in the type of ``hidden``; softmax and loss in
    fp32 (fp64 for fp64).

    Args:
        hidden: [n, D]; n may be 0.
        weight: [V, D].
        targets: int64 [n] of any strides, all of them trained.
        weights: fp32 [n], what each position is multiplied by in the sum; None is 1 for all.
        z: where gradients are taken, so many times the square of the logarithm of softmax's denominator is added to
            each loss, which keeps logits from drifting (PaLM, arXiv 2204.02311; Chameleon, arXiv 2405.09818).
        chunk: positions at a time; by default what ``CHUNK_LOGITS`` and ``KERNEL_ROWS`` allow.
        by_kernels: where gradients are taken on a CPU, losses are made by ours (``kosmos.model.cpu_kernels``).
    """
    assert hidden.shape[0] == targets.shape[0], (hidden.shape, targets.shape)
    assert hidden.shape[1] == weight.shape[1], (hidden.shape, weight.shape)
    assert targets.dtype == torch.int64, f"targets are int64, not {targets.dtype}"
    targets = targets.contiguous()  # of kernels
    dtype = product_type(hidden)
    ours = by_kernels and can_take(hidden, gives=dtype)
    rows = chunk or _rows(weight, dtype, ours)
    settings = _Settings(dtype, rows, torch.is_grad_enabled(), z, ours)
    return TokenLosses(*_Loss.apply(hidden, weight, targets, weights, settings))  # type: ignore[no-untyped-call]


def computed_positions(count: int, weight: Tensor, *, by_kernels: bool = False) -> int:
    """Positions that products with ``weight`` [V, D] are made of for so many trained ones: padding is among them."""
    rows = _rows(weight, product_type(weight), by_kernels)
    rest = count % rows
    return count - rest + min(recurring_size(rest, weight), rows)


def _has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    return device.type == "cuda" and dtype != torch.float64 and has_triton()


def _rows(weight: Tensor, dtype: torch.dtype, by_kernels: bool) -> int:
    """Positions of a chunk."""
    vocabulary, width = weight.shape
    if weight.device.type != "cpu":
        rows = max(1, (32 if _has_kernel(weight.device, dtype) else 8) * CHUNK_LOGITS // vocabulary)
        return rows // GPU_ROWS * GPU_ROWS or rows
    rows = max(1, min(LEAST_ROWS, CHUNK_LOGITS // vocabulary), CACHED_LOGITS // vocabulary // MULTIPLE * MULTIPLE)
    return max(rows, min(KERNEL_ROWS, width // MULTIPLE * MULTIPLE)) if by_kernels else rows


class _Settings(NamedTuple):
    dtype: torch.dtype
    """Of products."""
    rows: int
    """Of a chunk."""
    train: bool
    z: float
    by_kernels: bool


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, weights: Tensor | None, settings: _Settings
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype, rows, train, z, by_kernels = settings
        exact = exact_type(hidden)
        convolves = by_kernels and dtype == torch.float32 and products.pays()
        grad_hidden = torch.empty_like(hidden) if train and ctx.needs_input_grad[0] else None
        # One product of bf16 weights is no sum. (CUDA sums up in fp32 by one call.)
        single = len(hidden) <= rows and weight.dtype == dtype and not weight.is_cuda
        kept = dtype if single else exact
        grad_weight = _Total(weight, kept, by_kernels, convolves) if train and ctx.needs_input_grad[1] else None
        wanted = grad_hidden is not None or grad_weight is not None
        losses = torch.empty(hidden.shape[0], dtype=exact, device=hidden.device)
        added = torch.empty_like(losses) if z and wanted else None
        predictions = torch.empty(0 if train else len(targets), dtype=torch.int64, device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            projection = weight.to(dtype)
            arithmetic = _arithmetic(hidden.device, dtype, z, by_kernels and wanted)
            # Memory of all chunks: fresh pages for each would take a CPU as long as a pass over them.
            most = rows if len(hidden) > rows else min(recurring_size(len(hidden), projection), rows)
            given = _room(projection, most)
            for start in range(0, hidden.shape[0], rows):
                part = slice(start, start + rows)
                count = len(targets[part])
                x = hidden[part].to(dtype)
                x = padded_rows(x, min(recurring_size(count, x), rows))
                room = given[: len(x)]
                logits = products.linear(x, projection) if convolves else torch.mm(x, projection.T, out=room)
                likeliest, more = None if train else predictions[part], None if added is None else added[part]
                gradient = arithmetic(logits, targets[part], losses[part], likeliest, wanted, more)
                by = None if weights is None else weights[part, None]
                if grad_hidden is not None:
                    product = products.times(gradient, projection) if convolves else gradient @ projection
                    product = product[:count]
                    grad_hidden[part] = product if by is None else product * by
                if start + rows >= len(hidden):
                    del projection  # of a single chunk it would lie beside the gradient of fp32 weights
                if grad_weight is not None:
                    # Positions as wide as the model are multiplied, not gradients as wide as the vocabulary.
                    grad_weight.add(gradient, x if by is None else padded_rows((x[:count] * by).to(dtype), len(x)))
        ctx.gradients = grad_hidden, None if grad_weight is None else grad_weight.value()
        ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(losses, predictions)
        return _sum(losses, added, weights), losses, predictions

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were taken already: retain_graph=True keeps them")
        hidden, weight = ctx.gradients
        once = not _keeps_graph()
        if once:
            ctx.gradients = None
        if hidden is not None:
            # Rounded to bf16, a factor of all gradients but those of the head would be up to 0.4 % beside theirs.
            hidden = (hidden.to(grad_total.dtype) * grad_total).to(hidden.dtype)
        if weight is not None:
            in_place = once and weight.dtype == ctx.weight_dtype
            out = weight if in_place else torch.empty_like(weight, dtype=ctx.weight_dtype)
            weight = torch.mul(weight, grad_total, out=out)
        return hidden, weight, None, None, None


def _sum(losses: Tensor, added: Tensor | None, weights: Tensor | None) -> Tensor:
    if weights is None:
        return losses.sum() if added is None else losses.sum() + added.sum()
    return ((losses if added is None else losses + added) * weights).sum()


def _keeps_graph() -> bool:
    """Whether gradients may be asked for again: else they are given away as they lie."""
    return torch.compiler.is_compiling() or torch._C._autograd._get_current_graph_task_keep_graph()


def _room(projection: Tensor, rows: int) -> Tensor:
    """Memory of so many rows of logits: [rows, V]."""
    width = vocabulary = len(projection)
    if _has_kernel(projection.device, projection.dtype):
        from kosmos.model.loss_kernels import padded_width

        width = padded_width(vocabulary)
    return projection.new_empty(rows, width)[:, :vocabulary]


class _Total:
    """A sum of products; in fp32 it keeps what bf16 would round away from chunk to chunk."""

    def __init__(self, like: Tensor, dtype: torch.dtype, by_kernels: bool, convolves: bool) -> None:
        self._like, self._dtype, self._by_kernels, self._convolves = like, dtype, by_kernels, convolves
        self._sum = cast("Tensor | None", None)

    def value(self) -> Tensor:
        return torch.zeros_like(self._like, dtype=self._dtype) if self._sum is None else self._sum

    def add(self, a: Tensor, b: Tensor) -> None:
        """Add ``a.T @ b``."""
        if self._convolves:
            product = products.over_rows(a, b)
            self._sum = product if self._sum is None else self._sum.add_(product)
            return
        if a.dtype == self._dtype:
            self._sum = a.T @ b if self._sum is None else self._sum.addmm_(a.T, b)
            return
        begins = self._sum is None and not a.is_cuda
        if begins:
            self._sum = torch.empty_like(self._like, dtype=self._dtype, memory_format=torch.contiguous_format)
        total = self._sum = self.value()
        add_product_(total, a.T, b, begins, self._by_kernels)


# Of its own, because torch's call can be neither followed without a GPU nor counted.
@library.custom_op("kosmos::add_product_", mutates_args=("total",))
def add_product_(total: Tensor, a: Tensor, b: Tensor, begins: bool, by_kernels: bool) -> None:
    """``total += a @ b`` for a total in fp32 [n, m], contiguous, and factors [n, k] and [k, m] in fewer bits.

    Args:
        begins: the total holds no number yet (not on CUDA).
        by_kernels: on a CPU, of factors in bf16: ours adds (``kosmos.model.cpu_kernels``).
    """
    if total.is_cuda:  # one pass over the sum, and no product beside it
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
        return
    rows = max(MULTIPLE, PART // b.shape[1]) if total.is_cpu else len(a)
    room = a.new_empty(min(rows, len(a)), b.shape[1])
    for start in range(0, len(a), rows):
        part, factor = total[start : start + rows], a[start : start + rows]
        product = torch.mm(factor, b, out=room[: len(part)])
        if begins:
            part.copy_(product)
        elif by_kernels:
            cpu_kernels.add_(part, product)
        else:
            part.add_(product)


@add_product_.register_fake
def _(total: Tensor, a: Tensor, b: Tensor, begins: bool, by_kernels: bool) -> None:
    """Shapes are given."""


def _arithmetic(device: torch.device, dtype: torch.dtype, z: float, by_kernels: bool) -> Callable[..., Tensor]:
    """What makes losses and gradients of the logits of one chunk after another; see ``_Passes``."""
    if by_kernels:
        return partial(_by_cpu_kernel, z)
    return partial(_by_kernel, z) if _has_kernel(device, dtype) else _Passes(z)


def _by_kernel(
    z: float,
    logits: Tensor,
    targets: Tensor,
    losses: Tensor,
    predictions: Tensor | None,
    wanted: bool,
    added: Tensor | None,
) -> Tensor:
    from kosmos.model.loss_kernels import cross_entropy_

    cross_entropy_(logits, targets, losses, predictions, wanted, added, z)
    return logits


def _by_cpu_kernel(
    z: float,
    logits: Tensor,
    targets: Tensor,
    losses: Tensor,
    predictions: None,
    wanted: bool,
    added: Tensor | None,
) -> Tensor:
    return cpu_kernels.cross_entropy_(logits, targets, losses, added, z)


class _Passes:
    """By PyTorch's operations."""

    def __init__(self, z: float) -> None:
        self.z, self.room = z, cast("Tensor | None", None)

    def __call__(
        self,
        logits: Tensor,
        targets: Tensor,
        losses: Tensor,
        predictions: Tensor | None,
        wanted: bool,
        added: Tensor | None,
    ) -> Tensor:
        """Write the losses, and where it is asked for the likeliest tokens and what ``z`` adds, of the first rows.

        Returns:
            With ``wanted`` the gradient of the losses' sum, in place of the logits or beside them. It is zero in rows
            behind the targets, which are padding.
        """
        count, target = len(targets), targets[:, None]
        exact = losses.dtype
        if self.room is None:
            self.room = logits.new_empty(logits.shape, dtype=exact)
        if predictions is not None:
            predictions.copy_(logits[:count].argmax(1))
        log_shares = torch.log_softmax(logits, 1, dtype=exact, out=self.room[: len(logits)])
        losses.copy_(-log_shares[:count].gather(1, target)[:, 0])
        if not wanted:
            return logits
        # Softmax minus one at the target, in the memory of its logarithm.
        shares = log_shares.exp_()
        if added is not None:
            logsumexp = logits[:count].gather(1, target)[:, 0].to(exact) + losses
            torch.mul(logsumexp.square(), self.z, out=added)
            shares[:count] *= (1 + 2 * self.z * logsumexp)[:, None]
        shares[:count].scatter_add_(1, target, shares.new_full(target.shape, -1.0))
        shares[count:] = 0
        return shares if logits.dtype == exact else logits.copy_(shares)
