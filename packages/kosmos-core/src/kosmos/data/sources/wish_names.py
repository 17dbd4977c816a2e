"""Keys under which the rows and chats of others say how their media are to be sampled."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from kosmos.names import nearest

CHANNELS: Final = frozenset("channel channels channel_id channel_index channel_selector".split())
"""Which of several of a file is meant, as NeMo, Lhotse and Kaldi say it."""
OF_TIME: Final = CHANNELS | frozenset(
    "fps sample_fps sampling_fps target_fps min_fps max_fps nframes num_frames min_frames max_frames max_num_frames "
    "frames_upbound".split()
)
RATES: Final = frozenset("rate_hz sampling_rate sample_rate fs".split())
"""Keys that say how many samples a second a medium with time has, which a file states itself, or does not."""
READ_RATES: Final = ("rate_hz", "sampling_rate")
"""Those that are read beside the file of an object, for modalities that take them (``ModalitySpec.reads_rate``)."""
NO_RATE: Final = (None, "auto", "")
"""What a key says that says nothing."""
_LIKE_RATES: Final = frozenset(
    "ratehz samplingrate samplerate samplingratehz sampleratehz samplingfrequency samplefrequency samplingfreq "
    "samplefreq sfreq rate frequency freq frequencyhz freqhz hz fs fshz sr framerate".split()
)
"""Keys, in small letters without what is between words."""
OF_ROWS: Final = OF_TIME | RATES | frozenset("total_pixels min_pixels max_pixels resized_height resized_width".split())
"""Those that columns may have, too."""
WISHES: Final = OF_ROWS | {"detail"}
"""Keys of parts of chats, and of objects that are media."""
_IN = re.compile(r"use_([a-z0-9]+)_in_([a-z0-9]+)")


def stated_rate(medium: Mapping[str, Any]) -> float | None:
    """Samples a second that an object states of the file that it holds; None where it states none that can be meant."""
    said = {medium[key] for key in READ_RATES if isinstance(medium.get(key), int | float)}
    rate = said.pop() if len(said) == 1 else True
    return float(rate) if not isinstance(rate, bool) and 0 < rate < math.inf else None


@lru_cache(maxsize=4096)
def is_like_rate(key: str) -> bool:
    """Whether a key of an object that states its rate seems to be meant as that: ``rate_Hz``, ``sampling rate``."""
    if key in READ_RATES:
        return False
    plain = re.sub(r"[^a-z]", "", key.lower())
    return plain in _LIKE_RATES or nearest(key.lower(), READ_RATES) is not None


def is_wish(key: str) -> bool:
    return key in WISHES or _IN.fullmatch(key) is not None


def within(key: str) -> tuple[str, str] | None:
    """Two modalities, where a key wants what is of the first within media of the second, such as the sound of a film;
    None of other keys."""
    found = _IN.fullmatch(key)
    return None if found is None else (found[1], found[2])


def split_wish(column: str) -> tuple[str, str]:
    """What stands in front of a wish, such as a modality, and that; nothing and the whole where it holds none."""
    before, _, key = column.partition("_")
    return (before, key) if column not in WISHES and key in WISHES else ("", column)


@lru_cache(maxsize=4096)
def may_wish(column: str) -> bool:
    """Whether a column is called as if it held a wish, be it behind the name of a modality."""
    return split_wish(column)[1] in OF_ROWS or within(column) is not None
