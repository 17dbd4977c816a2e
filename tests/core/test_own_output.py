"""What a command prints, and nothing else, is on its standard output."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from support import ticks
from support.command import SMALL, command, environment, install_plugin

LOUD = """
import ctypes, os, subprocess, sys
from kosmos import own_output
{command}
print("before")
with own_output.aside() as own:
    print("by python")
    os.write(1, b"by descriptor\\n")
    ctypes.CDLL(None).puts(b"by C")
    subprocess.run(["echo", "by a process"], check=True)
    print("own", file=own)
print("after")
"""


def output_of(command: str) -> tuple[list[str], list[str]]:
    made = subprocess.run(
        [sys.executable, "-c", LOUD.format(command=command)], capture_output=True, text=True, check=True, timeout=60
    )
    return made.stdout.splitlines(), sorted(made.stderr.splitlines())


def test_whatever_code_of_plugins_writes_to_standard_output_goes_to_standard_error():
    out, err = output_of("own_output.is_command()")
    assert out == ["before", "own", "after"]
    assert err == ["by C", "by a process", "by descriptor", "by python"]


def test_a_program_that_calls_a_command_keeps_its_descriptors():
    out, err = output_of("")
    assert sorted(out) == ["after", "before", "by C", "by a process", "by descriptor", "own"]
    assert err == ["by python"]


def test_standard_output_that_is_closed_stays_closed():
    program = (
        "from kosmos import own_output; own_output.is_command()\n"
        "with own_output.aside() as own: print('by python')\n"
        "own_output.written(own)"
    )
    told = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", program]
    made = subprocess.run(told, capture_output=True, text=True, timeout=60)
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "by python\n")


EDITED = """
import readline
from kosmos import own_output
own_output.is_command()
with own_output.aside():
    pass
for _ in range(2):
    print("read", ascii(input("> ")))
"""


def test_earlier_lines_are_recalled_at_a_terminal() -> None:
    ours, theirs = pty.openpty()
    variables = environment(TERM="dumb", INPUTRC="/dev/null")
    run = subprocess.Popen([sys.executable, "-c", EDITED], env=variables, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"one\n\x1b[A\n")
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # on Linux, once the program has ended
        pass
    os.close(ours)
    assert run.wait(timeout=60) == 0
    assert [line for line in shown.decode().splitlines() if line.startswith("read")] == ["read 'one'"] * 2


FULL_LINE = "cannot write (No space left on device); make room, or write elsewhere\n"


ASIDE = """
from kosmos import CommandSpec, hookimpl

KOSMOS_API = 1

@hookimpl
def kosmos_commands():
    yield CommandSpec(name="tell", target="acme_tell:tell", summary="Prints as commands with plugins do.")

def tell():
    from kosmos.own_output import aside
    with aside():
        pass
    print("told")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_plugin(tmp_path_factory.mktemp("tell") / "site", "tell", ASIDE)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", ["", "--version", "--help", "plugins --json core", "plugins core", "tell"])
def test_a_pipe_that_nobody_reads_ends_a_command_with_1_and_a_full_disk_with_4(
    args: str, unbuffered: str, site: Path
) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    variables = environment([site], PYTHONUNBUFFERED=unbuffered)
    for output, status, said in ((theirs, 1, ""), (os.open("/dev/full", os.O_WRONLY), 4, FULL_LINE)):
        run = subprocess.run(
            command(*args.split()),
            env=variables,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        os.close(output)
        assert run.returncode == status and run.stderr.endswith(said), run.stderr
        assert run.stderr.count("\n") == bool(said), run.stderr


def test_a_training_whose_table_nobody_reads_has_ended_well(tmp_path: Path) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    told = command("train", "--output", tmp_path / "run", "--modalities", "ticks", *SMALL, "--steps", 1)
    variables = environment([site], PYTHONUNBUFFERED="")  # what is not written yet stays in the buffer
    ours, theirs = os.pipe()
    os.close(ours)
    run = subprocess.run(told, env=variables, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=90, check=False)
    os.close(theirs)
    assert run.returncode == 0 and "Error" not in run.stderr, run.stderr
