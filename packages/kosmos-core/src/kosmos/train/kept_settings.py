"""What a run that goes on keeps, whatever it is told: what it began with."""

from __future__ import annotations

from pathlib import Path

from kosmos.config import RunConfig
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
    began, named = (run.init and run.init.model_copy(update={"path": run.init.path.resolve()}) for run in (before, now))
    if named not in (None, began):
        raise ConfigError(f"init: the run in {folder} goes on with its own weights; leave it out, or start a new run")
