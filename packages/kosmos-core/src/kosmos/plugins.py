"""Look up components of the installed plugins by kind and name, and build them.

    registry = load_plugins()
    encoder = registry.build("encoder", "timm", options={"model": "test_vit"}, path="streams.image.encoder")

Torch-free and fast until something is built. ``kosmos.discovery`` finds and isolates the plugins,
``kosmos.enabled`` says which of them may be loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

from kosmos.catalogue import catalogue, install_hint
from kosmos.components import KINDS, DatasetSpec, Spec
from kosmos.discovery import CORE_CANDIDATE, Candidate, PluginRecord, find_candidates, load
from kosmos.doubtful import broken_ones
from kosmos.elsewhere import component_elsewhere, no_component
from kosmos.enabled import Enabling, enabling
from kosmos.errors import ConfigError, KosmosError, Misnamed, PluginError, cause, is_out_of_memory, own_line
from kosmos.names import did_you_mean, listed, nearest
from kosmos.selection import asked_plugins, choose

__all__ = ["PluginRecord", "Registry", "load_core", "load_plugins"]

Suits = Callable[[str], bool] | None
_KIND_NAMES = [kind.kind for kind in KINDS]


class Registry:
    """What the plugins bring, by kind and name. Picklable."""

    plugins: tuple[PluginRecord, ...]
    """Every plugin that was loaded, core first, broken ones too."""
    off: tuple[PluginRecord, ...]
    """Those that are installed and were not: disabled, or not among those that were named."""
    used: set[str]
    """Names of the plugins of which something has been resolved."""
    resolved: set[tuple[str, str]]
    """Kind and name of the components that have been resolved."""

    def __init__(self, plugins: Sequence[PluginRecord], off: Sequence[PluginRecord] = ()) -> None:
        self.plugins, self.off = tuple(plugins), tuple(off)
        self.used, self.resolved = set(), set()
        self._specs: dict[str, dict[str, Spec]] = {kind: {} for kind in _KIND_NAMES}
        self._owners: dict[tuple[str, str], PluginRecord] = {}
        for plugin in self.plugins:
            for spec in plugin.components:
                self._specs[spec.kind][spec.name] = spec
                self._owners[spec.kind, spec.name] = plugin

    @classmethod
    def from_modules(cls, modules: Mapping[str, Any], *, core: bool = True) -> Registry:
        """A registry of plugins that are not installed: name to module, or to ``"package.module"``.

        Args:
            modules: in the order of loading; of two equal component names the earlier stays.
            core: whether core's own components come first.
        """
        candidates = _not_installed(modules)
        return cls(load([CORE_CANDIDATE, *candidates] if core else candidates))

    def specs(self, kind: str) -> dict[str, Spec]:
        """Name to descriptor of every component of a kind, such as ``"encoder"``."""
        assert kind in self._specs, f"no kind {kind!r}: {_KIND_NAMES}"
        return dict(self._specs[kind])

    def get(self, kind: str, name: str) -> Spec:
        """The descriptor of one component.

        Raises:
            PluginError: no plugin brings it. The line says what to install, and which broken plugin may be why.
            Misnamed: the same, of a name that is a mistake for another, which the line says: a ConfigError too.
        """
        found = self.specs(kind).get(name)
        if found is None:
            raise self._absence(kind, name)
        return found

    def owner(self, kind: str, name: str) -> PluginRecord:
        """The plugin that brings a component. Raises as ``get`` does."""
        self.get(kind, name)
        return self._owners[kind, name]

    def resolve(self, kind: str, name: str) -> Any:
        """Import the target of a component and return it.

        Raises:
            PluginError: no plugin brings it, or its module cannot be imported.
        """
        spec = self.get(kind, name)
        self.used.add(self._owners[kind, name].name)
        self.resolved.add((kind, name))
        who = f"{kind} {name!r} of plugin {self._owners[kind, name].label}"
        module_name, _, attributes = spec.target.partition(":")
        try:
            with redirect_stdout(sys.stderr):  # what a command prints there may be JSON
                found: Any = import_module(module_name)
        except KosmosError:
            raise
        except (Exception, SystemExit) as error:
            where = own_line(error, spec.target)
            remedy = self._remedy(kind, name, error)
            raise PluginError(f"{who} cannot be imported: {cause(error)}{where}{remedy}") from error
        for attribute in attributes.split("."):
            if not hasattr(found, attribute):
                hint = did_you_mean(attribute, dir(found))
                raise PluginError(f"{who} is broken: {module_name} has no {attribute}" + (f"; {hint}" if hint else ""))
            found = getattr(found, attribute)
        return found

    def build(self, kind: str, name: str, *args: Any, options: Mapping[str, Any] | None = None, path: str = "") -> Any:
        """Make a component: its factory, called with ``args`` and the checked options.

        Args:
            args: what the kind's factories take in front of their options (see ``kosmos.components``).
            options: from the run file.
            path: where the options stand in the run file, such as ``"streams.image.encoder"``.

        Raises:
            ConfigError: an option is unknown, missing or of a wrong type.
            PluginError: the component is absent, its module or its factory fails.
        """
        factory, spec = self.resolve(kind, name), self.get(kind, name)
        checked = self.check(kind, name, options or {}, path=path or f"{kind} {name}", positional=len(args))
        who = f"{kind} {name!r} of plugin {self._owners[kind, name].label}"
        where = f"{path}: " if path else ""
        try:
            made = factory(*args, **checked)
            lacking = [part for part in spec.gives if not hasattr(made, part)]
            flaw = _miscounted(made) if isinstance(spec, DatasetSpec) and not lacking else ""
        except ConfigError as error:
            raise _at(path, error, factory) from error
        except KosmosError:
            raise
        except (Exception, SystemExit) as error:
            if is_out_of_memory(error):
                raise
            said = f"{cause(error)}{own_line(error, spec.target)}"
            raise PluginError(f"{where}{who} cannot be made with these options: {said}") from error
        if lacking:
            raise PluginError(
                f"{where}{who} is broken: it gives {type(made).__name__}, which has no {' and no '.join(lacking)}; "
                f"what {type(spec).__name__} gives has {', '.join(spec.gives)}"
            )
        if flaw:
            raise PluginError(f"{where}{who} is broken: {flaw}")
        return made

    def check(
        self, kind: str, name: str, options: Mapping[str, Any], *, path: str, positional: int, suits: Suits = None
    ) -> dict[str, Any]:
        """The options of a component, converted to the types that its factory declares.

        Args:
            path: where they stand in the run file.
            positional: number of the factory's parameters in front that are no options.
            suits: whether a component may be named as one that has an unknown option; None is each.

        Raises:
            ConfigError: an option is unknown, missing or of a wrong type.
            PluginError: the component is absent, or its module or signature is at fault.
        """
        from kosmos.options import check_options, has_it  # pydantic; discovery does without

        def owner(option: str) -> str | None:
            others = filter(suits, self._owners_of(option, kind, positional))
            return next((has_it(kind, other, path) for other in others), None)

        try:
            return check_options(self.resolve(kind, name), options, path=path, positional=positional, owner=owner)
        except ConfigError as error:
            if refused := self._refused(kind, name):  # that one may have been meant
                raise ConfigError(f"{error}; {refused}") from error
            raise

    def _owners_of(self, option: str, kind: str, positional: int) -> list[str]:
        """The components of the kind that have the option."""
        from kosmos.options import fields_of

        owners = []
        for name in self.specs(kind):
            with suppress(KosmosError):
                if (factory := self.peek(kind, name)) is not None and option in fields_of(factory, positional):
                    owners.append(name)
        return owners

    def peek(self, kind: str, name: str) -> Any:
        """The target of a component that is only looked at, not used; None where its plugin is broken."""
        used, resolved = set(self.used), set(self.resolved)
        try:
            return self.resolve(kind, name)
        except KosmosError:
            return None
        finally:
            self.used, self.resolved = used, resolved

    def given_way(self) -> list[str]:
        """A line for each resolved component whose name another plugin brings too: that one may have been meant."""
        return [line for kind, name in sorted(self.resolved) if (line := self._refused(kind, name))]

    def _refused(self, kind: str, name: str) -> str:
        """Which plugin's component of that name gave way to the one that is there; nothing where none did."""
        refused = f"{kind} {name!r} is refused: "
        for plugin in self.plugins:
            if why := [p.removeprefix(refused) for p in plugin.problems if p.startswith(refused)]:
                return f"the {kind} {name!r} of plugin {plugin.label} is refused: {why[0]}"
        return ""

    def _absence(self, kind: str, name: str) -> PluginError:
        there = self.specs(kind)
        if brings := self._disabled(kind, name):
            return PluginError(f"{kind} {name!r}: {brings}")
        near = nearest(name, there) or nearest(component_elsewhere(kind, name), there)
        likely, doubts = self._likely(kind, name), self._doubts(kind, name)
        error = PluginError if doubts else Misnamed
        if near:
            said = f"{kind} {name!r}: unknown; did you mean {near}? ({plural(kind)}: {listed(there)})"
        elif likely and likely.off:
            return PluginError(
                f"{kind} {name!r}: no plugin that is loaded brings it ({plural(kind)}: {listed(there)}); "
                f"plugin {likely.label} may, and is {likely.off.why}; {likely.off.remedy}"
            )
        elif meant := self._meant(kind, name) or no_component(kind, name):
            said = f"{kind} {name!r}: unknown; {meant} ({plural(kind)}: {listed(there)})"
        else:
            install, error = install_hint(kind, name), PluginError
            said = (
                f"{kind} {name!r}: no installed plugin brings it ({plural(kind)}: {listed(there)}); "
                f"install the package that does ({install}){'' if doubts else self._of_models(kind, name)}"
            )
        return error(said + doubts)

    def _of_models(self, kind: str, name: str) -> str:
        """What to write where the name is that of a model, which some components of the kind take as an option."""
        takers = self._owners_of("model", kind, 0)
        if not takers:
            return ""
        taker = takers[0] if len(takers) == 1 else "NAME"
        return f"; where it is a model, {' or '.join(takers)} may have it: {{name: {taker}, model: {name}}}"

    def why_absent(self, kind: str, name: str) -> str:
        """What is to be said of plugins, behind a message, where a component that may have been meant is not there.

        Returns:
            ``"; "`` and the plugin that is disabled and brings it, else those that are broken or not loaded; empty
            where there are none.
        """
        brings = self._disabled(kind, name)
        return f"; {brings}" if brings else self._doubts(kind, name)

    def _disabled(self, kind: str, name: str) -> str:
        """Which plugin that was disabled brings a component; nothing where none does."""
        for plugin in self.off:
            if plugin.off and f"{kind} {name}" in plugin.off.brought:
                return f"plugin {plugin.label} brings it and is {plugin.off.why}; {plugin.off.remedy}"
        return ""

    def _doubts(self, kind: str, name: str) -> str:
        """The plugins that may be why something is missing, the likeliest first."""
        broken = broken_ones(self.plugins, kind, name)
        said = f"; it may be missing because of the broken plugin {broken}" if broken else ""
        others = [f"{plugin.name} ({plugin.off.why})" for plugin in self.off if plugin.off]
        return said + (f"; installed and not loaded: {listed(others, at_most=4)}" if others else "")

    def _meant(self, kind: str, name: str) -> str:
        """What an installed plugin has by a name that no component of the kind bears; nothing where none has."""
        for plugin in self.plugins:
            brought = [spec.name for spec in plugin.components if spec.kind == kind]
            if brought and name in (plugin.name, plugin.distribution):
                return f"plugin {plugin.label} brings {listed(brought)}"
        if kinds := [other for other, specs in self._specs.items() if name in specs]:
            return f"it is the name of a component of another kind, {listed(kinds)}"
        parts = name.split()
        return f"write {','.join(parts)}" if len(parts) > 1 and all(self._specs[kind].get(p) for p in parts) else ""

    def _likely(self, kind: str, name: str) -> PluginRecord | None:
        """The plugin that is not loaded and, by its name or the catalogue, would bring a component."""
        package = catalogue().get(kind, {}).get(name)
        return next((plugin for plugin in self.off if name == plugin.name or package == plugin.distribution), None)

    def _remedy(self, kind: str, name: str, error: BaseException) -> str:
        """What to do about a module that is missing, unless it is the plugin's own."""
        if not isinstance(error, ModuleNotFoundError) or not error.name:
            return ""
        plugin = self._owners[kind, name]
        own_packages = {
            part.replace(":", ".").split(".")[0] for part in (plugin.module, self._specs[kind][name].target)
        }
        if error.name.split(".")[0] in own_packages:
            return ""
        again = (
            f"install it, or {plugin.distribution} again with its dependencies" if plugin.distribution else "install it"
        )
        return f"; {again}"


