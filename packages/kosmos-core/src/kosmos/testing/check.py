"""Gather the promises of a plugin, and check them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType

from kosmos.components import CodecSpec, EncoderSpec, ModalitySpec
from kosmos.discovery import PluginRecord
from kosmos.errors import PluginError, cause
from kosmos.names import listed
from kosmos.plugins import Registry
from kosmos.testing.conditions import Conditions, check_names
from kosmos.testing.installed import plugins_of
from kosmos.testing.promise import Promise, Rule, Subject, Verdict
from kosmos.testing.rules import (
    backbone,
    builds,
    codec,
    connector,
    corpus,
    dataset,
    encoder,
    gpu,
    layout,
    modality,
    objective,
    plugin,
    seeds,
    training,
    training_run,
)
from kosmos.testing.scorecard import ScoreCard
from kosmos.testing.subjects import (
    CodecUnderTest,
    ComponentUnderTest,
    EncoderUnderTest,
    ModalityUnderTest,
    PluginUnderTest,
)

RULES: tuple[Rule, ...] = tuple(
    rule
    for module in (
        plugin,
        modality,
        training_run,
        builds,
        encoder,
        connector,
        codec,
        backbone,
        seeds,
        gpu,
        dataset,
        corpus,
        layout,
        training,
        objective,
    )
    for rule in module.RULES
)
"""Every rule, in the order in which they are checked."""


def promises_of(
    of: str | ModuleType | Registry,
    *,
    plugins: Sequence[str] | None = None,
    conditions: Conditions | None = None,
    fast: bool = False,
) -> list[Promise]:
    """The promises of a plugin, each to be checked on its own.

    Args:
        of: an installed distribution, a plugin module, or a registry.
        plugins: of a registry, the names of those whose promises are wanted; all but core by default.
        conditions: in place of what the plugin module names in ``KOSMOS_TESTING``.
        fast: leave the slow ones out (they come back as skipped).

    Raises:
        PluginError: no such distribution is installed, or the conditions name what is not there.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # an encoder that would fetch weights says so at once
    registry, records = _found(of, plugins)
    return [
        Promise(rule, subject, left_out=fast and rule.slow)
        for record in records
        for subject in _subjects(registry, record, _checked(registry, record, conditions))
        for rule in RULES
        if rule.kind in _kinds(subject)
    ]


def check_distribution(
    name: str,
    *,
    conditions: Conditions | None = None,
    fast: bool = False,
    watch: Callable[[Promise], None] = lambda promise: None,
    done: Callable[[Verdict], None] = lambda verdict: None,
    limit_s: float | None = None,
) -> ScoreCard:
    """The score card of an installed distribution.

    Args:
        name: such as ``kosmos-depth``.
        conditions: see ``promises_of``.
        fast: leave out what is slow.
        watch: told each promise before it is checked.
        done: told what came of it.
        limit_s: seconds that a promise may take; where one takes longer, the others of its component are skipped.

    Raises:
        PluginError: no such distribution is installed.
    """
    promises = promises_of(name, conditions=conditions, fast=fast)
    records = _found(name, None)[1]
    verdicts = []
    for verdict in verdicts_of(promises, watch, limit_s):
        done(verdict)
        verdicts.append(verdict)
    return ScoreCard(records[0].distribution, records[0].version, tuple(verdicts))


def check_plugin(
    of: ModuleType | Registry,
    *,
    plugins: Sequence[str] | None = None,
    conditions: Conditions | None = None,
    fast: bool = False,
) -> ScoreCard:
    """The score card of a plugin that is not installed: its module, or a registry that holds it.

    Args: as of ``promises_of``.
    """
    names = listed(record.name for record in _found(of, plugins)[1])
    promises = promises_of(of, plugins=plugins, conditions=conditions, fast=fast)
    return ScoreCard(names, "", tuple(promise.verdict() for promise in promises))


