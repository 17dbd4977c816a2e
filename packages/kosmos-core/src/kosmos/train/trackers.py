"""Where metrics go beside ``metrics.jsonl``. A tracker that fails is reported once and never stops a run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from kosmos.config import RunConfig
from kosmos.plugins import Registry


class Tracker(Protocol):
    """Takes the rows of ``metrics.jsonl`` (they have a ``loss``) and of ``held_out.jsonl`` (``held_out``)."""

    def log(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files under ``OUTPUT/tensorboard``."""

    def __init__(self, output: Path, run: Mapping[str, Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its protobuf and numpy deprecations are not the user's
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(output / "tensorboard"))

    def log(self, row: Mapping[str, Any]) -> None:
        for name, value in flat(row).items():
            self.writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self.writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases, offline unless stated otherwise; never a prompt."""

    def __init__(
        self,
        output: Path,
        run: Mapping[str, Any],
        *,
        project: str = "kosmos",
        name: str | None = None,
        online: bool = False,
    ) -> None:
        """
        Args:
            project: where the run is listed.
            name: of the run; None takes the output folder's.
            online: send as it runs. Needs WANDB_API_KEY.
        """
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        mode: Literal["online", "offline"] = "online" if online else "offline"
        settings = wandb.Settings(init_timeout=30, console="off")
        self.run = wandb.init(
            project=project, name=name or output.name, dir=str(output), config=dict(run), mode=mode, settings=settings
        )

    def log(self, row: Mapping[str, Any]) -> None:
        self.run.log(flat(row), step=row["step"])

    def close(self) -> None:
        self.run.finish()


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a row, nested ones as ``outer/inner``; the step is left out."""
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            numbers[prefix + name] = value
    return numbers


class Trackers:
    """The run's trackers and observers behind one guard."""

    def __init__(self, config: RunConfig, registry: Registry, output: Path, report: Callable[[str], None]) -> None:
        self.report = report
        self.trackers: dict[str, Tracker] = {}
        self.observers: dict[str, Callable[[Mapping[str, Any]], None]] = {}
        run = config.model_dump(mode="json")
        for i, wanted in enumerate(config.trackers):
            registry.get("tracker", wanted.name)  # an unknown name is the user's error, not an outage
            self._guard("tracker", wanted.name, partial(self._open, registry, wanted, i, output, run))
        for i, wanted in enumerate(config.observers):
            path = f"observers.{i}"
            self.observers[wanted.name] = registry.build("observer", wanted.name, options=wanted.options, path=path)

    def _open(self, registry: Registry, wanted: Any, number: int, output: Path, run: Mapping[str, Any]) -> None:
        path = f"trackers.{number}"
        self.trackers[wanted.name] = registry.build(
            "tracker", wanted.name, output, run, options=wanted.options, path=path
        )

    def log(self, row: Mapping[str, Any]) -> None:
        """Give a row to all; observers see the steps alone."""
        for name, tracker in list(self.trackers.items()):
            self._guard("tracker", name, partial(tracker.log, row))
        for name, observe in list(self.observers.items()) if "loss" in row else ():
            self._guard("observer", name, partial(observe, row))

    def close(self) -> None:
        for name, tracker in list(self.trackers.items()):
            self._guard("tracker", name, tracker.close)

    def _guard(self, kind: str, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # a seam: whatever a tracker raises must not cost the run
            (self.trackers if kind == "tracker" else self.observers).pop(name, None)
            cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
            self.report(f"warning: {kind} {name} is off from here on: {cause}")
