"""What a model wrote for one document. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Generated:
    """What became of one document."""

    origin: str
    """What the data call it."""
    expected: str | None
    text: str
    prompt: str = ""
    """What stood before: text as it is, a mark by its name, a medium as ``<image>``."""
    media: tuple[str | None, ...] = ()
    """What the data call the file of each medium; None where it is in none."""
    id: str | int | None = None
    """The row's own; None where it has none."""
    tokens: int = 0
    """That were written: of ``text``, and of a text that ended it."""
    ended: str = ""
    """Why there are no more: ``stop`` where one of the texts came that end it, else as of ``why_ended``."""
    seed: int | None = None
    """Of what was sampled; None where the most likely tokens were taken."""
    row: int = field(default=-1, compare=False)
    """Number of the document in its source: ``source.document(row)``."""
    references: tuple[str, ...] = ()
    """All right answers, ``expected`` among them, where there are several; empty where there is one only."""
    prompt_tokens: int = field(default=0, compare=False)
    """That stood before, those of media among them."""
    token_ids: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """What was written, marks of modalities among it, of which ``text`` has none; without the token that ended it."""
