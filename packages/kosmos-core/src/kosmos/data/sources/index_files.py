"""Files that list media and what is said in them, in ways of their own, beside media in class folders."""

from __future__ import annotations

import mimetypes
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kosmos.data.sources.delimited import SUFFIXES as DELIMITED
from kosmos.data.sources.file_names import stem_of, stems_of, suffix_of
from kosmos.data.sources.folders import MANIFEST, tells_of_data
from kosmos.data.sources.joined import ClassFolderTable, Rooted
from kosmos.data.sources.list_advice import as_rows
from kosmos.data.sources.list_lines import KINDS, Lines, candidates, first_lines
from kosmos.data.sources.source import Table
from kosmos.data.sources.splits import split_of
from kosmos.errors import DataError
from kosmos.names import listed

MOST_FILES, MOST_LINES = 256, 50
"""Looked at: files, and the first lines of each."""
LEAST_BYTES, MOST_BYTES, BYTES_OF_ALL = 1 << 16, 4 << 20, 16 << 20
"""Looked at further: of each file, and of all of them."""
LEAST_OF_OTHERS, MOST_OF_OTHERS, OTHERS_OF_ALL = 1 << 14, 1 << 17, 1 << 21
"""The same of files outside of ``KINDS``, of which there may be many that are large and list nothing."""
LEAST_TOLD = 10
"""Media of which the first lines say something, from which on these need not be half of all."""
LEAST_DIGITS = 4
"""Of a name that is digits alone: fewer may be the number of a class."""
LEAST_SHARE = 0.1
"""Of the media of one folder that a file outside of ``KINDS`` has to say something of, and of no fewer than two."""
_FIGURE = re.compile(r"[-+]?[\d.]+([eE][-+]?\d+)?|[0-9a-fA-F]{32,}|nan|NaN")
"""A number, or a digest."""
_NO_TEXT = re.compile(
    rf"{_FIGURE.pattern}|(?=[a-fA-F]*\d)[0-9a-fA-F]{{8,}}|[\w+/=-]{{7,}}="
    r"|(?i:md5|sha-?\d+|crc-?\d+c?|blake\w+|xxh\w*)([-_:=].*)?"
    r"|[-+\d][-+\d:./]*(T\d[-+\d:.]*)?Z?"
)
"""With a shorter digest, or one that says which it is, and a date or time."""
_OF_LISTING = re.compile(r"[-dlbcps]([-r][-w][-xsStT]){3}[.+@]?")
"""How a line of ``ls -l`` begins."""


def refuse_index_beside(media: ClassFolderTable, files: Sequence[str], *, asked: bool = False) -> ClassFolderTable:
    """The table of media in class folders, with a remark where a file says something of a few of them, or where there
    is one class alone.

    Args:
        files: as ``folders.list_files`` gives them.
        asked: the media are there to be continued: where a list has their texts they go without any.

    Raises:
        DataError: a file is a list that says something of many of them: their texts are there, most likely.
    """
    lists = candidates(files, frozenset(map(suffix_of, media.files)))
    known = _Known.of(media.files if lists else ())  # of a million it takes some seconds
    told, left, left_of_others, few = set[str](), BYTES_OF_ALL, OTHERS_OF_ALL, ""
    for name in known.not_of_one(lists)[:MOST_FILES]:
        if is_kind := suffix_of(name) in KINDS:
            most_bytes = max(LEAST_BYTES, min(left, MOST_BYTES))
        else:
            most_bytes = max(LEAST_OF_OTHERS, min(left_of_others, MOST_OF_OTHERS))
        lines = first_lines(media.folder, name, most_bytes, known.suffixes, known.is_medium)
        left, left_of_others = left - is_kind * lines.num_bytes, left_of_others - (not is_kind) * lines.num_bytes
        said = _Said.of(lines, known)
        line = f"{' '.join(said.line.split()):.60}"
        if not known.is_of_classes(lines) and said.is_list_of_texts(name, known, told, lines.share):
            if asked:
                what = f"{name} lists media that lie in folders ({line}); it is not read, and no answer is expected"
                return replace(media, named=False, remark=what)
            raise DataError(
                f"{media.folder}: {name} lists media that lie in folders ({line}), so that their "
                f"texts seem to be there; to learn these {as_rows(media, files, name)}write them into a metadata.csv "
                f"(file_name,text) or a manifest.jsonl, to learn the names of the folders (such as {media.files[0]}) "
                f"move {name} elsewhere"
            )
        # Prose may name one file, and a table of rows does not.
        if not few and len(said.told) >= (1 if suffix_of(name) in DELIMITED else 2):
            few = (
                f"{name} says something of {len(said.told)} of the {len(media)} files that lie in folders ({line}): it "
                "is not read, and the names of the folders are learned; if texts of files are there, write them into a "
                "metadata.csv (file_name,text)"
            )
    return replace(media, remark=few or ("" if asked else _told_of_one_class(media)))


