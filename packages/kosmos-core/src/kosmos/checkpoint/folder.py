"""The folders of checkpoints: written aside, hashed, synced, committed by one rename; verified before they are used.

checkpoints/step-00000200/manifest.json      SHA-256 of every other file
                          state.json         step, lanes, schedule: plain values
                          tensors/*.safetensors
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kosmos.checkpoint.exchange import exchange
from kosmos.checkpoint.threads import for_each
from kosmos.errors import CheckpointError
from kosmos.files import SEEN_S, is_seen
from kosmos.names import listed
from kosmos.runtime.cores import usable_cores

PARTIAL = ".partial-"
REPLACED = f"{PARTIAL}replaced-"
"""Before the name of a checkpoint that another of its step takes the place of."""
CHECKPOINTS = "checkpoints"
"""Of a run's folder, the one that holds them."""
MANIFEST = "manifest.json"
STATE = "state.json"
TENSORS = "tensors"
MAX_JSON_BYTES = 256 * 2**20
"""Of manifest and state. A lane's state has about 20 bytes a waiting document."""
_SHARD = re.compile(TENSORS + r"/[^/]+\.safetensors")
_NAME = re.compile(r"step-[0-9]{8,}")
_SHORT = re.compile(r"step-[0-9]+")
"""As a person writes it."""
_PARTIAL = re.compile(r"\.partial-(replaced-|deleted-)?step-[0-9]{8,}")
"""What was not committed, or not wholly replaced or deleted. Whatever else lies there is somebody's."""


@dataclass(frozen=True)
class Loaded:
    """A verified checkpoint."""

    folder: Path
    state: dict[str, Any]
    skipped: tuple[str, ...]
    """Newer checkpoints that are damaged, each with what is wrong."""

    @property
    def tensors(self) -> Path:
        """The folder of its tensors, for ``kosmos.checkpoint.tensors``."""
        return self.folder / TENSORS


