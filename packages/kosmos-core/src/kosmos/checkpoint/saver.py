"""Saving beside the training: the copy of the tensors blocks, writing, hashing and committing do not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.state_dict_saver import save

from kosmos.checkpoint import folder as folders
from kosmos.checkpoint.staging import Staging
from kosmos.checkpoint.tensors import ShardWriter, cause_of
from kosmos.errors import TrainingError
from kosmos.runtime.cores import helpers_of_rank
from kosmos.runtime.parallel import Parallel

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
        report: Callable[[str], None] = lambda line: None,
        moves: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            folder: of all checkpoints of the run.
            keep_last: whole checkpoints that are kept.
            keep_every: keep those of every so many steps besides.
            report: shows a line, at the first rank, where a checkpoint could not be written and the run goes on.
            moves: told while one is waited for that gets on, which may take long on a slow disk.
        """
        self.folder, self.parallel, self.report, self.moves = folder, parallel.beside(), report, moves
        self.keep_last, self.keep_every = keep_last, keep_every
        self.staging = Staging()
        self.threads = helpers_of_rank(parallel.local_world_size)
        self.thread: threading.Thread | None = None
        self.outcome: Saved | TrainingError | None = None
        self.stage = 0
        """Goes up as a checkpoint comes to be written, hashed and committed."""
        self.newest: int | None = None
        """Step of the newest checkpoint that this run has ordered."""
        self.damaged: frozenset[int] = frozenset()
        """Steps of checkpoints that were passed over as damaged."""

    def went_on_from(self, step: int) -> None:
        """A checkpoint was loaded, the newest whole one: those above it are none to count on."""
        self.damaged = frozenset(above for c in folders.committed(self.folder) if (above := folders.step_of(c)) > step)

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> float:
        """Order a checkpoint; waits for the one before. A failure of that one is reported, and the run goes on.

        Args:
            tensors: sharded or not; copied before this returns.
            state: plain values; the first rank's are kept.

        Returns:
            Seconds that this blocked.
        """
        begin = perf_counter()
        try:
            self.wait()
        except TrainingError as error:
            self.report(f"warning: {error}; the run goes on")
        needed = sum(t.numel() * t.element_size() for t in tensors.values())
        self.outcome, self.newest = None, step
        try:
            partial = self._everywhere(lambda: folders.begin(self.folder, step))
            staged = self.staging.copies(tensors)
        except OSError as error:
            self.outcome = self._failure(step, needed, error)
            return perf_counter() - begin
        if any(tensor.is_cuda for tensor in tensors.values()):
            self._warn_of_unpinned()
        blocked = perf_counter() - begin
        arguments = (staged, partial, step, dict(state), needed, begin, blocked)
        self.thread = threading.Thread(target=self._finish, args=arguments, name=f"checkpoint {step}")
        self.thread.start()
        return blocked

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
        staged: dict[str, Any],
        partial: Path,
        step: int,
        state: dict[str, Any],
        needed: int,
        begin: float,
        blocked: float,
    ) -> None:
        """In a thread of its own; ranks meet in a group of their own. Ends with the same kind of outcome on all."""
        try:
            names = [name for own in self._shared(lambda: self._write(staged, partial)) for name in own]
            self.stage += 1
            hashes = self._shared(lambda: self._hash(partial, names))
            self.stage += 1
            every = {name: digest for part in hashes for name, digest in part.items()}
            final = self._everywhere(lambda: self._commit(partial, step, state, every))
            self.outcome = Saved(final, blocked, perf_counter() - begin)
        except BaseException as error:  # what DCP raises is a BaseException; a thread must not die unheard
            self.outcome = self._failure(step, needed, error)
            if self.parallel.is_main:
                shutil.rmtree(partial, ignore_errors=True)

    def _write(self, staged: dict[str, Any], partial: Path) -> list[str]:
        """Names of this rank's shards. Ranks agree within on who writes what all of them have."""
        writer = ShardWriter(partial / folders.TENSORS, self.threads)
        no_dist = self.parallel.world_size == 1
        save(staged, storage_writer=writer, process_group=self.parallel.group, no_dist=no_dist)
        return writer.names

    def _hash(self, partial: Path, names: Sequence[str]) -> dict[str, str]:
        share, of = self.parallel.rank, self.parallel.world_size
        return folders.hash_and_sync(partial, names, share=share, of=of, threads=self.threads)

    def _commit(self, partial: Path, step: int, state: dict[str, Any], hashes: dict[str, str]) -> Path:
        final = folders.commit(partial, step, state, hashes, threads=self.threads)
        folders.prune(self.folder, self.keep_last, final, keep_every=self.keep_every, damaged=self.damaged)
        self.damaged = frozenset()
        return final

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

    def _everywhere(self, act: Callable[[], Path]) -> Path:
        """What ``act`` gives on the first rank, which alone does it."""
        found: Path = self._shared(lambda: act() if self.parallel.is_main else None)[0]
        return found

    def _failure(self, step: int, needed: int, error: BaseException) -> TrainingError:
        try:
            free_bytes = shutil.disk_usage(self.folder).free
            free = f"{free_bytes:,} bytes are free; older checkpoints are intact"
            if free_bytes < needed:
                free += "; make room, such as by 'kosmos checkpoint prune'"
        except OSError as gone:  # the folder itself
            free = f"its folder cannot be looked at ({gone.strerror})"
        failure = TrainingError(
            f"{self.folder}: cannot write the checkpoint of step {step} ({cause_of(error)}); about {needed:,} bytes "
            f"are needed and {free}"
        )
        failure.elsewhere = not self.parallel.is_main
        return failure
