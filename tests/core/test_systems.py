"""Systems other than Linux, as far as one can seem to be there on it."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import kosmos
import kosmos.cli  # what it imports looks at the system too
from kosmos import own_output
from kosmos.__main__ import main
from kosmos.errors import ConfigError
from support.command import environment, kosmos_here


def test_a_mac_is_told_nothing_of_output_that_nobody_redirects() -> None:
    """Of torch's, which notes it as its launcher or its checkpoints are imported."""
    program = (
        "import sys, torch; sys.platform = 'darwin'\n"
        "import kosmos.checkpoint.tensors, torch.distributed.elastic.multiprocessing.redirects as torchs\n"
        "print(torchs.IS_MACOS)"
    )
    run = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("True\n", "")


OF_LINUX = ("sched_getaffinity", "memfd_create", "waitid", "posix_fadvise", "pidfd_open", "copy_file_range", "splice")
"""Functions of ``os`` that a Mac has not, or not with each Python."""


def test_compressed_rows_are_read_without_what_linux_alone_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in OF_LINUX:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows.jsonl.gz"
    rows.write_bytes(gzip.compress(b'{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n'))
    run = kosmos_here("data", "--data", rows, "--check", "--workers", "1")
    assert (run.returncode, run.stderr) == (0, "")


@pytest.fixture(autouse=True)
def no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ``main`` this process is no command."""
    monkeypatch.setattr(own_output, "_is_command", False)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")


WSL = "Kosmos does not run on Windows; use WSL 2"


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("arguments", [["train", "--modalities", "image"], ["data", "--help"]])
def test_windows_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: Sequence[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kosmos", *arguments])
    assert main() == 2
    assert capsys.readouterr() == ("", f"error[config]: {WSL}\n")


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_windows_gets_help_and_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["kosmos", option])
    assert main() == 0
    assert "kosmos" in capsys.readouterr().out


@pytest.mark.usefixtures("windows")
def test_python_on_windows_is_told_the_same() -> None:
    with pytest.raises(ConfigError, match=WSL):
        kosmos.train_model  # noqa: B018
    assert kosmos.Text is not None
