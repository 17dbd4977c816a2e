"""LibriSpeech and what is laid out like it: ``SPEAKER/CHAPTER/84-121123.trans.txt`` beside ``84-121123-0000.flac``.

A row has ``audio``, ``text``, ``id``, ``speaker`` and ``chapter``. The whole corpus, a split of it, a speaker's folder
and a chapter's are read; where folders of splits are there (``train-clean-100``, ``dev-clean``) they are followed.
"""

from __future__ import annotations

from kosmos import CorpusFiles
from kosmos_audio.corpora import Rows, num_sounds, sound_of

_LIST = ".trans.txt"


def read(files: CorpusFiles) -> Rows | None:
    """The rows; None where no ``.trans.txt`` begins with an utterance of its chapter."""
    if files.is_file:
        return None
    lists = [name for name in files.names if name.endswith(_LIST)]
    if not lists or not _is_of_chapter(files, lists[0]):
        return None
    return _rows(files, lists)


def _is_of_chapter(files: CorpusFiles, name: str) -> bool:
    _, line = next(files.lines(name), ("", ""))
    return line.startswith(f"{_chapter(name)}-")


def _chapter(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(_LIST)


def _rows(files: CorpusFiles, lists: list[str]) -> Rows:
    found = 0
    for name in lists:
        folder, chapter = name[: name.rfind("/") + 1], _chapter(name)
        speaker, _, number = chapter.partition("-")
        for origin, line in files.lines(name):
            said = line.split(None, 1)
            sound = sound_of(files, folder + said[0])
            found += sound is not None
            text = said[1].strip() if len(said) > 1 else ""
            row = {"audio": sound or f"{folder}{said[0]}.flac", "text": text, "id": said[0], "speaker": speaker}
            yield origin, {**row, "chapter": number} if number else row
    files.pass_over(num_sounds(files) - found)
