"""Documents that cannot be used, as lines that people read: grouped by what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.data.quarantine import Incident

MAX_NAMED = 20
"""Documents of one cause that are named."""
MAX_CAUSES = 20
"""Causes that are told apart."""
NOT_THERE = ("no such file", "or the folder that holds them as root")
"""Words of causes that ``--root`` may mend."""
MISSPELT = ("no such file; there is ", "no such file; write / ")
"""Words of those where a file in the same folder was meant."""
_OF_ITS_OWN = re.compile(r"[^\s:,;()'\"]*[\d/.][^\s:,;()'\"]*")
"""Words of a cause that other documents have otherwise, such as a file's name, a place or a size."""
_ANSWERS = re.compile(r"\S.{0,99} is none of its \d+ answers: .*")
"""What a question says and offers, which is its own."""


def alike(cause: str) -> str:
    """A cause as it is of all documents that have it: without the names and numbers of one."""
    return _OF_ITS_OWN.sub("...", _ANSWERS.sub("what it says is none of its answers", cause))


def incident_lines(incidents: Sequence[Incident], what: str, all_of_them: str = "--json names all") -> Iterator[str]:
    """The first documents of each cause, and how many more have it: of 100,000 lines nobody reads the causes.

    Args:
        what: has become of them, which each line begins with, such as ``left out``.
        all_of_them: how to see those that are not named; empty where there is no way.
    """
    by_cause: dict[str, list[Incident]] = {}
    for incident in incidents:
        cause = alike(incident.cause)
        known = cause in by_cause or len(by_cause) < MAX_CAUSES
        by_cause.setdefault(cause if known else "other causes", []).append(incident)
    for cause, found in by_cause.items():
        yield from (in_a_line(f"{what}: {i.origin}: {i.cause}") for i in found[:MAX_NAMED])
        if len(found) > MAX_NAMED:
            more = f" ({all_of_them})" if all_of_them else ""
            yield in_a_line(f"{what}: {len(found) - MAX_NAMED:,} more: {cause}{more}")


def root_advice(incidents: Sequence[Incident], root: str | None) -> str:
    """What to do, behind a message, where media are not there and no folder of theirs was named."""
    causes = [i.cause for i in incidents if not any(words in i.cause for words in MISSPELT)]
    absent = any(words in cause for cause in causes for words in NOT_THERE)
    return "; if their media are in another folder, name it with --root" if absent and not root else ""
