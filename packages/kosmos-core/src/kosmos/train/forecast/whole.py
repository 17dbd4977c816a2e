"""A run as it would be: see ``forecast``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from kosmos.compose import Composition, compose, make_feed
from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.data.figures import Figures, look_at_all
from kosmos.model.nf4 import values_in
from kosmos.plugins import Registry
from kosmos.run_choices import open_own_choices
from kosmos.run_sources import open_both
from kosmos.runtime.dealing import num_groups
from kosmos.runtime.devices import pick_precision
from kosmos.runtime.parallel import Parallel
from kosmos.train.comparable import check_compared
from kosmos.train.compiling import check_compile
from kosmos.train.doubts import doubts
from kosmos.train.forecast.devices import GIB, Device
from kosmos.train.forecast.memory import Memory, memory_of
from kosmos.train.forecast.parts import Part, parts_of
from kosmos.train.forecast.rows import SECONDS, STEPS, Passes, PlannedRows, passes_of, plan_rows
from kosmos.train.forecast.work import Work, work_of_step
from kosmos.train.length import Report, in_steps
from kosmos.train.settings import check_length, check_settings
from kosmos.train.sharding import check_types, layout
from kosmos.train.sharing import check_sharing
from kosmos.train.small_data import often_drawn
from kosmos.train.source_tokens import HeaderLane, tokens_of_sources

SHARES = (1.0, 0.5)
"""Of a device's peak, for which times are told."""


@dataclass(frozen=True)
class Forecast:
    """What a run comes to."""

    config: RunConfig
    parallel: Parallel
    parts: list[Part]
    parameters: int
    trained: int
    memory: Memory
    figures: dict[str, Figures | None]
    passes: list[Passes]
    rows: PlannedRows
    work: Work
    device: Device | None
    """On which it is to run; None where that is not known, or no GPU."""
    doubts: list[str]
    """What training would warn of."""
    counted: str = ""
    """What its epochs come to, for a person."""

    @property
    def layout(self) -> dict[str, Any]:
        """How lanes are dealt."""
        groups = num_groups(self.parallel.world_size, self.config.parallel.sharing)
        return {
            "processes": self.parallel.world_size,
            "shared": layout(self.config.parallel, self.parallel),
            "groups": groups,
            "lanes": self.config.data.lanes,
            "rows_of_a_process": self.config.data.lanes // groups,
        }

    @property
    def tokens_of_step(self) -> float:
        """By the fill of the planned rows."""
        return self.rows.tokens * self.config.data.lanes

    def times(self) -> list[dict[str, float]]:
        """Seconds of a step and hours of the run, for each of ``SHARES``; none where no peak is known."""
        if self.device is None or self.device.peak is None:
            return []
        found = []
        for share in SHARES:
            step_s = self.work.total / (share * self.device.peak * self.parallel.world_size)
            hours = step_s * self.config.train.steps / 3600
            found.append(
                {
                    "of_peak": share, "step_s": step_s, "run_hours": hours,
                    "gpu_hours": hours * self.parallel.world_size,
                }
            )  # fmt: skip
        return found

    def warnings(self) -> Iterator[str]:
        """What a person should know before the run is queued."""
        memory, device = self.memory, self.device
        if device is not None and memory.device_bytes > device.memory_bytes:
            yield (
                f"memory: {device.name} has {device.memory_bytes / GIB:,.0f} GiB, and a process needs "
                f"{memory.device_bytes / GIB:,.1f} GiB before the first activation; {self._remedy()}"
            )
        if memory.state.unknown:
            yield f"memory: what the optimizer keeps is not known, and not in the sum: {memory.state.unknown}"
        if self.work.by_parameters:
            yield (
                "work: the model cannot be run without values, so operations are two a weight and token or cell, "
                f"without attention and as if all weights were used: {self.work.by_parameters}"
            )
        yield from self.doubts

    def _remedy(self) -> str:
        """What makes a process hold less."""
        train = self.config.train
        fewer = [] if train.weights == "bf16" else ["train.weights=bf16 with train.optimizer.master=stochastic"]
        fewer += [] if train.optimizer.name == "lion8bit" else ["train.optimizer=lion8bit"]
        told = [f"take fewer bytes a parameter ({', '.join(fewer)})"] if fewer else []
        is_copied = self.config.parallel.strategy == "ddp"
        told.append("shard the model (parallel.strategy=fsdp)" if is_copied else "start more processes to share it")
        return " or ".join(told)

    def as_row(self) -> dict[str, Any]:
        """All of it as plain values."""
        memory, work = self.memory, self.work
        return {
            "layout": self.layout,
            "model": {
                "parts": [{**asdict(part), "types": list(part.types)} for part in self.parts],
                "parameters": self.parameters, "trained": self.trained,
            },
            "memory": {
                "weights_bytes": memory.weights_bytes, "gradients_bytes": memory.gradients_bytes,
                "optimizer_bytes": None if memory.state.unknown else memory.state.total,
                "optimizer_bytes_by_name": memory.state.by_name, "held_bytes": memory.held_bytes,
                "gathered_bytes": memory.gathered_bytes, "offloaded": memory.offloaded,
                "reference_bytes": memory.reference_bytes,
            },
            "data": [
                {**asdict(one), "longer_than_a_row": of and of.longer, "looked_at": of.looked_at if of else 0}
                for one, of in zip(self.passes, self.figures.values(), strict=True)
            ],
            "rows": self.rows.figures(),
            "steps": self.config.train.steps,
            "counted": self.counted,
            "tokens_of_step": self.tokens_of_step,
            "tokens": self.tokens_of_step * self.config.train.steps,
            "work": {
                "flops_of_step": work.total, "flops_of_step_half_causal": work.half_causal,
                "flops": work.total * self.config.train.steps, "flops_by_module": work.by_module,
                "counted": not work.by_parameters,
            },
            "device": self._device(),
            "times": self.times(),
            "warnings": list(self.warnings()),
        }  # fmt: skip

    def _device(self) -> dict[str, Any] | None:
        if self.device is None:
            return None
        return {
            "name": self.device.name, "peak_flops": self.device.peak, "memory_bytes": self.device.memory_bytes,
            "type": str(self.device.dtype).removeprefix("torch."),
        }  # fmt: skip


