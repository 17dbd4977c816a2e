"""Two models compared on the documents that both have scored. No torch.

What two models find of the same documents varies together, so that the difference is far surer than either figure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kosmos.errors import DataError
from kosmos.evaluate.by_value import SHARES

Z = 1.959964
"""Standard errors to each side of a figure within which 95 % of a normal distribution are."""
ACCURACY = "accuracy"
"""Of questions that offer several answers."""
FEW = 30
"""Documents below which a ratio of sums has no interval."""
Ratio = tuple[float, float]
"""What one document adds to both sides of a ratio, such as the sum of its losses and its target tokens."""
LOWER = ("loss", "bits_per_byte")
"""Figures of which less is better."""
Key = tuple[str, str, str]
"""Of a document: ``source``, the name of its source, and its own; of a question ``choices`` is first."""


@dataclass
class Counted:
    """What one model's scoring has counted of a document, or of a question."""

    figures: dict[str, Ratio]
    """By name; of what is right or wrong (1, 1) or (0, 1)."""
    modalities: tuple[str, ...] = ()
    text_bytes: int = 0
    """Of the text that is learned; 0 where that was not counted."""
    pieces: int = 1
    """Into which it was cut."""

    def add(self, piece: Counted) -> None:
        """Another piece of the same document."""
        for name, (over, under) in piece.figures.items():
            known = self.figures.get(name, (0.0, 0.0))
            self.figures[name] = (known[0] + over, known[1] + under)
        self.text_bytes, self.pieces = self.text_bytes + piece.text_bytes, self.pieces + piece.pieces


@dataclass(frozen=True)
class Difference:
    """By how much the first of two models has more of a figure than the second, on the same documents."""

    documents: int
    first: float
    second: float
    difference: float
    """The first less the second."""
    low: float | None = None
    """Lower end of the interval of 95 %; None where the documents are too few, or the difference not finite."""
    high: float | None = None
    p: float | None = None
    """How likely a difference of at least this size would be, by chance alone, if there were none."""
    only_first: int | None = None
    """Documents of which the first alone is right; None of what is not right or wrong."""
    only_second: int | None = None
    kind: str = "all"
    """``all``, ``modality``, ``source`` or ``choices``."""
    name: str = ""
    """Of the modality, or of the source."""
    figure: str = ""
    lower_is_better: bool = False


@dataclass
class Paired:
    """The documents that both models have scored."""

    pairs: dict[Key, tuple[Counted, Counted]] = field(default_factory=dict)
    left_out: int = 0
    """That one of the two could not score."""


def paired(
    first: Mapping[Key, Counted],
    second: Mapping[Key, Counted],
    unread: Collection[Key] = (),
    names: tuple[str, str] = ("the first", "the second"),
    advice: str = "score both on the same: name documents with --data, or questions with --choices",
) -> Paired:
    """Pair what two models have counted.

    Args:
        unread: what either could not score, which is left out of both.
        names: of the two models, for errors.
        advice: what to do where they have scored other documents.

    Raises:
        DataError: they have scored other documents, or documents of one name of which other text is learned.
    """
    both = [key for key in first if key in second]
    each = ((first, second), (second, first))
    alone = [[key for key in own if key not in other and key not in unread] for own, other in each]
    for name, keys in zip(names, alone, strict=True):
        if keys:
            counts = f"{len(first):,} of {names[0]} and {len(second):,} of {names[1]} were scored"
            raise DataError(
                f"not the same documents: {counts}, and {len(both):,} are the same; {keys[0][2]}{_of(keys[0])} is "
                f"of {name} alone; {advice}"
            )
    if not both:
        raise DataError(f"no document was scored by {names[0]} and by {names[1]}; {advice}")
    for key in both:
        one, other = first[key], second[key]
        # A tokenizer may lose a space at the start of what it decodes.
        if abs(one.text_bytes - other.text_bytes) > max(one.pieces, other.pieces):
            raise DataError(
                f"{key[2]}{_of(key)}: {names[0]} learns {one.text_bytes:,} bytes of it and {names[1]} "
                f"{other.text_bytes:,}; lay it out alike for both, such as --data '{{path: PATH, template: ...}}'"
            )
    left_out = len({*first, *second}) - len(both)
    return Paired({key: (first[key], second[key]) for key in both}, left_out)


def _of(key: Key) -> str:
    return f" of source {key[1]}" if key[1] else ""