def verdicts_of(
    promises: Sequence[Promise],
    watch: Callable[[Promise], None] = lambda promise: None,
    limit_s: float | None = None,
    stopped: Mapping[str, str] | None = None,
) -> Iterator[Verdict]:
    """What came of each promise. After one that was stopped no other of its component is tried: each might wait.

    Args:
        stopped: components whose promises are not tried, and the promise that was stopped before.
    """
    known = dict(stopped or {})
    for promise in promises:
        watch(promise)
        if (by := known.get(promise.component)) is not None and not promise.left_out:
            verdict = Verdict(promise.id, promise.component, "skipped", f"not tried: {by} was stopped", 0.0)
        else:
            # What is slow runs in processes of its own, which have limits by the plugin's conditions.
            verdict = promise.verdict(limit_s=None if promise.rule.slow else limit_s)
        if verdict.stopped:
            known[promise.component] = promise.id
        yield verdict


def _found(of: str | ModuleType | Registry, plugins: Sequence[str] | None) -> tuple[Registry, list[PluginRecord]]:
    if isinstance(of, str):
        return plugins_of(of)
    if isinstance(of, ModuleType):
        # By its name and not as an object, so that fresh processes can import it as well.
        name = of.__name__
        of, plugins = Registry.from_modules({name: name}), [name]
    wanted = [record for record in of.plugins if (record.name in plugins if plugins else record.name != "core")]
    return of, wanted


def _checked(registry: Registry, record: PluginRecord, stated: Conditions | None) -> Conditions:
    """The conditions: those that were stated, else those of the plugin, whose names have to be there."""
    conditions = stated or _conditions(record)
    if not record.problems:  # which may be why a name is not there, and are what is to be told
        check_names(conditions, registry, f"{record.module}: Conditions")
    return conditions


def _conditions(record: PluginRecord) -> Conditions:
    """What the plugin's module names in ``KOSMOS_TESTING``."""
    if record.problems and not record.components:
        return Conditions()
    module = import_module(record.module.partition(":")[0])
    target = getattr(module, "KOSMOS_TESTING", None)
    if target is None:
        return Conditions()
    where, _, attribute = str(target).partition(":")
    try:
        found = getattr(import_module(where), attribute, None)
    except (Exception, SystemExit) as error:  # a seam: the plugin's own code
        raise PluginError(f"{record.module}: KOSMOS_TESTING = {target!r}: {cause(error)}") from error
    if not isinstance(found, Conditions):
        raise PluginError(f"{record.module}: KOSMOS_TESTING = {target!r} names no kosmos.testing.Conditions")
    return found


def _kinds(subject: Subject) -> tuple[str, ...]:
    """Of the rules that a subject is checked by."""
    return ("component", subject.spec.kind) if isinstance(subject, ComponentUnderTest) else ("plugin",)


def _subjects(registry: Registry, record: PluginRecord, conditions: Conditions) -> Iterator[Subject]:
    yield PluginUnderTest(registry, record)
    made = {spec.name: _modality(registry, spec, conditions) for spec in _modalities(registry)}
    own = [made[spec.name] for spec in record.components if isinstance(spec, ModalitySpec)]
    others = [modality for modality in made.values() if modality not in own]
    for spec in record.components:
        if isinstance(spec, ModalitySpec):
            yield made[spec.name]
        elif isinstance(spec, EncoderSpec):
            yield _encoder(registry, spec, conditions, [*own, *others])
        elif isinstance(spec, CodecSpec):
            yield CodecUnderTest(registry, spec, conditions, made.get(spec.modality))
        else:
            yield ComponentUnderTest(registry, spec, conditions)


def _modalities(registry: Registry) -> Iterator[ModalitySpec]:
    return (spec for spec in registry.specs("modality").values() if isinstance(spec, ModalitySpec))


def _modality(registry: Registry, spec: ModalitySpec, conditions: Conditions) -> ModalityUnderTest:
    return ModalityUnderTest(registry, spec, conditions)


def _encoder(
    registry: Registry, spec: EncoderSpec, conditions: Conditions, modalities: Sequence[ModalityUnderTest]
) -> EncoderUnderTest:
    """Tried on the modality whose default it is, else on the first that fits: of the plugin's own, then of all."""
    owner = next((m for m in modalities if m.spec.encoder == spec.name), None)
    if owner is None:
        return EncoderUnderTest(registry, spec, conditions, modalities, {})
    return EncoderUnderTest(registry, spec, conditions, [owner], dict(owner.spec.encoder_options))
