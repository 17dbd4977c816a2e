"""Agreement of answers with what is expected beyond that of chance: Cohen's kappa. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Literal

from kosmos.errors import ConfigError
from kosmos.evaluate.class_metrics import ClassMetric, Pair
from kosmos.evaluate.metrics import SeveralMetric

Weights = Literal["none", "linear", "quadratic"]
_POWERS: dict[Weights, int] = {"none": 0, "linear": 1, "quadratic": 2}


def kappa(
    *, weights: Weights = "none", grades: tuple[str | int, ...] | None = None, ignore_case: bool = False
) -> SeveralMetric:
    """Cohen's kappa: 1 where all answers are as expected, 0 where no more are than by chance, below 0 where fewer are.

    Classes are the texts that are expected and that are answered, white space at the ends aside and in NFC. Of several
    right answers the one that was given counts as expected, or else the first. Where everything expected and answered
    is one class, chance agrees as much, and kappa is taken as 1.

    Args:
        weights: how much worse an answer is that is further off, for grades: by as many grades (``linear``), by the
            square of that (``quadratic``), or all the same (``none``).
        grades: their order for ``weights``, such as [none, mild, severe], those that no document has among them.
            Without it the grades are the numbers that are expected and answered, by their size. An answer that is no
            grade is as far off as can be.
        ignore_case: take capital and small letters as the same.

    Raises:
        ConfigError: grades are stated without weights, are fewer than two, or one stands there twice.

    Source: Cohen, Weighted kappa (1968); without ``grades`` as ``cohen_kappa_score`` of scikit-learn, with them as with
    its ``labels``. There texts are in the order of the alphabet, and a class alone gives no number.
    """
    if weights not in _POWERS:
        raise ConfigError(f"weights: expected none, linear or quadratic, got {weights!r:.40}")
    if grades is None:
        return ClassMetric(partial(_kappa, weights=weights, order=None), ignore_case)
    if weights == "none":
        raise ConfigError(
            "grades have no effect without weights; set weights to linear or quadratic, or leave them out"
        )
    plain = ClassMetric(_agreement, ignore_case).plain
    order = [plain(str(grade)) for grade in grades]
    if len(order) < 2 or len(set(order)) < len(order):
        raise ConfigError(f"grades {list(grades)}: expected at least two, each once, the lowest first")
    return ClassMetric(partial(_kappa, weights=weights, order=order), ignore_case)


def _kappa(pairs: Sequence[Pair], weights: Weights, order: Sequence[str] | None) -> float:
    return _agreement(pairs) if weights == "none" else _weighted(pairs, _POWERS[weights], order)


def _agreement(pairs: Sequence[Pair]) -> float:
    """Without weights: no class needs a number."""
    said, right = Counter(said for said, _ in pairs), Counter(right for _, right in pairs)
    agree = sum(said == right for said, right in pairs) / len(pairs)
    by_chance = sum(count * said[name] for name, count in right.items()) / len(pairs) ** 2
    return 1.0 if by_chance == 1 else (agree - by_chance) / (1 - by_chance)


def _weighted(pairs: Sequence[Pair], power: int, order: Sequence[str] | None) -> float:
    """1 less the disagreement over that of chance."""
    places = _places(pairs, order)
    said, right = (Counter(places.get(pair[side]) for pair in pairs) for side in (0, 1))
    most = max(1, *places.values())

    def apart(one: int | None, other: int | None) -> int:
        steps = most if one is None or other is None else abs(one - other)
        return steps * steps if power == 2 else steps

    found = sum(apart(places.get(one), places.get(other)) for one, other in pairs)
    chance = sum(count * often * apart(one, other) for one, count in said.items() for other, often in right.items())
    return 1.0 if chance == 0 else 1 - found * len(pairs) / chance


def _places(pairs: Sequence[Pair], order: Sequence[str] | None) -> dict[str, int]:
    """The number of each grade.

    Raises:
        ValueError: what is expected is none, which a metric's caller tells.
    """
    if order is not None:
        places = {grade: place for place, grade in enumerate(order)}
        if (other := next((right for _, right in pairs if right not in places), None)) is not None:
            quotes = "; YAML reads no and yes as false and true: put them in quotes" if {"0", "1"} & {*order} else ""
            raise ValueError(f"expected {other!r:.60} is none of the grades {', '.join(order):.120}{quotes}")
        return places
    numbers = {text: _number(text) for pair in pairs for text in pair}
    if (other := next((right for _, right in pairs if numbers[right] is None), None)) is not None:
        raise ValueError(
            f"expected {other!r:.60} is no number, so that nobody knows the order of the grades; state it, as in "
            "{name: kappa, weights: quadratic, grades: [none, mild, severe]}"
        )
    of_value = {value: place for place, value in enumerate(sorted({n for n in numbers.values() if n is not None}))}
    return {text: of_value[number] for text, number in numbers.items() if number is not None}


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
