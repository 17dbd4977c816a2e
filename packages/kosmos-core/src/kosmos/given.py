"""Arguments of functions that are called from Python: taken in any form that means one thing, else refused in a line.

Torch-free. What a run file says is checked where it is read.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any

from kosmos.errors import ConfigError

MAX_SEED = 2**64 - 1
"""The largest that torch takes."""
A_RUN = "a run's folder, such as 'runs/mine'"
MADE_BY = "make_run makes one of a mapping"
_BETWEEN = ("kosmos", "contextlib")
"""Packages whose frames stand between the code of a caller and a function of ours: those of decorators, too."""


def warn_caller(line: str) -> None:
    """A ``UserWarning`` at the line of code that has called Kosmos."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(line, stacklevel=level)


def whole(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """A whole number, of Python, numpy or PyTorch. Raises ConfigError where it is none from ``least`` to ``most``."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        to = "on" if most is None else f"to {most}"
        raise ConfigError(f"{name}: expected a whole number from {least} {to}, got {value!r:.60}")
    return number


def seeds_of(value: Any, count: int) -> list[int]:
    """A seed of each of ``count`` documents: one for all of them, or a list. Raises ConfigError where it is neither."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of numpy or PyTorch
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return [whole("seed", value, least=0, most=MAX_SEED)] * count
    if len(value) != count:
        raise ConfigError(f"seed: expected a single one, or one for each document ({count}), got {len(value)}")
    return [whole(f"seed[{number}]", one, least=0, most=MAX_SEED) for number, one in enumerate(value)]


def is_number(value: Any) -> bool:
    """Whether it is a finite number of Python, numpy or PyTorch."""
    if isinstance(value, bool | str | bytes):
        return False
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of tensors of several numbers
        return False


def path_of(name: str, value: str | Path, what: str) -> Path:
    """The path of ``what`` that errors say is expected. Raises ConfigError where it is no path at all."""
    if not isinstance(value, str | PathLike):
        raise ConfigError(f"{name}: expected the path of {what}, got {value!r:.60}")
    return Path(value)


def check_is(name: str, value: object, kind: type, advice: str) -> None:
    """Raises ConfigError, which ends with the advice, where it is something else than a ``kind``."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name}: expected a {kind.__name__}, got {type(value).__name__}; {advice}")


def check_list(name: str, value: object, kind: type, advice: str) -> None:
    """As ``check_is``, of what has to be a list of such."""
    wrong = [one for one in value if not isinstance(one, kind)] if isinstance(value, list | tuple) else [value]
    if wrong:
        raise ConfigError(f"{name}: expected a list of {kind.__name__}, got {wrong[0]!r:.60}; {advice}")
