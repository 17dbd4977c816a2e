"""How a public name goes: with a warning that says since what, until when and what to use instead.

A name of ``kosmos`` that was renamed stands in ``_RENAMED`` of ``kosmos/__init__.py`` for at least one release.
"""

from __future__ import annotations

import warnings


def deprecated(what: str, *, instead: str, goes_in: str, stacklevel: int = 1) -> None:
    """Warn that ``what`` goes: a function calls it first, for itself or for an argument.

    Args:
        what: as users write it, such as ``"kosmos.old_name"`` or ``"score(workers=...)"``.
        instead: what to write in its place.
        goes_in: the release that has it no more, such as ``"27.02"``.
        stacklevel: frames between the caller of this function and the code that is warned about, less one.

    Example:
        >>> def old_score(run):
        ...     deprecated("kosmos.old_score", instead="kosmos.score", goes_in="27.02")
    """
    warnings.warn(
        f"{what} is deprecated and goes in Kosmos {goes_in}; use {instead}",
        DeprecationWarning,
        stacklevel=stacklevel + 2,
    )
