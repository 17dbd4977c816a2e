"""The ``kosmos`` command at a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from types import TracebackType

from support.command import command, environment

AT_MOST_S = 90.0


class Terminal:
    """A command that a person uses. What is typed is shown, too, as a terminal does."""

    def __init__(self, *args: object) -> None:
        program = command(*args)
        variables = environment(TERM="dumb", INPUTRC="/dev/null")
        self.process, self._terminal = pty.fork()
        if self.process == 0:  # pragma: no cover
            os.execve(program[0], program, variables)
        self._said = ""
        self._ended: int | None = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is None:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        os.close(self._terminal)

    def until(self, text: str) -> str:
        """What it has said since the last call, which ends with ``text``."""
        end = time.monotonic() + AT_MOST_S
        while text not in self._said:
            assert time.monotonic() < end, f"never said {text!r}: {self._said!r}"
            assert self._read(), f"ended without {text!r}: {self._said!r}"
        before, found, self._said = self._said.partition(text)
        return before + found

    def ask(self, line: str, *, until: str) -> str:
        """Type a line."""
        os.write(self._terminal, f"{line}\n".encode())
        return self.until(until)

    def end(self) -> int:
        """Press Ctrl-D. Returns the exit status."""
        os.write(self._terminal, b"\x04")
        while self._read():
            pass
        self._ended = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        return self._ended

    def _read(self) -> bool:
        """Whether the command may say more."""
        if not select.select([self._terminal], [], [], 1.0)[0]:
            return True
        try:
            data = os.read(self._terminal, 4096)
        except OSError:  # on Linux, once the command has gone
            return False
        self._said += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
