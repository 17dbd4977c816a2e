"""How ``kosmos data`` shows the figures of sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.data.figures import Figures


def more_lines(name: str, of: Figures) -> Iterator[str]:
    """Weights and answers of a source, by some of its documents."""
    from kosmos.data.answers import told

    if of.weights is not None:
        least, mean, most = of.weights
        yield f"weights   {in_a_line(name)}: {least:g} to {most:g}, {mean:.3g} on average"
    if of.answers:
        yield f"answers   {in_a_line(name)}: {in_a_line(told(of.answers))}, of {of.looked_at} documents looked at"


def of_answers(figures: Mapping[str, Figures | None]) -> Iterator[str]:
    """Warnings of labels that seem to be misspelt, or none."""
    from kosmos.data.answers import doubtful

    for name, of in figures.items():
        yield from (f"{name}: {line}" for line in doubtful(of.answers)) if of is not None else ()