@contextmanager
def reading(loaded: Loaded | None) -> Iterator[None]:
    """Around what goes on from the state of a checkpoint, whose hashes fit whatever somebody wrote there.

    Raises:
        CheckpointError: the state is not what a run saves.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if loaded is None:
            raise
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{loaded.folder}: {STATE} is not what a run of this version saves ({what})") from error


def begin(folder: Path, step: int) -> Path:
    """An empty folder beside the committed ones, to be filled and given to ``commit``."""
    for checkpoint in committed(folder):
        if checkpoint.name.startswith(REPLACED):
            checkpoint.rename(folder / checkpoint.name.removeprefix(REPLACED))
    for rest in _partial(folder):  # of a run that was killed; a full disk needs the room
        _remove(rest)
    partial = folder / f"{PARTIAL}{_name(step)}"
    (partial / TENSORS).mkdir(parents=True)
    return partial


def bytes_written(folder: Path) -> int:
    """Of checkpoints that are not committed yet, without what they have by links."""
    total = 0
    for partial in folder.glob(f"{PARTIAL}*"):
        for parent, _, names in os.walk(partial):  # which, unlike rglob, bears that a folder is renamed in between
            for name in names:
                with suppress(FileNotFoundError):
                    found = os.stat(os.path.join(parent, name))
                    total += found.st_size if found.st_nlink == 1 else 0
    return total


def commit(
    partial: Path, step: int, state: Mapping[str, Any], hashes: Mapping[str, str], *, threads: int | None = None
) -> Path:
    """Make what stands in ``partial`` the checkpoint of ``step``, which nobody sees before it is whole.

    Args:
        hashes: by relative path, of the files that are synced already.
        threads: as of ``verify``.

    Raises:
        CheckpointError: what was written does not match its hashes.
        OSError: the disk is full or not writable.
    """
    final = partial.parent / _name(step)
    (partial / STATE).write_text(json.dumps(state), encoding="utf-8")
    every = {**hashes, STATE: digest(partial / STATE)}
    (partial / MANIFEST).write_text(json.dumps({"step": step, "sha256": every}, indent=1), encoding="utf-8")
    for path in (partial / STATE, partial / MANIFEST, partial / TENSORS, partial):
        sync(path)
    if (problem := verify(partial, threads=threads)) is not None:
        raise CheckpointError(f"{final.name} was damaged as it was written ({problem})")
    replaced = _put(partial, final)
    sync(partial.parent)
    if replaced is not None:
        _remove(replaced)
    return final


def _put(partial: Path, final: Path) -> Path | None:
    """Give a checkpoint its name; where the one is now that had it.

    That may be damaged, its steps taken again, or whole: after a roll-back with the data further on. A whole one of
    the step is to be found at every instant.
    """
    if not final.exists():
        partial.rename(final)
        return None
    if exchange(partial, final):
        return partial
    aside = partial.parent / f"{REPLACED}{final.name}"
    _remove(aside)
    final.rename(aside)  # whoever is killed here has left it to ``committed``
    partial.rename(final)
    return aside


def hash_and_sync(
    partial: Path, names: Sequence[str], *, share: int = 0, of: int = 1, threads: int = 1
) -> dict[str, str]:
    """SHA-256 by relative path of every ``of``-th file of tensors, on the disk when this returns.

    Args:
        names: of all of them, as their writers said: a listing may be older than what another node has written.

    Raises:
        OSError: a file is not seen here: of any for the first share, which commits, else of its own.
    """
    files = [partial / TENSORS / name for name in sorted(names)]
    _wait_for(files if share == 0 else files[share::of])
    files = files[share::of]
    found = for_each(_synced_digest, files, threads)
    return {f"{TENSORS}/{file.name}": sha256 for file, sha256 in zip(files, found, strict=True)}


def _wait_for(files: Sequence[Path]) -> None:
    for file in files:
        if not is_seen(file, SEEN_S):
            raise OSError(
                f"{file.name} was written by another rank and is not seen here; the folder has to be on a file system "
                "that all nodes share"
            )


def _synced_digest(file: Path) -> str:
    sync(file)
    return digest(file)


def prune(
    folder: Path,
    keep_last: int,
    saved: Path,
    *,
    keep_every: int | None = None,
    best: int | None = None,
    damaged: Collection[int] = (),
) -> list[Path]:
    """Keep ``saved`` and the newest before it, ``keep_last`` in all, and others as ``superseded`` does.

    The rest and what was never committed is deleted, but nothing without a manifest. What stands above ``saved`` is of
    steps that are being taken again, after a fallback from damaged ones.

    Args:
        damaged: steps of checkpoints that are kept for nobody, and would take the place of whole ones.

    Returns:
        The checkpoints that were deleted.
    """
    wrong = [c for c in with_manifest(folder) if step_of(c) > step_of(saved) or (step_of(c) in damaged and c != saved)]
    for checkpoint in wrong:
        delete(checkpoint)
    old = superseded(folder, keep_last, saved, keep_every=keep_every, best=best)
    for checkpoint in old:
        delete(checkpoint)
    for rest in _partial(folder):
        shutil.rmtree(rest, ignore_errors=True)
    return wrong + old


def _partial(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"{PARTIAL}*") if _PARTIAL.fullmatch(path.name))


def with_manifest(folder: Path) -> list[Path]:
    """What was committed here, newest first: a folder that only has the name of a checkpoint is somebody's."""
    return [checkpoint for checkpoint in committed(folder) if (checkpoint / MANIFEST).is_file()]


def superseded(
    folder: Path, keep_last: int, newest: Path, *, keep_every: int | None = None, best: int | None = None
) -> list[Path]:
    """The checkpoints before ``newest`` that need not be kept, newest first.

    Args:
        keep_every: those of every so many steps are kept.
        best: of this step it is kept.
    """
    below = [c for c in with_manifest(folder) if step_of(c) <= step_of(newest)]
    old = [c for c in below[keep_last:] if step_of(c) != best]
    return [c for c in old if not (keep_every and step_of(c) % keep_every == 0)]


def delete(checkpoint: Path) -> None:
    """Make a checkpoint invisible, then take its files away: who is killed meanwhile leaves no half of it.

    Raises:
        OSError: the folder is not writable.
    """
    aside = checkpoint.parent / f"{PARTIAL}deleted-{checkpoint.name}"
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _remove(rest: Path) -> None:
    """Take away what no longer counts, as far as it can be: a link or a file too, which somebody put there."""
    if rest.is_dir() and not rest.is_symlink():
        shutil.rmtree(rest, ignore_errors=True)
    else:
        with suppress(OSError):
            rest.unlink()


