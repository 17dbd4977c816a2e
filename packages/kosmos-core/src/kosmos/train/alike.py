"""That all ranks were started for the same run: each node may have its own run file, Kosmos, data and output folder.

Ranks that were told different things meet in different exchanges, which ends anywhere, or they do not notice: each
would step its shard of the weights at a rate of its own, and read other documents under the same numbers.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import kosmos
from kosmos.compose import Composition
from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.errors import ConfigError, DataError, KosmosError, TrainingError
from kosmos.files import SEEN_S, is_seen
from kosmos.runtime.parallel import Parallel
from kosmos.train.order import LEARNS, differences, shown, stated
from kosmos.train.output import WORD

SETTINGS = ("train", "guard", "parallel", "evaluate", "checkpoint")
OF_STREAMS = (*LEARNS, "learning_rate", "connector_learning_rate")
PROBE = "Naïve façades: 3.14 % of 1,024 tokens, 两 or три.\n"
"""Text of which two tokenizers hardly make the same tokens."""


def check_same_run(config: RunConfig, parallel: Parallel, *, resumed: bool) -> None:
    """All ranks call it, before they meet elsewhere. Places may differ, since each node may have its own disk.

    Raises:
        ConfigError: a setting of the run, or the version of Kosmos, is not the same on all.
        TrainingError: some go on with a run and others begin it: where each looks for itself whether there is one, a
            node may see it later, so that another start may do.
    """
    dumped = config.model_dump(mode="json")
    seen = "give all ranks the same arguments; where they are, a node does not see the run's folder yet: start again"
    _refuse_differences({"--resume": resumed}, parallel, TrainingError, seen)
    told = {"kosmos": kosmos.__version__, "init": config.init is not None, "plugins": dumped["plugins"]}
    told |= {name: dumped[name] for name in SETTINGS}
    may_lie_elsewhere = {name: len(dumped["evaluate"][name]) for name in ("sources", "choices")}
    told["evaluate"] = {**told["evaluate"], **may_lie_elsewhere}
    told["backbone"] = {**dumped["backbone"], "model": bool(dumped["backbone"].get("model"))}
    if lora := dumped["backbone"]["lora"]:
        told["backbone"]["lora"] = {**lora, "adapter": bool(lora["adapter"])}
    told["streams"] = {name: {key: of[key] for key in OF_STREAMS} for name, of in dumped["streams"].items()}
    advice = "start all ranks with one installation, one run file and the same arguments"
    _refuse_differences(told, parallel, ConfigError, advice)


def check_same_data(order: Mapping[str, Any], held_out: Sequence[Source], parallel: Parallel) -> None:
    """All ranks call it, once they have opened their sources.

    Args:
        order: as ``sample_order`` tells it.

    Raises:
        DataError: a source is not the same on all.
    """
    held = [{"name": source.name, "documents": len(source)} for source in held_out]
    told = {**stated(order), "held out": held}
    _refuse_differences(told, parallel, DataError, "give every node the same files")


def check_same_model(composition: Composition, parallel: Parallel) -> None:
    """All ranks call it, once they have composed the model: each may have read other files under one name.

    Raises:
        ConfigError: the version of a plugin, the tokenizer or a part of the model is not the same on all.
    """
    tokenizer, model = composition.tokenizer, composition.model
    ids = sha256(repr(tokenizer.encode(PROBE)).encode()).hexdigest()[:8]
    parts = {"backbone": model.backbone, **{f"streams.{name}": stream for name, stream in model.streams.items()}}
    registry = composition.registry
    told = {
        "plugins": {plugin.name: plugin.version for plugin in registry.plugins if plugin.name in registry.used},
        "tokenizer": f"{tokenizer.vocab_size:,} tokens, ids {ids}",
        "parameters": {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()},
        **composition.without_files(),
    }
    _refuse_differences(told, parallel, ConfigError, "give every node the same files and packages")


def check_same_folder(folder: Path, parallel: Parallel, *, hang_s: float) -> None:
    """All ranks call it, once the run's folder is there: shards that each node writes for itself make no checkpoint.

    Args:
        hang_s: seconds after which a wait is held to be a hang.

    Raises:
        ConfigError: some rank does not see what the first writes into it.
        TrainingError: the first cannot write into it.
    """
    if parallel.world_size == 1:
        return
    word = folder / f"{WORD}{parallel.main_only(lambda: uuid.uuid4().hex)}"
    try:
        parallel.main_only(lambda: _leave(word))
        parallel.agreed(lambda: _look_for(word, parallel.rank, min(SEEN_S, hang_s / 2)), named=False)
    finally:
        if parallel.is_main:
            with suppress(OSError):  # what went wrong is told already
                word.unlink(missing_ok=True)


def _leave(word: Path) -> None:
    try:
        word.touch()
    except OSError as error:
        raise TrainingError(f"{word.parent}: cannot write ({error.strerror})") from error


def _look_for(word: Path, rank: int, seconds: float) -> None:
    if not is_seen(word, seconds):
        raise ConfigError(
            f"{word.parent}: rank {rank} (on {socket.gethostname()}, in {Path.cwd()}) does not see what rank 0 writes "
            "there; name an --output on a file system that all nodes share, by the same path on each"
        )


def _refuse_differences(told: Mapping[str, Any], parallel: Parallel, kind: type[KosmosError], advice: str) -> None:
    first, *others = parallel.gather(told)
    for rank, other in enumerate(others, start=1):
        for path, one, its in differences(first, other, ""):
            line = f"{path}: rank 0 has {shown(one)}, rank {rank} has {shown(its)}; {advice}"
            raise parallel.found_by_all(kind(line))
