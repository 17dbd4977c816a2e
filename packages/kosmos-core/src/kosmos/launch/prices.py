"""What a budget buys on p4d.24xlarge."""

from __future__ import annotations

USD_PER_HOUR_OF_TWO = {"on demand": 65.54, "reserved for a year": 38.44, "reserved for three years": 23.14}
"""Two instances, us-east-1, Linux, as the project's training strategy has them; look up today's."""


def hours(budget_usd: float, nodes: int) -> dict[str, float]:
    """Hours that ``nodes`` instances run for the budget, by way of paying. Storage and the head node are not in it."""
    return {way: budget_usd / (price * nodes / 2) for way, price in USD_PER_HOUR_OF_TWO.items()}


def lines(budget_usd: float, nodes: int) -> list[str]:
    """``hours`` for people; whole hours, rounded down."""
    bought = hours(budget_usd, nodes)
    return [
        f"${budget_usd:,.0f} buys {int(found):,} hours ({found / 24:,.0f} days) of {nodes} p4d.24xlarge {way} "
        f"(${USD_PER_HOUR_OF_TWO[way] * nodes / 2:,.2f} an hour)"
        for way, found in bought.items()
    ]
