"""The checkpoint that a run begins with: the newest of another run, or the one that it had begun with already."""

from __future__ import annotations

from pathlib import Path

from kosmos.checkpoint.folder import Loaded, run_and_step
from kosmos.errors import ConfigError, KosmosError
from kosmos.train.begun import Begun
from kosmos.train.output import RunFolder, run_beside
from kosmos.train.saved import open_checkpoint

_NOW = "say where that run is now (init.path=...)"
_REMEDY = f"{_NOW}, bring that checkpoint back, or start a new run"


def open_first(init: Path, begun: Begun | None = None, *, resumed: bool = False) -> tuple[RunFolder, Loaded]:
    """A run's folder and one of its checkpoints, to begin with.

    Args:
        init: as ``init.path``.
        begun: what the run began with that goes on from no checkpoint of its own; None takes what ``init`` names now.
        resumed: whether a run goes on.

    Raises:
        ConfigError: there is no run, or no whole checkpoint, or not the one that the run began with.
    """
    if begun is not None:
        return _again(init, begun)
    try:
        return open_checkpoint(init)
    except KosmosError as error:
        raise ConfigError(f"init: {error}{f'; {_NOW}' if resumed else _instead(init)}") from error


def check_there(init: Path) -> None:
    """Raises ConfigError where nothing is at ``init.path``, before data are opened and a model is made."""
    if not init.exists():
        raise ConfigError(f"init: {init}: no run is here; {run_beside(init) or 'give the output folder of a run'}")


def _again(init: Path, begun: Begun) -> tuple[RunFolder, Loaded]:
    began = f"this run began with step {begun.step} of {begun.path} and has no checkpoint of its own yet"
    _, named = run_and_step(init)
    if named not in (None, begun.step):
        raise ConfigError(f"init.path: {init} is of step {named}, and {began}; name that run, or that checkpoint")
    try:
        folder, loaded = open_checkpoint(init, begun.step)
    except KosmosError as error:
        raise ConfigError(f"init: {error}; {began}: {_REMEDY}") from error
    if Begun.of(loaded).manifest != begun.manifest:
        raise ConfigError(f"init: {loaded.folder} holds other weights than this run began with; {began}: {_REMEDY}")
    return folder, loaded


def _instead(init: Path) -> str:
    """What to do with weights that are no run's, behind the error that they are not."""
    if init.is_file() and init.suffix == ".safetensors":
        return "; begin with the run that it was exported from, or with one of that run's checkpoints"
    if (init / "adapter_config.json").is_file():
        return f"; an adapter of PEFT is backbone.lora: {{adapter: {init}}}"
    if (init / "config.json").is_file():
        return f"; a language model of transformers is a backbone: {{name: hf, model: {init}}}"
    return ""
