"""A small run in one process and in two, of which in every step only one has media."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, Any

from kosmos import collector
from kosmos.components import DatasetSpec, OptimizerSpec
from kosmos.data.document import Document, Text
from kosmos.data.mixture import Mixture
from kosmos.discovery import PluginRecord
from kosmos.plugins import Registry
from kosmos.testing import child
from kosmos.testing.usable import usable

if TYPE_CHECKING:
    from torch.optim import Optimizer

STEPS = 2
WORLD = 2
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
ALONE, TOGETHER = "alone", "together"
TOOK = "took"
"""File in which stands how many seconds the training of one process took, its start aside."""


class TwoRows:
    """Row 0 holds the first documents of a dataset, joined; row 1 holds text alone."""

    name = "kit-rows"

    def __init__(self, split: str, *, target: str, modality: str, options: dict[str, Any], documents: int = 3) -> None:
        """
        Args:
            split: whatever is asked for, the same rows.
            target: of the dataset, ``"package.module:attribute"``.
            modality: that the joined documents hold.
            options: of the dataset.
            documents: how many are joined.
        """
        module, _, attributes = target.partition(":")
        factory: Any = import_module(module)
        for attribute in attributes.split("."):
            factory = getattr(factory, attribute)
        source = factory("train", **options)
        fit: Iterator[Document] = (document for document in usable(source) if modality in document.modalities)
        self.segments = tuple(segment for document in islice(fit, documents) for segment in document.segments)

    def __len__(self) -> int:
        return 2

    def document(self, index: int) -> Document:
        """Row ``index`` of the two."""
        if index == 0:
            return Document("kit-rows with media", self.segments)
        return Document("kit-rows without", (Text("two plus two is "), Text("four", train=True)))


def descent(groups: list[dict[str, Any]], learning_rate: float) -> Optimizer:
    """Plain gradient descent: a difference of gradients stays as small as it is in the weights."""
    from torch.optim import SGD

    return SGD([{"params": group["params"], "lr": group["lr"]} for group in groups], lr=learning_rate)


def with_kit(registry: Registry, modality: str) -> Registry:
    """The registry with the kit's own dataset and optimizer."""
    components = (
        DatasetSpec(name=TwoRows.name, target=f"{__name__}:TwoRows", summary="Two rows.", modalities=(modality,)),
        OptimizerSpec(name="kit-descent", target=f"{__name__}:descent", summary="Gradient descent."),
    )
    return Registry([*registry.plugins, PluginRecord("kosmos-testing", "", "", __name__, components)])


def seed_of_turns(source: TwoRows) -> int:
    """A seed of the order of samples with which the first rank has the media in step 1 and the other in step 2."""
    for seed in range(1000):
        mixture = Mixture((source,), (1.0,), True, seed)
        if (mixture.row(0, 0), mixture.row(0, WORLD)) == (0, 1):
            return seed
    raise AssertionError("no order of two rows has them in turn")


def train(arguments: bytes) -> None:
    """Train as one of two ranks; the first does so alone before. Runs in a child process."""
    collector.pause()  # until the first step: while torch is imported
    from kosmos.run_file import make_run
    from kosmos.train.run import train_model

    registry, run, folder = pickle.loads(arguments)  # noqa: S301  of our own parent
    if os.environ["RANK"] == "0":
        begin = time.monotonic()
        shared = {name: os.environ.pop(name) for name in RANK_VARIABLES}
        train_model(make_run({**run, "output": str(folder / ALONE)}), registry=registry)
        os.environ |= shared
        partial = folder / f"{TOOK}.partial"
        partial.write_text(str(time.monotonic() - begin), encoding="utf-8")
        partial.rename(folder / TOOK)
    train_model(make_run({**run, "output": str(folder / TOGETHER)}), registry=registry)


def train_alone_and_together(registry: Registry, run: Mapping[str, Any], folder: Path, *, seconds: float) -> None:
    """Train ``run`` in one process, into ``folder/alone``, and in two, into ``folder/together``.

    The one is the first of the two: a process fewer has torch to import.

    Args:
        seconds: that the two may take; four times what the one took, where that is more (a busy machine is no hang).

    Raises:
        kosmos.testing.child.ChildFailed: a process raised or died, or they did not come to an end in time.
    """
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if Path("/sys/class/net/lo").exists() else {}
    shared = {"WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), **loopback}
    running: dict[Path, Popen[bytes]] = {}
    try:
        for rank in range(WORLD):
            place = folder / f"rank {rank}"
            place.mkdir()
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), **shared}
            running[place] = child.start(f"{__name__}:train", registry, run, folder, folder=place, **own)
        _wait(running, folder / TOOK, seconds)
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _wait(running: Mapping[Path, Popen[bytes]], took: Path, seconds: float) -> None:
    """Until all are done, or the first that fails: the others may wait for it for ever.

    Args:
        took: where stands what the training of one took, once it is done.
    """
    stage, most = ALONE, 10 * seconds
    end = time.monotonic() + most
    pending = dict(running)
    while pending:
        if stage == ALONE and took.exists():
            stage, most = TOGETHER, max(seconds, 4 * float(took.read_text(encoding="utf-8")))
            end = time.monotonic() + most
        for place, process in list(pending.items()):
            if process.poll() is None:
                continue
            try:
                child.finish(pending.pop(place), folder=place, seconds=seconds)
            except child.ChildFailed as error:
                stage = TOGETHER if took.exists() else ALONE
                raise child.ChildFailed(f"{place.name}, {stage}: {error}") from error
        if time.monotonic() > end:
            names = " and ".join(place.name for place in pending) if stage == TOGETHER else "rank 0"
            raise child.ChildFailed(f"{names}, {stage}, did not come to an end within {most:g} s: a hang")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