def differences(found: Paired, lower: Collection[str] = LOWER) -> list[Difference]:
    """Of each figure of all documents, of those with a modality, and of each source.

    A loss is that of a token, which compares where both have as many target tokens of every document; else their
    tokenizers differ, and ``bits_per_byte`` is told in its place.

    Args:
        lower: figures of which less is better.
    """
    groups: dict[tuple[str, str], list[tuple[Counted, Counted]]] = {}
    for (kind, source, _), pair in found.pairs.items():
        keys = [(kind, source)]
        if kind == "source":  # questions are not among all documents
            keys += [("all", ""), *(("modality", name) for name in pair[0].modalities)]
        for key in keys:
            groups.setdefault(key, []).append(pair)
    tokens = ([one.figures.get("loss", (0, 0))[1] for one in pair] for pair in found.pairs.values())
    left = "bits_per_byte" if all(one == other for one, other in tokens) else "loss"
    told = []
    for kind, name in sorted(groups):
        pairs = groups[kind, name]
        for figure in dict.fromkeys(figure for one, _ in pairs for figure in one.figures if figure != left):
            ratios = [
                (a.figures[figure], b.figures[figure]) for a, b in pairs if figure in a.figures and figure in b.figures
            ]
            if ratios and all(sum(under for _, under in side) for side in zip(*ratios, strict=True)):
                of = of_shares if figure in SHARES and _are_right_or_wrong(ratios) else of_ratios
                less = figure in lower
                told.append(replace(of(ratios), kind=kind, name=name, figure=figure, lower_is_better=less))
    return told


def _are_right_or_wrong(pairs: Sequence[tuple[Ratio, Ratio]]) -> bool:
    """A metric of a plugin may be called accuracy, too, and give a part of it, or several for an answer."""
    return all(over in (0, 1) and under == 1 for pair in pairs for over, under in pair)


def of_ratios(pairs: Sequence[tuple[Ratio, Ratio]]) -> Difference:
    """Of two ratios of sums over the same documents, such as losses a token: long documents count for more.

    The standard error is that of the ratios' linear parts, document by document; p is that of a normal distribution.
    Fewer than ``FEW`` documents get none: their sums are not normal, and the interval would be too narrow. Nor does a
    difference that is not finite.

    Source: the ratio estimator of survey sampling (Cochran, Sampling Techniques, 1977, chapter 6), of both and paired.
    """
    values = np.asarray(pairs, np.float64)  # [n, 2, 2]: document, model, side of the ratio
    over, under = values.sum(0).T
    first, second = (over / under).tolist()
    count, apart = len(values), first - second
    if count < FEW or not math.isfinite(apart):
        return Difference(count, first, second, apart)
    parts = (values[..., 0] - values[..., 1] * (over / under)) / under
    own = parts[:, 0] - parts[:, 1]
    error = math.sqrt(count / (count - 1) * float((own**2).sum()))
    p = math.erfc(abs(apart) / error / math.sqrt(2)) if error else float(apart == 0)
    return Difference(count, first, second, apart, apart - Z * error, apart + Z * error, p)


def of_shares(pairs: Sequence[tuple[Ratio, Ratio]]) -> Difference:
    """Of the shares of documents that two models are right about.

    p is that of McNemar's exact test: each document of which one model alone is right would be a fair coin.

    Source: the interval is that of Bonett and Price, Adjusted Wald Confidence Interval for a Difference of Binomial
    Proportions Based on Paired Data (2012), whose middle is drawn a little towards 0.
    """
    right = np.asarray(pairs, np.float64)[..., 0] > 0  # [n, 2]
    count = len(right)
    first, second = right.mean(0).tolist()
    better, worse = (int((right[:, one] & ~right[:, 1 - one]).sum()) for one in (0, 1))
    more, less = (better + 1) / (count + 2), (worse + 1) / (count + 2)
    error = math.sqrt((more + less - (more - less) ** 2) / (count + 2))
    low, high = max(-1.0, more - less - Z * error), min(1.0, more - less + Z * error)
    return Difference(count, first, second, (better - worse) / count, low, high, mcnemar(better, worse), better, worse)


def mcnemar(better: int, worse: int) -> float:
    """p of McNemar's exact test, two-sided, of so many documents of which one alone is right, and of the other."""
    differ, least = better + worse, min(better, worse)
    whole = math.lgamma(differ + 1) - differ * math.log(2)
    tail = math.fsum(math.exp(whole - math.lgamma(k + 1) - math.lgamma(differ - k + 1)) for k in range(least + 1))
    return min(1.0, 2 * tail)
