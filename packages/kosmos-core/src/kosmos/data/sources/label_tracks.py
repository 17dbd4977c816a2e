"""Texts of pieces of a medium in a file of its name: labels as Audacity exports them (two times and a text a line),
subtitles, and lines with their first and last sample, as TIMIT has them. None is the text of the whole."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from kosmos.data.sources.since import is_drawn_before
from kosmos.data.sources.time_names import timecode
from kosmos.errors import SampleError

_LINE = re.compile(r"(\d+[.,]\d+)\t(\d+[.,]\d+)(?:\t(.*))?")
"""Times have a point there, or the comma of some languages, and always decimals."""
_RANGE = re.compile(r"\\\t[-\d.,]+\t[-\d.,]+")
"""Frequencies of the label above."""
_AT = r"((?:\d+:)?\d\d:\d\d[.,]\d{3})"
_CUE = re.compile(rf"\s*{_AT}\s*-->\s*{_AT}(?:\s+\w+:\S+)*\s*")
"""The line above what is said, in SRT and WebVTT, of which some say where it is shown."""
_SAMPLES = re.compile(r"(\d+)[ \t]+(\d+)[ \t]+(\S.*)")
_LEAST_SAMPLES = 1000
"""Of a whole medium: less in front of a text may be counts of anything."""
_HEADER_BYTES = 4096
"""Most that stand in front of the samples in a file."""


def refuse_pieces(text: str, modality: str, name: str, file: str, path: Callable[[], Path]) -> None:
    """Raises SampleError where a text holds texts of pieces of a medium, each with its times.

    Args:
        modality: of the medium beside it, which has time.
        name: of the medium.
        file: that holds the text.
        path: to the medium. Raises SampleError where it is not there.
    """
    _refuse_labels(text, modality, name, file)
    if is_drawn_before():
        return
    if "-->" in text:
        _refuse_subtitles(text.splitlines(), modality, name, file)
    if text[:1] == "0":
        _refuse_samples(text, file, path)


def _refuse_subtitles(lines: list[str], modality: str, name: str, file: str) -> None:
    cues = [(number, found) for number, line in enumerate(lines) if (found := _CUE.fullmatch(line)) is not None]
    if not cues:
        return
    number, first = cues[0]
    start, end = (timecode(first[side]) or 0.0 for side in (1, 2))
    said = next((line.strip() for line in lines[number + 1 :] if line.strip()), "")
    row = json.dumps({modality: name, "clip": [start, max(start, end)], "text": said}, ensure_ascii=False)
    raise SampleError(
        f"{file}: holds subtitles, whose times would be learned; write a row for each into a manifest.jsonl "
        f"({row:.200}; docs: Use your own data, Transcripts with times), or what is said in all of it into {file}"
    )


def _refuse_samples(text: str, file: str, path: Callable[[], Path]) -> None:
    """Where every line is of a piece that has a label, one behind another, and the first begins with the medium. A line
    alone is of all of the medium, and may begin with any two counts: its file has two bytes for each of so many."""
    found = [_SAMPLES.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    stretches = [(int(one[1]), int(one[2])) for one in found if one is not None]
    if len(stretches) < len(found) or stretches[0][0] != 0 or stretches[-1][1] < _LEAST_SAMPLES:
        return
    edges = [edge for stretch in stretches for edge in stretch]
    if any(end <= begin for begin, end in stretches) or edges != sorted(edges):
        return
    if not all(any(map(str.isalpha, one[3])) for one in found if one is not None):
        return
    if len(stretches) == 1:
        begin, end = stretches[0]
        if not 0 <= _num_bytes(path) - 2 * end <= _HEADER_BYTES:
            return
        raise SampleError(
            f"{file}: begins with the first and the last sample of the medium ({begin} {end}), which would be learned; "
            "write the text alone"
        )
    raise SampleError(
        f"{file}: its lines are the first and the last sample of a piece and a label each, and no text of the whole "
        f"file; write what is said in all of it into {file}"
    )


def _num_bytes(path: Callable[[], Path]) -> int:
    try:
        return path().stat().st_size
    except (OSError, SampleError):
        return 0


def _refuse_labels(text: str, modality: str, name: str, file: str) -> None:
    """Where every line of a text says from when to when something is, and some line what."""
    if "\t" not in text:  # as of most
        return
    lines = [line for line in text.splitlines() if line.strip() and not _RANGE.fullmatch(line.strip())]
    labels = [found for line in lines if (found := _LINE.fullmatch(line.strip())) is not None]
    first = next((label for label in labels if label[3]), None)  # without any they are figures of whatever
    if first is None or len(labels) < len(lines):
        return
    start, end = (float(first[number].replace(",", ".")) for number in (1, 2))
    row = json.dumps({modality: name, "clip": [start, max(start, end)], "text": first[3]}, ensure_ascii=False)
    raise SampleError(
        f"{file}: its lines are two times and a label each, and no text of the whole file; write a row for each into a "
        f"manifest.jsonl ({row:.200}), or what is said in all of it into {file}"
    )
