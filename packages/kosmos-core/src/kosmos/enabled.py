"""Which of the installed plugins may be loaded: what the user disabled, or ``KOSMOS_PLUGINS`` in its place.

What is disabled stands in a file of the user and not of a project: a plugin runs with the user's rights, so no
folder that somebody downloads may enable one. Run files and ``--plugins`` only narrow what is enabled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kosmos.errors import ConfigError, unwritable
from kosmos.files import replace_text

VARIABLE = "KOSMOS_PLUGINS"
"""Names of the plugins to load beside core, or ``all``. Unset or empty: as the user's file says."""
ALL = "all"


@dataclass(frozen=True)
class Off:
    """Why an installed plugin is not loaded."""

    why: str
    """``"disabled"``, for ``plugin x is ...``."""
    remedy: str
    """What to do."""
    brought: tuple[str, ...] = ()
    """What it brought when it was disabled, each as ``"encoder logmel"``. Empty where nobody knows."""


@dataclass(frozen=True)
class Enabling:
    """The rules of a moment."""

    only: frozenset[str] | None = None
    """Names in ``KOSMOS_PLUGINS``; None where it does not say."""
    disabled: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())
    """Name and what it brought, of each plugin that the user disabled."""

    def off(self, name: str) -> Off | None:
        """Why the plugin ``name`` is not loaded; None where it is."""
        if self.only is not None:
            return None if name in self.only else Off(f"not among {VARIABLE}", "name it there")
        brought = dict(self.disabled).get(name)
        return None if brought is None else Off("disabled", f"enable it with: kosmos plugins enable {name}", brought)


def enabling() -> Enabling:
    """The rules as they are now.

    Raises:
        ConfigError: the user's file cannot be read, so that nobody knows what is disabled.
    """
    said = os.environ.get(VARIABLE, "").strip()
    if said:
        return Enabling(None if said == ALL else frozenset(split_names(said)))
    return Enabling(None, tuple(read_disabled(config_file()).items()))


def split_names(text: str) -> list[str]:
    """``"a, b"`` as names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def config_file() -> Path:
    """``kosmos/plugins.json`` where the user's settings are (``XDG_CONFIG_HOME``, else ``~/.config``)."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home, "kosmos", "plugins.json")


def read_disabled(file: Path) -> dict[str, tuple[str, ...]]:
    """Name of each disabled plugin to what it brought; empty where there is no file.

    Raises:
        ConfigError: it cannot be read or has another form.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): tuple(map(str, brought)) for name, brought in content["disabled"].items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f'{file}: cannot tell which plugins are disabled: expected {{"disabled": {{"NAME": []}}}} ({error!r}); '
            f"repair or remove the file, or set {VARIABLE}"
        ) from error


def write_disabled(file: Path, disabled: Mapping[str, Collection[str]]) -> None:
    """Replace the user's file.

    Raises:
        ConfigError: it cannot be written.
        TrainingError: the disk is full.
    """
    text = json.dumps({"disabled": {name: list(disabled[name]) for name in sorted(disabled)}}, indent=2)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, text + "\n")
    except OSError as error:
        raise unwritable(file, error, f"set {VARIABLE} instead", "cannot be written") from error
