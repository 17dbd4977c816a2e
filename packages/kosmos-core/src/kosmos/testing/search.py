"""Look for the smallest example that breaks a promise: hypothesis, without its database and its clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from kosmos.data.document import Media
from kosmos.testing.items import Item

SETTINGS = settings(
    database=None,
    derandomize=True,
    deadline=None,
    report_multiple_bugs=False,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


def search(strategy: Any, check: Callable[[Any], None], *, most: int = 50, seconds: float = 15.0) -> None:
    """Run ``check`` on generated examples; the smallest that it raises at is what is raised.

    Args:
        most: examples.
        seconds: after which no further example is tried, unless one has failed and is being made smaller.
    """
    end = monotonic() + seconds
    failed = False

    @settings(SETTINGS, max_examples=most)
    @given(strategy)
    def run(example: Any) -> None:
        nonlocal failed
        if not failed and monotonic() > end:
            return
        try:
            check(example)
        except BaseException:
            failed = True
            raise

    run()


def rows_of(items: Sequence[Item], *, least: int = 0, most: int = 4) -> Any:
    """Rows of items in any order, with repetitions."""
    return st.lists(st.sampled_from(items), min_size=least, max_size=most)


def media_like(media: Sequence[Media]) -> Any:
    """The media, and stretches of those that are arrays (of their first axis)."""
    return st.sampled_from(media).flatmap(_stretches)


def _stretches(medium: Media) -> Any:
    source = medium.source
    if not isinstance(source, np.ndarray) or source.ndim == 0 or len(source) < 2:
        return st.just(medium)
    # The whole is the longest stretch, so that the smallest example is a short one.
    return st.integers(1, len(source)).map(lambda length: replace(medium, source=source[:length].copy()))


def described(medium: Media) -> str:
    """A medium in a few words: ``"a float32 array [17, 3]"``."""
    source = medium.source
    if isinstance(source, np.ndarray):
        what = f"a {source.dtype} array {list(source.shape)}"
        if source.size and source.dtype.kind == "f" and not np.isfinite(source.flat[:1000]).all():
            what += " with values that are not finite"
    elif isinstance(source, bytes):
        what = f"{len(source)} bytes {source[:24]!r}{'...' if len(source) > 24 else ''}"
    else:
        what = f"the path {str(source)!r}"
    more = [f"{name} {value}" for name in ("clip", "rate_hz") if (value := getattr(medium, name)) is not None]
    return ", ".join([what, *more])
