"""How far an unfinished file of answers has come, beside it in ``FILE.progress``: lines of JSON.

The first line says what the answers are made by, each other one how many bytes of the file are whole, their hash, and
which row of which source was answered last. So a file that was cut anywhere goes on behind its last whole group of
answers, and the groups that are continued together are those of a call that nobody interrupts. What is cut off is the
rest of a group alone: a file that holds anything else is somebody's, and stays.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from kosmos.commands.arguments import check_writable
from kosmos.errors import ConfigError

if TYPE_CHECKING:
    from kosmos.data.document import Source
    from kosmos.train.saved import SavedRun

MADE_BY = "made_by"
HASHED = 2**24
"""Bytes of a data file up to which its content is compared too, and not its size alone."""
_BEGINS = b'{"source": "'
"""So does each line of answers."""


class Reached(NamedTuple):
    """How far a file of answers has come."""

    source: int = -1
    """Number of a source, in the order in which they are answered; those before are finished."""
    row: int = -1
    """The last of its rows that is answered."""
    bytes: int = 0
    """Of the file, up to there."""
    answers: int = 0
    """Lines of the file, up to there."""
    left_out: int = 0
    """Rows up to there that could not be used."""
    hash: str = ""
    """Of the file, up to there."""


def progress_of(answers: Path) -> Path:
    """Where it stands how far a file of answers has come."""
    return answers.with_name(f"{answers.name}.progress")


def check_answers(answers: str, *, resume: bool) -> None:
    """Raises ConfigError where the file cannot be begun, or with ``resume`` gone on with."""
    file = Path(answers)
    if answers.strip() and os.path.isdir(file):
        raise ConfigError(f"--answers {answers}: is a folder; name a file")
    if not answers.strip() or not os.path.lexists(file):
        check_writable("--answers", answers)
        _check_beside(progress_of(file))
        return
    unfinished = os.path.isfile(progress_of(file))
    if not resume and unfinished:
        raise ConfigError(
            f"{file}: exists already, unfinished; go on with it by --resume, name another file, or remove it"
        )
    if not resume:
        check_writable("--answers", answers)
    if not unfinished:
        raise ConfigError(f"--resume: {file} {_why_not_gone_on_with(file)}, or remove it")


def _why_not_gone_on_with(file: Path) -> str:
    """Of a file beside which it does not stand how far it has come: what it is, and what to do."""
    if count := _whole_answers(file):
        whole = f"its {count:,} answers are whole" if count > 1 else "its answer is whole"
        return f"is finished: {whole}, and nothing is left; for answers of anything else name another file"
    return f"was written by something else ({progress_of(file).name} is not beside it); name another file"


def _whole_answers(file: Path) -> int:
    """How many lines a file of answers has that has no other lines; else 0."""
    try:
        with file.open("rb") as lines:
            whole = [line.startswith(_BEGINS) and line.endswith(b"\n") for line in lines]
    except OSError:
        return 0
    return len(whole) if all(whole) else 0


def _check_beside(progress: Path) -> None:
    """Raises ConfigError where no file can be made there, unless an earlier call has left one."""
    if not os.path.lexists(progress):
        check_writable("--answers", str(progress))
    elif not _is_ours(progress):
        raise ConfigError(
            f"{progress}: exists already, and says how far the answers are; name other answers, or move it"
        )


def _is_ours(progress: Path) -> bool:
    """Whether a call like this one has written it. A link is its owner's."""
    try:
        _read(progress)
    except (OSError, ValueError):
        return False
    return True


def _read(progress: Path) -> tuple[dict[str, Any], list[Reached]]:
    """What the answers are made by, and how far they came. Raises OSError, or ValueError where it says no such thing.

    A line that says nothing, as the last may be cut short, is passed over.
    """
    if progress.is_symlink():
        raise ValueError("a link")
    first, *others = progress.read_bytes().split(b"\n")
    begun = json.loads(first)
    if not isinstance(begun, dict) or not isinstance(begun.get(MADE_BY), dict):
        raise ValueError("no such line")
    return begun[MADE_BY], [reached for line in others if (reached := _reached(line)) is not None]


def _reached(line: bytes) -> Reached | None:
    try:
        reached = Reached(**json.loads(line))
    except (ValueError, TypeError):
        return None
    as_noted = all(type(value) is type(usual) for value, usual in zip(reached, Reached(), strict=True))
    return reached if as_noted and min(reached[:-1]) >= 0 else None