def forecast(
    config: RunConfig,
    registry: Registry,
    parallel: Parallel | None = None,
    *,
    device: Device | None = None,
    steps: int = STEPS,
    seconds: float = SECONDS,
    report: Report = lambda line: None,
) -> Forecast:
    """Tell what a run comes to. Its processes and GPUs need not be here, and nothing is written.

    Args:
        parallel: how many processes there would be, and how many on a machine; one by default.
        device: on which each would train.
        steps: whose rows are planned.
        seconds: that the rows and the tokens of the sources may each take; the count of epochs takes what it takes.
        report: told what is waited for where it takes long.

    Raises:
        KosmosError: the run could not begin.
    """
    parallel = parallel or Parallel()
    check_settings(config, registry, parallel)
    composition = compose(config, registry, draw=False)
    if config.train.weights == "fp32":  # else all are made one
        check_types(composition.model, config.parallel, parallel)
    check_sharing(composition.model.backbone, config.parallel, parallel.world_size)
    check_compile(composition.model, config.train.compile, torch.device("meta"))  # what compiles may not be here
    sources, held_out = open_both(config, registry)
    choices = open_own_choices(
        config, registry, held_out, encode=composition.tokenizer.encode, max_rows=config.evaluate.max_documents
    )
    check_compared(config, held_out, choices, composition.planner, registry)
    feed = make_feed(composition, sources)
    counted, sizes = "", None
    if not config.train.is_counted:
        config, found = in_steps(config, feed, report)
        counted, sizes = found.told(), found.sources
        composition = replace(composition, config=config)
        check_length(config, registry, parallel.world_size)
    looked = look_at_all(feed)
    rows = plan_rows(feed, lanes=config.data.lanes, steps=steps, seconds=seconds)
    run_tokens = rows.tokens * config.data.lanes * config.train.steps
    passes = passes_of(feed, sizes or tokens_of_sources(HeaderLane(feed, 0), seconds=seconds), run_tokens)
    model = composition.model
    dtype = device.dtype if device is not None else pick_precision(
        config.train.precision, torch.device("cpu"), config.train.weights
    )  # fmt: skip
    told = Forecast(
        config=config,
        parallel=parallel,
        parts=parts_of(composition),
        parameters=sum(map(values_in, model.parameters())),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
        memory=memory_of(composition, parallel, dtype),
        figures=looked.figures,
        passes=passes,
        rows=rows,
        work=Work({}, 0.0),
        device=device,
        counted=counted,
        doubts=[
            *_doubtful(composition, sources),
            *filter(None, [rows.doubt(config.data.quarantine)]),
            *([] if feed.mixture.by_documents else often_drawn(passes, config.train.steps)),
        ],
    )
    # Last of all, since it takes the model's weights away.
    return replace(told, work=work_of_step(model, rows.rows, lanes=config.data.lanes))


def _doubtful(composition: Composition, sources: Sequence[Source]) -> list[str]:
    model = composition.model
    return list(doubts(
        composition.config, sources, resumed=False,
        backbone=model.backbone, streams=model.streams.items(), routes=composition.planner.routes,
        tokenizer=composition.tokenizer,
    ))  # fmt: skip
