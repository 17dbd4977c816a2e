"""Which documents are scored, as a run file says it: a part of ``kosmos.config``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kosmos.strict import Strict


class ScoredConfig(Strict):
    """How many documents of a source, and which of more than these."""

    max_documents: int = Field(default=512, ge=1)
    """Most held-out documents of each source that are scored."""
    spread: Literal["drawn", "even"] = "drawn"
    """Which ones where a source has more: ``drawn`` at random all over it, in each scoring the same ones; ``even``
    takes every n-th, which follows what alternates in the order of the rows. A run whose own file does not say it keeps
    ``even``, by which versions before this field chose."""

    @property
    def is_even(self) -> bool:
        """As of ``kosmos.data.spread``."""
        return self.spread == "even"


def with_spread(values: dict[str, Any]) -> dict[str, Any]:
    """A run's own file, which says how its documents are chosen: those of versions before this field do not.

    A run that goes on scores the documents that it scored before, or its scores would not compare.
    """
    evaluate = values.get("evaluate")
    if not (isinstance(evaluate, dict) or evaluate is None) or "spread" in (evaluate or {}):
        return values
    return {**values, "evaluate": {**(evaluate or {}), "spread": "even"}}
