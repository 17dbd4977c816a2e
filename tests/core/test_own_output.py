"""What a command prints, and nothing else, is on its standard output."""

from __future__ import annotations

import subprocess
import sys

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
    told = [sys.executable, "-c", LOUD.format(command="own_output.is_command()").replace("os.write(1", "os.write(2")]
    made = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *told], capture_output=True, text=True, timeout=60)
    assert "by descriptor" in made.stderr and not made.stdout
