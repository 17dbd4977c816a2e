"""A run's rows for a training loop of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any
from weakref import finalize

import torch.distributed as dist

from kosmos.compose import Composition, check_composition, make_feed
from kosmos.config import RunConfig
from kosmos.data.batch import PackedBatch, to_tensors
from kosmos.data.document import Source
from kosmos.data.feeder import Feeder, open_feeder, sample_hang_s
from kosmos.data.quarantine import Budget, incident_row, lost_media
from kosmos.errors import CheckpointError, ConfigError
from kosmos.given import check_list, warn_caller
from kosmos.names import listed
from kosmos.run_file import with_absolute_sources
from kosmos.run_sources import following, open_sources
from kosmos.runtime.cores import helpers_of_rank
from kosmos.runtime.dealing import check_lanes
from kosmos.runtime.environment import num_local_processes
from kosmos.train.given_data import given_data
from kosmos.train.older_rules import keep_older, rules_of
from kosmos.train.order import other_order, sample_order, shown, why_not, with_fingerprints

State = Mapping[str, Any]
PARTS = {"step", "order", "data", "budget"}
"""Of a state."""
EXPECTED = "expected what TrainingRows.state() gave, or a list of these"


class TrainingRows:
    """The rows of this process, step by step: packed, in the run's order, decoded ahead by its data workers.

    An iterator without an end, whose items are the rows of one optimizer step: a list of ``PackedBatch`` on the CPU,
    one for each of ``data.lanes`` that is this process's. Close it, or use it in ``with``: that ends the workers.
    """

    def __init__(self, feeder: Feeder, budget: Budget, order: State, lanes: int, step: int) -> None:
        self._feeder, self._budget, self._order, self._lanes = feeder, budget, order, lanes
        self._data, self._is_closed = feeder.state(), False
        self._at_the_end = finalize(self, feeder.close)  # of who has dropped it, as a cell that is run again does
        self.step = step
        """Steps given so far, with those before ``state``."""
        self.epoch: float | None = None
        """How often every document has come; None where sources have weights."""
        self.bad: list[dict[str, Any]] = []
        """Samples that were left out of the last step, and media that were left out of its documents, as rows of
        ``quarantine.jsonl`` tell them."""
        self.waited_s = 0.0
        """Seconds that the last step's rows were waited for."""

    def __iter__(self) -> TrainingRows:
        return self

    def __next__(self) -> list[PackedBatch]:
        """
        Raises:
            ConfigError: it is closed.
            QuarantineFull: too many samples of this process were bad, by ``data.quarantine``.
            DataError: the data cannot be read any more.
        """
        if self._is_closed:
            raise ConfigError("these training rows are closed; open_training_rows(..., state=...) goes on")
        rows = self._feeder.next_step()
        incidents = [incident for row in rows for incident in row.incidents]
        documents = [document for row in rows for document in row.arrays.documents]
        self.bad = [incident_row(incident, self.step + 1) for incident in (*incidents, *lost_media(documents))]
        useful = {document.source for document in documents}
        self._budget.add(sum(row.drawn for row in rows), incidents, useful)
        self._data = self._feeder.state()  # not before: rows that are not given come again
        self.step, self.waited_s = self.step + 1, self._feeder.waited_s
        if size := self._feeder.feed.mixture.epoch:
            self.epoch = sum(row.used for row in rows) * self._lanes / len(rows) / size
        return [to_tensors(row.arrays) for row in rows]

    def state(self) -> dict[str, Any]:
        """What ``open_training_rows`` goes on with, exactly behind the last step. Plain values, for JSON."""
        return {"step": self.step, "order": self._order, "data": self._data, "budget": self._budget.state()}

    def close(self) -> None:
        """End the data workers. Its state can be asked for still."""
        self._is_closed = True
        self._at_the_end()

    def __enter__(self) -> TrainingRows:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_training_rows(
    composition: Composition,
    *,
    sources: Sequence[Source] | None = None,
    state: State | Sequence[State] | None = None,
) -> TrainingRows:
    """The rows that a run would train on, for a training loop of one's own.

    Where ``torch.distributed`` is initialized, lanes are dealt out to its ranks, each of which calls this. What fails
    in one of them the others are not told.

    Args:
        composition: of ``compose_run``, or of a run that was loaded. Relative paths of its data are seen from where
            this is called.
        sources: as of ``train_model``, in the place of ``data.sources``.
        state: what ``TrainingRows.state`` gave in this process; or a list of those of all processes, of which there
            may be more or fewer by now, all behind the same step.

    Raises:
        ConfigError: the lanes cannot be dealt out, or an argument is something else.
        DataError: a source cannot be opened.
        CheckpointError: ``state`` is of other data or settings, or of another process.

    Warns:
        UserWarning: the run has an objective, which ``model(batch)`` is not.

    Example:
        >>> from kosmos import compose_run, make_run, open_training_rows
        >>> parts = compose_run(make_run({"modalities": ["image"]}))
        >>> with open_training_rows(parts) as rows:
        ...     for batches in rows:
        ...         losses = [parts.model(batch).total for batch in batches]
        ...         break
    """
    check_composition(composition)
    states = _listed(state)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    registry = composition.registry
    config = composition.config
    if sources is None:
        config = with_absolute_sources(config, registry.specs("dataset"))
    else:
        config = config.model_copy(update={"data": config.data.model_copy(update={"sources": [], "held_out": 0})})
    check_lanes(config.data.lanes, world_size, 1)
    _warn_of_what_is_not_done(config)
    with following(**rules_of(states[0]["order"])) if states else nullcontext():
        opened, order = _opened(config, composition, sources)
    if states and len(states[0]["order"]["data"]["sources"]) == len(order["data"]["sources"]):
        keep_older(states[0]["order"], order, opened)
    lanes = range(rank, config.data.lanes, world_size)
    at = _where(states, order, lanes, composition) if states else None
    wanted = config.data.workers
    workers = helpers_of_rank(num_local_processes()) if wanted is None else wanted
    budget = Budget(config.data.quarantine, {source.name: len(source) for source in opened})
    if len(states) == 1:
        budget.load(states[0]["budget"])
    with ExitStack() as unless_open:
        feeder = open_feeder(
            make_feed(replace(composition, config=config), opened), lanes,
            workers=workers, state=at, hang_s=sample_hang_s(config.train.hang_s),
        )  # fmt: skip
        unless_open.callback(feeder.close)
        rows = TrainingRows(feeder, budget, order, config.data.lanes, states[0]["step"] if states else 0)
        unless_open.pop_all()
    return rows