def committed(folder: Path) -> list[Path]:
    """Committed checkpoints, newest first. Also one that was being replaced as a process was killed, see ``_put``."""
    there = {p.name: p for p in folder.glob("step-*")}
    for aside in folder.glob(f"{REPLACED}step-*"):
        there.setdefault(aside.name.removeprefix(REPLACED), aside)
    return sorted((p for name, p in there.items() if _NAME.fullmatch(name)), key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The step whose checkpoint this is."""
    return int(checkpoint.name.rpartition("step-")[2])


def load_newest(folder: Path) -> Loaded | None:
    """The newest whole checkpoint; None where none was ever committed.

    Raises:
        CheckpointError: all are damaged.
    """
    damaged: list[str] = []
    for candidate in committed(folder):
        problem = verify(candidate)
        if problem is None:
            return Loaded(candidate, mapping_of(candidate / STATE), tuple(damaged))
        damaged.append(f"{candidate.name}: {problem}")
    if damaged:
        raise CheckpointError(
            f"{folder}: no whole checkpoint to load; damaged: {'; '.join(damaged)}; put back the files as "
            "they were, or start a new run"
        )
    return None


def load_step(folder: Path, step: int) -> Loaded:
    """The checkpoint of one step.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    there = {step_of(checkpoint): checkpoint for checkpoint in committed(folder)}
    if step not in there:
        raise CheckpointError(f"{folder}: no checkpoint of step {step}; steps: {listed(map(str, sorted(there)))}")
    if (problem := verify(there[step])) is not None:
        raise CheckpointError(f"{there[step]}: {problem}")
    return Loaded(there[step], mapping_of(there[step] / STATE), ())


def run_and_step(path: Path) -> tuple[Path, int | None]:
    """The run's folder, and the step of a checkpoint's own folder, where that is what was named."""
    whole = path.absolute()
    if _SHORT.fullmatch(whole.name) and whole.parent.name == CHECKPOINTS:
        return path.parent.parent if path.parent.name == CHECKPOINTS else whole.parent.parent, step_of(whole)
    return path, None


def verify(checkpoint: Path, *, threads: int | None = None) -> str | None:
    """What is wrong with a checkpoint, or None. Reads no file but plain ones of the kinds that are written.

    Args:
        threads: that hash; by default as many as there are cores.
    """
    file = MANIFEST
    try:
        if checkpoint.is_symlink():
            return "is a link, not a folder"
        entries = {p.relative_to(checkpoint).as_posix(): p for p in checkpoint.rglob("*")}
        for file, path in entries.items():
            if path.is_symlink() or not (path.is_file() or file == TENSORS):
                return f"{file} is not a plain file"
        present = set(entries) - {MANIFEST, TENSORS}
        file = MANIFEST
        manifest = mapping_of(checkpoint / MANIFEST)
        wanted: dict[str, str] = manifest["sha256"]
        if manifest["step"] != step_of(checkpoint):
            return f"{MANIFEST} is of step {manifest['step']}"
        if present != set(wanted):
            return f"files differ from the manifest: {', '.join(sorted(present ^ set(wanted)))}"
        for file in sorted(present):
            if file != STATE and not _SHARD.fullmatch(file):
                return f"{file} is of no kind that a checkpoint has"
        problems = for_each(lambda f: mismatch(checkpoint, f, wanted[f]), sorted(present), threads or usable_cores())
        if any(problems):
            return next(filter(None, problems))
        file = STATE
        if mapping_of(checkpoint / STATE)["step"] != step_of(checkpoint):
            return f"{STATE} is of another step"
    except FileNotFoundError:
        return f"{file} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{file} is unreadable ({error})"
    return None


def manifest_of(checkpoint: Path) -> dict[str, str]:
    """SHA-256 by relative path, as the manifest of a whole checkpoint tells."""
    hashes: dict[str, str] = mapping_of(checkpoint / MANIFEST)["sha256"]
    return hashes


def mismatch(checkpoint: Path, file: str, wanted: str) -> str | None:
    """What is wrong with a file of a checkpoint whose SHA-256 should be ``wanted``, or None."""
    try:
        return None if digest(checkpoint / file) == wanted else f"{file} does not match its hash"
    except OSError as error:
        return f"{file} is unreadable ({error})"


def mapping_of(file: Path) -> dict[str, Any]:
    """A JSON object of bounded size.

    Raises:
        OSError: it cannot be read.
        ValueError: it is something else.
    """
    if (size := file.stat().st_size) > MAX_JSON_BYTES:
        raise ValueError(f"{size:,} bytes, at most {MAX_JSON_BYTES:,} are read")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError(f"expected an object, got {type(content).__name__}")
    return content


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Have a file or folder on the disk before this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size_bytes(checkpoint: Path) -> int:
    """Bytes of a checkpoint."""
    return sum(p.stat().st_size for p in checkpoint.rglob("*") if p.is_file())


def _name(step: int) -> str:
    return f"step-{step:08d}"
