"""Which broken plugins may be why a component is missing. Nothing is imported for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

from kosmos.components import KINDS
from kosmos.discovery import PluginRecord
from kosmos.hookspecs import HOOKS
from kosmos.names import listed

_KIND_NAMES = tuple(f"{kind.kind} '" for kind in KINDS)


def broken_ones(plugins: Sequence[PluginRecord], kind: str, name: str) -> str:
    """The broken plugins that may have brought a component otherwise, the likeliest first; empty where none may."""

    def likely(told: tuple[PluginRecord, str]) -> tuple[bool, bool, bool, bool]:
        plugin, problem = told
        its_name = name in (plugin.name, plugin.distribution)
        return repr(name) in problem, _names_it(plugin, name), HOOKS[kind] in problem, its_name

    told = []
    for plugin in plugins:
        problems = [(plugin, p) for p in plugin.problems if _may_hide(p, kind, name)]
        told += [max(problems, key=likely)] if problems else []
    if not told:
        return ""
    return listed((f"{plugin.label}: {p}" for plugin, p in sorted(told, key=likely, reverse=True)), at_most=3)


def _may_hide(problem: str, kind: str, name: str) -> bool:
    """Whether a problem of a plugin may be why a component is missing: not where it costs another one alone, or a hook
    of another kind. What was refused for its name is there, from another plugin."""
    if problem.endswith("brings one of that name"):
        return False
    if problem.endswith("; passed over") or problem.startswith(_KIND_NAMES):
        return repr(name) in problem
    about_a_hook = any(hook in problem.split(" (")[0] for hook in HOOKS.values())
    return HOOKS[kind] in problem or not about_a_hook


def _names_it(plugin: PluginRecord, name: str) -> bool:
    """Whether the plugin's module has the name in quotes, be it one that was never imported."""
    return re.search(rf"""["']{re.escape(name)}["']""", _source(plugin.module)) is not None


def _source(module: str) -> str:
    """Text of a module's file; empty where there is none."""
    top, *inner = module.partition(":")[0].strip().split(".")
    with suppress(Exception):  # a finder or a file of others
        spec = PathFinder.find_spec(top)
        if spec is None or not inner:
            return Path((spec and spec.origin) or "").read_text(encoding="utf-8")
        for folder in spec.submodule_search_locations or ():
            for file in (Path(folder, *inner).with_suffix(".py"), Path(folder, *inner, "__init__.py")):
                if file.is_file():
                    return file.read_text(encoding="utf-8")
    return ""
