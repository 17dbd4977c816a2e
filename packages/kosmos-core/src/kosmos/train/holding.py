"""The lock of a run's folder: one process trains there at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from kosmos.errors import FULL, ConfigError, KosmosError, NoRoom
from kosmos.files import open_own

IN_USE = ".in-use"
DYING_S = 5.0
"""Seconds for which a process that was killed may still hold what it held."""
BEGINS = ", which begins a run"
"""Behind the name of who holds a folder that is no run's yet: where it was killed, what lies there is its own."""


class Lock:
    """A file in the folder, locked by the process that trains there; it says which one that is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / IN_USE
        self._held: TextIO | None = None

    def take(self, report: Callable[[str], None]) -> None:
        """Keep it until ``release``, or until this process ends in whatever way. Once more changes nothing.

        Args:
            report: shows a line where the file system has no locks.

        Raises:
            ConfigError: another process has it, or the folder is not writable.
            NoRoom: the disk is full, or fails.
        """
        while self._held is None:
            try:
                file = open_own(self.file)
            except OSError as error:
                raise self._refused(error) from error
            try:
                if not _locked(file, patience_s=DYING_S):
                    file.seek(0)
                    holder = file.read().strip().removesuffix(BEGINS) or "another process"
                    file.close()
                    raise ConfigError(f"{self.folder}: {holder} trains here already; stop it first, or wait")
            except OSError as error:
                report(f"warning: {self.folder}: cannot be locked ({error.strerror}); see that no other run uses it")
            if self._is_there(file):
                self._held = file
            else:  # who had it has taken it away, with a run that could not begin
                file.close()

    def _refused(self, error: OSError) -> KosmosError:
        if error.errno in (*FULL, errno.EIO):
            return NoRoom(f"{self.file}: cannot write ({error.strerror}); make room, then try again")
        advice = ""
        if error.errno in (errno.EACCES, errno.EROFS):
            advice = (
                f"; to go on from a run that may only be read, branch it off (kosmos checkpoint branch {self.folder} "
                "NEW --step STEP), or copy its folder"
            )
        return ConfigError(f"{self.file}: cannot write ({error.strerror}){advice}")

    def _is_there(self, file: TextIO) -> bool:
        """Whether it is still the one that the next process would lock."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.file, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def is_held(self) -> bool:
        """Whether a process trains here, as far as the file system knows of locks, and of those of other machines."""
        try:
            with self.file.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def tells_of_a_start(self) -> bool:
        """Whether who held it last was beginning a run."""
        with suppress(OSError):
            return self.file.is_file() and self.file.read_bytes().endswith(BEGINS.encode())
        return False

    def sign(self, what: str = "") -> None:
        """Write into it who holds it, and what it does there."""
        assert self._held is not None, "it is held"
        if os.fstat(self._held.fileno()).st_nlink > 1:  # what is another's too is locked, and stays as it is
            return
        with suppress(OSError):  # this is a courtesy, and the rows of a run on a full disk wait for room
            os.ftruncate(self._held.fileno(), 0)
            os.write(self._held.fileno(), f"process {os.getpid()} on {socket.gethostname()}{what}".encode())

    def release(self) -> None:
        """End what ``take`` began."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _locked(file: TextIO, *, patience_s: float) -> bool:
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
