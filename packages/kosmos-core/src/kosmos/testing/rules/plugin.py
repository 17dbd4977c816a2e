"""What every plugin promises, and every component."""

from __future__ import annotations

from importlib import import_module, metadata
from inspect import signature

from kosmos.components import API_VERSION
from kosmos.errors import ConfigError, KosmosError
from kosmos.options import check_options, faults_of
from kosmos.testing import child
from kosmos.testing.promise import BrokenPromise, Unchecked, rule
from kosmos.testing.subjects import ComponentUnderTest, PluginUnderTest


@rule("plugin", "loads", "the plugin is imported and its hooks bring what they should, without a problem")
def loads(plugin: PluginUnderTest) -> None:
    if plugin.record.problems:
        raise BrokenPromise("; ".join(plugin.record.problems))
    if not plugin.record.components:
        raise BrokenPromise("it brings no component; is every hook marked with @hookimpl?")


@rule("plugin", "api-version", "the plugin module states the version of the plugin surface that it was written for")
def states_its_api(plugin: PluginUnderTest) -> None:
    module, _, attributes = plugin.record.module.partition(":")
    found = import_module(module)
    for attribute in filter(None, attributes.split(".")):
        found = getattr(found, attribute)
    stated = getattr(found, "KOSMOS_API", None)
    if stated != API_VERSION:
        raise BrokenPromise(f"{module} states KOSMOS_API = {stated!r}, this kosmos-core has {API_VERSION}")


@rule("plugin", "licence-declared", "the metadata of the distribution state a licence")
def states_its_licence(plugin: PluginUnderTest) -> None:
    if not plugin.record.distribution:
        raise Unchecked("the plugin is of no installed distribution")
    fields = metadata.metadata(plugin.record.distribution)
    stated = [text for name in ("License-Expression", "License", "Classifier") for text in fields.get_all(name) or ()]
    if not any(s and s != "UNKNOWN" and ("::" not in s or s.startswith("License ::")) for s in stated):
        raise BrokenPromise('no licence; write license = "Apache-2.0" (or yours) under [project] in pyproject.toml')


@rule("plugin", "discovery-torch-free", "finding out what the plugin brings imports no torch")
def discovery_needs_no_torch(plugin: PluginUnderTest) -> None:
    importer = child.call("kosmos.testing.jobs:discover", plugin.record.name, plugin.record.module)
    if importer:
        raise BrokenPromise(f"torch is imported by {importer}; import it in the component's own module")


@rule("component", "target-imports", "the target can be imported, and its options can be checked")
def target_imports(component: ComponentUnderTest) -> None:
    spec = component.spec
    try:
        target = component.registry.resolve(spec.kind, spec.name)
        if spec.kind == "command":
            return
        front = spec.positional
        if faults := faults_of(target, path=component.label, positional=front):
            raise BrokenPromise("; ".join(faults))
        check_options(target, {}, path=component.label, positional=front)
        if len(signature(target).parameters) < front:
            raise BrokenPromise(f"{spec.target} takes {signature(target)}; expected {front} arguments before options")
    except ConfigError:  # an option without default: for the run file to state
        return
    except KosmosError as error:
        raise BrokenPromise(str(error)) from error


@rule("component", "summary-is-a-line", "the summary is one line that says what the component is")
def summary_is_a_line(component: ComponentUnderTest) -> None:
    summary = component.spec.summary
    if not summary.strip() or "\n" in summary or len(summary) > 200:
        raise BrokenPromise(f"summary {summary!r:.80}: expected one line of 1 to 200 characters")


RULES = (loads, states_its_api, states_its_licence, discovery_needs_no_torch, target_imports, summary_is_a_line)
