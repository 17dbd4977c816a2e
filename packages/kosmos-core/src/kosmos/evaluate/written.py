"""Media that a model wrote."""

from __future__ import annotations

from kosmos.compose import Composition
from kosmos.data.writer import WrittenMedia
from kosmos.evaluate.answer import Generated


def written_media(composition: Composition, answer: Generated) -> list[WrittenMedia]:
    """The media that are in an answer, in order, decoded by the run's codecs.

    Args:
        composition: of the run that wrote it, such as ``load_run(...).composition``.
        answer: what ``generate_text`` tells at its end (``on_end``), or ``generate_answers`` gives.

    Returns:
        Those that are no medium, too, with what is wrong (``WrittenMedia.fault``): a model may write anything.
    """
    writers = [route.writer for route in composition.planner.routes.values() if route.writer is not None]
    if len(writers) == 1:
        return writers[0].written(answer.token_ids)
    # Each finds its own in the tokens; they are told in the order in which they begin.
    found: list[tuple[int, WrittenMedia]] = []
    for writer in writers:
        begins = [place for place, token in enumerate(answer.token_ids) if token == writer.begin]
        found += zip(begins, writer.written(answer.token_ids), strict=True)
    return [medium for _, medium in sorted(found, key=lambda one: one[0])]
