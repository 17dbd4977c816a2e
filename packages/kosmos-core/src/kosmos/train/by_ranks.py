"""What ranks have found, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def union(feeds: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Documents that ended workers, by any rank."""
    return [list(d) for d in sorted({tuple(d) for f in feeds for d in f["deadly"]})]


def first(reasons: Sequence[str | None]) -> str | None:
    """Of all ranks' reasons the first, with its rank where there are several."""
    found = next(((rank, reason) for rank, reason in enumerate(reasons) if reason), None)
    if found is None:
        return None
    return found[1] + (f" (rank {found[0]})" if len(reasons) > 1 else "")
