"""How the parts of a chat want their media sampled, as those of Qwen-VL and of the OpenAI API may say.

All media are sampled as the run's processors do it, so that nobody reads such wishes. They make no bad sample: what the
part shows is there. They are told once for a source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kosmos.data.sources.columns import Row
from kosmos.data.sources.layouts import CHATS, DefaultLayout
from kosmos.data.sources.messages import OPENAI, SHAREGPT, part_kind
from kosmos.errors import SampleError

WISHES: Final = frozenset(
    "fps sample_fps nframes num_frames min_frames max_frames total_pixels min_pixels max_pixels resized_height "
    "resized_width detail".split()
)
_NONE: Final = (None, "auto")
"""What such a key says that wants nothing."""


def wishes_of(layout: DefaultLayout, row: Row) -> Iterator[tuple[str, str]]:
    """The modality and the key of each wish in a row's chat, which is well-formed."""
    turns = next((turns for role in CHATS if (turns := layout.value(row, role)) is not None), ())
    for turn in turns:
        for content in (turn.get(key) for _, key in (OPENAI, SHAREGPT)):
            if isinstance(content, list | tuple):
                yield from (wish for part in content for wish in _of_part(part))


def _of_part(part: Any) -> Iterator[tuple[str, str]]:
    try:
        kind = part_kind(part, "")
    except SampleError:  # under a key that the turn is not read by
        return
    if kind == "text":
        return
    for held in (part, part.get(part["type"])):
        if isinstance(held, Mapping) and not WISHES.isdisjoint(held):
            yield from ((kind, key) for key in WISHES.intersection(held) if held[key] not in _NONE)
