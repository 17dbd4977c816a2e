"""That all ranks were started for the same run: nodes may hold other copies of a run file, of Kosmos or of the data.

Ranks that were told different things meet in different exchanges, which ends anywhere, or they do not notice: each
would step its shard of the weights at a rate of its own, and read other documents under the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import kosmos
from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.errors import ConfigError, DataError, KosmosError
from kosmos.runtime.parallel import Parallel
from kosmos.train.order import differences, sample_order, shown, stated

SETTINGS = ("train", "guard", "parallel", "evaluate", "checkpoint")
OF_STREAMS = ("freeze", "learning_rate")


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


def _refuse_differences(told: Mapping[str, Any], parallel: Parallel, kind: type[KosmosError], advice: str) -> None:
    first, *others = parallel.gather(told)
    for rank, other in enumerate(others, start=1):
        for path, one, its in differences(first, other, ""):
            wrong = kind(f"{path}: rank 0 has {shown(one)}, rank {rank} has {shown(its)}; {advice}")
            wrong.elsewhere = not parallel.is_main  # all ranks find the same
            raise wrong
