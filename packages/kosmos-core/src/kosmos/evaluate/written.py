"""Media that a model wrote."""

from __future__ import annotations

from collections.abc import Sequence

from kosmos.compose import Composition
from kosmos.data.document import Codes, Text
from kosmos.data.writer import Writer, WrittenMedia
from kosmos.evaluate.answer import Generated


def said_parts(composition: Composition, answer: Generated) -> list[Text | Codes]:
    """An answer as what it said: its texts, and the codes of each whole medium between them. In the ``history`` of
    ``chat_prompt`` it stands as the model wrote it, and in ``answered`` it is learned.

    Args:
        composition: as of ``written_media``, and so is ``answer``.
    """
    writers = _writers(composition)
    begins = {writer.begin: writer for writer in writers}
    parts: list[Text | Codes] = []
    pending: list[int] = []

    def flush() -> None:
        if pending and (text := composition.tokenizer.decode(pending)):
            parts.append(Text(text))
        pending.clear()

    ids, place = answer.token_ids, 0
    while place < len(ids):
        writer = begins.get(ids[place])
        codes = None if writer is None else writer.codes_at(ids, place)
        if writer is None or codes is None:
            pending.append(ids[place])
            place += 1
            continue
        flush()
        parts.append(Codes(writer.modality, codes))
        place += len(codes) + 2
    if not parts:
        return [Text(answer.text)] if answer.text else []
    flush()
    return _before_stop(parts, answer.text) if answer.ended == "stop" else parts


def _before_stop(parts: Sequence[Text | Codes], text: str) -> list[Text | Codes]:
    """Without what stands behind ``text``, all that was said in front of a text that ended it."""
    found: list[Text | Codes] = []
    left = len(text)
    for part in parts:
        if isinstance(part, Codes):
            found.append(part)
        elif said := part.text[:left]:
            found.append(Text(said))
            left -= len(said)
    return found


def _writers(composition: Composition) -> list[Writer]:
    return [route.writer for route in composition.planner.routes.values() if route.writer is not None]


def written_media(composition: Composition, answer: Generated) -> list[WrittenMedia]:
    """The media that are in an answer, in order, decoded by the run's codecs.

    Args:
        composition: of the run that wrote it, such as ``load_run(...).composition``.
        answer: what ``generate_text`` tells at its end (``on_end``), or ``generate_answers`` gives.

    Returns:
        Those that are no medium, too, with what is wrong (``WrittenMedia.fault``): a model may write anything.
    """
    writers = _writers(composition)
    if len(writers) == 1:
        return writers[0].written(answer.token_ids)
    # Each finds its own in the tokens; they are told in the order in which they begin.
    found: list[tuple[int, WrittenMedia]] = []
    for writer in writers:
        begins = [place for place, token in enumerate(answer.token_ids) if token == writer.begin]
        found += zip(begins, writer.written(answer.token_ids), strict=True)
    return [medium for _, medium in sorted(found, key=lambda one: one[0])]
