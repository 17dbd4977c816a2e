"""How lanes are dealt to processes, which is known before any of them starts. No torch here."""

from __future__ import annotations

from kosmos.errors import ConfigError


def num_groups(processes: int, sharing: int) -> int:
    """Groups with rows of their own, where ``sharing`` neighbours train the same. A process alone shares with none.

    Raises:
        ConfigError: the processes cannot be split so.
    """
    if processes == 1:
        return 1
    if processes % sharing:
        raise ConfigError(
            f"parallel: {processes} processes cannot be split into groups of tensor x sequence = {sharing}; "
            "start a multiple of them"
        )
    return processes // sharing


def check_dealing(num_lanes: int, processes: int, sharing: int, *, kept: bool = False) -> None:
    """Whether lanes can be dealt to processes, of which ``sharing`` train the same rows, evenly.

    Args:
        kept: the run goes on, so that it has the lanes that it began with.

    Raises:
        ConfigError: they cannot.
    """
    check_lanes(num_lanes, num_groups(processes, sharing), sharing, kept=kept)


def check_lanes(num_lanes: int, groups: int, sharing: int, *, kept: bool = False) -> None:
    """Raises ConfigError where the lanes cannot be dealt to so many groups of ``sharing`` processes evenly."""
    if num_lanes % groups:
        dealt = "processes" if sharing == 1 else f"groups of {sharing} processes"
        lanes = "1 lane" if num_lanes == 1 else f"{num_lanes} lanes"
        nearest = -(-num_lanes // groups) * groups
        other = f"set data.lanes={nearest}, of which a step takes {nearest} rows"
        if num_lanes > 1:
            of = "processes" if sharing == 1 else "groups"
            other += f", or start a number of {of} that divides {num_lanes}"
        if kept:
            other = "a run goes on in the lanes that it began with, so use a number of processes that divides them"
        raise ConfigError(f"data.lanes: {lanes} cannot be dealt evenly to {groups} {dealt}; {other}")
