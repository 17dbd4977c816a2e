"""Chats whose turns are out of order."""

from __future__ import annotations

import pytest

from kosmos.data.document import Document, Mark, Text
from kosmos.data.marks import ASSISTANT, END, SYSTEM, USER
from kosmos.data.turn_order import ANSWER_FIRST, LATE_SYSTEM, NO_ANSWER, TWICE, TurnOrder, oddities

MARKS = {"s": SYSTEM, "u": USER, "a": ASSISTANT}


def segments(roles: str) -> tuple[Mark | Text, ...]:
    return tuple(part for role in roles for part in (Mark(MARKS[role]), Text("said"), Mark(END)))


@pytest.mark.parametrize(
    ("roles", "found"),
    [
        ("", []),
        ("ua", []),
        ("suaua", []),
        ("au", [ANSWER_FIRST, NO_ANSWER]),
        ("sa", [ANSWER_FIRST]),
        ("uuaa", [TWICE]),
        ("ssua", [TWICE, LATE_SYSTEM]),
        ("usua", [LATE_SYSTEM]),
        ("su", [NO_ANSWER]),
    ],
)
def test_what_is_odd_about_the_order_of_turns(roles, found):
    assert list(oddities((Text("before"), *segments(roles)))) == found


def test_the_first_of_a_source_is_named_however_they_are_drawn():
    order = TurnOrder()
    for place, roles in ((7, "au"), (2, "uua"), (0, "ua"), (5, "u")):
        order.look(place, Document(f"row {place}", segments(roles)))
    assert (order.documents, order.first) == (3, "row 2")
    assert order.counts == {ANSWER_FIRST: 1, NO_ANSWER: 2, TWICE: 1}
