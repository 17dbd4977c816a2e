"""Datasets that plugins bring by name, which make their own documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kosmos.components import DatasetSpec, Spec
from kosmos.data.document import Source
from kosmos.data.sources.own_columns import add_modalities
from kosmos.data.sources.renamed import Renamed
from kosmos.data.sources.splits import Split
from kosmos.errors import DataError, EmptySplit
from kosmos.names import listed


class Components(Protocol):
    """The part of ``kosmos.plugins.Registry`` that opening a source needs."""

    def specs(self, kind: str) -> dict[str, Spec]: ...

    def build(
        self, kind: str, name: str, *args: Any, options: Mapping[str, Any] | None = None, path: str = ""
    ) -> Any: ...

    def why_absent(self, kind: str, name: str) -> str: ...

    def peek(self, kind: str, name: str) -> Any: ...

    def resolve(self, kind: str, name: str) -> Any: ...


@dataclass(frozen=True)
class Registered:
    """A dataset of a plugin, which makes each part by itself (``Parts``)."""

    path: str
    registry: Components
    name: str | None
    options: Mapping[str, Any]
    prefix: str
    """What messages on its options begin with."""

    def part(self, split: Split, share: float) -> Source:
        source: Source = self.registry.build("dataset", self.path, split, options=self.options, path=self.prefix)
        if len(source) == 0:
            raise EmptySplit(f"dataset {self.path!r}: its {split} part is empty")
        return source if self.name in (None, source.name) else Renamed(str(self.name), source)

    def whole(self) -> Source:
        """What it holds out, if anything: some make what is trained on anew for ever."""
        try:
            return self.part("held_out", 0.0)
        except EmptySplit:
            return self.part("train", 0.0)


def open_registered(
    path: str, registry: Components, modalities: Sequence[str], name: str | None, options: Mapping[str, Any], where: str
) -> Registered:
    """The dataset. Raises DataError where it holds what the run has not."""
    spec = registry.specs("dataset")[path]
    missing = sorted(set(spec.modalities) - set(modalities)) if isinstance(spec, DatasetSpec) else []
    if missing:
        raise DataError(f"dataset {path!r} holds {listed(missing)}, which this run has not; {add_modalities(missing)}")
    return Registered(path, registry, name, options, f"{where}.options" if where else f"dataset {path}")
