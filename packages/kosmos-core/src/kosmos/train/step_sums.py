"""What a step came to: sums over the rows of all ranks, as its row of metrics tells them, and what it cost each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from kosmos.config import DataConfig
from kosmos.data.batch import PackedBatch
from kosmos.data.lane import Row
from kosmos.evaluate.meters import LossMeter
from kosmos.model.objectives import Learning
from kosmos.runtime.parallel import Parallel
from kosmos.train.balance import Cells, balance_of, cells_of
from kosmos.train.flops import Counted
from kosmos.train.objective import Told, figures_of, told_of


class Spent(NamedTuple):
    """What a step cost a rank."""

    counted: Counted
    waited_s: float
    peak_bytes: int


class _Sums(NamedTuple):
    """What the rows of a rank come to."""

    by: dict[tuple[str, str], list[float]]
    """As of ``LossMeter``."""
    loss: float
    tokens: int
    media: int
    documents: int
    drawn: Counter[str]
    """Tokens by source."""
    cells: list[Cells]
    used: float
    """Documents of this step and those before it."""
    told: Told
    """Of nothing without an objective."""


def sum_up(
    rows: Sequence[Row],
    batches: Sequence[PackedBatch],
    per_token: Sequence[Tensor],
    spent: Spent,
    *,
    targets: int,
    parallel: Parallel,
    settings: DataConfig,
    epoch: int | None,
    learning: Learning | None = None,
) -> tuple[dict[str, Any], list[Spent]]:
    """All ranks call this.

    Args:
        rows: of this rank.
        batches: the same, in smaller parts where memory asked for it.
        per_token: the losses of each [n], and those of a reference [2, n], on the CPU.
        targets: of all ranks.
        epoch: as ``Mixture.epoch`` says.
        learning: the objective, whose mean over units is the loss then.

    Returns:
        Fields of the row of metrics, and what each rank has spent.
    """
    meter = LossMeter()
    if learning is not None:
        loss, told = told_of(learning, batches, per_token, meter)
    else:
        loss, told = _losses(batches, per_token, meter), Told()
    own = _Sums(
        by=dict(meter.sums),
        loss=loss,
        tokens=sum(len(b.token_ids) for b in batches),
        media=sum(len(m.slots) for b in batches for m in b.media.values()),
        documents=sum(not document.is_rejected for b in batches for document in b.documents),
        drawn=_drawn(batches),
        cells=[cells_of(row) for row in rows],
        used=sum(row.used for row in rows),
        told=told,
    )
    everyone = parallel.gather((spent, own))
    groups = [sums for _, sums in everyone][:: parallel.sharing]  # a group has the same rows
    meter.merge([sums.by for sums in groups])
    tokens, media = sum(sums.tokens for sums in groups), sum(sums.media for sums in groups)
    units = targets if learning is None else sum(sums.told.units for sums in groups)
    return {
        "loss": sum(sums.loss for sums in groups) / max(1, units),
        **({} if learning is None else {"objective": figures_of([sums.told for sums in groups])}),
        "tokens": tokens,
        "text_tokens": tokens - media,
        "media_tokens": media,
        "tokens_by_source": dict(sorted(sum((sums.drawn for sums in groups), Counter[str]()).items())),
        **({"epoch": sum(sums.used for sums in groups) / epoch} if epoch else {}),
        "target_tokens": targets,
        "documents": sum(sums.documents for sums in groups),
        "processes": parallel.world_size,
        "fill": tokens / (settings.lanes * settings.tokens_per_pack),
        **balance_of([cells for sums in groups for cells in sums.cells]),
        "loss_by_modality": meter.means("modality"),
        "loss_by_source": meter.means("source"),
    }, [spent for spent, _ in everyone]


def _losses(batches: Sequence[PackedBatch], per_token: Sequence[Tensor], meter: LossMeter) -> float:
    """The sum of the losses of all target tokens, which the meter gets."""
    found = [losses.double().numpy() for losses in per_token]
    for batch, losses in zip(batches, found, strict=True):
        meter.add(batch.documents, batch.trained.numpy(), losses)
    return float(sum(losses.sum() for losses in found))


def _drawn(batches: Sequence[PackedBatch]) -> Counter[str]:
    tokens = Counter[str]()
    for batch in batches:
        for document in batch.documents:
            tokens[document.source] += document.length
    return tokens
