"""Look for the smallest example that breaks a promise: hypothesis, without its database and its clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from numpy.typing import NDArray

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


def stretches_of(media: Sequence[Media]) -> Any:
    """Beginnings of media that are arrays [time, ...], the whole included."""
    longest = max(len(as_array(medium)) for medium in media)
    # A length is drawn for all alike: so an example can become one of the first medium, and then a shorter one.
    drawn = st.tuples(st.sampled_from(media), st.integers(1, max(1, longest)))
    return drawn.map(lambda pair: replace(pair[0], source=as_array(pair[0])[: pair[1]].copy()))


def is_array(medium: Media) -> bool:
    """Whether it has a first axis to be cut along."""
    return isinstance(medium.source, np.ndarray) and medium.source.ndim > 0


def as_array(medium: Media) -> NDArray[Any]:
    """The source of a medium that is an array."""
    assert isinstance(medium.source, np.ndarray)
    return medium.source


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