def _miscounted(source: Any) -> str:
    """What is wrong with the number of a source's documents; empty where nothing is."""
    try:
        len(source)
    except (TypeError, ValueError, OverflowError) as error:
        return f"{type(source).__name__}.__len__: {error}; expected a whole number of documents"
    return ""


def _at(path: str, error: ConfigError, factory: Any) -> ConfigError:
    """An error of a component with its place in the run file: encoder and backbone may have options of one name."""
    said = str(error)
    if not path or said.startswith(path):
        return error
    between = "." if said.partition(":")[0] in signature(factory).parameters else ": "
    return type(error)(f"{path}{between}{said}")


def plural(kind: str) -> str:
    """Several components of a kind, in words."""
    return {"modality": "modalities", "corpus": "corpora"}.get(kind, f"{kind}s")


def check_registry(registry: object) -> None:
    """Raises ConfigError where something else is given; None stands for the installed plugins."""
    if not isinstance(registry, Registry | None):
        raise ConfigError(f"registry: expected a Registry, such as load_plugins() gives, got {registry!r:.60}")


def _not_installed(modules: Mapping[str, Any]) -> list[Candidate]:
    return [Candidate(name, "", "", module) for name, module in modules.items()]


def load_plugins(only: Sequence[str] | None = None, *, beside: Mapping[str, Any] | None = None) -> Registry:
    """The installed plugins that are enabled. Broken ones are recorded, not raised, but for those in ``beside``.

    Args:
        only: names of the plugins to load beside core, such as ``plugins`` of a run file; what ``only_plugins``
            says goes before it. None loads all that are enabled, once a process.
        beside: plugins that are not installed, as of ``Registry.from_modules``: ``{"notebook": "__main__"}`` takes the
            hooks of a script or notebook. Of two equal component names that of the installed plugin stays.

    Raises:
        PluginError: a plugin in ``only`` is not installed or not enabled, or one in ``beside`` cannot be imported,
            states no ``KOSMOS_API`` or brings nothing that can be used.
        ConfigError: the file that says what is disabled cannot be read, or ``beside`` is no mapping or has a name of an
            installed plugin.
    """
    if beside is not None and not isinstance(beside, Mapping):
        raise ConfigError(f"beside: expected a mapping of names to modules, got {beside!r:.60}")
    rules, asked = enabling(), asked_plugins()
    if only is None and beside is None:
        return _load_once(asked, rules)
    return _load(only if asked is None else asked, rules, beside or {})


def _load(only: Sequence[str] | None, rules: Enabling, beside: Mapping[str, Any]) -> Registry:
    found = find_candidates()
    if taken := sorted({candidate.name for candidate in found} & beside.keys()):
        raise ConfigError(f"beside: {taken[0]} is an installed plugin's name; give yours another")
    chosen, off = choose(found, only, rules)
    plugins = load([*chosen, *_not_installed(beside)])
    for plugin in plugins:
        if plugin.name in beside and plugin.problems and not plugin.components:  # whoever names it wants it now
            raise PluginError(f"beside: plugin {plugin.label}: {plugin.problems[0]}")
    return Registry(plugins, off)


@cache
def _load_once(only: tuple[str, ...] | None, rules: Enabling) -> Registry:
    return _load(only, rules, {})


@cache
def load_core() -> Registry:
    """Core's own components; no installed plugin is imported."""
    return Registry(load([CORE_CANDIDATE]))
