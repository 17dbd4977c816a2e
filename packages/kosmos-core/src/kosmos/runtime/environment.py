"""What a launcher, or a user by hand, says to the processes of a run in environment variables. No torch here."""

from __future__ import annotations

import os

from kosmos.errors import ConfigError

ALONE = "for one process unset RANK and WORLD_SIZE"


def num_processes() -> int:
    """Processes of the run.

    Raises:
        ConfigError: ``WORLD_SIZE`` is no such number.
    """
    return _number("WORLD_SIZE", "1", 1)


def own_rank(world_size: int) -> int:
    """The number of this process, which one of several must be told.

    Raises:
        ConfigError: ``RANK`` is none of theirs.
    """
    return _number("RANK", "0" if world_size == 1 else "", 0, world_size - 1, f" (WORLD_SIZE is {world_size})")


def own_local_rank() -> int:
    """Its number among those of this machine. Raises ConfigError where ``LOCAL_RANK`` is no such number."""
    return _number("LOCAL_RANK", "0", 0)


def num_local_processes() -> int:
    """Those of this machine. Raises ConfigError where ``LOCAL_WORLD_SIZE`` is no such number."""
    return _number("LOCAL_WORLD_SIZE", "1", 1)


def meeting_place() -> str:
    """``HOST:PORT`` where the processes of the run meet.

    Raises:
        ConfigError: ``MASTER_ADDR`` or ``MASTER_PORT`` does not say so.
    """
    host = os.environ.get("MASTER_ADDR", "")
    if not host:
        raise ConfigError(f"MASTER_ADDR: expected the host of rank 0, where the processes meet, got nothing; {ALONE}")
    return f"{host}:{_number('MASTER_PORT', '', 1, 65535)}"


def _number(variable: str, default: str, least: int, most: int | None = None, why: str = "") -> int:
    """An empty variable is one that is not set."""
    text = os.environ.get(variable) or default
    if text == "-1" and default:  # what older programs say for "not distributed"
        text = default
    if text.isdecimal() and least <= int(text) and (most is None or int(text) <= most):
        return int(text)
    expected = f"a number from {least} {'on' if most is None else f'to {most}'}"
    raise ConfigError(f"{variable}: expected {expected}{why}, got {repr(text) if text else 'nothing'}; {ALONE}")
