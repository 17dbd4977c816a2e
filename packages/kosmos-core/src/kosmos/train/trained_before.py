"""What a run scores and the runs that it begins with, one after the other (``init``), were trained on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from kosmos.config import DataConfig, RunConfig
from kosmos.data.document import Source
from kosmos.data.sources.given import is_noted
from kosmos.data.sources.places import Places
from kosmos.errors import ConfigError
from kosmos.train.initial import held_out_anew, held_out_otherwise
from kosmos.train.lineage import Earlier, lineage


def held_out_before(
    init: Path, told: Collection[str], here: DataConfig, order: Mapping[str, Any], sources: Sequence[Source]
) -> Iterator[str]:
    """Warnings as of ``held_out_otherwise`` and ``held_out_anew``, of the runs before the one that ``init`` names.

    Args:
        told: what these have told of that one. The same is not told again of an earlier one.
        here: of the run that begins, and so the others.
    """
    known, places = {_but_for(line, init) for line in told}, Places()
    for run in lineage(init).runs[1:]:
        if (state := run.state()) is None:
            holds = [entry for entry in here.sources if entry.held_out or (entry.held_out is None and here.held_out)]
            if any(_trained_on(run, Path(entry.path), places) for entry in holds):
                yield (
                    f"init: {run.path} was trained on data of this run and has no checkpoint any more: whether on what "
                    "is held out here is not known"
                )
            continue
        try:
            both = run.config().data, state["order"], here, order, run.path
            found = [*held_out_otherwise(*both), *held_out_anew(*both, sources)]
        except (ConfigError, LookupError, TypeError) as error:
            yield f"init: {run.path}: what it was trained on cannot be compared ({error})"
            continue
        yield from (line for line in found if _but_for(line, run.path) not in known)
        known |= {_but_for(line, run.path) for line in found}


def _but_for(line: str, run: Path) -> str:
    return line.replace(str(run), "")


def scored_before(config: RunConfig, named: Mapping[str, Sequence[str]] | None = None) -> Iterator[str]:
    """Warnings of files that a run scores, and that one of the runs before it was trained on; of each the last of these
    is named. One more where the first of them are gone.

    Args:
        named: files that are scored in the place of the run's own, by the options that name them; None are those of
            the run (``evaluate.sources``, ``evaluate.choices``).
    """
    if config.init is None:
        return
    chain, places = lineage(config.init.path), Places()
    own = {Path(entry.path) for entry in config.data.sources}
    scored = {
        "evaluate.sources": [entry.path for entry in config.evaluate.sources],
        "evaluate.choices": [entry.path for entry in config.evaluate.choices],
    }
    for field, paths in (scored if named is None else named).items():
        for path in map(Path, paths):
            if any(places.overlap(path, its) for its in own):  # which is told
                continue
            found = ((run.path, its) for run in chain.runs if (its := _trained_on(run, path, places)) is not None)
            for run, its in islice(found, 1):
                yield f"{field}: {path} shares files with {its}, which {run} was trained on"
    if (line := chain.ends()) is not None and (named or _scores(config)):
        yield line


def _trained_on(run: Earlier, path: Path, places: Places) -> str | None:
    """The first source of a run that has files of ``path``."""
    sources = (run.settings.get("data") or {}).get("sources") or ()
    named = [str(entry["path"] if isinstance(entry, Mapping) else entry) for entry in sources]
    return next((its for its in named if not is_noted(its) and places.overlap(path, Path(its))), None)


def _scores(config: RunConfig) -> bool:
    """Whether a run scores anything at all."""
    shares = [config.data.held_out, *(entry.held_out for entry in config.data.sources)]
    return bool(config.evaluate.sources or config.evaluate.choices or any(shares))