def refuse_media_beside(folder: Path, files: Sequence[str], suffixes: Collection[str]) -> None:
    """Raises DataError where media of the run lie beside text files: the texts are meant to be theirs, most likely.

    Args:
        files: as ``folders.list_files`` gives them.
        suffixes: of media of the run.
    """
    if not (media := [name for name in files if suffix_of(name) in suffixes]):
        return
    known, first = _Known.of(media), media[0]
    for name in [name for name in files if suffix_of(name) == ".txt" and not tells_of_data(name)][:MOST_FILES]:
        lines = first_lines(folder, name, LEAST_BYTES, known.suffixes, known.is_medium)
        said = _Said.of(lines, known)
        if said.is_list_of_texts(name, known, set(), lines.share):
            raise DataError(
                f"{folder}: {name} lists its {len(media)} files of media ({' '.join(said.line.split()):.60}); to train "
                "on pairs write its lines into a metadata.csv (file_name,text), to train on the texts alone move the "
                "media"
            )
    raise DataError(
        f"{folder}: holds {len(media)} files of media (such as {first}) beside .txt files of other names; to "
        f"train on pairs, give text and medium one name ({stem_of(first)}.txt) or list them in a "
        f"{MANIFEST}; to train on the texts alone, leave the modality out or move them"
    )


def _told_of_one_class(media: ClassFolderTable) -> str:
    """What is to be said where the same is learned of each medium; empty where it is not."""
    name = media.files[0].split("/")[-2]
    if len(media) < 2 or any(other.split("/")[-2] != name for other in media.files):
        return ""
    return (
        f"all {len(media)} media lie in folders of one name, so that {name!r} is learned of each, whatever it holds; "
        "if they have texts, name the file of these as the source, or list them in a metadata.csv (file_name,text); to "
        "learn classes sort them into folders, one a class"
    )


def mentioned_beside(table: Table) -> Iterator[str]:
    """Of a file beside media in class folders that says something of a few of them."""
    classes = table.table if isinstance(table, Rooted) else table
    if isinstance(classes, ClassFolderTable) and classes.remark:
        yield classes.remark
    if isinstance(classes, ClassFolderTable) and classes.named:
        yield from _told_of_private(classes)


def _told_of_private(media: ClassFolderTable) -> Iterator[str]:
    """Of folders whose names begin as those of what is no class, such as ``_background_noise_``."""
    counts = Counter(name.split("/")[-2] for name in media.files)
    private = sorted(name for name in counts if name.startswith("_"))
    if private and len(private) < len(counts):
        count = sum(counts[name] for name in private)
        yield (
            f"{listed(private, at_most=3)}: {'a folder is a class' if len(private) == 1 else 'folders are classes'} as "
            f"all others are ({count} of {len(media)} files), though names that begin with _ mostly mean something "
            "else; move what is no class elsewhere"
        )


