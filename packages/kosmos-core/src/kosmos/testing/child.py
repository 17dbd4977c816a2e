"""Fresh processes, as data workers and ranks are: ``python -m kosmos.testing.child JOB RESULT``.

A job is ``(sys.path, "module:function", arguments)``, pickled by the kit that starts the process and reads its
result. Nothing here imports torch, and what does is told with the line that did.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

PARTIAL = ".at"
"""Suffix of the file in which a job says what it is at, for the case that it dies."""


class ChildFailed(Exception):
    """A child process raised, died or did not come to an end; the text says which."""


def start(function: str, *arguments: Any, folder: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start ``function`` ("module:name") in a fresh process. ``finish`` with the same folder gives what it returns."""
    with (folder / "job").open("wb") as file:
        pickle.dump((sys.path, function, pickle.dumps(arguments)), file)
    # Without -P Python would look for its own modules in the working folder first, which may hold data.
    command = [sys.executable, "-P", "-m", __name__, str(folder / "job"), str(folder / "result")]
    # The path of this process comes with the job; what Python itself needs to find this module goes before.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    with (folder / "said").open("wb") as said:  # a file: a pipe that nobody reads would stop it
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=said)


def finish(process: subprocess.Popen[bytes], *, folder: Path, seconds: float) -> Any:
    """What the job returned.

    Raises:
        ChildFailed: it raised, was killed by a signal, or took longer than ``seconds`` and was killed.
    """
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise ChildFailed(f"did not come to an end within {seconds:g} s{_at(folder)}") from None
    except BaseException:  # an interrupt: nobody waits for it any more
        process.kill()
        process.wait()
        raise
    if process.returncode:
        said = (folder / "said").read_text(errors="replace")
        last = said.strip().splitlines()[-1:] or ["without a word"]
        raise ChildFailed(f"{ended(process.returncode)}{_at(folder)}: {last[0]}")
    worked, value = pickle.loads((folder / "result").read_bytes())  # noqa: S301  written by our own child
    if not worked:
        raise ChildFailed(value)
    return value


def call(function: str, *arguments: Any, seconds: float = 120.0, variables: Mapping[str, str] | None = None) -> Any:
    """Run ``function`` in a fresh process and return what it returns. Raises as ``finish`` does."""
    with tempfile.TemporaryDirectory(prefix="kosmos-testing-") as folder:
        process = start(function, *arguments, folder=Path(folder), **(variables or {}))
        return finish(process, folder=Path(folder), seconds=seconds)


def tell(what: str) -> None:
    """Say what the job is at, in the child process."""
    Path(sys.argv[2] + PARTIAL).write_text(what, encoding="utf-8")


def ended(status: int) -> str:
    """How a process came to its end, as a part of a sentence."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _at(folder: Path) -> str:
    file = folder / f"result{PARTIAL}"
    return f" at {file.read_text(encoding='utf-8')}" if file.exists() else ""


_IMPORTS = ("<frozen ", str(importlib.__file__))
_KOSMOS = str(Path(__file__).parents[1]) + os.sep


class TorchWatch:
    """Finds out whether torch is imported, and by which line. Used as a context."""

    importer: str | None = None

    def __enter__(self) -> TorchWatch:
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Part of the import system: it finds nothing, and so leaves the import to the others."""
        if name == "torch" and self.importer is None:
            frame: FrameType | None = sys._getframe(1)
            frames = []
            while frame is not None:
                if not frame.f_code.co_filename.startswith(_IMPORTS):
                    frames.append((frame.f_code.co_filename, frame.f_lineno))
                frame = frame.f_back
            # Behind a public name of Kosmos is a module of its own, which is not the one to change.
            others = [place for place in frames if not place[0].startswith(_KOSMOS)]
            file, line = [*others, *frames, ("unknown", 0)][0]
            self.importer = f"{file}:{line}"


def main(job: str, result: str) -> None:
    """Run the job in the file ``job``."""
    with open(job, "rb") as file:
        sys.path[:], function, arguments = pickle.load(file)  # noqa: S301  written by our own parent
    module, _, name = function.partition(":")
    try:
        value = True, getattr(importlib.import_module(module), name)(arguments)
        content = pickle.dumps(value)
    except BaseException as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        where = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        place = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
        content = pickle.dumps((False, text + place))
    Path(result).write_bytes(content)


if __name__ == "__main__":
    main(*sys.argv[1:3])
