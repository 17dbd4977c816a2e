"""Where the media of a modality go."""

from __future__ import annotations

from dataclasses import dataclass, field

from kosmos.data.processor import Processor
from kosmos.data.slots import SlotCount
from kosmos.data.writer import Writer


@dataclass(frozen=True, slots=True)
class Route:
    """Where a modality's media go: its processor, its stream, and how the stream's connector counts slots."""

    processor: Processor
    stream: str
    slots: SlotCount
    marks: frozenset[str]
    """The modality's special tokens; whatever else its layouts spell is plain text."""
    writer: Writer | None = None
    """What makes tokens of media that the model writes, where the run has a codec of the modality."""
    no_codec: str = ""
    """Why there is none, where the run states one."""
    reads_headers: bool = field(init=False)
    """Whether a plan hangs on the file, by what the processor says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads_headers", bool(getattr(self.processor, "reads_headers", True)))
