"""Bad samples of a run, as its report tells them. Imports no torch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kosmos.commands.causes import alike
from kosmos.commands.ledgers import rows_of
from kosmos.data.ledger_codes import MEDIUM

MOST_CAUSES = 10
"""Causes of bad samples that are shown."""


def bad_samples(file: Path) -> dict[str, Any]:
    """Samples by kind of error, and the most frequent causes of each source."""
    noted = [row for row in rows_of(file) if "origin" in row]
    rows = [row for row in noted if row.get("code") != MEDIUM]
    unique = {(row["origin"], row.get("cause")): row for row in rows}.values()
    causes: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for row in unique:
        cause = row.get("cause", "")
        causes[row.get("source", ""), row.get("code", ""), alike(cause)][cause] += 1
    most = sorted(causes.items(), key=lambda found: -found[1].total())
    return {
        "samples": len({row["origin"] for row in rows}),
        "media_left_out": len({(row["origin"], row.get("cause")) for row in noted}) - len(unique),
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
    lost = bad["media_left_out"]
    of_media = [f"media left out of documents that were learned {lost:,}, each in quarantine.jsonl"] if lost else []
    if not bad["samples"]:
        return ["bad samples 0", *of_media]
    lines = [f"bad samples {bad['samples']:,}, each in quarantine.jsonl"]
    for row in bad["causes"][:MOST_CAUSES]:
        lines.append(f"  {row['samples']:>6,}  {row['source']}: {row['cause']}")
    rest = bad["causes"][MOST_CAUSES:]
    return lines + of_media + ([f"  {sum(r['samples'] for r in rest):>6,}  {len(rest)} further causes"] if rest else [])
