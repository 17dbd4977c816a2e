"""How two models differ on the same documents, as lines that are printed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kosmos.commands.by_value import aligned
from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.evaluate.paired import Difference

SURE = 0.05
"""p below which one of the two is told to be better."""
_HEADS = {"bits_per_byte": "bits/byte", "exact_match": "exact match", "accuracy_by_length": "by length"}


def difference_lines(found: Sequence[Difference]) -> Iterator[str]:
    """A table, as plain lines, without groups that are all documents: their lines would be the same."""
    whole = {one.figure: one.documents for one in found if one.kind == "all"}
    rows = []
    for one in found:
        if one.kind in ("all", "choices") or one.documents != whole.get(one.figure):
            share = one.only_first is not None
            group = "all" if one.kind == "all" else in_a_line(one.name)
            ends = [_cell(end, share) for end in (one.low, one.high) if end is not None]
            rows.append((
                f"{group}, {_HEADS.get(one.figure, one.figure)}", f"{one.documents:,}", _cell(one.first, share, "-"),
                _cell(one.second, share, "-"), _cell(one.difference, share), " to ".join(ends) or "-",
                "-" if one.p is None else f"{one.p:.2g}", _better(one),
            ))  # fmt: skip
    yield from aligned(("", "documents", "first", "second", "difference", "95 %", "p", "better"), rows)


def _cell(value: float, share: bool, sign: str = "+") -> str:
    if math.isnan(value):
        return "-"
    return f"{100 * value:{sign}.2f} %" if share else f"{value:{sign}.4f}"


def _better(one: Difference) -> str:
    if one.p is None or not one.p < SURE:
        return "-"
    return "first" if (one.difference > 0) != one.lower_is_better else "second"
