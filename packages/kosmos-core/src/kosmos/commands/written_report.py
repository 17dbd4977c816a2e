"""What a run wrote at its first and at its last scoring, as its report has both. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kosmos.commands.ledgers import figures_of, rows_of
from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.train.output import RunFolder

MOST = 3
"""Documents of each source."""
WIDTH = 100
"""Characters of a text in a line."""


def written_of(run: RunFolder) -> dict[str, Any] | None:
    """The answers to the same documents, the first few of each source that both scorings have; None where nothing is
    kept. Of one scoring alone both are the same."""
    files = run.answers.files()
    if not files:
        return None
    (first, one), (last, other) = next(iter(files.items())), list(files.items())[-1]
    with figures_of(one, other):
        before = {_which(row): row for row in rows_of(one)}
        shown: dict[str, list[dict[str, Any]]] = {}
        for row in rows_of(other):
            of_source = shown.setdefault(row["source"], [])
            if len(of_source) < MOST and (earlier := before.get(_which(row))) is not None:
                of_source.append(_told(row, earlier))
    return {"first": first, "last": last, "kept": len(files), "sources": shown}


def _which(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """What a document is known by: an edited row asks something else."""
    return row["source"], row["document"], row["prompt"]


def _told(row: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    asked = {key: row[key] for key in ("document", "prompt", "expected") if key in row}
    return {**asked, "first": earlier["answer"], "last": row["answer"]}


def written_lines(found: Mapping[str, Any] | None) -> Iterator[str]:
    """As plain lines, the answers to a document one below the other."""
    if found is None or not any(found["sources"].values()):
        return
    steps = {found["first"]: "first", found["last"]: "last"}
    yield ""
    yield f"answers    of the first and the last scoring (answers/ has {found['kept']:,} files)"
    for source, documents in found["sources"].items():
        for one in documents:
            yield f"  {source}: {in_a_line(one['document'])}"
            yield f"    {'prompt':<12} {_end(one['prompt'])}"
            if "expected" in one:
                yield f"    {'expected':<12} {_begin(one['expected'])}"
            for step, key in steps.items():
                said = _begin(one[key])
                yield f"    {f'step {step:,}':<12} {said}"


def _begin(text: str) -> str:
    return in_a_line(text if len(text) <= WIDTH else f"{text[:WIDTH]} …")


def _end(text: str) -> str:
    return in_a_line(text if len(text) <= WIDTH else f"… {text[-WIDTH:]}")
