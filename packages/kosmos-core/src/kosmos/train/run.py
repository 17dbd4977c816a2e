"""Train a new run, or go on with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kosmos.config import RunConfig
from kosmos.data.document import Source
from kosmos.errors import CheckpointError, ConfigError, PluginError
from kosmos.given import A_RUN, MADE_BY, check_is, path_of
from kosmos.lock import check_lock, keeping
from kosmos.plugins import Registry, check_registry, load_plugins
from kosmos.runtime.compiler_disk import room_for_compilers
from kosmos.runtime.devices import apart_from_autocast
from kosmos.runtime.parallel import Parallel, joined
from kosmos.train.alike import check_same_run
from kosmos.train.given_data import given_data, noting
from kosmos.train.going_on import resume_call
from kosmos.train.output import RunFolder
from kosmos.train.progress import Reporter, RunResult, check_reporter
from kosmos.train.session import Session

__all__ = ["RunResult", "resume_run", "train_model"]


@apart_from_autocast()
@torch.inference_mode(False)  # which is grad mode, too
def train_model(
    config: RunConfig,
    *,
    sources: Sequence[Source] | None = None,
    held_out: Sequence[Source] = (),
    registry: Registry | None = None,
    reporter: Reporter | None = None,
) -> RunResult:
    """Train a new run.

    Args:
        config: from ``make_run``.
        sources: documents in memory (``Documents``), or of code of your own, in place of ``data.sources``. Data workers
            want classes that they can import; set ``data.workers`` to 0 for those of a script or notebook. Of a source
            without a method ``fingerprint`` up to 16 documents are read first, by which ``resume_run`` knows it.
        held_out: documents that are scored, beside ``evaluate.sources``, where ``sources`` are given.
        registry: the plugins; None takes the installed ones.
        reporter: what shows progress; None shows none.

    Raises:
        KosmosError: of the kind that fits; see ``kosmos.errors``.
        Interrupted: a signal stopped it; a checkpoint was saved.

    Example:
        >>> from kosmos import make_run, train_model
        >>> result = train_model(make_run({"modalities": ["image"], "train": {"steps": 10}}))
        >>> result.after.by_modality["image"].exact_match
    """
    check_is("config", config, RunConfig, MADE_BY)
    _check_given(registry, reporter)
    given = given_data(config, sources, held_out)
    config = noting(config, given)
    with joined(config.train.device) as parallel, room_for_compilers():
        check_same_run(config, parallel, resumed=False)
        plugins = registry or agreed_plugins(config, parallel)
        return Session(config, None, plugins, reporter or Reporter(), parallel, given).go()


@apart_from_autocast()
@torch.inference_mode(False)
def resume_run(
    output: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    sources: Sequence[Source] | None = None,
    held_out: Sequence[Source] = (),
    registry: Registry | None = None,
    reporter: Reporter | None = None,
    accept_plugins: bool = False,
) -> RunResult:
    """Go on with the run in ``output`` from its newest whole checkpoint.

    Args:
        overrides: laid over its run file, such as ``{"train": {"steps": 1000}}``.
        sources: as the run was begun with, if it was, and so is ``held_out``.
        accept_plugins: go on with plugins whose files are not those that the run used; otherwise that is a PluginError.
    """
    _check_given(registry, reporter)
    folder = RunFolder.open(path_of("output", output, A_RUN))
    if not isinstance(overrides or {}, Mapping):
        raise ConfigError(f"overrides: expected a mapping, such as {{'train': {{'steps': 1000}}}}, got {overrides!r}")
    config = folder.goes_on_with(overrides or {})
    given = given_data(config, sources, held_out, resumed=True)
    with joined(config.train.device) as parallel, room_for_compilers():
        check_same_run(config, parallel, resumed=True)
        plugins = registry or agreed_plugins(config, parallel)
        kept: list[Registry] = []  # each rank's own
        by = resume_call(folder.path, held_out=bool(held_out), accept_plugins=True) if given else ""

        def compared() -> list[str]:
            lines = check_lock(folder.path, plugins, accept=accept_plugins, by=by)
            kept.append(keeping(folder.path, plugins))
            return lines

        changed = parallel.agreed(compared)[0]
        try:
            run = Session(config, folder, kept[0], reporter or Reporter(), parallel, given)
            for line in changed:
                run.reporter.say(f"warning: {line}")
            return run.go()
        except (ConfigError, PluginError, CheckpointError) as error:
            if changed:  # which is likely why
                error.args = (f"{error}; the run was trained with other code: {'; '.join(changed)}",)
            raise


def _check_given(registry: object, reporter: object) -> None:
    """Raises ConfigError where one of them is something else, before a run leaves anything behind."""
    check_registry(registry)
    if not isinstance(reporter, Reporter | None):
        raise ConfigError(f"reporter: expected a Reporter, such as ConsoleReporter(), got {reporter!r:.60}")
    check_reporter(reporter or Reporter())


def agreed_plugins(config: RunConfig, parallel: Parallel) -> Registry:
    """The plugins that the run loads. All ranks call it, and all raise the same KosmosError."""
    found: list[Registry] = []  # each rank's own, which it tells nobody
    parallel.agreed(lambda: found.append(load_plugins(config.plugins)))
    return found[0]
