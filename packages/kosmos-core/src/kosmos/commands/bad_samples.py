"""Bad samples of a run, as its report tells them. Imports no torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kosmos.commands.causes import alike
from kosmos.commands.ledgers import rows_of

MOST_CAUSES = 10
"""Causes of bad samples that are shown."""


def bad_samples(file: Path) -> dict[str, Any]:
    """Samples by kind of error, and the most frequent causes of each source."""
    rows = [row for row in rows_of(file) if "origin" in row]
    unique = {(row["origin"], row.get("cause")): row for row in rows}.values()
    causes: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for row in unique:
        cause = row.get("cause", "")
        causes[row.get("source", ""), row.get("code", ""), alike(cause)][cause] += 1
    most = sorted(causes.items(), key=lambda found: -found[1].total())
    return {
        "samples": len({row["origin"] for row in rows}),
        "causes": [
            {
                "source": source,
                "code": code,
                "cause": cause if len(own) > 1 else next(iter(own)),
                "samples": own.total(),
            }
            for (source, code, cause), own in most
        ],
    }


def bad_lines(bad: Mapping[str, Any]) -> list[str]:
    if not bad["samples"]:
        return ["bad samples 0"]
    lines = [f"bad samples {bad['samples']:,}, each in quarantine.jsonl"]
    for row in bad["causes"][:MOST_CAUSES]:
        lines.append(f"  {row['samples']:>6,}  {row['source']}: {row['cause']}")
    rest = bad["causes"][MOST_CAUSES:]
    return lines + ([f"  {sum(r['samples'] for r in rest):>6,}  {len(rest)} further causes"] if rest else [])
