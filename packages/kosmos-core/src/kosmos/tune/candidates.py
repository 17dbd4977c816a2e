"""What is worth trying for a run on a machine: settings by which a step learns the same from as many tokens. No torch.

Each candidate is a few fields with their values. What the user has stated on the command line stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd, log
from typing import Any, Literal

from kosmos.config import RunConfig
from kosmos.runtime.dealing import num_groups
from kosmos.tune.outcome import Facts

Part = Literal["rows", "compile", "workers", "memory"]
Overrides = Mapping[str, Any]
"""Dotted fields of the run file to values."""

MOST_OF_A_PART = 3
"""Candidates of one part: a search is to take minutes."""
LEAST_ROW = 16
"""Tokens: ``data.tokens_per_pack`` is at least that."""
PASS = 16_384
"""Tokens of a pass that a GPU is tried with first: longer ones gain little more, and take memory."""
WAITS = 0.02
"""Share of a step that has to be spent waiting for rows before more data workers are tried."""
COMPILE_S = 15.0
"""What PyTorch's compiler takes on a CPU before the first steps: a quarter of a minute."""
HOPED = 0.1
"""Share of the time that compiled blocks may save on a CPU, as far as whether to try them goes."""
ROOM = 2.0
"""So many times the memory that a run takes have to be free on a CPU before it is tried without recomputing."""


@dataclass(frozen=True)
class Candidate:
    """Settings that may be faster."""

    part: Part
    """Of two winners of one part the faster is taken."""
    overrides: Overrides
    why: str
    note: str = ""
    """What changes for the user beside the speed."""
    pays_back: bool = False
    """Its first steps are longer, which the rest of the run has to win back."""


@dataclass(frozen=True)
class Situation:
    """What candidates depend on."""

    config: RunConfig
    facts: Facts
    step_s: float
    """Of the run as it is."""
    waiting: float
    """Share of it that is spent waiting for rows."""
    is_fixed: Callable[[str], bool] = field(default=lambda path: False)
    """Whether the user has stated a field on the command line."""
    thorough: bool = False
    """Try also what rarely pays or takes long."""
    room: float | None = None
    """Free memory over what the run takes; None where it is not known, or on a GPU, whose trials fail cleanly."""
    lacks_memory: bool = False
    """Rows are computed in parts for want of memory."""


def candidates(now: Situation) -> list[Candidate]:
    """Those that are worth a trial, in the order of what they promise."""
    found = [*_at_once(now), *_joined(now), *_longer_rows(now), *_memory(now), *_compile(now), *_workers(now)]
    return [one for one in found if not any(map(now.is_fixed, one.overrides))]


