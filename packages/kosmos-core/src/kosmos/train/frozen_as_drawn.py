"""Parts that a run freezes as they were drawn, so that they never learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from kosmos.checkpoint.folder import TENSORS, run_and_step, step_of, with_manifest
from kosmos.checkpoint.tensors import MODEL, shapes
from kosmos.config import BackboneConfig, RunConfig
from kosmos.config_weights import InitConfig
from kosmos.errors import CheckpointError
from kosmos.train.output import RunFolder


class _Frozen(NamedTuple):
    place: str
    """That of its stream, or the backbone."""
    what: str
    given: Sequence[str]
    """Its options that give it weights."""
    field: str = "freeze"
    """That which freezes it."""

    @property
    def name(self) -> str:
        return f"{self.place}.{self.what}"

    def line(self, init: Path | None = None) -> str:
        """What is told of it; ``init`` is a run that is begun with and lacks it."""
        learns = "only updates to them are learned" if self.field == "lora" else "it never learns"
        lacks, other = (f" ({init}, which the run begins with, has none)", "another ") if init else ("", "")
        return (
            f"{self.place}.{self.field}: the {self.what}'s weights are drawn at random{lacks}, and {learns}; leave "
            f"{self.field} out, or give it weights ({', '.join([*self.given, f'{other}init'])})"
        )


def frozen_streams(config: RunConfig, streams: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Warnings of encoders and connectors that are frozen as they were drawn, unless ``init`` has them.

    Args:
        streams: those of a run that begins, by their names.
    """
    found = [part for name, stream in streams for part in _frozen_of(config, name, stream)]
    init = config.init
    left = [part for part in found if not InitConfig.gives(init, part.name)]
    yield from (part.line() for part in left)
    if init is not None and len(found) > len(left) and (held := _parts_of(init.path)) is not None:
        yield from (part.line(init.path) for part in found if part not in left and part.name not in held)


def _frozen_of(config: RunConfig, name: str, stream: Any) -> Iterator[_Frozen]:
    by_updates = name in config.streams and config.streams[name].lora is not None
    if (stream.frozen or by_updates) and is_drawn(stream.encoder):
        given = _options(stream.encoder, f"streams.{name}.encoder", ("pretrained", "weights"))
        yield _Frozen(f"streams.{name}", "encoder", given, "lora" if by_updates else "freeze")
    has_weights = next(stream.connector.parameters(), None) is not None
    if stream.frozen_connector and has_weights and not getattr(stream.connector, "without_files", None):
        yield _Frozen(f"streams.{name}", "connector", [], "freeze_connector")


def _parts_of(init: Path) -> set[str] | None:
    """The encoders and connectors that the checkpoint of a run holds, by the names of their tensors alone; None where
    none can be read, which is refused elsewhere."""
    path, step = run_and_step(init)
    there = with_manifest(RunFolder(path).checkpoints)
    named = [checkpoint for checkpoint in there if step in (None, step_of(checkpoint))]
    if not named:
        return None
    try:
        return {".".join(name.removeprefix(MODEL).split(".")[:3]) for name in shapes(named[0] / TENSORS)}
    except CheckpointError:
        return None


def frozen_backbone(settings: BackboneConfig, backbone: Any) -> Iterator[str]:
    """A warning of a backbone that is frozen as it was drawn, of a run whose ``init`` does not give it."""
    # One that was built from the configuration in a folder tells of a file, too.
    drawn = is_drawn(backbone) or settings.options.get("pretrained") is False
    if (settings.freeze or settings.lora) and backbone is not None and drawn:
        given = _options(backbone, "backbone", ("model", "pretrained", "weights"))
        yield _Frozen("backbone", "backbone", given, "freeze" if settings.lora is None else "lora").line()


def is_drawn(part: Any) -> bool:
    """Whether a part says that it read no file. One that does not tell of files may have read some all the same."""
    return getattr(part, "without_files", None) == {} and next(part.parameters(), None) is not None


def _options(part: object, place: str, names: Sequence[str]) -> list[str]:
    """The options of a part, of these names, that give it weights."""
    known = signature(type(part)).parameters
    return [f"{place}.{name}" for name in names if name in known]
