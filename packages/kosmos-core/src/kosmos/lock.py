"""What each plugin of a run is made of: name, version and the SHA-256 of every file, to compare when it goes on.

The comparison finds that code has changed. It protects from nothing: by then the plugin has been imported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any

from kosmos.components import KINDS
from kosmos.discovery import CORE, PluginRecord
from kosmos.errors import PluginError
from kosmos.files import replace_text
from kosmos.kept_defaults import Defaults, Keeping, defaults_of, other_defaults
from kosmos.names import listed
from kosmos.plugins import Registry

LOCK_FILE = "plugins.lock.json"
"""Name of the lock in the folder of a run."""


@dataclass(frozen=True)
class LockedPlugin:
    """One plugin as it was."""

    name: str
    distribution: str
    version: str
    files: Mapping[str, str]
    """Path, relative to where packages are installed, to SHA-256 in hexadecimal."""


@dataclass(frozen=True)
class PluginLock:
    """Some plugins as they were."""

    plugins: tuple[LockedPlugin, ...]
    components: Mapping[str, str] = field(default_factory=dict)
    """Kind and name of each component that was used, such as ``encoder timm``, to the plugin that brought it."""
    defaults: Defaults = field(default_factory=dict)
    """Of the same components and core's own: what their options are where nothing is stated."""

    def text(self) -> str:
        """As JSON; ``read_lock`` reads it."""
        return json.dumps({"lock": 1, **asdict(self)}, indent=2, sort_keys=True) + "\n"


def lock_of(registry: Registry, names: Collection[str] | None = None) -> PluginLock:
    """The plugins as they are now.

    Args:
        names: of the plugins to take, such as ``registry.used``; None takes all that are loaded.
    """
    loaded: dict[str, PluginRecord] = {}
    for plugin in registry.plugins:
        if names is None or plugin.name in names:
            loaded.setdefault(plugin.name, plugin)  # a second one of the same name was ignored
    owners = {f"{kind} {name}": registry.owner(kind, name).name for kind, name in registry.resolved}
    brought = {component: plugin for component, plugin in owners.items() if plugin in loaded}
    defaults = {f"{kind} {name}": found for kind, name in sorted(registry.resolved)
                if (found := defaults_of(registry, kind, name))}  # fmt: skip
    return PluginLock(tuple(_locked(plugin) for plugin in loaded.values()), brought, defaults)


def _locked(plugin: PluginRecord) -> LockedPlugin:
    hashes = {}
    for name, file in sorted(_files(plugin)):
        with file.open("rb") as stream:
            hashes[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return LockedPlugin(plugin.name, plugin.distribution, plugin.version, hashes)


def _files(plugin: PluginRecord) -> set[tuple[str, Path]]:
    """What its distribution installed, and what is in its package: an editable installation lists nothing of it."""
    found = set(_installed(plugin.distribution)) if plugin.distribution else set()
    known = {file.resolve() for _, file in found}
    return found | {(name, file) for name, file in _in_package(plugin.module) if file.resolve() not in known}


def _installed(distribution: str) -> Iterator[tuple[str, Path]]:
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:  # a source tree on the path
        return
    for file in files:
        place = Path(str(file.locate()))
        about_itself = file.parts[0].endswith((".dist-info", ".egg-info")) or file.suffix == ".pth"
        if file.parts[0] != ".." and not about_itself and _counts(place) and place.is_file():
            yield file.as_posix(), place


def _in_package(module: str) -> Iterator[tuple[str, Path]]:
    """The files of the outermost regular package that the module is in; of a lone module that file."""
    parts = module.partition(":")[0].strip().split(".")
    for depth in range(1, len(parts) + 1):
        try:
            spec = util.find_spec(".".join(parts[:depth]))
        except (ImportError, ValueError, AttributeError):
            return
        if spec is None or spec.origin is None:  # a namespace package is shared with others
            continue
        origin = Path(spec.origin)
        if not spec.submodule_search_locations:
            yield "/".join((*parts[: depth - 1], origin.name)), origin
            return
        for file in origin.parent.rglob("*"):
            if _counts(file.relative_to(origin.parent)) and file.is_file():
                yield "/".join((*parts[:depth], file.relative_to(origin.parent).as_posix())), file
        return


def _counts(file: Path) -> bool:
    """Whether a file is no cache of the interpreter or an editor."""
    return "__pycache__" not in file.parts and file.suffix != ".pyc" and not file.name.startswith(".")


def read_lock(file: str | Path) -> PluginLock:
    """A lock that was written.

    Raises:
        PluginError: it cannot be read or is no lock.
    """
    try:
        content: Any = json.loads(Path(file).read_text(encoding="utf-8"))
        plugins = tuple(LockedPlugin(**{**entry, "files": dict(entry["files"])}) for entry in content["plugins"])
        components = dict(content.get("components", {}))  # runs of before they were kept have none
        defaults = {name: dict(of) for name, of in content.get("defaults", {}).items()}  # likewise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PluginError(
            f"{file}: cannot be read as a lock of plugins ({error!r}); without the file nothing is compared"
        ) from error
    return PluginLock(plugins, components, defaults)


