"""Which documents were in which row of a run whose encoder keeps a ledger: see ``ticks_encoder.TicksEncoder``."""

from __future__ import annotations

from pathlib import Path

from support.runs import rows_of


def documents(ledger: Path) -> dict[int, list[str]]:
    """Documents by the seed of step and lane. A row that was taken again must have had the same."""
    found: dict[int, list[str]] = {}
    for row in rows_of(ledger):
        before = found.setdefault(row["seed"], row["documents"])
        assert before == row["documents"], f"the row of seed {row['seed']} had {before}, then {row['documents']}"
    return found