@dataclass(frozen=True)
class _Known:
    """What a line may say that is no text of a medium."""

    names: frozenset[str]
    stems: frozenset[str]
    folders: frozenset[str]
    suffixes: frozenset[str]
    shapes: frozenset[str]
    """The stems without their figures, of those that have more than these: others of one set are named alike."""
    sizes: Mapping[str, int]
    """How many media each folder holds itself."""
    kinds: frozenset[str]
    """What types of content of such files begin with, as ``text/`` of ``text/plain``."""

    @property
    def one_class(self) -> bool:
        """Whether all media lie in one folder, whose name is all that they would teach."""
        return len(self.sizes) == 1

    @classmethod
    def of(cls, files: Sequence[str]) -> _Known:
        names = frozenset(name.rpartition("/")[2] for name in files)
        sizes = Counter(name.rpartition("/")[0] for name in files)
        folders = frozenset(part for path in sizes for part in path.split("/"))
        stems = frozenset(map(stem_of, names))
        shapes = frozenset(shape for stem in stems if (shape := _shape(stem)) is not None)
        suffixes = frozenset(map(suffix_of, names))
        types = (mimetypes.guess_type(f"1{suffix}")[0] for suffix in suffixes)
        kinds = frozenset(one[: one.find("/") + 1] for one in types if one is not None)
        return cls(names, stems, folders, suffixes, shapes, sizes, kinds)

    def is_of_classes(self, lines: Lines) -> bool:
        """Whether each line, but for the first, begins with the name or the number of another folder."""
        keys = [fields[0] for fields in lines.fields if fields[0]]
        folders = {path.rpartition("/")[2] for path in self.sizes}
        if len(keys) < 2 or len({*keys}) < len(keys) or sum(self.sizes.values()) < 2 * len(folders):
            return False  # by as many as that, names of media would be told apart by no key
        if folders.issuperset(keys) or folders.issuperset(keys[1:]):
            return True
        numbers = [sorted(map(int, some)) for some in (keys, keys[1:]) if all(map(_is_number, some))]
        return any(some in ([*range(len(folders))], [*range(1, len(folders) + 1)]) for some in numbers)

    def num_below(self, folder: str) -> int:
        """How many media a list in a folder may be of: those below it, or where there are none, all."""
        below = sum(size for path, size in self.sizes.items() if f"{path}/".startswith(folder and f"{folder}/"))
        return min(below or len(self.stems), len(self.stems))

    def not_of_one(self, files: Sequence[str]) -> list[str]:
        """Those of the files that may be of several media: others have the name of one."""
        return [name for name in files if suffix_of(name) in KINDS or not any(map(self._is_own, stems_of(name)))]

    def _is_own(self, stem: str) -> bool:
        """Whether a stem is the name of a medium, or one that tells stands in front of it."""
        front = re.match(r"(.+)[-_]", stem)
        return (
            stem in self.names
            or stem in self.stems
            or (front is not None and front[1] in self.stems and _is_telling(front[1]))
        )

    def is_medium(self, name: str) -> bool:
        """Whether something is the name of a medium, with or without its suffix."""
        return (last := name.rpartition("/")[2]) in self.names or last in self.stems

    def named_by(self, fields: Sequence[str]) -> tuple[str | None, int]:
        """The medium that a line names, and the place of its name: a file anywhere, else a name without a suffix, that
        in front, or elsewhere one that is no word and no short number."""
        found: tuple[str | None, int] = (None, 0)
        for place, one in enumerate(fields):
            last = one.rpartition("/")[2] if "/" in one else one
            if last in self.names:
                return stem_of(last), place
            if found[0] is None and last in self.stems and (_is_telling(last) or (not place and one == last)):
                found = last, place
        return found

    def _is_path(self, name: str) -> bool:
        """Whether something is a medium with its folder, without a suffix."""
        folder, slash, last = name.rpartition("/")
        return bool(slash) and last in self.stems and folder.rpartition("/")[2] in self.folders

    def is_of_file(self, fields: Sequence[str]) -> bool:
        """Whether a line names a file as media are named, be it one that is not there."""
        return any(suffix_of(field) in self.suffixes for field in fields) or _shape(fields[0]) in self.shapes

    def says_more(self, fields: Sequence[str], place: int = 0) -> bool:
        """Whether a line says something of the file that it names, as a list of files or of figures does not.

        Args:
            place: of the name of the file.
        """
        if _OF_LISTING.fullmatch(fields[0]):
            return False
        more = [field for field in fields if suffix_of(field) not in self.suffixes and not self._is_path(field)]
        more = more if len(more) < len(fields) else [*more[:place], *more[place + 1 :]]
        own = stem_of(fields[place])
        return any(any(map(str.isalpha, one)) and self._says(one, own) for one in more)

    def _says(self, one: str, own: str) -> bool:
        """Whether a field is more than a figure, a folder, an address, a part, a kind of file or the medium's name."""
        return not (
            one in self.folders
            or _NO_TEXT.fullmatch(one)
            or "://" in one
            or split_of(one) is not None
            or one[: one.find("/") + 1] in self.kinds
            or suffix_of(one).rstrip("0123456789") in self.suffixes  # VIA's keys end with the size of the file
            or (one == own and _is_telling(own))
        )


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) < 8


