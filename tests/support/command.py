"""The ``kosmos`` command as a process of its own, with models that take seconds."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

TESTS = Path(__file__).resolve().parent.parent
SMALL = (
    "backbone.width=32",
    "backbone.layers=1",
    "backbone.heads=2",
    "backbone.ffn_width=48",
    "data.tokens_per_pack=256",
    "data.look_ahead=16",
    "train.warmup_steps=1",
    "train.precision=fp32",
    "trackers=[]",
)
"""Overrides of a run that starts and steps fast."""
MARK = "KOSMOS_TEST_MARK"
"""Variable by which the processes that a command left behind are found."""


def environment(path: Sequence[Path] = (), **more: str) -> dict[str, str]:
    """One thread a process, and ``path`` in front of what is importable."""
    before = [*map(str, (*path, TESTS)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(before), **more}


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "kosmos", *(str(a) for a in args)]


def kosmos(
    *args: object, path: Sequence[Path] = (), cwd: Path | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(*args), env=environment(path), cwd=cwd, timeout=timeout, capture_output=True, text=True, check=False
    )


def kosmos_here(*args: object) -> subprocess.CompletedProcess[str]:
    """As ``kosmos``, in this process, which has imported already what a process of its own takes seconds to import."""
    from kosmos.cli import main

    told = [str(a) for a in args]
    with (
        patch.dict(os.environ, COLUMNS="200"),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as said,
    ):
        status = main(told)
    return subprocess.CompletedProcess(told, status, out.getvalue(), said.getvalue())


class Started:
    """A command that runs."""

    def __init__(
        self, *args: object, path: Sequence[Path] = (), program: Sequence[str] | None = None, **variables: str
    ) -> None:
        """
        Args:
            program: in place of ``kosmos ARGS``.
            variables: of the environment.
        """
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            program or command(*args),
            env=environment(path, **variables, **{MARK: self.mark}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, condition: Callable[[], bool], *, at_most_s: float = 90) -> None:
        """Until ``condition`` holds."""
        end = time.monotonic() + at_most_s
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < end, "the condition was not met in time"
            time.sleep(0.005)

    def send(self, number: int, *, group: bool = False) -> None:
        """To the process, or as a terminal does to it and its workers."""
        (os.killpg if group else os.kill)(self.process.pid, number)

    def end(self, *, at_most_s: float = 60) -> tuple[int, str]:
        """Exit status and what it said. What runs longer is killed with all that it started, and the test fails."""
        try:
            _, said = self.process.communicate(timeout=at_most_s)
        except subprocess.TimeoutExpired:
            for process in self.processes():
                os.kill(process, signal.SIGKILL)
            self.process.communicate()  # else its pipes would be warned of in the test that comes next
            raise
        return self.process.returncode, said

    def processes(self) -> list[int]:
        """Its living processes, those that it started included."""
        mark, found = f"{MARK}={self.mark}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                alive = folder.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
                if alive and mark in folder.joinpath("environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found


def lines_in(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def install_plugin(site: Path, name: str, source: str | None, *, module: str | None = None) -> Path:
    """A distribution ``acme-NAME`` in the folder ``site`` with the plugin NAME: ``source``, or an importable module."""
    site.mkdir(exist_ok=True)
    if source is not None:
        (site / f"acme_{name}.py").write_text(source)
    info = site / f"acme_{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[kosmos]\n{name} = {module or f'acme_{name}'}\n")
    return site
