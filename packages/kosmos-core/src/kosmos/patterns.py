"""Paths that stand for several files: ``data/part-*.jsonl``, and as WebDataset has them ``shard-{000000..000299}.tar``.

``*`` is any letters of a name, ``?`` is one, ``**`` is any folders, ``{a,b}`` is one of the texts and ``{08..12}`` one
of the numbers. What exists under such a name is that file or folder, and no pattern, and so is a folder in front.
``**`` follows no links to folders, as ``kosmos.data.sources.folders`` does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from glob import glob
from itertools import dropwhile, takewhile
from math import prod
from pathlib import Path

from kosmos.errors import DataError

MOST = 1_000_000
"""Names that braces may stand for."""
_BRACES = re.compile(r"\{([^{}]*,[^{}]*|\d{1,18}\.\.\d{1,18})\}")
_BRACKETS = re.compile(r"\[([^\[\]/]+)\]")
_RANGE = re.compile(r".-.|.", re.DOTALL)
_BEGIN = re.compile(rf"[*?]|{_BRACES.pattern}")


def is_pattern(path: str) -> bool:
    """Whether it stands for files, and is neither the name of one nor an address."""
    if _BEGIN.search(path) is None or "://" in path or os.path.lexists(path):
        return False
    return _BEGIN.search(path, _known(path)) is not None


def told_of_brackets(path: str) -> str:
    """What to say of a path at which nothing is where its brackets are meant as a shell has them; else nothing."""
    begin = _known(path)
    if (found := _BRACKETS.search(path, begin)) is None:
        return ""
    advice = "name the files one by one"
    if not any(body[0] in "!^" for body in _BRACKETS.findall(path, begin)):
        advice = f"write {path[:begin]}{_BRACKETS.sub(_in_braces, path[begin:])}"
    return f"{found[0]} is no pattern here, since names may hold brackets; {advice}"


def _in_braces(found: re.Match[str]) -> str:
    """What a shell's brackets stand for, as a pattern has it."""
    if (numbers := re.fullmatch(r"(\d+)-(\d+)", found[1])) is not None:
        return f"{{{numbers[1]}..{numbers[2]}}}"
    parts = _RANGE.findall(found[1])
    return f"{{{','.join(chr(code) for part in parts for code in range(ord(part[0]), ord(part[-1]) + 1))}}}"


def pattern_name(pattern: str) -> str:
    """What a source of such files is called: by what their names begin with, or else by their folder."""
    folder, rest = _parted(pattern)
    begin = rest[: found.start()] if (found := re.search(r"[*?{]", rest)) else rest
    return begin.rstrip(" -_.") or Path(folder).absolute().name or pattern


def first_file(path: str | Path) -> Path:
    """The path, or of a pattern the first of its files; of one that has none itself."""
    try:
        return files_of(path)[0]
    except DataError:
        return Path(path)


def files_of(path: str | Path) -> list[Path]:
    """The path, or the files of a pattern. Raises DataError as ``matched``."""
    if not is_pattern(str(path)):
        return [Path(path)]
    folder, names = matched(str(path))
    return [folder / name for name in names]


def matched(pattern: str) -> tuple[Path, list[str]]:
    """The folder that all files of a pattern are below, and their paths from there, sorted.

    Of several names that links give one file the first is taken.

    Raises:
        DataError: there are none, or one that braces name is not there.
    """
    folder, rest = _parted(pattern)
    found: set[str] = set()
    absent: list[str] = []
    for name in _expanded(rest, pattern):
        if not re.search("[*?]", name):
            (found.add if (Path(folder) / name).is_file() else absent.append)(name)
            continue
        found.update(name for name in _globbed(folder, name.split("/")) if (Path(folder) / name).is_file())
    if absent:
        count = f" ({len(absent):,} of the {len(absent) + len(found):,} that it stands for)" if found else ""
        raise DataError(f"data {pattern!r}: no such file {Path(folder) / min(absent)}{count}")
    if not found:
        where = f"there is no folder {folder}" if not os.path.isdir(folder) else f"no file in {folder} is called so"
        brackets = f"; {told}" if (told := told_of_brackets(pattern)) else ""
        raise DataError(f"data {pattern!r}: no such file: {where}{brackets}")
    names = sorted(found)
    firsts = dict(zip(reversed(real_paths(Path(folder) / name for name in names)), reversed(names), strict=True))
    return Path(folder), sorted(firsts.values())


def real_paths(files: Iterable[Path]) -> list[str]:
    """As ``os.path.realpath`` has each, which of many files in one folder takes ten times as long."""
    folders: dict[str, str] = {}
    found = []
    for file in files:
        folder, name = os.path.split(file)
        if name in ("", ".", "..") or os.path.islink(file):
            found.append(os.path.realpath(file))
            continue
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        found.append(os.path.join(folders[folder], name))
    return found


def _globbed(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Paths from a folder on. ``glob`` would follow links in ``**``: one to a folder around it gives all anew."""
    if "**" not in parts:
        yield from glob("/".join(parts).replace("[", "[[]"), root_dir=folder)
        return
    first = parts.index("**")
    heads = _globbed(folder, parts[:first]) if first else iter([""])
    behind = list(dropwhile("**".__eq__, parts[first:])) or ["*"]
    for head in heads:
        top = os.path.join(folder, head)
        for at, below, _ in os.walk(top):
            below[:] = (name for name in below if not name.startswith("."))
            inner = os.path.relpath(at, top)
            base = head if inner == "." else os.path.join(head, inner)
            yield from (os.path.join(base, name) for name in _globbed(at, behind))


def _known(pattern: str) -> int:
    """How many letters of a pattern are a folder that exists: that of the working folder may be called anything."""
    ends = (found.end() for found in re.finditer("/", pattern))
    return max(takewhile(lambda end: os.path.isdir(pattern[:end]), ends), default=0)


def _parted(pattern: str) -> tuple[str, str]:
    """The folder in front of the first part that stands for several names, and what is behind it."""
    found = _BEGIN.search(pattern, _known(pattern))
    assert found is not None
    begin = pattern.rfind("/", 0, found.start()) + 1
    return pattern[:begin] or ".", pattern[begin:]


def _expanded(rest: str, pattern: str) -> Iterator[str]:
    """Names that braces stand for; numbers have as many digits as the longer of two with a zero in front."""
    if prod(map(_count, _BRACES.findall(rest))) > MOST:
        raise DataError(f"data {pattern!r}: stands for more than {MOST:,} names; name the folder")
    if (found := _BRACES.search(rest)) is None:
        yield rest
        return
    for choice in _choices(found[1]):
        number = choice if isinstance(choice, str) else f"{choice:0{_digits(found[1])}}"
        yield from _expanded(f"{rest[: found.start()]}{number}{rest[found.end() :]}", pattern)


def _count(body: str) -> int:
    """How many choices there are, which may be more than ``len`` can tell."""
    choices = _choices(body)
    return choices.stop - choices.start if isinstance(choices, range) else len(choices)


def _choices(body: str) -> range | list[str]:
    if "," in body:
        return body.split(",")
    first, last = sorted(map(int, body.split("..")))
    return range(first, last + 1)


def _digits(body: str) -> int:
    ends = body.split("..")
    return max(map(len, ends)) if any(end.startswith("0") and end != "0" for end in ends) else 0
