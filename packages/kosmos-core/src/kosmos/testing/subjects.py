"""What promises are checked on: a plugin, one of its components, or a modality with all that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from kosmos.components import CodecSpec, EncoderSpec, ModalitySpec, Spec
from kosmos.compose import Composition, compose
from kosmos.data.decoding import decode_cells
from kosmos.data.document import Document, Media
from kosmos.data.plan import PlannedMedia, Route
from kosmos.discovery import PluginRecord
from kosmos.errors import ConfigError, DataError, KosmosError, SampleError, cause
from kosmos.plugins import Registry
from kosmos.run_file import make_run
from kosmos.testing.conditions import Conditions
from kosmos.testing.items import Item, cut_items, planned, row
from kosmos.testing.promise import BrokenPromise, Lacking, NotBuilt
from kosmos.testing.usable import usable

CHILD_MEDIA = 4
"""Media that are sent to a fresh process."""
SMALL_BACKBONE = {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48}


@dataclass(frozen=True)
class PluginUnderTest:
    """An entry point."""

    registry: Registry
    record: PluginRecord

    @property
    def module(self) -> str:
        return self.record.module

    @property
    def label(self) -> str:
        return f"plugin {self.record.name}"


@dataclass(eq=False)
class ComponentUnderTest:
    """Any component of the plugin."""

    registry: Registry
    spec: Spec
    conditions: Conditions

    @property
    def module(self) -> str:
        return self.spec.target

    @property
    def label(self) -> str:
        return f"{self.spec.kind} {self.spec.name}"

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.conditions.options_of(self.spec.kind, self.spec.name))

    def build(self, *args: Any) -> Any:
        """A new one, with the options that the conditions state.

        Raises:
            Lacking: it needs options that the conditions do not state, or a package that is not installed.
            NotBuilt: it cannot be made.
        """
        try:
            return self.registry.build(self.spec.kind, self.spec.name, *args, options=self.options)
        except (ConfigError, DataError) as error:
            if self.options:
                raise NotBuilt(str(error)) from error
            raise Lacking(f"{error}; give it in Conditions(options={{{self.label!r}: {{...}}}})") from error
        except KosmosError as error:
            if (package := self._missing_package(error)) is not None:
                raise Lacking(f"it needs {package}, which is not installed") from error
            raise NotBuilt(str(error)) from error

    def _missing_package(self, error: BaseException) -> str | None:
        """The package of others for want of which something failed."""
        own = {self.spec.target.replace(":", ".").partition(".")[0], "kosmos"}
        reason: BaseException | None = error
        while reason is not None:
            if isinstance(reason, ModuleNotFoundError):
                package = (reason.name or "").partition(".")[0]
                return package if package and package not in own else None
            reason = reason.__cause__
        return None


@dataclass(eq=False)
class ModalityUnderTest(ComponentUnderTest):
    """A modality with its default stream, composed as a run composes it, and media to try it on."""

    spec: ModalitySpec

    @cached_property
    def composition(self) -> Composition:
        """A run of this modality alone on a small backbone."""
        name = self.spec.name
        run = {
            "modalities": {name: {"processor": self.options}},
            "backbone": SMALL_BACKBONE,
            "data": {"tokens_per_pack": 1 << 20},
            "streams": {name: {"encoder": self.encoder_options}} if self.encoder_options else {},
        }
        try:
            return compose(make_run(run), self.registry)
        except KosmosError as error:
            raise NotBuilt(str(error)) from error

    @property
    def encoder_options(self) -> dict[str, Any]:
        return dict(self.conditions.options_of("encoder", self.spec.encoder))

    @property
    def route(self) -> Route:
        return self.composition.planner.routes[self.spec.name]

    @property
    def stream(self) -> Any:
        """Its encoder with its connector."""
        return self.composition.model.streams[self.spec.name]

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """The first documents of the sample set that hold the modality."""
        if self.spec.sample_set is None:
            return ()
        options = dict(self.conditions.options_of("dataset", self.spec.sample_set))
        try:
            source = self.registry.build("dataset", self.spec.sample_set, "train", options=options)
            fit = (document for document in usable(source) if self.spec.name in document.modalities)
            return tuple(islice(fit, self.conditions.documents))
        except (Exception, SystemExit) as error:  # a seam: the plugin's own code
            raise NotBuilt(f"sample set {self.spec.sample_set}: {cause(error)}") from error

    @cached_property
    def media(self) -> tuple[Media, ...]:
        """Good media of the modality: of the sample set, then those that the conditions add.

        Raises:
            NotBuilt: there are none.
        """
        own = [m.load() for document in self.documents for m in document.media if m.modality == self.spec.name]
        found = (*own, *self.conditions.examples.get(self.spec.name, ()))
        if not found:
            raise NotBuilt("no media to try it on: name a sample set, or state Conditions(examples=...)")
        return found

    @property
    def some_media(self) -> list[Media]:
        """A few of every form (bytes, path, array), the smallest first. Raises as ``media``."""
        kinds: dict[type, list[Media]] = {}
        for medium in self.media:
            kinds.setdefault(type(medium.source), []).append(medium)
        return [medium for found in kinds.values() for medium in found[:CHILD_MEDIA]]


@dataclass(eq=False)
class CodecUnderTest(ComponentUnderTest):
    """A codec, on the media of its modality."""

    spec: CodecSpec
    modality: ModalityUnderTest | None
    """None where it is not installed."""

    @cached_property
    def codec(self) -> Any:
        """One of it. Raises as ``build``."""
        return self.build()

    @property
    def read_by(self) -> ModalityUnderTest:
        """Its modality. Raises NotBuilt where it is not installed."""
        if self.modality is None:
            raise NotBuilt(f"the modality {self.spec.modality} is not installed")
        return self.modality

    @cached_property
    def encoded(self) -> list[tuple[Media, Any]]:
        """Media that it takes, and what it makes of each.

        Raises:
            NotBuilt: there are no media to try it on.
            BrokenPromise: it takes none of them.
        """
        found, refused = [], []
        for medium in self.read_by.some_media:
            try:
                found.append((medium, self.codec.encode(own(medium))))
            except SampleError as error:
                refused.append(error)
        if not found:
            raise BrokenPromise(f"it takes none of {len(refused)} good media of {self.spec.modality}: {refused[0]}")
        return found


def own(medium: Media) -> Media:
    """The medium with an array of its own, which may be changed."""
    return replace(medium, source=medium.source.copy()) if isinstance(medium.source, np.ndarray) else medium


@dataclass(eq=False)
class EncoderUnderTest(ComponentUnderTest):
    """An encoder, on the cells that a modality's processor makes for it."""

    spec: EncoderSpec
    modalities: Sequence[ModalityUnderTest]
    """On whose media it is tried: of the first that makes cells which it takes."""
    defaults: dict[str, Any]
    """Options of the modality's own stream, where this is its encoder."""

    @property
    def label(self) -> str:
        return f"encoder {self.spec.name}"

    @property
    def options(self) -> dict[str, Any]:
        return super().options or self.defaults

    def fresh(self, seed: int = 0) -> Any:
        """A new encoder with the weights of ``seed``, in training mode."""
        import torch

        torch.manual_seed(seed)
        return self.build().train()

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Items of a modality's media, as they would come in a row.

        Raises:
            NotBuilt: no modality's processor makes cells for this encoder; ``Lacking`` where its media become text.
        """
        module = self.fresh()
        made: list[tuple[Item, ...]] = []
        refused: list[str] = []
        lacking: list[str] = []
        for modality in self.modalities:
            try:
                items = _items_of(modality, module.input)
            except Lacking as error:
                lacking.append(f"{modality.spec.name}: {error}")
                continue
            except (Exception, SystemExit) as error:  # a seam: it may not be made for such an input
                said = str(error) if isinstance(error, NotBuilt | BrokenPromise) else cause(error)
                refused.append(f"{modality.spec.name}: {said}")
                continue
            if len(self.modalities) == 1 or _takes(module, items):
                return items
            made.append(items)
        if made:
            return made[0]
        if lacking and not refused:
            raise Lacking("; ".join(lacking))
        refused += lacking
        if any(modality.spec.encoder == self.spec.name for modality in self.modalities):
            raise NotBuilt(f"no cells are made for it; {refused[0]}")
        what = "install the modality that its input is made for, or bring one"
        raise NotBuilt(f"no installed modality makes cells for it ({'; '.join(refused) or 'none is there'}); {what}")


def _items_of(modality: ModalityUnderTest, encoder_input: Any) -> tuple[Item, ...]:
    """Items of the media of a modality whose processor was made for ``encoder_input``."""
    processor = modality.build(encoder_input)
    found: list[Item] = []
    as_text = False
    for medium in modality.media:
        try:
            plan = planned(processor, medium)
            as_text = as_text or not plan.grids
            found += cut_items(decode_cells(PlannedMedia(medium, plan, ""), processor), plan.grids)
        except SampleError:
            continue
    if not found and as_text:
        raise Lacking("its media become text and no cells, by the options of its processor")
    if not found:
        raise NotBuilt("none of its media gives a cell")
    return tuple(found)


def _takes(module: Any, items: Sequence[Item]) -> bool:
    """Whether an encoder runs on an item. What it then gives is for the promises to judge."""
    import torch

    try:
        with torch.no_grad():
            module(*row(items[:1], items[0]))
    except (Exception, SystemExit):  # a seam: these may be cells of another kind
        return False
    return True
