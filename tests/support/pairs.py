"""Pairs of a better and a worse answer, for tests."""

from __future__ import annotations

import random

from kosmos import Document, Documents, Text

BETTER, WORSE = ("red", "blue", "green"), ("one", "two", "three")


def pairs_of(name: str, count: int, *, seed: int = 0) -> Documents:
    """A colour is better than a number, whatever is asked."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        asked = (Text(f"say {draw.choice(BETTER)} {draw.choice(WORSE)}: "),)
        better, worse = Text(draw.choice(BETTER), train=True), Text(draw.choice(WORSE), train=True)
        found.append(Document(f"{name} {number}", (*asked, better), rejected=(*asked, worse)))
    return Documents(name, found)
