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
from pathlib import Path

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
    instead = f"set {where}=false"
    try:
        # A fresh folder: nobody else can have put a library there, and one that is loaded needs its file no more.
        with tempfile.TemporaryDirectory(prefix=f"kosmos-{source.stem}-") as folder:
            made = Path(folder, f"{source.stem}.so")
            _compile(source, made, where, instead)
            return ctypes.CDLL(str(made))
    except OSError as error:
        advice = "set TMPDIR to a folder of which programs may run" if _is_forbidden(error) else "see there"
        raise ConfigError(f"{where}: {error}; {advice}, or {instead}") from error


def _compile(source: Path, made: Path, where: str, instead: str) -> None:
    command = [*_compiler(where, instead), *_flags(), str(source), "-o", str(made)]
    # In a session of its own: Ctrl-C is for the run, which then stops in good order.
    said = subprocess.run(
        command, capture_output=True, text=True, errors="replace", start_new_session=True, stdin=subprocess.DEVNULL
    )
    if said.returncode or not made.exists():
        lines = [line.strip() for line in said.stderr.split("\n") if re.search(TELLING, line, re.IGNORECASE)]
        reason = "; ".join(lines[:3]) or f"exit status {said.returncode}"
        raise ConfigError(f"{where}: {shlex.join(command[:-3])} failed: {reason}; {instead}")


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


def _flags() -> Iterator[str]:
    yield from ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
    yield "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    yield "-fopenmp" if HAS_THREADS else "-fopenmp-simd"
