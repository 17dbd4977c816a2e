"""Find plugins by their entry points, and load each apart so that a broken one breaks nothing else.

What is wrong with a plugin is recorded in its ``PluginRecord`` as one line a fault; nothing is raised here. What it
prints meanwhile goes to standard error, since standard output belongs to the command (``--json``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from inspect import isroutine
from typing import Any

import pluggy

import kosmos
from kosmos import hookspecs
from kosmos.components import API_VERSION, KINDS, ModalitySpec, Spec
from kosmos.enabled import Off
from kosmos.errors import cause, own_line
from kosmos.hookspecs import GROUP, HOOKS
from kosmos.names import did_you_mean, listed, unfit

CORE = "core"
"""Name of the plugin that core's own components come from. It is loaded first, so its names win."""
CORE_MODULE = "kosmos.builtin"

OPTIONS = tuple(
    "prompt chat system max-new-tokens temperature top-k top-p seed stop step modalities data steps output resume "
    "auto-resume nproc epochs accept-plugins root answers max-documents written json debug plugins version help new "
    "undo exit".split()
)
"""Options of ``kosmos generate``, where ``--MODALITY FILE`` stands beside them, and of ``kosmos train``; and what
``kosmos chat`` takes behind a slash, as it does ``/MODALITY FILE``."""
ROW_KEYS = tuple(
    "text media core backbone head id split clip offset duration start end segments messages conversations "
    "system tools functions texts instruction input output query response prompt completion question answer answers "
    "history references weight file_name".split()
)
"""Names that rows of data or the core use for something else."""
DATA_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".parquet", ".tar", ".txt"})
"""Of files that are read as data themselves, and are the media of none. Tables (.csv) may be media: they are read as
rows where nothing says otherwise."""

_SPEC_OF_HOOK = {HOOKS[spec.kind]: spec for spec in KINDS}


@dataclass(frozen=True)
class PluginRecord:
    """A plugin as it was found: what it brings and what is wrong with it."""

    name: str
    """Name of its entry point."""
    distribution: str
    """Name of the distribution that was installed; empty for a module registered by hand."""
    version: str
    """Version of that distribution."""
    module: str
    """Where the plugin is: the value of its entry point."""
    components: tuple[Spec, ...] = ()
    """What it brings, without what was refused."""
    problems: tuple[str, ...] = ()
    """What is wrong with it, one line each."""
    off: Off | None = None
    """Why it was not loaded, though it is installed; None where it was."""

    @property
    def label(self) -> str:
        """The plugin as messages name it: ``sonar (acme-sonar 1.2)``."""
        source = f"{self.distribution} {self.version}".strip() or self.module
        return f"{self.name} ({source})"


@dataclass(frozen=True)
class Candidate:
    """A plugin before it is imported. ``target`` is an entry point's value or the plugin object itself."""

    name: str
    distribution: str
    version: str
    target: Any

    @property
    def module(self) -> str:
        return self.target if isinstance(self.target, str) else getattr(self.target, "__name__", repr(self.target))

    @property
    def label(self) -> str:
        return PluginRecord(self.name, self.distribution, self.version, self.module).label


CORE_CANDIDATE = Candidate(CORE, "kosmos-core", kosmos.__version__, CORE_MODULE)


def find_candidates() -> list[Candidate]:
    """Core, then the installed plugins by name. Nothing is imported.

    Core is named here and not by its entry point, so that a source tree on the path works as well.
    """
    found = [
        Candidate(
            point.name, point.dist.name if point.dist else "", point.dist.version if point.dist else "", point.value
        )
        for point in _entry_points()
        if point.value != CORE_MODULE
    ]
    return [CORE_CANDIDATE, *sorted(found, key=lambda c: (c.name, c.distribution))]


def _entry_points() -> Iterable[metadata.EntryPoint]:
    try:
        return metadata.entry_points(group=GROUP)
    except Exception:  # the entry_points.txt of some distribution, perhaps a stranger's, cannot be parsed
        return list(_readable_entry_points())


def _readable_entry_points() -> Iterator[metadata.EntryPoint]:
    """Distribution by distribution (slower), passing over those whose metadata cannot be read."""
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            name, points = distribution.name, list(distribution.entry_points.select(group=GROUP))
        except Exception:  # noqa: S112  not ours to repair: `pip check` and every other tool report it
            continue
        if name not in seen:
            seen.add(name)
            yield from points


def load(candidates: Sequence[Candidate]) -> tuple[PluginRecord, ...]:
    """Import each candidate and ask its hooks. Of two equal names the earlier candidate's stays."""
    manager = _Manager()
    owners: dict[tuple[str, str], str] = {}
    loaded: dict[str, str] = {}
    records = []
    for candidate in candidates:
        if candidate.name in loaded:
            problem = f"ignored: plugin {loaded[candidate.name]} has the same name; uninstall one of them"
            records.append(_record(candidate, [], [problem]))
            continue
        loaded[candidate.name] = candidate.label
        with redirect_stdout(sys.stderr):
            records.append(_load_one(candidate, manager, owners))
    return tuple(records)


