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
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from kosmos.errors import ConfigError

TELLING = "error|cannot find|undefined"
"""What compilers and linkers say of what is wrong."""
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
    return Compilation(source, where, threads=HAS_THREADS).library()


def why_not(where: str) -> str | None:
    """Why nothing can be compiled here as far as one can tell without trying: there is no compiler.

    Args:
        where: as in ``load_source``.
    """
    try:
        _compiler(where, _instead(where))
    except ConfigError as error:
        return str(error)
    return None


class Compilation:
    """A C++ file of a package, which is compiled while its caller goes on.

    Raises:
        ConfigError: there is no compiler, or it cannot be run.
    """

    def __init__(self, source: Path, where: str, *, threads: bool = False) -> None:
        """
        Args:
            where: as in ``load_source``.
            threads: whether it has threads of OpenMP's.
        """
        self._where, self._instead = where, _instead(where)
        command = [*_compiler(where, self._instead), *_flags(threads)]
        self._command = shlex.join(command)
        with self._told(), ExitStack() as unless_begun:
            self._folder = unless_begun.enter_context(_Folder(f"kosmos-{source.stem}-"))
            self._made, self._said = self._folder.path / f"{source.stem}.so", self._folder.path / "said"
            with self._said.open("w") as said:
                # In a session of its own: Ctrl-C is for the run, which then stops in good order.
                self._process = subprocess.Popen(
                    [*command, str(source), "-o", str(self._made)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
                )  # fmt: skip
            unless_begun.pop_all()

    def is_running(self) -> bool:
        """Whether it is still being compiled."""
        return self._process.poll() is None

    def library(self) -> ctypes.CDLL:
        """What was compiled, once it is; to be asked for once.

        Raises:
            ConfigError: the compiler fails.
        """
        with self._told(), self._folder:
            status = self._process.wait()
            if status or not self._made.exists():
                said = self._said.read_text(errors="replace").split("\n")
                lines = [line.strip() for line in said if re.search(TELLING, line, re.IGNORECASE)]
                reason = "; ".join(lines[:3]) or f"exit status {status}"
                raise ConfigError(f"{self._where}: {self._command} failed: {reason}; {self._instead}")
            return ctypes.CDLL(str(self._made))

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            advice = "set TMPDIR to a folder of which programs may run" if _is_forbidden(error) else "see there"
            raise ConfigError(f"{self._where}: {error}; {advice}, or {self._instead}") from error


class _Folder:
    """A fresh folder, so that nobody else can have put a library there, which is gone when it is left or its maker dies
    of whatever: a library that is loaded needs its file no more.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # It ends where nobody holds the other end of its input any more.
        self._remover = subprocess.Popen(
            ["/bin/sh", "-c", 'cat; rm -rf -- "$0"', str(self.path)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._remover.communicate()


def _instead(where: str) -> str:
    return f"set {where}=false"


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
