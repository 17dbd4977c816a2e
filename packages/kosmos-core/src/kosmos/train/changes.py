"""Settings that a run goes on with in place of others: rows of ``changes.jsonl``. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kosmos.config import RunConfig
from kosmos.train.json_lines import step_row, written_lines
from kosmos.train.order import differences

Changed = dict[str, list[Any]]
"""By the dotted path of a field, its value before and after."""


def changed_settings(before: RunConfig, now: RunConfig) -> Changed:
    """What differs in two run files of a run. Where its folder is says nothing of it."""
    one, other = (config.model_dump(mode="json", exclude={"output"}) for config in (before, now))
    return {path: [old, new] for path, old, new in differences(one, other, "")}


def told(changed: Mapping[str, Sequence[Any]]) -> str:
    """For a person: ``train.weight_decay 0.1 -> 0.2, train.steps 40 -> 46``."""
    return ", ".join(f"{path} {_word(old)} -> {_word(new)}" for path, (old, new) in changed.items())


def changes_of(file: Path) -> list[dict[str, Any]]:
    """The rows of a ledger of changes; a line that a crash cut short is passed over."""
    found = (step_row(line) for line in written_lines(file))
    return [row for row in found if row is not None and "changed" in row]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
