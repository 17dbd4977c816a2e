"""Write a new plugin from the template in ``templates/plugin``: copier renders it and asks what copier.yml says."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

from kosmos.components import API_VERSION
from kosmos.discovery import reserved
from kosmos.errors import ConfigError, PluginError, unwritable
from kosmos.plugins import Registry

TEMPLATE = Path(__file__).parent / "plugin"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
CORE_VERSION = "26.11"
"""The first calendar version: what an unrelated kosmos-core of the registry cannot satisfy."""


def make_plugin(name: str, where: Path, *, ask: bool, registry: Registry) -> Path:
    """Make the folder ``where/kosmos-NAME``.

    Args:
        name: of the modality: lower-case letters, digits and hyphens.
        where: an existing folder.
        ask: ask the template's questions on the terminal; its defaults are taken otherwise.
        registry: what is installed; no name of it may be taken twice.

    Returns:
        The folder.

    Raises:
        ConfigError: the name cannot be used, or the folder exists.
        PluginError: copier is not installed.
    """
    check_name(name, registry)
    if ask and not sys.stdin.isatty():
        raise ConfigError("the questions need a terminal; --defaults asks none")
    folder = where / f"kosmos-{name}"
    if not where.is_dir():
        raise ConfigError(f"--output {where}: no such folder")
    if folder.exists():
        raise ConfigError(f"{folder}: exists already; remove it, or name another folder with --output")
    package = f"kosmos_{name.replace('-', '_')}"
    class_name = "".join(part.capitalize() for part in name.split("-"))
    answers = {"name": name, "package": package, "class_name": class_name, "core_version": CORE_VERSION}
    _render(folder, answers, ask=ask)
    return folder


def check_name(name: str, registry: Registry) -> None:
    """Refuse a name that no modality can have.

    Raises:
        ConfigError: says why, and what to do.
    """
    if name.startswith("kosmos-"):
        raise ConfigError(f"{name}: give the modality's name alone: kosmos plugin new {name.removeprefix('kosmos-')}")
    if not NAME.fullmatch(name) or len(name) > 40:
        raise ConfigError(f"{name!r}: expected up to 40 lower-case letters, digits and single hyphens, a letter first")
    if why := reserved(name) or (keyword.iskeyword(name) and "Python has a keyword of this name"):
        raise ConfigError(f"{name!r} is reserved ({why}); choose another name")
    if near := next((m for m in registry.specs("modality") if name == f"{m}s" or m == f"{name}s"), None):
        raise ConfigError(f"{name!r}: rows of data mean the modality {near!r} by this name; choose another name")
    taken = {"modality": name, "encoder": name, "dataset": f"{name}-samples"}
    for kind, wanted in taken.items():
        if wanted in registry.specs(kind):
            owner = registry.owner(kind, wanted).label
            raise ConfigError(f"{name!r}: plugin {owner} brings the {kind} {wanted!r} already; choose another name")
    for plugin in registry.plugins:
        if plugin.name == name:
            raise ConfigError(f"{name!r}: a plugin of this name is installed: {plugin.label}; choose another name")


def _render(folder: Path, answers: dict[str, str], *, ask: bool) -> None:
    try:
        from copier import run_copy
        from copier.errors import CopierAnswersInterrupt, CopierError
    except ModuleNotFoundError as error:
        raise PluginError(
            f"kosmos plugin new needs {error.name}: pip install 'kosmos-core[testing]>={CORE_VERSION}'"
        ) from error
    assert API_VERSION == 1, "the template states KOSMOS_API = 1"
    try:
        run_copy(str(TEMPLATE), folder, data=answers, defaults=not ask, quiet=True)
    except CopierAnswersInterrupt as error:
        raise KeyboardInterrupt from error
    except CopierError as error:
        raise ConfigError(f"{folder}: the template cannot be rendered: {error}") from error
    except OSError as error:
        raise unwritable(folder, error, "nothing is left there; name another --output") from error