def _is_telling(stem: str) -> bool:
    """Whether a name can hardly be anything else: it has digits, and of these alone more than a year."""
    return any(map(str.isdecimal, stem)) and not (stem.isdecimal() and len(stem) <= LEAST_DIGITS)


def _shape(stem: str) -> str | None:
    """A name without its figures, by which those of one set differ; None where it has none, or few and nothing else."""
    last = stem.rpartition("/")[2]
    if last.isdecimal():
        return "0" * len(last) if len(last) >= LEAST_DIGITS else None
    shape = re.sub(r"\d+", "0", last)
    return shape if "0" in shape and not _FIGURE.fullmatch(last) else None


@dataclass
class _Said:
    """What the lines of a file say of media."""

    num_lines: int
    line: str = ""
    """The first that says something of a medium that is there; else of a file that is not."""
    told: set[str] = field(default_factory=set)
    """Media that are there of which something is said."""
    of_files: int = 0
    """Lines that name a file."""
    say_more: int = 0
    """Those of them that say something of it."""
    first_say_more: int = 0
    """Of the first lines those that say something of a medium that is there."""
    other_rows: int = 0
    """Further lines of a table."""
    others_say_more: int = 0
    """Those of them that have words, which are of files if other rows are."""

    @classmethod
    def of(cls, lines: Lines, known: _Known, *, least_digits: int = LEAST_DIGITS) -> _Said:
        said, absent, short = cls(len(lines.lines)), "", 0
        for number, (line, fields) in enumerate(zip(lines.lines, lines.fields, strict=True)):
            medium, place = known.named_by(fields)
            is_short = medium == fields[0] and fields[0].isdecimal() and len(fields[0]) < least_digits
            if is_short or (medium is None and not known.is_of_file(fields)):
                says = known.says_more(fields, place)
                short += is_short and says and number < MOST_LINES
                said.other_rows += lines.are_rows
                said.others_say_more += lines.are_rows and says
                continue
            said.of_files += 1
            if not known.says_more(fields, place):
                continue
            said.say_more += 1
            if medium is None:
                absent = absent or line
                continue
            said.first_say_more += number < MOST_LINES
            said.told.add(medium)
            said.line = said.line or line
        said.line = said.line or absent
        if short and 2 * short > min(said.num_lines, MOST_LINES) - 1:  # the numbers are names
            return cls.of(lines, known, least_digits=0)
        return said

    def is_list_of_texts(self, name: str, known: _Known, told: set[str], share: float) -> bool:
        """Whether a file is a list of files, and says something of many of the media that are there.

        Args:
            name: of the file.
            told: media of which such lists before said something; gets those of this one.
            share: of the file that the lines are.
        """
        of_files, say_more = self.of_files, self.say_more
        if self.told:
            of_files, say_more = of_files + self.other_rows, say_more + self.others_say_more
        if not say_more or 2 * of_files < self.num_lines - 1 or 2 * say_more < of_files:  # the first may name columns
            return False
        if known.one_class and suffix_of(name) in KINDS:
            return True
        told.update(self.told)
        enough = known.num_below(name.rpartition("/")[0]) * share
        if known.one_class and len(self.told) > 1 and len(self.told) >= LEAST_SHARE * enough:
            return True
        is_dense = len(self.told) >= LEAST_TOLD and 2 * self.first_say_more > min(self.num_lines, MOST_LINES) - 1
        return bool(self.told) and (is_dense or 2 * len(self.told) >= enough or 2 * len(told) >= len(known.stems))
