"""What the documents of a source answer, where the answers are few: labels, some of which may be one that is misspelt.

Spaces and case count, as a model learns each spelling as an answer of its own. No torch here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kosmos.data.document import Document, Text
from kosmos.data.sources.spellings import Spellings
from kosmos.names import listed

MOST_ANSWERS, MOST_CHARS = 24, 60
"""Different ones, and characters of each, that are shown."""
_MISSING = ("nan", "na", "n/a", "<na>", "nat", "null", "#n/a")
"""How tables write that there is nothing."""


class Answers:
    """The answers of the documents that are looked at."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._documents = 0
        self._is_few = True

    def look(self, document: Document) -> None:
        """A document that is learned in one stretch of text, beside something that is not, has an answer."""
        if not self._is_few:
            return
        self._documents += 1
        learned = [part for part in document.segments if isinstance(part, Text) and part.train]
        if len(learned) != 1 or len(document.segments) == 1 or len(learned[0].text) > MOST_CHARS:
            self._is_few = False
            return
        self.counts[learned[0].text] += 1
        self._is_few = len(self.counts) <= MOST_ANSWERS

    def few(self) -> dict[str, int]:
        """How many documents have each, the commonest first; none where the answers are many, or no labels."""
        if not self._is_few or 2 * len(self.counts) > self._documents:
            return {}
        return dict(self.counts.most_common())


def told(answers: Mapping[str, int]) -> str:
    """``yes (120), no (100)``; in quotes where spaces are around one."""
    named = ((text if text == text.strip() else repr(text), count) for text, count in _bare(answers).items())
    return listed((f"{text} ({count:,})" for text, count in named), at_most=MOST_ANSWERS)


def doubtful(answers: Mapping[str, int]) -> Iterator[str]:
    """What hardly anybody means by them."""
    spellings = Spellings()
    bare = _bare(answers)
    for text in bare:
        spellings.add(text)
    if spellings.several:
        count = len(spellings.several)
        them = "1 of the answers is" if count == 1 else f"{count:,} of the answers are"
        yield (
            f"{them} written in several ways, such as {spellings.example}: each is learned, and scored, as an answer "
            "of its own; write each in one way"
        )
    missing = [text for text in bare if text.strip().lower() in _MISSING]
    if missing and (count := sum(bare[text] for text in missing)):
        have = "1 document answers" if count == 1 else f"{count:,} documents answer"
        yield (
            f"{have} {listed(map(repr, missing), at_most=4)}, which is learned as any answer is; where it means that "
            "there is none, leave these rows out"
        )


def _bare(answers: Mapping[str, int]) -> dict[str, int]:
    """Without the space that stands in front of all of them, which a template puts there."""
    if all(text.startswith(" ") for text in answers):
        return {text[1:]: count for text, count in answers.items()}
    return dict(answers)