def made_by(
    run: SavedRun, sources: Sequence[Source], paths: Sequence[str], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What answers depend on, as plain values. Places of the run and its data do not count, as these may move.

    The files of the data count by their size, and up to ``HASHED`` bytes by what they hold.

    Args:
        paths: of the sources, as they were named; empty where they are those of the run.
        settings: of the command.
    """
    config = run.composition.config
    opened = [{"name": source.name, "documents": len(source)} for source in sources]
    layouts = [
        entry.model_dump(mode="json", exclude={"name", "path", "root", "weight", "limit"})
        for entry in (*config.data.sources, *config.evaluate.sources)
    ]
    told = {
        "step": run.step,
        "checkpoint": run.checkpoint,
        **settings,
        "sources": opened,
        "files": [_held(Path(path)) for path in paths],
        "layouts": layouts,
        "modalities": config.model_dump(mode="json")["modalities"],
        "tokens_per_pack": config.data.tokens_per_pack,
        "device": run.device.type,
        "precision": str(run.dtype).removeprefix("torch."),
    }
    plain: dict[str, Any] = json.loads(json.dumps(told))
    return plain


def _held(path: Path) -> dict[str, Any] | None:
    """What counts of a file or a folder; None of a name."""
    if path.is_dir():
        return _held_by(path)
    if not path.is_file():
        return None
    size = path.stat().st_size
    return {"bytes": size, "hash": hash_of(path.read_bytes()).hexdigest() if size <= HASHED else None}


def _held_by(folder: Path) -> dict[str, Any]:
    """Of a folder: names and sizes of all files, and what files of rows hold, which change without another size."""
    from kosmos.data.sources.file_names import rows_suffix
    from kosmos.data.sources.glance import KINDS

    told, bytes_ = hash_of(b""), 0
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        size = file.stat().st_size
        told.update(f"{file.relative_to(folder)}\0{size}\0".encode())
        told.update(file.read_bytes() if rows_suffix(file.name) in KINDS and size <= HASHED else b"")
        bytes_ += size
    return {"bytes": bytes_, "hash": told.hexdigest()}


def hash_of(data: bytes) -> blake2b:
    """A short one, which can be gone on with."""
    return blake2b(data, digest_size=8)


class Progress:
    """The file of one that is written."""

    def __init__(self, answers: Path) -> None:
        self._answers, self._file = answers, progress_of(answers)
        self._lines: BinaryIO | None = None

    def begin(self, by: Mapping[str, Any]) -> None:
        """In the place of what an earlier call has left. Raises OSError, and then leaves none of its own."""
        if _is_ours(self._file):
            self._file.unlink()
        self._lines = self._file.open("xb", buffering=0)
        try:
            _put(self._lines, {MADE_BY: by})
        except BaseException:  # an interrupt too
            self.finish()
            raise

    def note(self, reached: Reached) -> None:
        """Raises OSError."""
        if self._lines is None:
            self._lines = self._file.open("ab", buffering=0)
        _put(self._lines, reached._asdict())

    def finish(self) -> None:
        """The answers are complete."""
        self.close()
        self._file.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def read(self, by: Mapping[str, Any], paths: Sequence[str]) -> Reached:
        """Up to where the answers are whole.

        Args:
            paths: of the data, for errors.

        Raises:
            ConfigError: it cannot be read, the answers were made by something else, or the file holds something else.
        """
        try:
            content = self._answers.read_bytes()
            before, noted = _read(self._file)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--resume: {self._file} cannot be read; name another file than {self._answers}, or remove it"
            ) from error
        self._refuse_other(before, by, paths)
        fitting = [number for number, reached in enumerate(noted) if reached.bytes <= len(content)]
        place = fitting[-1] if fitting else -1
        reached = noted[place] if fitting else Reached()
        behind = noted[place + 1].answers - reached.answers if place + 1 < len(noted) else None
        whole, rest = content[: reached.bytes], content[reached.bytes :]
        if (fitting and hash_of(whole).hexdigest() != reached.hash) or not _is_cut_group(rest, by, behind):
            raise ConfigError(
                f"--resume: {self._answers} is not the file of which {self._file.name} tells; name another file"
            )
        return reached

    def _refuse_other(self, before: Mapping[str, Any], now: Mapping[str, Any], paths: Sequence[str]) -> None:
        from kosmos.train.order import differences, shown

        for path, one, other in differences(before, now, ""):
            if (place := _same_data(path)) is not None and (changed := _changed(before, now, paths, place)):
                raise ConfigError(
                    f"--resume: {changed} since {self._answers} was begun; go on with the data as they were, or name "
                    "another file for the answers"
                )
            what = f"{path} {shown(one)}, and this is {shown(other)}"
            if path == "checkpoint":
                what = "another checkpoint of this step"
            raise ConfigError(
                f"--resume: {self._answers} was begun with {what}; go on with what it was begun with, or name another "
                "file"
            )


_OF_DATA = re.compile(r"(?:sources\.(\d+)\.documents|files\.(\d+)\..+)")


def _same_data(path: str) -> int | None:
    """Of data of one name that are others now the number, where a difference is one between the two."""
    found = _OF_DATA.fullmatch(path)
    return int(found[1] or found[2]) if found else None


def _changed(before: Mapping[str, Any], now: Mapping[str, Any], paths: Sequence[str], place: int) -> str:
    """Which file or folder has changed and how, in words; empty where that is not known."""
    try:
        one, other = before["files"][place], now["files"][place]
        if one == other or place >= len(paths):
            return ""
        sizes = one["bytes"], other["bytes"]
    except (LookupError, TypeError):
        return ""
    if sizes[0] == sizes[1]:
        return f"{paths[place]} has changed (of {sizes[0]:,} bytes as before, but with another content)"
    return f"{paths[place]} has changed (from {sizes[0]:,} to {sizes[1]:,} bytes)"


def _is_cut_group(rest: bytes, by: Mapping[str, Any], most: int | None) -> bool:
    """Whether it can be a group of answers that was cut short, and not what somebody has written.

    Args:
        by: what the answers are made by.
        most: answers of the group; None where that is not known.
    """
    *lines, cut = rest.split(b"\n")
    names = [*(source["name"] for source in by["sources"]), *(by.get("choices") or ())]
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError:
        return False
    if not all(isinstance(row, dict) and row.get("source") in names and "answer" in row for row in rows):
        return False
    return (most is None or len(rows) <= most) and (cut.startswith(_BEGINS) or _BEGINS.startswith(cut))


def _put(lines: BinaryIO, row: Mapping[str, Any]) -> None:
    """Without a buffer, of which a full disk takes a part. Raises OSError."""
    data = json.dumps(row).encode() + b"\n"
    while data:
        data = data[lines.write(data) :]
