"""What a run has drawn of each of its sources, for ``kosmos report``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kosmos.visible import in_a_line


def drawn_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tokens, documents and passes by source, of rows of metrics. Runs of older versions note no documents."""
    sums = {name: Counter[str]() for name in ("tokens_by_source", "documents_by_source")}
    for row in rows:
        for name, counts in sums.items():
            counts.update(row.get(name, {}))
    if not all("documents_by_source" in row for row in rows if row.get("tokens_by_source")):
        sums["documents_by_source"].clear()
    passes = rows[-1].get("epoch_by_source", {}) if rows else {}
    return {name: dict(sorted(counts.items())) for name, counts in sums.items()} | {"epoch_by_source": passes}


def drawn_lines(steps: Mapping[str, Any]) -> Iterator[str]:
    """The sources where there are several, or where they have weights: a line each.

    Args:
        steps: what ``drawn_of`` gave, among others.
    """
    tokens, documents, passes = (steps[f"{what}_by_source"] for what in ("tokens", "documents", "epoch"))
    whole = sum(tokens.values())
    if not whole or (len(tokens) < 2 and not passes):
        return
    for number, name in enumerate(sorted({*tokens, *passes})):
        said = [f"{100 * tokens.get(name, 0) / whole:.1f} % of the tokens"]
        said += [f"{documents[name]:,} documents"] if name in documents else []
        said += [f"{_short(passes[name])} pass{'es' * (passes[name] != 1)} over it"] if name in passes else []
        yield f"{'' if number else 'drawn':<10} {in_a_line(name)}: {', '.join(said)}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
