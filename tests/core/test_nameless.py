"""Users whom the system has no name for."""

from __future__ import annotations

import json
import subprocess
import sys

from support.command import environment

ASKED = ("LOGNAME", "USER", "LNAME", "USERNAME")
NOBODY = 2**31 - 77
PROGRAM = f"""
import getpass, json, os, sys
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
os.getuid = lambda: {NOBODY}
for said in json.loads(sys.argv[1]):  # each in a process that imports torch no more
    if os.fork() == 0:
        os.environ |= said
        import kosmos
        print(getpass.getuser(), default_cache_dir().endswith('torchinductor_' + getpass.getuser()), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_number_without_a_name_stands_for_one() -> None:
    """As in a container: PyTorch's compiler asks for a name as soon as a model is imported."""
    named = {name: text for name, text in environment().items() if name not in ASKED}
    said: list[dict[str, str]] = [{}, {"LOGNAME": "", "USER": ""}, {"USER": "someone"}]
    command = [sys.executable, "-c", PROGRAM, json.dumps(said)]
    run = subprocess.run(command, env=named, capture_output=True, text=True, check=False)
    names = [of.get("USER") or str(NOBODY) for of in said]
    assert (run.stdout.splitlines(), run.stderr) == ([f"{name} True" for name in names], "")


def test_a_user_with_a_name_keeps_it() -> None:
    named = {name: text for name, text in environment().items() if name not in ASKED}
    program = "import os; os.getuid = lambda: 0; import kosmos; print('USER' in os.environ)"
    run = subprocess.run([sys.executable, "-c", program], env=named, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
