"""Labels of pieces of a medium, as Audacity exports them: two times and a text a line. No text of the whole."""

from __future__ import annotations

import json
import re

from kosmos.errors import SampleError

_LINE = re.compile(r"(\d+[.,]\d+)\t(\d+[.,]\d+)(?:\t(.*))?")
"""Times have a point there, or the comma of some languages, and always decimals."""
_RANGE = re.compile(r"\\\t[-\d.,]+\t[-\d.,]+")
"""Frequencies of the label above."""


def refuse_labels(text: str, modality: str, name: str, file: str) -> None:
    """Raises SampleError where every line of a text says from when to when something is, and some line what.

    Args:
        modality: of the medium beside it, which has time.
        name: of the medium.
        file: that holds the text.
    """
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
