"""Which of the installed plugins a command loads: those that are enabled, narrowed to those that are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from kosmos.discovery import CORE, Candidate, PluginRecord
from kosmos.enabled import VARIABLE, Enabling, Off
from kosmos.errors import PluginError
from kosmos.names import did_you_mean, listed

_asked: ContextVar[tuple[str, ...] | None] = ContextVar("asked", default=None)


@contextmanager
def only_plugins(names: Sequence[str] | None) -> Iterator[None]:
    """Within it ``load_plugins`` loads core and ``names`` alone: ``--plugins``. None changes nothing."""
    token = _asked.set(None if names is None else tuple(names))
    try:
        yield
    finally:
        _asked.reset(token)


def asked_plugins() -> tuple[str, ...] | None:
    """The names of ``only_plugins``."""
    return _asked.get()


def plugins_option() -> list[str]:
    """``--plugins`` as this command was given it, for another command; [] where it was not."""
    return [] if (plugins := asked_plugins()) is None else ["--plugins", ",".join(plugins)]


def choose(
    candidates: Sequence[Candidate], only: Sequence[str] | None, rules: Enabling
) -> tuple[list[Candidate], list[PluginRecord]]:
    """What to load, and the rest with why. Core is always loaded.

    Args:
        only: narrows to the plugins named; None does not.
        rules: what is enabled.

    Raises:
        PluginError: a plugin that is named is not installed or not enabled.
    """
    known = {candidate.name: candidate.label for candidate in candidates}
    check_installed(rules.only or (), known, VARIABLE)
    check_installed(only or (), known)
    for name in only or ():
        if name != CORE and (off := rules.off(name)) is not None:
            raise PluginError(f"plugin {known[name]} is {off.why}; {off.remedy}")
    chosen, left = [], []
    for candidate in candidates:
        why = None if candidate.name == CORE else rules.off(candidate.name) or _left_out(candidate.name, only)
        if why is None:
            chosen.append(candidate)
        else:
            left.append(
                PluginRecord(candidate.name, candidate.distribution, candidate.version, candidate.module, off=why)
            )
    return chosen, left


def check_installed(names: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Raises PluginError, which begins with ``where``, at the first name that is not among the installed plugins."""
    there = list(known)
    for name in names:
        if name not in there:
            hint = did_you_mean(name, there) or f"plugins: {listed(there)}"
            raise PluginError(f"{where}{': ' if where else ''}plugin {name!r} is not installed; {hint}")


def _left_out(name: str, only: Sequence[str] | None) -> Off | None:
    if only is None or name in only:
        return None
    return Off("not among the plugins named", "add it to --plugins, or to plugins of the run file")