LOST = "is not loaded any more"


def compare(old: PluginLock, new: PluginLock) -> list[str]:
    """One line for each plugin of ``old`` that is not the same in ``new``; what only ``new`` has does not count."""
    return [line for _, line in _differences(old, new)]


def _differences(old: PluginLock, new: PluginLock) -> Iterator[tuple[str, str]]:
    """Names of plugins, and their lines as of ``compare``."""
    now = {plugin.name: plugin for plugin in new.plugins}
    for plugin in old.plugins:
        if line := _difference(plugin, now.get(plugin.name)):
            yield plugin.name, line


def _difference(old: LockedPlugin, new: LockedPlugin | None) -> str:
    label = f"plugin {old.name}" + (f" ({old.distribution} {old.version})" if old.distribution else "")
    if new is None:
        return f"{label} {LOST}"
    if new.distribution != old.distribution:
        return f"{label} is now of the distribution {new.distribution or '-'} {new.version}"
    changes = [f"{name} has changed" for name in old.files if name in new.files and new.files[name] != old.files[name]]
    changes += [f"{name} is gone" for name in old.files if name not in new.files]
    changes += [f"{name} is new" for name in new.files if name not in old.files]
    if new.version != old.version:
        changes.insert(0, f"version {old.version} is now {new.version}")
    return f"{label}: {listed(changes, at_most=2)}" if changes else ""


def _moved(old: PluginLock, registry: Registry) -> Iterator[str]:
    """One line for each component that another plugin brings now: of two with one name only one is loaded."""
    labels = {plugin.name: f"{plugin.name} ({plugin.distribution} {plugin.version})" for plugin in old.plugins}
    known = {spec.kind for spec in KINDS}  # a newer Kosmos may know others
    for component, name in old.components.items():
        kind, _, called = component.partition(" ")
        owner = registry.owner(kind, called) if kind in known and called in registry.specs(kind) else None
        if owner is not None and owner.name != name:
            yield f"{kind} {called!r} of plugin {labels.get(name, name)} now comes from plugin {owner.label}"


def taken_over(folder: Path, registry: Registry) -> str:
    """Which components of the run in ``folder`` another plugin brings now, and what to do; empty where none does."""
    file = folder / LOCK_FILE
    if not file.exists():
        return ""
    old = read_lock(file)
    if not (lines := list(_moved(old, registry))):
        return ""
    names, there = [plugin.name for plugin in old.plugins], {plugin.name for plugin in registry.plugins}
    alone = f"load the run's own alone (--plugins {','.join(names)}), or uninstall the other"
    return f"{'; '.join(lines)}; {alone if there.issuperset(names) else 'install what the run was trained with'}"


def keeping(folder: Path, registry: Registry) -> Registry:
    """The registry, in which components have the defaults that they had when the run in ``folder`` began, where a newer
    version of a plugin, or of Kosmos, has others. Raises PluginError as ``read_lock``."""
    file = folder / LOCK_FILE
    return Keeping(registry, read_lock(file).defaults) if file.exists() else registry


def keep_lock(folder: Path, registry: Registry) -> None:
    """Write what a run uses to its folder. To be called once all its components have been resolved.

    Without core, since who updates Kosmos goes on with the new one, and without what was registered by hand.
    """
    names = {plugin.name for plugin in registry.plugins if plugin.distribution and plugin.name in registry.used}
    replace_text(folder / LOCK_FILE, lock_of(registry, names - {CORE}).text())


def check_lock(folder: Path, registry: Registry, *, accept: bool = False, by: str = "") -> list[str]:
    """Compare what a run used with what is installed now; a folder without a lock has nothing to compare.

    Args:
        accept: return the differences instead of raising.
        by: what goes on with the run all the same; empty is the command that does.

    Raises:
        PluginError: a plugin that the run used is not the same.
    """
    file = folder / LOCK_FILE
    if not file.exists():
        return []
    old = read_lock(file)
    others = other_defaults(registry, old.defaults)
    lines = [
        "; ".join([line, *others.get(name, ())])
        for name, line in _differences(old, lock_of(registry, {plugin.name for plugin in old.plugins}))
    ]
    lines += _moved(old, registry)
    if lines and not accept:
        lost = any(line.endswith(LOST) for line in lines)
        other = "where the run needs nothing of it" if lost else "or go on with what is there now"
        raise PluginError(
            f"{file}: {'; '.join(lines)}; install what the run was trained with{';' if lost else ','} {other}: "
            f"{by or f'kosmos train --resume {folder} --accept-plugins'}"
        )
    return lines