def rows_of(config: RunConfig, parts: int) -> dict[str, Any]:
    """Rows of a ``parts``-th of the tokens by so many times the lanes; budgets of cells are of rows too."""
    data = config.data
    assert data.tokens_per_pack % parts == 0
    budgets = {f"data.cells_per_pack.{stream}": most // parts for stream, most in data.cells_per_pack.items()}
    return {"data.tokens_per_pack": data.tokens_per_pack // parts, "data.lanes": data.lanes * parts, **budgets}


def longer_rows_of(config: RunConfig, times: int) -> dict[str, Any]:
    """Rows of so many times the tokens by fewer lanes."""
    data = config.data
    assert data.lanes % times == 0
    budgets = {f"data.cells_per_pack.{stream}": most * times for stream, most in data.cells_per_pack.items()}
    return {"data.tokens_per_pack": data.tokens_per_pack * times, "data.lanes": data.lanes // times, **budgets}


def can_be_cut(config: RunConfig, facts: Facts, parts: int) -> bool:
    """Whether rows can be so much shorter without a document of those looked at being left out or cut.

    A text that is cut into pieces has pieces of a whole row, and so forbids it: shorter ones are learned otherwise.
    """
    data = config.data
    if not may_be_cut(config, parts) or facts.longest is None or facts.longest > data.tokens_per_pack // parts:
        return False
    return all(facts.cells.get(stream, 0) <= most // parts for stream, most in data.cells_per_pack.items())


def may_be_cut(config: RunConfig, parts: int) -> bool:
    """Whether rows can be so much shorter where all documents fit into them."""
    data = config.data
    one_row = config.train.release_gradients or data.look_ahead == 1  # a step, or of each document
    return not (data.tokens_per_pack % parts or data.tokens_per_pack // parts < LEAST_ROW or one_row)


def _other_rows(tokens: int, *, shorter: bool) -> str:
    note = "other rows: samples come in another order, and a run under way cannot go on with it"
    if shorter:
        return f"{note}; a document with media of more than {tokens:,} tokens would be left out, a text cut into pieces"
    return f"{note}; texts are cut into pieces of up to {tokens:,} tokens"


def _at_once(now: Situation) -> Iterator[Candidate]:
    """Several rows by fewer threads each, on a CPU with one process."""
    config, facts = now.config, now.facts
    if facts.device != "cpu" or facts.processes > 1 or facts.at_once_refused or config.train.compile is True:
        return
    lanes, current = config.data.lanes, config.train.lanes_at_once
    shared = gcd(lanes, facts.threads)
    numbers = [number for number in range(shared, 0, -1) if shared % number == 0 and number != current]
    for number in numbers[:MOST_OF_A_PART]:
        why = f"{number} rows at once by {facts.threads // number} of {facts.threads} threads each"
        note = "" if number > current else "less memory"
        yield Candidate("rows", {"train.lanes_at_once": number}, why if number > 1 else "one row after another", note)
    if shared > 1 or facts.threads == 1:
        return
    parts = [number for number in (2, 4, 8) if facts.threads % number == 0 and can_be_cut(config, facts, number)]
    for number in parts[:MOST_OF_A_PART]:
        fields = {**rows_of(config, number), "train.lanes_at_once": number}
        tokens = fields["data.tokens_per_pack"]
        why = f"{number} rows at once, of {tokens:,} tokens each"
        yield Candidate("rows", fields, why, _other_rows(tokens, shorter=True))


def _joined(now: Situation) -> Iterator[Candidate]:
    """Several rows as one on a GPU, for which each is launched by itself."""
    config, facts = now.config, now.facts
    groups = num_groups(facts.processes, config.parallel.sharing)
    if facts.device != "cuda" or now.lacks_memory or config.data.lanes % groups:
        return
    lanes, current = config.data.lanes // groups, config.train.lanes_at_once
    whole = [number for number in range(1, lanes + 1) if lanes % number == 0 and number != current]
    near = sorted(whole, key=lambda number: abs(log(number * config.data.tokens_per_pack / PASS)))[:MOST_OF_A_PART]
    for number in sorted(near, reverse=True):
        why = f"{number} rows as one of {number * config.data.tokens_per_pack:,} tokens"
        note = "more memory" if number > current else "less memory"
        yield Candidate("rows", {"train.lanes_at_once": number}, why if number > 1 else "one row after another", note)


def _longer_rows(now: Situation) -> Iterator[Candidate]:
    """Longer rows fill a GPU as joined ones do; they also pack better, and bring samples in another order."""
    config, facts = now.config, now.facts
    if facts.device != "cuda" or not now.thorough or now.lacks_memory or config.data.look_ahead == 1:
        return
    groups = num_groups(facts.processes, config.parallel.sharing)
    for times in (2, 4):
        if config.data.lanes % times == 0 and (config.data.lanes // times) % groups == 0:
            fields = longer_rows_of(config, times)
            tokens = fields["data.tokens_per_pack"]
            yield Candidate("rows", fields, f"rows of {tokens:,} tokens", _other_rows(tokens, shorter=False))


def _memory(now: Situation) -> Iterator[Candidate]:
    """Fewer activations kept where memory does not suffice, more where it would do."""
    config, facts = now.config, now.facts
    kept = config.train.gradient_checkpointing
    if now.lacks_memory:
        yield from _kept(config)
        if can_be_cut(config, facts, 2):
            fields = rows_of(config, 2)
            yield Candidate("rows", fields, "shorter rows", _other_rows(fields["data.tokens_per_pack"], shorter=True))
        return
    if now.room is not None and now.room < ROOM:
        return
    if kept is True:
        yield Candidate("memory", _checkpointing("selective"), "recompute only what is cheap", "more memory")
    if kept is not False:
        yield Candidate("memory", _checkpointing(False), "recompute nothing", "more memory")


def _checkpointing(kept: bool | Literal["selective"]) -> dict[str, Any]:
    return {"train.gradient_checkpointing": kept}


def _kept(config: RunConfig) -> Iterator[Candidate]:
    if config.train.gradient_checkpointing is False:
        yield Candidate("memory", _checkpointing("selective"), "recompute what is cheap", "less memory")
    if config.train.gradient_checkpointing is not True:
        yield Candidate("memory", _checkpointing(True), "recompute activations", "less memory")


def smaller(config: RunConfig, facts: Facts | None, is_fixed: Callable[[str], bool]) -> Iterator[Candidate]:
    """For a run that memory does not suffice for: what takes less of it, in the order of what it costs.

    Args:
        facts: None where the run ended before it told any; then rows stay as they are.
    """
    less: dict[str, Any] = {}
    if config.train.lanes_at_once > 1 and not is_fixed("train.lanes_at_once"):
        less = {"train.lanes_at_once": 1}
        yield Candidate("memory", less, "one row after another", "less memory")
    for one in _kept(config):
        if not any(map(is_fixed, one.overrides)):
            less = {**less, **one.overrides}
            yield replace(one, overrides=less)
    for parts in (2, 4, 8):
        if facts is None or not can_be_cut(config, facts, parts):
            return
        fields = {**rows_of(config, parts), **less}
        if not any(map(is_fixed, fields)):
            tokens = fields["data.tokens_per_pack"]
            yield Candidate("memory", fields, f"rows of {tokens:,} tokens", _other_rows(tokens, shorter=True))


def _compile(now: Situation) -> Iterator[Candidate]:
    train, facts = now.config.train, now.facts
    if train.compile is not False and now.thorough:
        why = "no compiled blocks" if facts.device == "cuda" or train.compile is True else "no kernels of Kosmos's own"
        yield Candidate("compile", {"train.compile": False}, why)
    if train.compile is False or (train.compile is True and facts.device == "cpu"):
        yield Candidate("compile", {"train.compile": "auto"}, "what is compiled by default", pays_back=True)
    if facts.device != "cpu" or train.compile is True or facts.compile_refused or train.lanes_at_once > 1:
        return
    if now.thorough or train.steps * now.step_s * HOPED > COMPILE_S:
        yield Candidate("compile", {"train.compile": True}, "blocks compiled by PyTorch", pays_back=True)


def _workers(now: Situation) -> Iterator[Candidate]:
    """More processes that decode, where a step waits for them."""
    if now.waiting < WAITS:
        return
    number, tried = now.facts.workers, 0
    while number < now.facts.most_workers and tried < MOST_OF_A_PART:
        number, tried = min(now.facts.most_workers, max(1, 2 * number)), tried + 1
        why = f"{number} data workers: {100 * now.waiting:.0f} % of a step is spent waiting for rows"
        yield Candidate("workers", {"data.workers": number}, why)
