"""That all ranks were started for the same run: each node may have its own run file, Kosmos, data and output folder.

Ranks that were told different things meet in different exchanges, which ends anywhere, or they do not notice: each
would step its shard of the weights at a rate of its own, and read other documents under the same numbers.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kosmos
from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.errors import ConfigError, DataError, KosmosError, TrainingError
from kosmos.runtime.parallel import Parallel
from kosmos.train.order import differences, sample_order, shown, stated

SETTINGS = ("train", "guard", "parallel", "evaluate", "checkpoint")
OF_STREAMS = ("freeze", "learning_rate")
SEEN_S = 60.0
"""Seconds in which a node sees what another has written: so long NFS may keep that a folder is not there."""
LOOK_S = 0.1


def check_same_run(config: RunConfig, parallel: Parallel, *, resumed: bool) -> None:
    """All ranks call it, before they meet elsewhere. Places may differ, since each node may have its own disk.

    Raises:
        ConfigError: a setting of the run, or the version of Kosmos, is not the same on all.
    """
    dumped = config.model_dump(mode="json")
    told = {"kosmos": kosmos.__version__, "--resume": resumed, **{name: dumped[name] for name in SETTINGS}}
    told["backbone"] = {**dumped["backbone"], "model": None}
    told["streams"] = {name: {key: of[key] for key in OF_STREAMS} for name, of in dumped["streams"].items()}
    advice = "start all ranks with one installation, one run file and the same arguments"
    _refuse_differences(told, parallel, ConfigError, advice)


def check_same_data(
    config: RunConfig, sources: Sequence[Source], held_out: Sequence[Source], parallel: Parallel
) -> None:
    """All ranks call it, once they have opened their sources.

    Raises:
        DataError: a source is not the same on all.
    """
    held = [{"name": source.name, "documents": len(source)} for source in held_out]
    told = {**stated(sample_order(config, sources)), "held out": held}
    _refuse_differences(told, parallel, DataError, "give every node the same files")


def check_same_folder(folder: Path, parallel: Parallel) -> None:
    """All ranks call it, once the run's folder is there: shards that each node writes for itself make no checkpoint.

    Raises:
        ConfigError: some rank does not see what the first writes into it.
        TrainingError: the first cannot write into it.
    """
    if parallel.world_size == 1:
        return
    word = folder / f".seen-{parallel.main_only(lambda: uuid.uuid4().hex)}"
    try:
        parallel.main_only(lambda: _leave(word))
        parallel.agreed(lambda: _look_for(word, parallel.rank))
    finally:
        if parallel.is_main:
            word.unlink(missing_ok=True)


def _leave(word: Path) -> None:
    try:
        word.touch()
    except OSError as error:
        raise TrainingError(f"{word.parent}: cannot write ({error.strerror})") from error


def _look_for(word: Path, rank: int) -> None:
    end = time.monotonic() + SEEN_S
    while not word.exists():
        if time.monotonic() > end:
            raise ConfigError(
                f"{word.parent}: rank {rank} (on {socket.gethostname()}, in {Path.cwd()}) does not see what rank 0 "
                "writes there; name an --output on a file system that all nodes share, by the same path on each"
            )
        time.sleep(LOOK_S)


def _refuse_differences(told: Mapping[str, Any], parallel: Parallel, kind: type[KosmosError], advice: str) -> None:
    first, *others = parallel.gather(told)
    for rank, other in enumerate(others, start=1):
        for path, one, its in differences(first, other, ""):
            wrong = kind(f"{path}: rank 0 has {shown(one)}, rank {rank} has {shown(its)}; {advice}")
            wrong.elsewhere = not parallel.is_main  # all ranks find the same
            raise wrong
