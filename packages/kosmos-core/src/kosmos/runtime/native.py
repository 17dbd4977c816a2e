"""C++ of ours, compiled for the machine that it runs on as a process first asks for it.

No wheel is built for each processor, and no file is kept: each process compiles into a folder that goes again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from kosmos.errors import FULL, ConfigError

TELLING = "error|cannot find|undefined|no developer tools"
"""What compilers and linkers say of what is wrong, and what stands in their place on a Mac that has none."""
HAS_THREADS = sys.platform != "darwin"
"""Apple's compiler comes without OpenMP: what it compiles runs on one thread."""
WORTH = 4_000_000
"""Parameters of a model from which compiling pays within some hundred steps: Lion's step and the kernels of a decoder
take a second or less, and save half a millisecond of a step for each million and more (machine C of the results)."""


def load_source(source: Path, where: str) -> ctypes.CDLL:
    """Compile a C++ file of this package and load it, which takes about a second. PyTorch has to be loaded before: its
    threads are OpenMP's, which is found by its name.

    Args:
        where: field of a run file that asks for it, which ``false`` turns off.

    Raises:
        ConfigError: there is no compiler, or it fails.
    """
    return CppCompilation(source, where, threads=HAS_THREADS).load()


class CppCompilation:
    """A C++ file of a package, which is compiled for this machine while its caller goes on (``$CXX``, g++ or clang++).

    It is for the process that began it, and not for one forked from that, and ends with it; killed, that process leaves
    the compiler to run out. Nothing stays on disk.
    """

    def __init__(self, source: Path, where: str, *, threads: bool = False, defined: Sequence[str] = ()) -> None:
        """
        Args:
            where: field of a run file that asks for it, which ``false`` turns off.
            threads: whether it has threads of OpenMP's; PyTorch, which brings them, then has to be loaded before.
            defined: names that the source finds defined.

        Raises:
            ConfigError: there is no compiler, or it cannot be run.
        """
        self._where = where
        command = [*_compiler(where, _instead(where)), *_flags(threads), *(f"-D{name}" for name in defined)]
        self._command = shlex.join(command)
        self.owner = os.getpid()
        """The process that it is for."""
        with _explained(where), ExitStack() as unless_begun:
            folder = unless_begun.enter_context(_Folder(f"kosmos-{source.stem}-")).path
            self._made = folder / f"{source.stem}.so"
            self._said = unless_begun.enter_context(_open_notes(folder))
            # In a session of its own: Ctrl-C is for the run, which then stops in good order.
            self._process = subprocess.Popen(
                [*command, str(source), "-o", str(self._made)], env={**os.environ, "TMPDIR": str(folder)},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._said, start_new_session=True,
            )  # fmt: skip
            self._end = weakref.finalize(self, _end, self.owner, self._process, unless_begun.pop_all())

    @staticmethod
    def missing(where: str) -> str | None:
        """Why nothing can be compiled here, as far as can be told without trying: there is no compiler."""
        try:
            _compiler(where, _instead(where))
        except ConfigError as error:
            return str(error)
        return None

    def is_running(self) -> bool:
        """Whether it is still being compiled."""
        self._check_owner()
        return self._process.poll() is None

    def load(self) -> ctypes.CDLL:
        """What was compiled, once it is; to be asked for once.

        Raises:
            ConfigError: the compiler fails.
        """
        self._check_owner()
        try:
            with _explained(self._where):
                status = self._process.wait()
                if status or not self._made.exists():
                    raise self._failed(status)
                return ctypes.CDLL(str(self._made))
        finally:
            self._end()

    def _failed(self, status: int) -> ConfigError:
        """What the compiler says of what is wrong, else the last that it says."""
        self._said.seek(0)
        said = [line.strip() for line in self._said.read().decode(errors="replace").split("\n") if line.strip()]
        lines = [line for line in said if re.search(TELLING, line, re.IGNORECASE)][:3] or said[-1:]
        full = any(os.strerror(number) in line for number in FULL for line in said)
        advice = f"{_more_room(self._made.parent.parent)}, or " if full else ""
        reason = "; ".join(lines) or f"exit status {status}"
        return ConfigError(f"{self._where}: {self._command} failed: {reason}; {advice}{_instead(self._where)}")

    def _check_owner(self) -> None:
        if os.getpid() != self.owner:  # its state cannot be known here
            raise RuntimeError(
                f"process {self.owner} compiles, and this is {os.getpid()}; begin another in each process"
            )


def _end(owner: int, process: subprocess.Popen[bytes], folder: ExitStack) -> None:
    if os.getpid() != owner:
        return
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    folder.close()


def _open_notes(folder: Path) -> BinaryIO:
    """A file of no name in memory, where the system has such: a full disk would not take what is said of it."""
    try:
        return os.fdopen(os.memfd_create("said"), "w+b")
    except (AttributeError, OSError):
        return (folder / "said").open("w+b")


class _Folder:
    """A fresh folder, so that nobody else can have put a library there, which is gone when it is left or its maker dies
    of whatever: a library that is loaded needs its file no more.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            # It waits for a line, or the end of whoever could write one; a compiler may write until it runs out.
            self._remover = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r _; rm -rf -- "$0" || { sleep 9; rm -rf -- "$0"; }', str(self.path)],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._remover.communicate(b"\n")


@contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = "set TMPDIR to a folder of which programs may run" if _is_forbidden(error) else "see there"
        if error.errno in FULL:
            advice = _more_room(Path(tempfile.gettempdir()))
        raise ConfigError(f"{where}: {error}; {advice}, or {_instead(where)}") from error


def _instead(where: str) -> str:
    return f"set {where}=false"


def _more_room(folder: Path) -> str:
    return f"make room in {folder}, or set TMPDIR to a folder of another disk"


def _is_forbidden(error: OSError) -> bool:
    return error.errno in (errno.EACCES, errno.EPERM) or "failed to map segment" in str(error)


def _compiler(where: str, instead: str) -> list[str]:
    """The C++ compiler's command: ``$CXX``, or the first of some.

    Raises:
        ConfigError: there is none.
    """
    try:
        asked = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise ConfigError(f"{where}: CXX: {error}; mend it, or {instead}") from error
    commands = [asked] if asked else [["g++"], ["clang++"]]
    found = next((command for command in commands if shutil.which(command[0])), None)
    if found is None:
        names = ", ".join(command[0] for command in commands)
        whence = "CXX names" if asked else "none is on the path of"
        raise ConfigError(f"{where}: it needs a C++ compiler: {whence} {names}; install one, or {instead}")
    return found


def _flags(threads: bool) -> Iterator[str]:
    yield from ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
    yield "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    yield "-fopenmp" if threads else "-fopenmp-simd"
