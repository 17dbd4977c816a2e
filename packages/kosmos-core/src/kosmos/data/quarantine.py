"""The ledger of bad samples: each costs itself alone, and is named with its cause."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kosmos.errors import QuarantineFull


@dataclass(frozen=True, slots=True)
class Incident:
    """A sample that could not be used."""

    origin: str
    source: str
    code: str
    """Code of the error's kind."""
    cause: str


class Budget:
    """Counts draws and incidents; stops a run whose data are mostly bad."""

    MIN_DRAWN = 100
    """Below this many draws a share says nothing."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.drawn = 0
        self.bad = 0

    def add(self, drawn: int, incidents: list[Incident]) -> None:
        """Count.

        Raises:
            QuarantineFull: the share of bad samples is above the budget. They are not counted: who goes on draws them
                again.
        """
        drawn, bad = self.drawn + drawn, self.bad + len(incidents)
        if bad and drawn >= self.MIN_DRAWN and bad > self.share * drawn:
            last = incidents[-1] if incidents else None
            because = f"; the last: {last.origin}: {last.cause}" if last else ""
            raise QuarantineFull(
                f"{bad} of {drawn} samples were bad and data.quarantine allows a share of {self.share:g}{because}"
            )
        self.drawn, self.bad = drawn, bad

    def state(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "bad": self.bad}

    def load(self, state: dict[str, Any]) -> None:
        self.drawn, self.bad = state["drawn"], state["bad"]


def incident_row(incident: Incident, step: int) -> dict[str, Any]:
    """A row of ``quarantine.jsonl``."""
    return {"step": step, **asdict(incident)}
