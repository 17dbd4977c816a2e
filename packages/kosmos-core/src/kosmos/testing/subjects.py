"""What promises are checked on: a plugin, one of its components, or a modality with all that belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from kosmos.components import EncoderSpec, ModalitySpec, Spec
from kosmos.compose import Composition, compose
from kosmos.data.document import Document, Media
from kosmos.data.plan import PlannedMedia, Route, decode_cells
from kosmos.discovery import PluginRecord
from kosmos.errors import KosmosError, SampleError, cause
from kosmos.plugins import Registry
from kosmos.run_file import make_run
from kosmos.testing.conditions import Conditions
from kosmos.testing.items import Item, cut_items, planned
from kosmos.testing.promise import BrokenPromise, NotBuilt

SMALL_BACKBONE = {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48}


@dataclass(frozen=True)
class PluginUnderTest:
    """An entry point."""

    registry: Registry
    record: PluginRecord

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
    def label(self) -> str:
        return f"{self.spec.kind} {self.spec.name}"

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.conditions.options_of(self.spec.kind, self.spec.name))

    def build(self, *args: Any) -> Any:
        """A new one, with the options that the conditions state.

        Raises:
            NotBuilt: it needs options or files that the conditions do not state.
        """
        try:
            return self.registry.build(self.spec.kind, self.spec.name, *args, options=self.options)
        except KosmosError as error:
            raise NotBuilt(str(error)) from error


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
            found = (source.document(index) for index in range(len(source)))
            fit = (document for document in found if self.spec.name in document.modalities)
            return tuple(islice(fit, self.conditions.documents))
        except Exception as error:  # a seam: the plugin's own code
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


@dataclass(eq=False)
class EncoderUnderTest(ComponentUnderTest):
    """An encoder, on the cells that a modality's processor makes for it."""

    spec: EncoderSpec
    modality: ModalityUnderTest | None
    """Whose media it is tried on; None where no installed modality fits."""
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
        """Items of the modality's media, as they would come in a row.

        Raises:
            NotBuilt: no modality's processor makes cells for this encoder.
        """
        if self.modality is None:
            raise NotBuilt("no installed modality makes cells for this encoder")
        found = [item for medium in self.modality.media for item in self._items_of(self.modality, medium)]
        if not found:
            raise NotBuilt(f"modality {self.modality.spec.name}: none of its media gives a cell")
        return tuple(found)

    @cached_property
    def processor(self) -> Any:
        assert self.modality is not None
        encoder_input = self.fresh().input
        return self.modality.build(encoder_input)

    def _items_of(self, modality: ModalityUnderTest, medium: Media) -> list[Item]:
        try:
            plan = planned(self.processor, medium)
            cells = decode_cells(PlannedMedia(medium, plan, ""), self.processor)
        except SampleError:
            return []
        except BrokenPromise as broken:
            raise NotBuilt(f"modality {modality.spec.name} makes no cells for it: {broken}") from broken
        except (TypeError, ValueError, AttributeError, KosmosError) as error:
            raise NotBuilt(f"modality {modality.spec.name} makes no cells for it: {cause(error)}") from error
        return cut_items(cells, plan.grids)
