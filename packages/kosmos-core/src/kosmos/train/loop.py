"""The training loop: one row of each lane, one optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from kosmos import collector
from kosmos.checkpoint import tensors as stored
from kosmos.checkpoint.folder import Loaded
from kosmos.compose import Composition
from kosmos.data.batch import PackedBatch, to_tensors
from kosmos.data.feeder import Feeder, StopWaiting
from kosmos.data.lane import Row
from kosmos.data.quarantine import Budget, incident_row
from kosmos.errors import PluginError, TrainingError, is_out_of_memory
from kosmos.model.failures import raise_as_its_own
from kosmos.model.fp8 import use_fp8
from kosmos.model.kernels_in_use import UNCOMPILED, give_up_kernels
from kosmos.model.weights import round_weights
from kosmos.names import listed
from kosmos.runtime.generators import own_draws
from kosmos.runtime.parallel import Parallel
from kosmos.train import gradients, memory
from kosmos.train.backward import Backward, Computed
from kosmos.train.broken import broken
from kosmos.train.by_ranks import first, union
from kosmos.train.compiling import compilations, compile_blocks, try_kernels
from kosmos.train.flops import FlopMeter
from kosmos.train.guards import Guard, advice_on, whence
from kosmos.train.objective import open_objective
from kosmos.train.optim.group_values import GroupValues
from kosmos.train.optim.parameterwise import Parameterwise
from kosmos.train.optim.release import GradientRelease
from kosmos.train.optim.states import check_made_with, made_with
from kosmos.train.output import RunFolder
from kosmos.train.parameter_groups import by_part, learning_rates, parameter_groups, rated_groups
from kosmos.train.passes import open_passes
from kosmos.train.reference import Reference
from kosmos.train.schedules import share_at
from kosmos.train.settings import open_schedule
from kosmos.train.sharding import distribute, settle
from kosmos.train.side_by_side import open_side_by_side
from kosmos.train.step_sums import Spent, sum_up
from kosmos.train.taken_rows import TakenRows, taken


class RollBack(Exception):
    """The newest checkpoint is wanted back. The data go on after the step that went wrong."""


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
        order: Mapping[str, Any],
        report: Callable[[str], None] = lambda line: None,
        at: Callable[..., None] = lambda phase, **more: None,
        draw: bool = True,
    ) -> None:
        """
        Args:
            dtype: of matrix products.
            order: what ``kosmos.train.order.sample_order`` gave; checkpoints belong to it.
            report: shows a line to the user.
            at: told what begins: see ``kosmos.train.watch.Watch.at``.
            draw: weights that have no memory yet are drawn; False where a checkpoint is loaded next.
        """
        self.composition, self.feeder, self.folder = composition, feeder, folder
        self.device, self.dtype, self.parallel, self.order = device, dtype, parallel, dict(order)
        self.config, self.report, self.at = composition.config, report, at
        self.model = composition.model.train()
        self.learning = self.model.learning = open_objective(self.config, composition.registry)
        if self.config.train.weights == "bf16":
            round_weights(self.model)
        self.reference = Reference(self.model) if self.learning is not None and self.learning.reference else None
        use_fp8(self.model.backbone, self.config.train.fp8, device)
        self.compiled = compile_blocks(self.model, self.config.train.compile, device)
        self._agree_on_kernels(
            parallel.agreed(lambda: try_kernels(self.model, self.config.train.compile, device, self.dtype))
        )
        self.at("giving the model its weights")
        self.distributed = distribute(self.model, parallel, self.config.parallel, device, dtype, draw=draw)
        if self.reference is not None:
            self.reference.spread(self.config, parallel, device, dtype)
        before = self.distributed.losses
        self.losses = before if self.reference is None else self.reference.before(before)
        groups = parameter_groups(self.model, self.config)
        self.names = {id(p): n for g in groups for n, p in zip(g["names"], g["params"], strict=True)}
        self.parameters = [p for g in groups for p in g["params"]]
        self.parts = by_part(groups)
        self._agree_on_compiling(parallel.agreed(lambda: self._open_optimizer(groups)))
        sizes = {source.name: len(source) for source in feeder.feed.mixture.sources}
        self.budget = Budget(self.config.data.quarantine, sizes)
        self.guard = Guard(self.config.guard)
        shared = self.config.parallel.tensor if parallel.world_size > 1 else 1
        self.flops = FlopMeter(self.model, device, dtype, tensor=shared)
        self.backward = self._open_backward()
        self.step = self.first_step = 0
        self.reading = False
        """Whether a step is at its data, where all ranks fail together and nothing has changed yet."""
        self.tokens: int | None = 0
        """Of all steps so far, also before a resume; None where a checkpoint of an older version did not count them."""
        self.noted = 0
        """Bad samples of that step which are in the ledger for the first time."""
        self.passes = open_passes(self.config, composition.planner, device, parallel)
        self.data_state = feeder.state()
        """What the rows of the steps taken so far leave behind."""
        collector.go_on()  # all that a step needs is imported

    def train_step(self, should_stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Take one optimizer step and return its row of metrics.

        Args:
            should_stop: asked while rows are waited for.

        Raises:
            StopWaiting: some rank is to stop; nothing has changed.
            RollBack: the guard wants the newest checkpoint back.
            TrainingError: the guard wants to stop; parameters are as before the step.
            QuarantineFull: too many samples were bad.
        """
        begin = perf_counter()
        self.at(f"reading data{self.feeder.alone}", step=self.step + 1, document="")
        self.reading, self.noted = True, 0
        rows, targets, units = self._rows(should_stop)
        self.reading = False
        with own_draws():
            self._set_learning_rate()
            self.optimizer.zero_grad(set_to_none=True)
            batches, computed = self._backward_all(rows, [to_tensors(row.arrays) for row in rows], units)
            self.at("update")
            norms_on_device = self._gradient_norms()
            # While a GPU computes the gradients, all is done that does not depend on them.
            if isinstance(self.optimizer, Parameterwise) and self.release is None:
                self.optimizer.prepare()
            spent = Spent(self.flops.count(batches), self.feeder.waited_s, memory.peak_bytes(self.device))
            metrics, everyone = sum_up(
                rows, batches, computed, spent,
                targets=targets, parallel=self.parallel, settings=self.config.data,
                mixture=self.feeder.feed.mixture, learning=self.learning,
            )  # fmt: skip
            if self.tokens is not None:
                metrics["tokens_so_far"] = self.tokens = self.tokens + metrics["tokens"]
            norm, *by_part = norms_on_device.tolist()
            skipped = self._is_wrong(metrics, norm, batches, dict(zip(self.parts, by_part, strict=False)))
            if not skipped and self.release is None:
                if (most := self.config.train.clip_norm) is not None:
                    gradients.clip(self.optimizer, norm, most)
                self._update()
        self.step += 1
        self.data_state = self.feeder.state()
        elapsed, waited = perf_counter() - begin, max(one.waited_s for one in everyone)
        timing = {
            **learning_rates(self.groups, [group["lr"] for group in self.optimizer.param_groups]),
            "grad_norm": norm,
            **({"grad_norm_by_part": dict(zip(self.parts, by_part, strict=True))} if len(by_part) > 1 else {}),
            "step_s": elapsed,
            "data_wait_s": waited,
            "data_wait_share": waited / elapsed,
            **{f"{what}_per_s": metrics[what] / elapsed for what in ("tokens", "text_tokens", "media_tokens")},
            "samples_per_s": metrics["documents"] / elapsed,
            "peak_memory_bytes": max(memory.peak_bytes(self.device), *(one.peak_bytes for one in everyone)),
        }
        meters = self.flops.row([one.counted for one in everyone], elapsed)
        if self.compiled:
            meters["compilations"] = compilations()
        return {"step": self.step, **({"skipped": True} if skipped else {}), **metrics, **timing, **meters}

    def _rows(self, should_stop: Callable[[], bool]) -> tuple[list[Row], int, int]:
        """This rank's rows, and the target tokens of all ranks, and the units of its objective."""
        rows: list[Row] = []

        def take() -> TakenRows | None:
            if should_stop():
                return None
            try:
                rows.extend(self.feeder.next_step(should_stop))
            except StopWaiting:
                return None
            return taken(rows, self.learning)

        found = [theirs for theirs in self.parallel.agreed(take) if theirs is not None]
        if len(found) < self.parallel.world_size:
            raise StopWaiting
        everyone = self.parallel.one_of_each_group(found)
        incidents = [incident for theirs in everyone for incident in theirs.incidents]
        lost = [medium for theirs in everyone for medium in theirs.lost]
        self.budget.note_lost(lost)
        if incidents or lost:
            bad = [incident_row(i, self.step + 1) for i in (*incidents, *lost)]
            self.noted = self.parallel.main_only(lambda: self.folder.note_bad(bad))
        useful = set().union(*(theirs.useful for theirs in everyone))
        self.budget.add(sum(theirs.drawn for theirs in everyone), incidents, useful)
        return rows, sum(theirs.targets for theirs in everyone), sum(theirs.units for theirs in everyone)

    def _update(self) -> None:
        try:
            self.optimizer.step()
        except Exception as error:  # a seam: code of plugins
            raise_as_its_own(error, f"train.optimizer: {self.config.train.optimizer.name}", "step")
            raise

    def _is_wrong(
        self, metrics: Mapping[str, Any], norm: float, batches: list[PackedBatch], norms: dict[str, float]
    ) -> bool:
        """Whether to leave the update out. Raises as ``train_step``."""
        loss = metrics["loss"]
        found = self.guard.look(loss, norm, metrics.get("module_losses", {}))
        if found is None:
            return False
        if found.action == "skip" and (self.release is not None or (found.kind == "non_finite" and self.broken())):
            found = replace(found, action="stop")  # the update is made already, or no other batch mends the weights
        documents = self.parallel.gather_groups([d.origin for b in batches for d in b.documents if not d.is_rejected])
        origins = [origin for theirs in documents for origin in theirs]
        row = {"step": self.step + 1, "kind": found.kind, "action": found.action, "loss": repr(loss),
               "grad_norm": repr(norm), "documents": origins}  # fmt: skip
        self.parallel.main_only(lambda: self.folder.append(self.folder.guards, [row]))
        text = f"step {self.step + 1}: {found.text}"
        if found.action == "stop":
            changed = "were not" if self.release is None else "may have been"
            if found.kind == "non_finite":
                text += whence(self.model, batches, norms, self.device, self.dtype, self.parallel)
            advice = advice_on(text, self.step, self.folder.guards)
            raise self.parallel.found_by_all(
                TrainingError(f"{text}; parameters {changed} changed. {advice}: {listed(origins, at_most=3)}")
            )
        self.report(f"warning: {text}; " + ("left out" if found.action == "skip" else "back to the newest checkpoint"))
        if found.action == "roll_back":
            raise RollBack
        return True

    def broken(self) -> str | None:
        """See ``kosmos.train.broken``. A collective."""
        return broken(self.model, self.optimizer, self.names, self.parallel)

    def _backward_all(
        self, rows: list[Row], batches: list[PackedBatch], targets: int
    ) -> tuple[list[PackedBatch], Computed]:
        """Add the gradients of all rows. Returns them, in smaller parts where memory asked for it, and their losses.

        Raises:
            TrainingError: memory does not suffice.
        """
        while True:
            pieces = [p for row, batch in zip(rows, batches, strict=True) for p in self.passes.of(row.lane, batch)]
            try:
                computed = self.backward.add(self.step, pieces, targets, as_one=self.passes.at_once)
                return [batch for _, batch in pieces], computed
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                largest = max((batch for _, batch in pieces), key=lambda b: len(b.token_ids))
                advice = memory.advice(largest, at_once=max(self.backward.at_once, self.passes.at_once))
                early = self.step - self.first_step < memory.FIRST_STEPS and self.release is None
                whole = sum(not document.is_rejected for document in largest.documents) == 1  # a pair is never cut
                if self.passes.at_once == 1 and (not early or whole):
                    raise TrainingError(f"step {self.step + 1}: {advice}") from error
                if self.parallel.world_size > 1:  # the others are in the middle of theirs
                    raise TrainingError(f"step {self.step + 1}: {advice}, or {self._smaller_passes()}") from error
            self.report(f"warning: {advice}. From here on {self.passes.shrink()}")
            self.optimizer.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _open_backward(self) -> Backward:
        side_by_side, told = open_side_by_side(
            self.config, self.model, self.parameters, self.device, processes=self.parallel.world_size
        )
        if told:
            self.report(told)
        return Backward(
            self.distributed, self.flops, device=self.device, dtype=self.dtype, seed=self.config.train.seed,
            compiled=self.compiled > 0, side_by_side=side_by_side, at=self.at,
            look=self.reference.look if self.reference else None,
        )  # fmt: skip

    def _smaller_passes(self) -> str:
        """How ranks go on with less memory for each pass."""
        if self.passes.at_once > 1:
            return "go on with train.lanes_at_once=1 (--resume)"
        self.folder.note_parts(number := 2 * self.passes.parts)
        return f"go on (--resume): rows will then be computed in {number} parts on every rank"

    def _set_learning_rate(self) -> None:
        share = share_at(self.schedule, self.step, self.config.train.schedule.name)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * share

    def _agree_on_kernels(self, reasons: list[str | None]) -> None:
        """None uses them where one cannot: ranks that share matrices hold copies of the norms' weights, which stay the
        same only by the same code."""
        if reason := first(reasons):
            give_up_kernels(self.model)
            self.report(f"warning: {UNCOMPILED}: steps take longer: {reason}")

    def _agree_on_compiling(self, reasons: list[str | None]) -> None:
        """Copies of a weight stay the same only where every rank steps by the same code."""
        if (reason := first(reasons)) and isinstance(self.optimizer, Parameterwise):
            self.optimizer.compile = False
            self.report(f"warning: the optimizer's step is not compiled and takes twice as long or more: {reason}")

    def _open_optimizer(self, groups: list[dict[str, Any]]) -> str | None:
        """Why its step is not compiled though it would pay, else None. Tells other ranks nothing.

        Raises:
            KosmosError: options are none that it takes.
        """
        train, registry = self.config.train, self.composition.registry
        self.optimizer: torch.optim.Optimizer = registry.build(
            "optimizer", train.optimizer.name, groups, train.learning_rate,
            options=train.optimizer.options, path="train.optimizer",
        )  # fmt: skip
        try:
            rated = rated_groups(self.optimizer.param_groups, groups)
            self.group_values = GroupValues(self.optimizer, self.names, self.report)
        except PluginError as error:
            raise PluginError(f"train.optimizer: {train.optimizer.name}: {error}") from None
        self.groups, self.peaks = [g["name"] for g in rated], [g["lr"] for g in rated]
        self.release = GradientRelease(self.optimizer) if train.release_gradients else None
        self.schedule = open_schedule(train, registry)
        return self.optimizer.uncompiled if isinstance(self.optimizer, Parameterwise) else None

    def _gradient_norms(self) -> Tensor:
        """Of all gradients, before they are clipped, then of each part's, unless they are released; a GPU may still be
        computing them."""
        if self.release is not None:
            return self.release.finish()[None]
        gradients.fill_missing(self.parameters)
        return gradients.norms_of(list(self.parts.values()))

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """(tensors, plain values) that a checkpoint of this step holds; of tensors every rank has its shards."""
        settle(self.model)
        states, values = stored.optimizer_tensors(self.optimizer, self.names)
        tensors = {stored.MODEL + name: t.detach() for name, t in stored.model_tensors(self.model).items()}
        tensors |= {stored.OPTIMIZER + name: t for name, t in states.items()}
        tensors |= self.reference.tensors() if self.reference else {}
        feeds = self.parallel.gather(self.data_state)
        data = {"lanes": {k: v for f in feeds for k, v in f["lanes"].items()}, "deadly": union(feeds)}
        return tensors, {
            "step": self.step, "tokens": self.tokens, "data": data, "budget": self.budget.state(),
            "guard": self.guard.state(), "parts": self.passes.parts, "order": self.order, "optimizer": values,
            "made_with_options": made_with(self.optimizer), "costs": self.parallel.gather(self.flops.state()),
            "optimizer_groups": self.group_values.state(self.parallel.gather),
        }  # fmt: skip

    def frozen(self) -> frozenset[str]:
        """Names, in a snapshot, of the parameters that no step changes."""
        named = self.model.named_parameters()
        beside = self.reference.tensors() if self.reference else ()
        return frozenset(
            [*beside, *(stored.MODEL + n for n, p in named if not p.requires_grad and id(p) not in self.names)]
        )

    def load(self, loaded: Loaded) -> None:
        """Go on from a checkpoint. Where its data are to be gone on with too, the feeder was opened with them."""
        check_made_with(self.optimizer, loaded, "leave it as it was, or start a new run")
        settle(self.model)
        alone = self.parallel.world_size == 1
        stored.load_model(self.model, loaded.tensors, alone=alone)
        stored.load_optimizer(self.optimizer, self.names, loaded.tensors, loaded.state["optimizer"], alone=alone)
        self.group_values.load(loaded.state.get("optimizer_groups", []))  # older ones hold none
        if self.reference is not None:
            self.reference.load(loaded.tensors, alone=alone)
        self.budget.load(loaded.state["budget"])
        self.guard.load(loaded.state["guard"])
        self.passes.parts = loaded.state["parts"]
        costs = loaded.state.get("costs", [])  # by rank; older checkpoints hold none
        every = {name: cost for theirs in costs for name, cost in theirs.items()}
        self.flops.load(costs[self.parallel.rank] if len(costs) == self.parallel.world_size else every)
        self.step = self.first_step = loaded.state["step"]
        self.tokens = loaded.state.get("tokens")

    def go_back(self, loaded: Loaded) -> None:
        """Weights, optimizer and step of a checkpoint; the data, and what was counted of them, go on where they are."""
        self.data_state = self.feeder.state()
        budget, guard, costs, tokens = self.budget.state(), self.guard.state(), self.flops.state(), self.tokens
        self.load(loaded)
        self.budget.load(budget)
        self.guard.load(guard)
        self.flops.load(costs)
        self.tokens = tokens