def _warn_of_what_is_not_done(config: RunConfig) -> None:
    if (objective := config.train.objective) is not None:
        warn_caller(
            f"train.objective {objective.name}: is not that of model(batch), which gives the cross entropy of what is "
            "learned, of the worse answer of a pair too; compute a loss of your own of log_probs"
        )


def _listed(state: State | Sequence[State] | None) -> list[State]:
    """Raises ConfigError where something is no state."""
    if state is None:
        return []
    if isinstance(state, Mapping):
        state = [state]
    check_list("state", state, Mapping, EXPECTED)
    wrong = [one for one in state if not (one.keys() >= PARTS and "lanes" in one["data"] and "data" in one["order"])]
    if wrong or not state:
        raise ConfigError(f"state: {EXPECTED}, got {wrong[0] if wrong else state!r:.60}")
    return list(state)


def _opened(
    config: RunConfig, composition: Composition, sources: Sequence[Source] | None
) -> tuple[list[Source], dict[str, Any]]:
    """The sources, and the order of their samples."""
    given = given_data(config, sources)
    if given is None:
        opened = open_sources(config, composition.registry, "train")
        return opened, sample_order(composition.config, opened, codecs=composition.planner.codecs)
    given.check_some(resumed=False)
    order = sample_order(config, list(given.sources), codecs=composition.planner.codecs)
    return list(given.sources), with_fingerprints(order, given.sampled(lambda line: None))


def _where(
    states: Sequence[State], order: Mapping[str, Any], lanes: Sequence[int], composition: Composition
) -> dict[str, Any]:
    """Where the lanes are. Raises CheckpointError as ``open_training_rows``."""
    for one in states:
        for path, before, after in other_order(one["order"], order, composition.registry):
            raise CheckpointError(
                f"state: was made with {path} {shown(before)}, the run now has {shown(after)}; {why_not(path)}. Bring "
                "it back as it was, or open the rows without state"
            )
    at: dict[str, Any] = {}
    for one in states:
        if at.keys() & one["data"]["lanes"].keys():
            raise CheckpointError("state: two of the list have the same lanes; give one of each process")
        at |= one["data"]["lanes"]
    if len(steps := {one["step"] for one in states}) > 1:
        raise CheckpointError(f"state: of steps {listed(map(str, sorted(steps)))}; give those behind the same step")
    if lacking := [str(lane) for lane in lanes if str(lane) not in at]:
        raise CheckpointError(
            f"state: has no lane {listed(lacking)}; give the state of the same rank, or a list of those of all ranks"
        )
    deadly = sorted({tuple(entry) for one in states for entry in one["data"]["deadly"]})
    return {"lanes": at, "deadly": [list(entry) for entry in deadly]}
