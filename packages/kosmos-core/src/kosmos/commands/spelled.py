"""Warnings of texts that spell special tokens, or marks of modalities, and are letters all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kosmos.data.figures import Figures
    from kosmos.data.plan import Planner


def rendered(figures: Mapping[str, Figures | None], told: Sequence[str], planner: Planner) -> Iterator[str]:
    """Warnings of texts that spell special tokens, such as chats that another library has laid out.

    Args:
        told: warnings already, of places of media among them.
        planner: of the run, which knows the marks of its modalities.
    """
    for name, of in figures.items():
        before = re.sub(r"\d+", "", "\n".join(line for line in told if line.startswith(f"{name}: texts spell ")))
        spelled = [] if of is None else [one for one in of.spelled if re.sub(r"\d+", "", one) not in before]
        spelled = [one for one in spelled if of is None or one.strip("<>") not in of.placeless]
        owners = {one: owner for one in spelled if (owner := owner_of(one, planner))}
        if others := [one for one in spelled if one not in owners]:
            yield (
                f"{name}: texts spell {' '.join(others)}, which stay plain text, no special tokens; give chats as "
                "messages, media in columns of their own (in segments where they stand between texts; in a chat <name> "
                "of the modality is the place), without any template of a tokenizer (tokenizer.turns says how turns "
                "are spelled)"
            )
        for owner in dict.fromkeys(owners.values()):
            own = " ".join(one for one in spelled if owners.get(one) == owner)
            yield (
                f"{name}: texts spell {own}, which are marks of {owner} and stay letters in texts; to have such "
                f"learned as tokens, give the run a codec (modalities.{owner}.codec) and the assistant's media, or "
                f'their codes, in the rows ({{"{owner}": {{"codes": [...]}}}}), or give documents with '
                f"Mark({own.split()[0]!r}, train=True) by a dataset of a plugin"
            )


def with_placeless(told: Iterable[str], figures: Mapping[str, Figures | None]) -> list[str]:
    """Warnings, with those of places without media by more documents than training looks at as it begins."""
    from kosmos.data.placeless import is_placeless, placeless_line

    own = [
        placeless_line(name, modality, count, of.looked_at, of.first_placeless)
        for name, of in figures.items() if of is not None
        for modality, count in of.placeless.items()
    ]  # fmt: skip
    return [*(line for line in told if not (own and is_placeless(line))), *own]


def owner_of(mark: str, planner: Planner) -> str:
    """The modality of the run that has a mark beside those around its media; empty where none has."""
    for modality, route in planner.routes.items():
        if mark in route.marks and mark not in (f"<{modality}>", f"</{modality}>"):
            return modality
    return ""
