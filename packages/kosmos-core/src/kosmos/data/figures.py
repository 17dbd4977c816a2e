"""What the documents of a run are like, by the first of each source in the order of training. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kosmos.data.answers import Answers
from kosmos.data.lane import Feed, Lane
from kosmos.data.placeless import Placeless
from kosmos.data.plan import DocumentPlan, Planner
from kosmos.data.quarantine import Incident
from kosmos.data.shown import named_file, spelled
from kosmos.data.turn_order import ODDITIES, TurnOrder

LOOKED_AT = 256
"""Documents of a source whose headers are read for the figures."""


@dataclass(frozen=True)
class Figures:
    """Of the first documents of a source in the order of training."""

    looked_at: int
    shortest: int
    mean: float
    longest: int
    """Tokens of a document."""
    media_share: float
    """Of tokens: those that media fill."""
    learned_share: float
    """Of tokens: those that the loss looks at."""
    spelled: list[str]
    """Special tokens, or what is called as those of others, that at least half of the documents spell in their text."""
    named_file: str
    """A medium's file between tags in the text, where at least half of the documents have one; else empty."""
    longer: int
    """Documents that take more than a row."""
    cut: int
    """Documents that take more than a row and hold what is not learned, such as chats."""
    disordered: int
    """Documents whose turns follow each other oddly."""
    oddities: dict[str, int]
    """How many of them in which way."""
    first_disordered: str
    """Origin of the first of them."""
    lost: int
    """Media that were left out of documents."""
    first_lost: str
    """Origin and cause of the first of them."""
    placeless: dict[str, int]
    """Documents whose text has the place of a medium that they lack, by modality (``kosmos.data.placeless``)."""
    first_placeless: str
    """Origin of the first of them."""
    weights: tuple[float, float, float] | None
    """Least, mean and largest weight of a document; None where all weigh 1."""
    answers: dict[str, int]
    """Of documents that are labelled, how many have each answer; empty of others."""


@dataclass(frozen=True)
class Looked:
    """What was found, by the names of sources."""

    figures: dict[str, Figures | None]
    """None where none of the documents can be used."""
    documents: dict[str, list[list[DocumentPlan]]]
    """The first that can be used, in pieces that fit a row."""
    incidents: list[Incident]
    """Of those that cannot."""


def look_at_all(feed: Feed, *, kept: int = 0) -> Looked:
    """Read the headers of the first documents of each source and plan them; nothing is decoded.

    Args:
        kept: how many of each are given back as they are.
    """
    lane = Lane(feed, 0)
    found = Looked({}, {}, lane.incidents)
    for number, source in enumerate(feed.mixture.sources):
        usable: list[list[DocumentPlan]] = []
        order, answers, placeless = TurnOrder(), Answers(), Placeless(feed.planner.routes)
        for draw in range(min(LOOKED_AT, len(source))):
            document, pieces = lane.read(number, draw)
            if document is not None and pieces:
                usable.append(pieces)
                order.look(feed.mixture.row(number, draw), document)
                answers.look(document)
                placeless.look(document)
        found.documents[source.name] = usable[:kept]
        found.figures[source.name] = _figures(usable, order, answers, placeless, feed.planner) if usable else None
    return found


def _figures(
    documents: Sequence[Sequence[DocumentPlan]],
    order: TurnOrder,
    answers: Answers,
    placeless: Placeless,
    planner: Planner,
) -> Figures:
    lengths = [sum(map(len, pieces)) for pieces in documents]
    plans, tokens = [plan for pieces in documents for plan in pieces], sum(lengths)
    lost = [f"{plan.origin}: {cause}" for plan in plans for cause in plan.lost]
    media = sum(len(slots) for plan in plans for slots in plan.slots.values())
    learned = sum(int(plan.train.sum()) for plan in plans)
    return Figures(
        len(documents), min(lengths), tokens / len(documents), max(lengths), media / tokens, learned / tokens,
        spelled(documents, planner.tokenizer), named_file(documents, planner.tokenizer),
        sum(len(pieces) > 1 or pieces[0].is_part for pieces in documents),
        sum(any(plan.is_torn for plan in pieces) for pieces in documents),
        order.documents, {way: order.counts[way] for way in ODDITIES if way in order.counts}, order.first,
        len(lost), lost[0] if lost else "", dict(placeless.counts), placeless.first,
        _weights([pieces[0].weight for pieces in documents]), answers.few(),
    )  # fmt: skip


def _weights(found: Sequence[float]) -> tuple[float, float, float] | None:
    return None if all(weight == 1 for weight in found) else (min(found), sum(found) / len(found), max(found))
