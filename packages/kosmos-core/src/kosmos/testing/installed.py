"""The plugins of an installed distribution. No torch here: that it is not installed is said at once."""

from __future__ import annotations

from kosmos.discovery import PluginRecord
from kosmos.errors import PluginError
from kosmos.names import listed
from kosmos.plugins import Registry, load_plugins


def plugins_of(distribution: str) -> tuple[Registry, list[PluginRecord]]:
    """Everything that is installed, and of it the plugins of ``distribution``.

    Raises:
        PluginError: there is none, or one is disabled or not among the plugins named.
    """
    registry = load_plugins()
    there = (*registry.plugins, *registry.off)
    found = [record for record in there if _plain(record.distribution) == _plain(distribution)]
    if not found:
        installed = sorted({record.distribution for record in there if record.distribution})
        raise PluginError(f"no plugin of a distribution {distribution!r} is installed; installed: {listed(installed)}")
    for record in found:
        if record.off is not None:
            raise PluginError(f"plugin {record.label} is {record.off.why}; {record.off.remedy}")
    return registry, found


def _plain(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")
