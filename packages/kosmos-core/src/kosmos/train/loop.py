"""The training loop: one row of each lane, one optimizer step."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from kosmos.compose import Composition
from kosmos.data.batch import PackedBatch, to_tensors
from kosmos.data.feeder import Feeder
from kosmos.data.lane import Row
from kosmos.data.quarantine import Budget, incident_row
from kosmos.errors import CheckpointError, TrainingError
from kosmos.evaluate.meters import LossMeter, trained_positions
from kosmos.names import listed
from kosmos.runtime.devices import autocast
from kosmos.runtime.parallel import Parallel
from kosmos.train import checkpoint
from kosmos.train.optimizers import parameter_groups
from kosmos.train.output import RunFolder


@dataclass
class StopRequest:
    """Set by a signal; all ranks stop after the same step."""

    signal_name: str | None = None

    def install(self) -> Callable[[], None]:
        """Handle SIGINT and SIGTERM; a second one stops at once. Returns what puts the old handlers back."""
        old = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def handle(number: int, frame: Any) -> None:
            if self.signal_name is not None:
                raise KeyboardInterrupt
            self.signal_name = signal.Signals(number).name

        try:
            for number in old:
                signal.signal(number, handle)
        except ValueError:  # not the main thread: whoever owns it owns its signals
            return lambda: None

        def put_back() -> None:
            for number, handler in old.items():
                signal.signal(number, handler)

        return put_back


class Trainer:
    """Steps, and what has to be saved to go on from them exactly."""

    def __init__(
        self,
        composition: Composition,
        feeder: Feeder,
        folder: RunFolder,
        *,
        device: torch.device,
        dtype: torch.dtype,
        parallel: Parallel,
        sources: Mapping[str, int],
    ) -> None:
        """
        Args:
            dtype: of matrix products.
            sources: name to number of documents; a checkpoint belongs to them.
        """
        self.composition, self.feeder, self.folder = composition, feeder, folder
        self.device, self.dtype, self.parallel, self.sources = device, dtype, parallel, dict(sources)
        self.config = composition.config
        self.model = composition.model.to(device).train()
        groups = parameter_groups(self.model, self.config)
        self.names = {id(p): n for g in groups for n, p in zip(g["names"], g["params"], strict=True)}
        self.parameters = [p for g in groups for p in g["params"]]
        train, registry = self.config.train, composition.registry
        self.optimizer: torch.optim.Optimizer = registry.build(
            "optimizer", train.optimizer.name, groups, train.learning_rate,
            options=train.optimizer.options, path="train.optimizer",
        )  # fmt: skip
        self.peaks = [g["lr"] for g in groups]
        self.schedule: Callable[[int], float] = registry.build(
            "schedule", train.schedule.name, train.steps, train.warmup_steps,
            options=train.schedule.options, path="train.schedule",
        )  # fmt: skip
        self.budget = Budget(self.config.data.quarantine)
        self.step = 0

    def train_step(self) -> dict[str, Any]:
        """Take one optimizer step and return its row of metrics.

        Raises:
            TrainingError: the loss or the gradient is not finite; parameters are as before the step.
            QuarantineFull: too many samples were bad.
        """
        begin = perf_counter()
        rows = self.feeder.next_step()
        self._count_incidents(rows)
        batches = [to_tensors(row.arrays) for row in rows]
        targets = int(self.parallel.sum(sum(b.num_targets for b in batches))[0])
        self._set_learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        per_token = [self._backward(batch, max(1, targets)) for batch in batches]
        self.parallel.sum_gradients(self.parameters)
        norm = self._clip()
        row = self._row(batches, per_token, targets)
        if not (math.isfinite(row["loss"]) and math.isfinite(norm)):
            raise TrainingError(self._not_finite(row["loss"], norm, batches))
        self.optimizer.step()
        self.step += 1
        elapsed = perf_counter() - begin
        timing = {
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "grad_norm": norm,
            "step_s": elapsed,
            "data_wait_s": self.feeder.waited_s,
            "tokens_per_s": row["tokens"] / elapsed,
        }
        return {"step": self.step, **row, **timing}

    def _backward(self, batch: PackedBatch, targets: int) -> Tensor:
        """Add the row's gradients; its losses a target token are returned."""
        with autocast(self.device, self.dtype):
            losses = self.model.losses(batch.to(self.device))
        torch.autograd.backward(losses.total / targets)
        return losses.per_token

    def _set_learning_rate(self) -> None:
        share = self.schedule(self.step)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * share

    def _clip(self) -> float:
        most = self.config.train.clip_norm
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, most if most is not None else math.inf)
        return float(norm)

    def _row(self, batches: list[PackedBatch], per_token: list[Tensor], targets: int) -> dict[str, Any]:
        meter = LossMeter()
        for batch, losses in zip(batches, per_token, strict=True):
            meter.add(batch.documents, trained_positions(batch), losses.double().cpu().numpy())
        tokens = sum(len(b.token_ids) for b in batches)
        media = sum(len(m.slots) for b in batches for m in b.media.values())
        documents = sum(len(b.documents) for b in batches)
        gathered = self.parallel.gather(
            (dict(meter.sums), sum(float(t.double().sum()) for t in per_token), tokens, media, documents)
        )
        meter.merge([g[0] for g in gathered])
        loss, tokens, media, documents = (sum(g[i] for g in gathered) for i in range(1, 5))
        return {
            "loss": loss / max(1, targets),
            "tokens": tokens,
            "text_tokens": tokens - media,
            "media_tokens": media,
            "target_tokens": targets,
            "documents": documents,
            "fill": tokens / (self.config.data.lanes * self.config.data.tokens_per_pack),
            "loss_by_modality": meter.means("modality"),
            "loss_by_source": meter.means("source"),
        }

    def _count_incidents(self, rows: list[Row]) -> None:
        mine = [incident for row in rows for incident in row.incidents]
        everyone = self.parallel.gather((mine, sum(row.drawn for row in rows)))
        incidents = [incident for theirs, _ in everyone for incident in theirs]
        if self.parallel.is_main:
            self.folder.note_bad(incident_row(i, self.step + 1) for i in incidents)
        self.budget.add(sum(drawn for _, drawn in everyone), incidents)

    def _not_finite(self, loss: float, norm: float, batches: list[PackedBatch]) -> str:
        origins = [d.origin for b in batches for d in b.documents]
        return (
            f"step {self.step + 1}: loss {loss:g}, gradient norm {norm:g}: not finite; parameters were not changed. "
            f"Lower train.learning_rate or look at the documents: {listed(origins, at_most=5)}"
        )

    def save(self) -> None:
        """Write a checkpoint of this step (the first rank does)."""
        feeds = self.parallel.gather(self.feeder.state())
        if self.parallel.is_main:
            data = {"lanes": {k: v for f in feeds for k, v in f["lanes"].items()}, "deadly": _union(feeds)}
            state_tensors, state_values = checkpoint.optimizer_tensors(self.optimizer, self.names)
            tensors = {
                "model": checkpoint.model_tensors(self.model),
                "optimizer": state_tensors,
                "random": _random_state(),
            }
            state = {
                "step": self.step, "data": data, "budget": self.budget.state(), "sources": self.sources,
                "lanes": self.config.data.lanes, "optimizer": state_values,
            }  # fmt: skip
            saved = checkpoint.save(self.folder.checkpoints, self.step, tensors, state)
            checkpoint.prune(self.folder.checkpoints, self.config.checkpoint.keep_last, saved)
        self.parallel.sum(0.0)  # nobody goes on before it is written

    def load(self, loaded: checkpoint.Loaded) -> None:
        """Go on from a checkpoint; the feeder was opened with its ``state["data"]``."""
        checkpoint.load_model(self.model, loaded.tensors("model"), loaded.folder)
        checkpoint.load_optimizer(self.optimizer, self.names, loaded.tensors("optimizer"), loaded.state["optimizer"])
        _set_random_state(loaded.tensors("random"))
        self.budget.load(loaded.state["budget"])
        self.step = loaded.state["step"]


def check_same_data(state: Mapping[str, Any], sources: Mapping[str, int], lanes: int, where: Any) -> None:
    """Refuse to go on with other data than the checkpoint was made with.

    Raises:
        CheckpointError: sources or lanes differ.
    """
    if dict(state["sources"]) != dict(sources) or state["lanes"] != lanes:
        raise CheckpointError(
            f"{where}: was made with sources {state['sources']} in {state['lanes']} lanes, the run now has "
            f"{dict(sources)} in {lanes}; the order of samples would not go on. Start a new run from it instead"
        )


def _union(feeds: list[dict[str, Any]]) -> list[list[int]]:
    return [list(d) for d in sorted({tuple(d) for f in feeds for d in f["deadly"]})]


def _random_state() -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
