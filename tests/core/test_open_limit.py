"""Where no more files may be opened it is said so, and no data are blamed."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import closing

import pytest

from kosmos import cli
from kosmos.data import open_files
from kosmos.data.feeder import open_feeder
from kosmos.data.open_files import read_bytes
from kosmos.errors import DataError, SampleError
from kosmos.open_limit import TooManyOpen, most_open, too_many_open
from support.faulty import Numbered
from support.feeds import feed_of


@pytest.fixture
def few():
    """A process that may open little more than it has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files.forget_all()
    taken = os.open(os.devnull, os.O_RDONLY)
    os.close(taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(24, taken + 4), before[1]))
    try:
        yield
    finally:
        open_files.forget_all()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_files_of_rows_leave_others_what_they_need(tmp_path, few) -> None:
    paths = [tmp_path / f"{number}.txt" for number in range(60)]
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    for number, path in enumerate(paths):
        with path.open("w") as file:
            file.write(f"{number:2}")
        assert read_bytes(path, 0, 2) == b"%2d" % number
    assert 0 < len(open_files._open) <= most_open() // 4
    for descriptor in held:
        os.close(descriptor)


def test_what_cannot_be_opened_for_want_of_descriptors_is_told_whatever_it_is_wrapped_in() -> None:
    of_system = OSError(errno.EMFILE, "Too many open files", "run/quarantine.jsonl")
    wrapped = DataError("a.jsonl: cannot be read")
    wrapped.__cause__ = SampleError("x")
    wrapped.__cause__.__cause__ = of_system
    for error in (of_system, wrapped):
        found = too_many_open(error)
        assert found is not None
        assert found.line() == (
            "error[open-files]: run/quarantine.jsonl: cannot be opened: this process has as many files open as it may "
            f"have ({most_open():,}); raise that (ulimit -n 4096) and start again"
        )
    assert too_many_open(RuntimeError("unable to open shared memory: Too many open files (24)")) is not None
    assert "fs.file-max" in str(too_many_open(OSError(errno.ENFILE, "x")))
    assert too_many_open(OSError(errno.ENOENT, "x")) is too_many_open(None) is None


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_cannot_be_opened_for_want_of_descriptors_ends_the_run(workers) -> None:
    feed = feed_of(Numbered(20, {("read", row): "no descriptors" for row in range(20)}), lanes=1)
    with closing(open_feeder(feed, [0], workers=workers)) as feeder, pytest.raises(TooManyOpen, match="ulimit -n 4096"):
        feeder.next_step()


def test_the_command_ends_with_one_line(monkeypatch, capsys) -> None:
    def fails(args):
        raise OSError(errno.EMFILE, "Too many open files", "run/quarantine.jsonl")

    monkeypatch.setattr(cli, "_run_or_help", fails)
    assert cli.main(["train"]) == 4
    assert capsys.readouterr().err.startswith("error[open-files]: run/quarantine.jsonl: cannot be opened: this process")
