"""``kosmos data RUN --of-steps``: which documents steps of a run took."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kosmos.commands.bars import progress
from kosmos.errors import ConfigError
from kosmos.names import listed
from kosmos.own_output import aside
from kosmos.visible import in_a_line, say

if TYPE_CHECKING:
    from kosmos.train.replay import TakenStep

_STEPS = re.compile(r"([1-9]\d{0,17})(?:-([1-9]\d{0,17}))?")


def show_taken(run: str | None, steps: str, overrides: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the documents of some steps.

    Args:
        run: folder of a run.
        steps: ``7`` or ``7-9``.
        overrides: where the data of the run lie now, if they lie elsewhere.

    Raises:
        ConfigError: no run's folder was named, or these are no steps that it has taken.
    """
    first, last = _parsed(steps)
    if run is None or not (path := Path(run)).is_dir():
        raise ConfigError("--of-steps: name the folder of a run: kosmos data RUN --of-steps 7-9")

    from kosmos.compose import compose, make_feed
    from kosmos.run_sources import following, open_both
    from kosmos.train.json_lines import printed_json
    from kosmos.train.laid_over import laid_over
    from kosmos.train.newest_state import newest_state
    from kosmos.train.older_rules import rules_of
    from kosmos.train.output import RunFolder
    from kosmos.train.replay import last_step, steps_taken

    folder = RunFolder.open(path)
    if last > (taken := last_step(folder)):
        raise ConfigError(f"--of-steps {steps}: {path} has taken {taken:,} steps")
    with aside(), progress("finding the documents") as moved:
        config, registry, *_ = laid_over(folder, overrides)
        composition = compose(config, registry, tokenizer_folder=folder.tokenizer, draw=False)
        state = newest_state(folder.checkpoints)
        with following(**rules_of(state and state["order"])):
            sources, _ = open_both(config, registry)
        found = steps_taken(folder, make_feed(composition, sources), first, last, moved=moved)
        if as_json:
            told = printed_json({"steps": [asdict(step) for step in found]})
        else:
            step = next(found, None)  # the others come as they are found, which needs no bar
    if as_json:
        print(told)
        return
    while step is not None:
        say("\n".join(map(in_a_line, _lines(step))))
        with aside():
            step = next(found, None)


def refuse_beside(given: Mapping[str, Any]) -> None:
    """Raises ConfigError where an option was given that says nothing of steps that were taken."""
    if useless := [name for name, value in given.items() if value is not None]:
        raise ConfigError(
            f"--of-steps: {listed(useless)} would have no effect; where data have moved: data.sources.0.path=PATH"
        )


def _parsed(steps: str) -> tuple[int, int]:
    match = _STEPS.fullmatch(steps)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise ConfigError(
            f"--of-steps: expected a step from 1 on, or the first and the last, such as 7-9, got {steps!r}"
        )
    return first, last


def _lines(step: TakenStep) -> Iterator[str]:
    yield f"step {step.step:,}: {len(step.documents)} document{'s' * (len(step.documents) != 1)}"
    for document in step.documents:
        bad = ", bad and left out" if document.is_bad else ""
        yield f"  lane {document.lane}  {document.source}  {document.origin}  {document.tokens:,} tokens{bad}"
    if step.other:
        yield f"  warning: {step.other}"
