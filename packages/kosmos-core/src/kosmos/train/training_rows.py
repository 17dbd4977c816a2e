"""A run's rows for a training loop of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch.distributed as dist

from kosmos.compose import Composition, check_composition, make_feed
from kosmos.data.batch import PackedBatch, to_tensors
from kosmos.data.document import Source
from kosmos.data.feeder import Feeder, open_feeder, sample_hang_s
from kosmos.data.quarantine import Budget, incident_row
from kosmos.errors import CheckpointError, ConfigError
from kosmos.names import listed
from kosmos.run_file import with_absolute_sources
from kosmos.run_sources import open_sources
from kosmos.runtime.cores import helpers_of_rank
from kosmos.runtime.dealing import check_lanes
from kosmos.runtime.environment import num_local_processes
from kosmos.train.given_data import given_data
from kosmos.train.order import other_order, sample_order, shown, why_not, with_fingerprints


class TrainingRows:
    """The rows of this process, step by step: packed, in the run's order, decoded ahead by its data workers.

    An iterator without an end, whose items are the rows of one optimizer step: a list of ``PackedBatch`` on the CPU,
    one for each of ``data.lanes`` that is this process's. Close it, or use it in ``with``: that ends the workers.
    """

    def __init__(self, feeder: Feeder, budget: Budget, order: Mapping[str, Any], lanes: int) -> None:
        self._feeder, self._budget, self._order, self._lanes = feeder, budget, order, lanes
        self.step = 0
        """Steps given since it was opened."""
        self.epoch: float | None = None
        """How often every document has come; None where sources have weights."""
        self.bad: list[dict[str, Any]] = []
        """Samples that were left out, as rows of ``quarantine.jsonl`` tell them. Clear it as you like."""
        self.waited_s = 0.0
        """Seconds that the last step's rows were waited for."""

    def __iter__(self) -> TrainingRows:
        return self

    def __next__(self) -> list[PackedBatch]:
        """
        Raises:
            QuarantineFull: too many samples were bad, by ``data.quarantine``.
            DataError: the data cannot be read any more.
        """
        rows = self._feeder.next_step()
        incidents = [incident for row in rows for incident in row.incidents]
        self.bad += [incident_row(incident, self.step + 1) for incident in incidents]
        useful = {document.source for row in rows for document in row.arrays.documents}
        self._budget.add(sum(row.drawn for row in rows), incidents, useful)
        self.step, self.waited_s = self.step + 1, self._feeder.waited_s
        if size := self._feeder.feed.mixture.epoch:
            self.epoch = sum(row.used for row in rows) * self._lanes / len(rows) / size
        return [to_tensors(row.arrays) for row in rows]

    def state(self) -> dict[str, Any]:
        """What ``open_training_rows`` goes on with, exactly behind the last step. Plain values, for JSON."""
        return {"data": self._feeder.state(), "order": self._order}

    def close(self) -> None:
        """End the data workers."""
        self._feeder.close()

    def __enter__(self) -> TrainingRows:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_training_rows(
    composition: Composition,
    *,
    sources: Sequence[Source] | None = None,
    state: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
) -> TrainingRows:
    """The rows that a run would train on, for a training loop of one's own.

    Where ``torch.distributed`` is initialized, lanes are dealt out to its ranks, each of which calls this.

    Args:
        composition: of ``compose_run``, or of a run that was loaded.
        sources: as of ``train_model``, in the place of ``data.sources``.
        state: what ``TrainingRows.state`` gave in this process; or a list of those of all processes, of which there
            may be more or fewer by now.

    Raises:
        ConfigError: the lanes cannot be dealt out, or an argument is something else.
        DataError: a source cannot be opened.
        CheckpointError: ``state`` is of other data or settings, or of another process.

    Example:
        >>> from kosmos import compose_run, make_run, open_training_rows
        >>> parts = compose_run(make_run({"modalities": ["image"]}))
        >>> with open_training_rows(parts) as rows:
        ...     for batches in rows:
        ...         losses = [parts.model(batch).total for batch in batches]
        ...         break
    """
    check_composition(composition)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    registry = composition.registry
    config = with_absolute_sources(composition.config, registry.specs("dataset"))
    check_lanes(config.data.lanes, world_size, 1)
    given = given_data(config.model_copy(update={"data": config.data.model_copy(update={"held_out": 0})}), sources)
    opened = open_sources(config, registry, "train") if given is None else list(given.sources)
    if given is not None:
        given.check_some(resumed=False)
    order = with_fingerprints(sample_order(config, opened), given.sampled(lambda line: None) if given else {})
    lanes = range(rank, config.data.lanes, world_size)
    at = None if state is None else _where(state, order, lanes, composition)
    wanted = config.data.workers
    workers = helpers_of_rank(num_local_processes()) if wanted is None else wanted
    with ExitStack() as unless_open:
        feeder = open_feeder(
            make_feed(composition, opened), lanes,
            workers=workers, state=at, hang_s=sample_hang_s(config.train.hang_s),
        )  # fmt: skip
        unless_open.callback(feeder.close)
        budget = Budget(config.data.quarantine, {source.name: len(source) for source in opened})
        rows = TrainingRows(feeder, budget, order, config.data.lanes)
        unless_open.pop_all()
    return rows


def _where(
    state: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    order: Mapping[str, Any],
    lanes: Sequence[int],
    composition: Composition,
) -> dict[str, Any]:
    """Where the lanes are. Raises as ``open_training_rows``."""
    states = [state] if isinstance(state, Mapping) else list(state)
    if not all(isinstance(one, Mapping) and {"data", "order"} <= one.keys() for one in states) or not states:
        raise ConfigError(f"state: expected what TrainingRows.state() gave, or a list of these, got {state!r:.60}")
    for path, before, after in other_order(states[0]["order"], order, composition.registry):
        raise CheckpointError(
            f"state: was made with {path} {shown(before)}, the run now has {shown(after)}; {why_not(path)}. Bring it "
            "back as it was, or open the rows without state"
        )
    at = {lane: where for one in states for lane, where in one["data"]["lanes"].items()}
    if lacking := [str(lane) for lane in lanes if str(lane) not in at]:
        raise CheckpointError(
            f"state: has no lane {listed(lacking)}; give the state of the same rank, or a list of those of all ranks"
        )
    deadly = sorted({tuple(entry) for one in states for entry in one["data"]["deadly"]})
    return {"lanes": at, "deadly": [list(entry) for entry in deadly]}