def _load_one(candidate: Candidate, manager: _Manager, owners: dict[tuple[str, str], str]) -> PluginRecord:
    problems: list[str] = []
    components: list[Spec] = []
    try:
        plugin = _import(candidate.target)
        problem = _api_problem(candidate, plugin)
        if problem:
            return _record(candidate, [], [problem])
        problems += manager.add(candidate.name, plugin)
        for hook, function in manager.hooks_of(plugin):
            found, faults = _ask(hook, function)
            components += found
            problems += faults
    except (Exception, SystemExit) as error:
        problems.append(f"cannot be imported: {cause(error)}{own_line(error, candidate.module)}")
    kept: list[Spec] = []
    for spec in components:
        if isinstance(spec, ModalitySpec) and (taken := [s for s in spec.suffixes if s in DATA_SUFFIXES]):
            spec = replace(spec, suffixes=tuple(s for s in spec.suffixes if s not in taken))
            problems.append(
                f"modality {spec.name!r}: suffixes: {listed(taken)} is left out: files of it are read as data; rows "
                "may name them"
            )
        why = unfit(spec.name) or (reserved(spec.name) if isinstance(spec, ModalitySpec) else "")
        if why:
            problems.append(f"{spec.kind} {spec.name!r} is refused: {why}; give it another name")
            continue
        owner = owners.setdefault((spec.kind, spec.name), candidate.label)
        if owner != candidate.label:
            problems.append(f"{spec.kind} {spec.name!r} is refused: plugin {owner} brings one of that name")
        elif any(spec.kind == other.kind and spec.name == other.name for other in kept):
            problems.append(f"{spec.kind} {spec.name!r} is brought twice; the first stays")
        else:
            kept.append(spec)
    return _record(candidate, kept, problems)


def reserved(modality: str) -> str | None:
    """Why no modality can have this name; None where one can."""
    if modality in OPTIONS:
        return f"--{modality} is an option of kosmos generate or kosmos train"
    return "rows of data and the core mean something else by this name" if modality in ROW_KEYS else None


def _record(candidate: Candidate, components: Iterable[Spec], problems: Iterable[str]) -> PluginRecord:
    return PluginRecord(
        candidate.name,
        candidate.distribution,
        candidate.version,
        candidate.module,
        tuple(components),
        tuple(problems),
    )


def _import(target: Any) -> Any:
    if not isinstance(target, str):
        return target
    module, _, attributes = target.partition(":")
    found: Any = import_module(module.strip())
    for attribute in filter(None, attributes.strip().split(".")):
        found = getattr(found, attribute)
    return found


def _api_problem(candidate: Candidate, plugin: Any) -> str | None:
    written_for = getattr(plugin, "KOSMOS_API", None)
    if written_for == API_VERSION and isinstance(written_for, int):
        return None
    ours = f"kosmos-core {kosmos.__version__} has version {API_VERSION}"
    if not isinstance(written_for, int) or isinstance(written_for, bool):
        said = (
            "states no KOSMOS_API"
            if written_for is None
            else f"states KOSMOS_API = {written_for!r}, not a whole number"
        )
        return f"{said}; {ours} of the plugin API: write KOSMOS_API = {API_VERSION} in {candidate.module}"
    newer = "kosmos-core" if written_for > API_VERSION else candidate.distribution or candidate.module
    return f"is written for version {written_for} of the plugin API, {ours}: install a newer {newer}"


def _ask(hook: str, function: Any) -> tuple[list[Spec], list[str]]:
    """What a hook returns, and what is wrong with it. What came before an exception counts."""
    expected = _SPEC_OF_HOOK[hook]
    specs: list[Spec] = []
    problems: list[str] = []
    try:
        result = function()
        if isinstance(result, str | bytes | Mapping | Spec) or not isinstance(result, Iterable):
            what = f"one {type(result).__name__}" if isinstance(result, Spec) else repr(result)
            return [], [f"{hook} returned {what}, not a list of {expected.__name__}"]
        for item in result:
            if isinstance(item, expected):
                faults = list(item._faults())
                problems += [f"{hook}: {fault}; passed over" for fault in faults]
                specs += [] if faults else [item]
            else:
                what = f"the {type(item).__name__} {item.name!r}" if isinstance(item, Spec) else repr(item)
                problems.append(f"{hook} brought {what}, not an {expected.__name__}; passed over")
    except (Exception, SystemExit) as error:
        problems.append(f"{hook} raised {cause(error)}{own_line(error, function.__module__)}")
    return specs, problems


class _Manager(pluggy.PluginManager):
    """pluggy's manager that passes over faulty hook functions, and says so, instead of raising for the lot."""

    def __init__(self) -> None:
        super().__init__(GROUP)
        self.add_hookspecs(hookspecs)
        self._problems: list[str] = []

    def add(self, name: str, plugin: Any) -> list[str]:
        """Register a plugin's sound hooks; returns a line for each that is not."""
        self._problems = []
        self.register(plugin, name)
        return self._problems

    def hooks_of(self, plugin: Any) -> Iterator[tuple[str, Any]]:
        """(hook, function) of a registered plugin, in the order of the kinds."""
        for hook in HOOKS.values():
            for implementation in getattr(self.hook, hook).get_hookimpls():
                if implementation.plugin is plugin:
                    yield hook, implementation.function

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        function = getattr(plugin, name)
        own = getattr(function, "__module__", None) == getattr(plugin, "__name__", None)
        if options is None and not (
            isroutine(function) and (name in _SPEC_OF_HOOK or (own and name.startswith("kosmos_")))
        ):
            return None
        problem = self._fault(name, function, options)
        if problem:
            self._problems.append(problem)
            return None
        return options

    @staticmethod
    def _fault(name: str, function: Any, options: pluggy.HookimplOpts | None) -> str | None:
        hook = (options and options["specname"]) or name
        if hook not in _SPEC_OF_HOOK:
            hint = did_you_mean(hook, _SPEC_OF_HOOK) or f"hooks: {listed(_SPEC_OF_HOOK, at_most=99)}"
            return f"{hook} is no hook; {hint}"
        if options is None:
            return f"{hook} lacks @hookimpl"
        if options["wrapper"] or options["hookwrapper"]:
            return f"{hook} is a hook wrapper; hooks only bring components"
        required, optional = pluggy._hooks.varnames(function)
        if required or optional:
            return f"{hook} takes arguments ({', '.join([*required, *optional])}); hooks have none"
        return None
