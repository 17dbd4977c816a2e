"""What a run that goes on keeps, whatever it is told: what it began with."""

from __future__ import annotations

from pathlib import Path

from kosmos.checkpoint.folder import CHECKPOINTS, committed
from kosmos.config import RunConfig
from kosmos.config_weights import InitConfig
from kosmos.errors import ConfigError


def check_kept(before: RunConfig, now: RunConfig, folder: Path) -> None:
    """Raises ConfigError where a run in ``folder`` is to go on with another tokenizer, other scored documents or other
    weights than it began with."""
    if now.tokenizer != before.tokenizer:
        old, new = before.tokenizer.name, now.tokenizer.name
        what = "tokenizer.turns" if new == old else f"tokenizer: {new} in place of {old}"
        raise ConfigError(f"{what}: the run in {folder} keeps what it began with; leave it out")
    if now.evaluate.spread != before.evaluate.spread:
        raise ConfigError(
            f"evaluate.spread: the run in {folder} keeps {before.evaluate.spread}, since scores of other documents do "
            "not compare; leave it out"
        )
    adapters = [run.backbone.lora and run.backbone.lora.adapter for run in (before, now)]
    if adapters[1] not in (None, adapters[0]):
        raise ConfigError(f"backbone.lora.adapter: the run in {folder} goes on with its own updates; leave it out")
    began, named = (run.init and _at(run.init, run.init.path.resolve()) for run in (before, now))
    if named in (None, began):
        return
    if began is None or committed(folder / CHECKPOINTS):
        raise ConfigError(f"init: the run in {folder} goes on with its own weights; leave it out, or start a new run")
    if named != _at(began, named.path):
        raise ConfigError(
            f"init: the run in {folder} has no checkpoint yet and begins again with what it had begun with, of which "
            "only the place may be another (init.path=...); leave the rest out, or start a new run"
        )


def kept_init(before: RunConfig, now: RunConfig) -> InitConfig | None:
    """What a run begins with that ``check_kept`` lets go on: as its run file says, or from where that lies now."""
    if before.init is None or now.init is None or before.init.path.resolve() == now.init.path.resolve():
        return before.init
    return _at(now.init, now.init.path.absolute())


def _at(init: InitConfig, path: Path) -> InitConfig:
    return init.model_copy(update={"path": path})
