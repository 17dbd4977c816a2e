"""Saving beside the training: the copy of the tensors blocks, writing, hashing and committing do not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from torch import Tensor
from torch.distributed.checkpoint.state_dict_saver import save

from kosmos.checkpoint import folder as folders
from kosmos.checkpoint.frozen import FROZEN, FrozenCopies, Marks, marks
from kosmos.checkpoint.staging import Staging
from kosmos.checkpoint.tensors import ShardWriter, cause_of, expect_alone
from kosmos.errors import CheckpointError, TrainingError
from kosmos.runtime.cores import helpers_of_rank
from kosmos.runtime.parallel import Parallel, tells_of_end

T = TypeVar("T")
LOOK_S = 2.0
"""Seconds between two looks at whether a checkpoint that is waited for gets on."""


@dataclass(frozen=True)
class Saved:
    """A committed checkpoint."""

    folder: Path
    blocked_s: float
    """Seconds that training stood still for it."""
    written_s: float
    """Seconds from the order to the commit."""


class Saver:
    """Writes checkpoints, one at a time. All ranks call it at the same steps."""

    def __init__(
        self,
        folder: Path,
        parallel: Parallel,
        *,
        keep_last: int,
        keep_every: int | None = None,
        best: Callable[[Collection[int]], int | None] = lambda steps: None,
        report: Callable[[str], None] = lambda line: None,
        moves: Callable[[], None] = lambda: None,
        noted: Callable[[int, str | None], None] = lambda step, problem: None,
    ) -> None:
        """
        Args:
            folder: of all checkpoints of the run.
            keep_last: whole checkpoints that are kept.
            keep_every: keep those of every so many steps besides.
            best: which of some steps is to be kept besides, if any. The first rank asks it, in a thread.
            report: shows a line, at the first rank, where a checkpoint could not be written and the run goes on.
            moves: told while one is waited for that gets on, which may take long on a slow disk.
            noted: told how each ended, in whatever thread: its step, and what kept it from being written, if anything.
        """
        self.folder, self.parallel, self.report, self.moves = folder, parallel.beside(), report, moves
        self.noted = noted
        self.keep_last, self.keep_every, self.best = keep_last, keep_every, best
        self.staging = Staging()
        self.frozen = FrozenCopies()
        self.marks: Marks = {}
        """Of this rank's part of what is frozen, as it was when the last checkpoint was begun."""
        self.healed: str | None = None
        """What is to be reported of a file that was linked and is damaged."""
        self.threads = helpers_of_rank(parallel.local_world_size)
        self.thread: threading.Thread | None = None
        self.outcome: Saved | TrainingError | None = None
        self.stage = 0
        """Goes up as a checkpoint comes to be written, hashed and committed."""
        self.newest: int | None = None
        """Step of the newest checkpoint that this run has ordered."""
        self.damaged: frozenset[int] = frozenset()
        """Steps of checkpoints that were passed over as damaged."""
        self._committed: Path | None = None
        """The newest that this run has committed; the first rank knows."""

    def went_on_from(self, step: int) -> None:
        """A checkpoint was loaded, the newest whole one: those above it are none to count on."""
        self.damaged = frozenset(above for c in folders.committed(self.folder) if (above := folders.step_of(c)) > step)
        self.frozen.forget()

    def save(
        self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], *, frozen: Collection[str] = ()
    ) -> float:
        """Order a checkpoint; waits for the one before. A failure of that one is reported, and the run goes on.

        Args:
            tensors: sharded or not; copied before this returns.
            state: plain values; the first rank's are kept.
            frozen: names of tensors that training leaves alone, the same on all ranks. Once two checkpoints have them,
                further ones link their files instead of copying and writing them: see ``kosmos.checkpoint.frozen``.

        Returns:
            Seconds that this blocked.
        """
        begin = perf_counter()
        try:
            self.wait()
        except TrainingError as error:
            self.report(f"warning: {error}; the run goes on")
        needed = _bytes_of(tensors)
        self.outcome, self.newest = None, step
        try:
            found = marks({name: tensors[name] for name in frozen})
            same = all(self.parallel.gather(found == self.marks))
            partial, linked = self._everywhere(lambda: self._begin(step, same))
            self.marks = found
            if linked:
                tensors = {name: tensor for name, tensor in tensors.items() if name not in frozen}
                needed = _bytes_of(tensors)
            staged = self.staging.copies(tensors, keep=bool(self.keep_every))
        except OSError as error:
            self.outcome = self._failure(step, needed, error)
            return perf_counter() - begin
        if any(tensor.is_cuda for tensor in tensors.values()):
            self._warn_of_unpinned()
        blocked = perf_counter() - begin
        parts = {
            FROZEN: {name: tensor for name, tensor in staged.items() if name in frozen},
            "shard": {name: tensor for name, tensor in staged.items() if name not in frozen},
        }
        arguments = (parts, partial, step, dict(state), needed, begin, blocked)
        self.thread = threading.Thread(target=self._finish, args=arguments, name=f"checkpoint {step}")
        self.thread.start()
        return blocked

    def _begin(self, step: int, same: bool) -> tuple[Path, bool]:
        """The folder to fill, and whether it has what is frozen, which is the ``same`` as before. On the first rank."""
        partial = folders.begin(self.folder, step)
        if not same:
            self.frozen.forget()
        if self.keep_every and step % self.keep_every == 0:  # kept when others are not: by no files of theirs
            self.frozen.linked = None
            return partial, False
        below = (c for c in folders.committed(self.folder) if folders.step_of(c) < step)
        before = next((c for c in below if folders.step_of(c) not in self.damaged), None)
        return partial, self.frozen.link_into(partial, before)

    def _warn_of_unpinned(self) -> None:
        for rank, problem in enumerate(self.parallel.gather(self.staging.problem)):
            if problem is not None:
                self.report(
                    f"warning: rank {rank}: cannot pin memory for checkpoints ({problem}); training waits longer for "
                    "copies into memory that is not; give the job more memory, or save less often"
                )

    def wait(self) -> Saved | None:
        """Until the last ordered checkpoint is committed.

        Raises:
            TrainingError: it could not be written; older ones are intact.
        """
        if self.thread is not None:
            self._join(self.thread)
            self.thread = None
            if self.healed is not None:
                self.report(self.healed)
                self.healed = None
            assert self.outcome is not None, "a thread says how it ended"
        outcome, self.outcome = self.outcome, None
        if isinstance(outcome, TrainingError):
            raise outcome
        return outcome

    def _join(self, thread: threading.Thread) -> None:
        seen: object = None
        while thread.is_alive():
            thread.join(LOOK_S)
            found = self.stage, folders.bytes_written(self.folder)
            if found != seen:
                self.moves()
            seen = found

    def close(self) -> None:
        """Let what is being written come to its end; a failure is reported."""
        try:
            self.wait()
        except TrainingError as error:
            self.report(f"warning: {error}")

    def _finish(
        self,
        parts: dict[str, dict[str, Tensor]],
        partial: Path,
        step: int,
        state: dict[str, Any],
        needed: int,
        begin: float,
        blocked: float,
    ) -> None:
        """In a thread of its own; ranks meet in a group of their own. Ends with the same kind of outcome on all."""
        try:
            names = [name for kind, part in parts.items() if part for name in self._write_all(kind, part, partial)]
            self.stage += 1
            hashes = self._shared(lambda: self._hash(partial, names))
            self.stage += 1
            every = {name: digest for part in hashes for name, digest in part.items()}
            final = self._everywhere(lambda: self._commit(partial, step, state, every))
            self.outcome = Saved(final, blocked, perf_counter() - begin)
            self.noted(step, None)
        except BaseException as error:  # what DCP raises is a BaseException; a thread must not die unheard
            self.outcome = self._failure(step, needed, error)
            if self.parallel.is_main:
                shutil.rmtree(partial, ignore_errors=True)

    def _write_all(self, kind: str, part: dict[str, Tensor], partial: Path) -> list[str]:
        """Names of all ranks' files."""
        return [name for own in self._shared(lambda: self._write(kind, part, partial)) for name in own]

    def _write(self, kind: str, part: dict[str, Tensor], partial: Path) -> list[str]:
        """Names of this rank's files. Ranks agree within on who writes what all of them have."""
        writer = ShardWriter(partial / folders.TENSORS, self.threads, kind=kind)
        no_dist = self.parallel.world_size == 1
        expect_alone()
        save(dict(part), storage_writer=writer, process_group=self.parallel.group, no_dist=no_dist)
        return writer.names

    def _hash(self, partial: Path, names: Sequence[str]) -> dict[str, str]:
        share, of = self.parallel.rank, self.parallel.world_size
        return folders.hash_and_sync(partial, names, share=share, of=of, threads=self.threads)

    def _commit(self, partial: Path, step: int, state: dict[str, Any], hashes: dict[str, str]) -> Path:
        every = {**hashes, **self.frozen.hashes()}
        try:
            final = folders.commit(partial, step, state, every, threads=self.threads)
        except CheckpointError:
            if (damaged := self.frozen.heal(partial)) is None:
                raise
            every = {**hashes, **self.frozen.hashes()}
            final = folders.commit(partial, step, state, every, threads=self.threads)
            self.healed = f"warning: {damaged}; the checkpoint of step {step} has it as it was"
        self.frozen.committed(final, every)
        self._prune(final, self._best_of(step))
        self.damaged, self._committed = frozenset(), final
        return final

    def prune(self) -> None:
        """Delete what was kept as the best, where the last scoring, behind the last save, found a better one."""
        if (newest := self._committed) is not None and (best := self._best_of(folders.step_of(newest))) is not None:
            self._prune(newest, best)

    def _best_of(self, newest: int) -> int | None:
        whole = {folders.step_of(c) for c in folders.committed(self.folder)} - self.damaged
        return self.best([step for step in whole if step <= newest])

    def _prune(self, newest: Path, best: int | None) -> None:
        folders.prune(self.folder, self.keep_last, newest, keep_every=self.keep_every, best=best, damaged=self.damaged)

    def _shared(self, act: Callable[[], Any]) -> list[Any]:
        """What ``act`` gives on every rank; where it fails on one, all fail."""
        try:
            mine: Any = act()
            cause = None
        except BaseException as error:
            mine, cause = None, cause_of(error)
        everyone = self.parallel.gather((mine if cause is None else None, cause))
        for _, problem in everyone:
            if problem is not None:
                raise OSError(problem)
        return [value for value, _ in everyone]

    def _everywhere(self, act: Callable[[], T]) -> T:
        """What ``act`` gives on the first rank, which alone does it."""
        found: T = self._shared(lambda: act() if self.parallel.is_main else None)[0]
        return found

    def _failure(self, step: int, needed: int, error: BaseException) -> TrainingError:
        self.noted(step, cause_of(error))
        if tells_of_end(error):
            lines = "was not finished, as another rank is gone; older checkpoints are intact"
            return self.parallel.found_by_all(TrainingError(f"{self.folder}: the checkpoint of step {step} {lines}"))
        try:
            free_bytes = shutil.disk_usage(self.folder).free
            free = f"{free_bytes:,} bytes are free; older checkpoints are intact"
            if free_bytes < needed:
                free += "; make room, such as by 'kosmos checkpoint prune'"
        except OSError as gone:  # the folder itself
            free = f"its folder cannot be looked at ({gone.strerror})"
        cannot = f"{self.folder}: cannot write the checkpoint of step {step} ({cause_of(error)})"
        return self.parallel.found_by_all(TrainingError(f"{cannot}; about {needed:,} bytes are needed and {free}"))


def _bytes_of(tensors: Mapping[str, Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values())
