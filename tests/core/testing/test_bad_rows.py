"""A dataset may have rows that cannot be used: they are passed over, as in a run."""

from __future__ import annotations

from typing import Any

import pytest

from kosmos.testing import BrokenPromise, promises_of
from support import bad_rows


def promises(name: str) -> dict[str, Any]:
    return {p.id: p for p in promises_of(bad_rows, fast=True) if p.component == f"dataset {name}"}


@pytest.mark.parametrize("promise", promises("some").values(), ids=str)
def test_bad_rows_break_no_promise(promise: Any) -> None:
    promise.check()


def test_rows_that_are_bad_at_times_are_no_deterministic_documents() -> None:
    with pytest.raises(BrokenPromise, match=r"row \d is a document once, and a bad sample "):
        promises("attimes")["documents-deterministic"].check()


@pytest.mark.parametrize("name", ["builds", "documents-deterministic", "parts-disjoint", "origins-name-rows"])
def test_a_dataset_of_bad_rows_alone_breaks_its_promises(name: str) -> None:
    with pytest.raises(BrokenPromise, match="none of 7 rows can be used; the first: no label"):
        promises("never")[name].check()
