"""All verdicts on a plugin, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from kosmos.testing.promise import Verdict

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


@dataclass(frozen=True)
class ScoreCard:
    """The verdict on every promise of a plugin."""

    plugin: str
    """Distribution, or name of a plugin that is not installed."""
    version: str
    verdicts: tuple[Verdict, ...]

    def having(self, outcome: Literal["passed", "failed", "skipped"]) -> Sequence[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.outcome == outcome]

    @property
    def failed(self) -> Sequence[Verdict]:
        return self.having("failed")

    @property
    def summary(self) -> str:
        """``"kosmos-depth 0.1: 40 passed, 0 failed, 3 skipped"``."""
        counts = (f"{len(self.having(outcome))} {outcome}" for outcome in ("passed", "failed", "skipped"))
        return f"{self.plugin} {self.version}".strip() + ": " + ", ".join(counts)

    def to_json(self) -> str:
        """One object: plugin, version, the three counts, and ``promises`` with the fields of ``Verdict``."""
        counts = {outcome: len(self.having(outcome)) for outcome in ("passed", "failed", "skipped")}
        head = {"plugin": self.plugin, "version": self.version}
        return json.dumps({**head, **counts, "promises": [asdict(verdict) for verdict in self.verdicts]}, indent=2)

    def table(self) -> Table:
        """The score card for a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table("component", "promise", "outcome", "s", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for verdict in self.verdicts:
            outcome = Text(verdict.outcome, STYLES[verdict.outcome])
            table.add_row(Text(verdict.component), Text(verdict.id), outcome, f"{verdict.seconds:.1f}")
        return table
