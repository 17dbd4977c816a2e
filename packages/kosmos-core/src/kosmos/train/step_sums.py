"""What a step came to: sums over the rows of all ranks, as its row of metrics tells them, and what it cost each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from kosmos.config import DataConfig
from kosmos.data.batch import PackedBatch
from kosmos.data.lane import Row
from kosmos.data.mixture import Mixture
from kosmos.evaluate.meters import LossMeter
from kosmos.model.objectives import Learning
from kosmos.model.own_losses import sums_of
from kosmos.runtime.parallel import Parallel
from kosmos.train.backward import Computed
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
    documents_of: Counter[str]
    """``documents`` by source."""
    cells: list[Cells]
    used: float
    """Documents of this step and those before it."""
    used_of: list[tuple[float, ...]]
    """Of each row: the same by the number of the source, where these have weights."""
    told: Told
    """Of nothing without an objective."""
    own: Mapping[str, float]
    """Losses that parts of the model handed on."""


def sum_up(
    rows: Sequence[Row],
    batches: Sequence[PackedBatch],
    computed: Computed,
    spent: Spent,
    *,
    targets: int,
    parallel: Parallel,
    settings: DataConfig,
    mixture: Mixture,
    learning: Learning | None = None,
) -> tuple[dict[str, Any], list[Spent]]:
    """All ranks call this.

    Args:
        rows: of this rank.
        batches: the same, in smaller parts where memory asked for it.
        computed: of them.
        targets: of all ranks.
        mixture: that the rows are drawn from.
        learning: the objective, whose mean over units is the loss then.

    Returns:
        Fields of the row of metrics, and what each rank has spent.
    """
    meter, per_token = LossMeter(), [arrived() for arrived in computed.per_token]
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
        documents_of=Counter(d.source for b in batches for d in b.documents if not d.is_rejected),
        cells=[cells_of(row) for row in rows],
        used=sum(row.used for row in rows),
        used_of=[row.used_of for row in rows],
        told=told,
        own=sums_of(computed.own),
    )
    everyone = parallel.gather((spent, own))
    groups = [sums for _, sums in everyone][:: parallel.sharing]  # a group has the same rows
    meter.merge([sums.by for sums in groups])
    tokens, media = sum(sums.tokens for sums in groups), sum(sums.media for sums in groups)
    units = targets if learning is None else sum(sums.told.units for sums in groups)
    return {
        "loss": sum(sums.loss for sums in groups) / max(1, units),
        **({} if learning is None else {"objective": figures_of([sums.told for sums in groups])}),
        **_of_modules([sums.own for sums in groups], units),
        "tokens": tokens,
        "text_tokens": tokens - media,
        "media_tokens": media,
        "tokens_by_source": _by_source([sums.drawn for sums in groups]),
        "documents_by_source": _by_source([sums.documents_of for sums in groups]),
        **_passes([sums.used for sums in groups], [of for sums in groups for of in sums.used_of], mixture),
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


def _of_modules(own: Sequence[Mapping[str, float]], units: int) -> dict[str, Any]:
    """Losses of parts of the model, where there are any, by what the step's loss is a mean over, if anything."""
    names = sorted(set().union(*own)) if units else []
    means = {name: sum(sums.get(name, 0.0) for sums in own) / units for name in names}
    return {"module_losses": means} if means else {}


def _drawn(batches: Sequence[PackedBatch]) -> Counter[str]:
    tokens = Counter[str]()
    for batch in batches:
        for document in batch.documents:
            tokens[document.source] += document.length
    return tokens


def _by_source(counts: Sequence[Counter[str]]) -> dict[str, int]:
    return dict(sorted(sum(counts, Counter[str]()).items()))


def _passes(used: Sequence[float], used_of: Sequence[tuple[float, ...]], mixture: Mixture) -> dict[str, Any]:
    """How often the documents have come: all of them equally often, or those of each source.

    Args:
        used: documents that came, of each rank.
        used_of: those of each source, of each row.
    """
    if mixture.epoch is not None:
        return {"epoch": sum(used) / mixture.epoch}
    came = [sum(of_source) for of_source in zip(*used_of, strict=True)]
    return {
        "epoch_by_source": {
            source.name: documents / len(source) for source, documents in zip(mixture.sources, came, strict=True)
        }
    }
