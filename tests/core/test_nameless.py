"""Users whom the system has no name for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.command import environment

ASKED = ("LOGNAME", "USER", "LNAME", "USERNAME")
NOBODY = 2**31 - 77
PROGRAM = (
    f"import os; os.getuid = lambda: {NOBODY}\n"
    "import kosmos, getpass; from torch._inductor.runtime.cache_dir_utils import default_cache_dir\n"
    "print(getpass.getuser(), default_cache_dir().endswith('torchinductor_' + getpass.getuser()))"
)


@pytest.mark.parametrize("said", [{}, {"LOGNAME": "", "USER": ""}, {"USER": "someone"}])
def test_a_number_without_a_name_stands_for_one(said: dict[str, str]) -> None:
    """As in a container: PyTorch's compiler asks for a name as soon as a model is imported."""
    named = {name: text for name, text in environment().items() if name not in ASKED} | said
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=named, capture_output=True, text=True, check=False)
    assert (run.stdout.split(), run.stderr) == ([said.get("USER") or str(NOBODY), "True"], "")


def test_a_user_with_a_name_keeps_it() -> None:
    named = {name: text for name, text in environment().items() if name not in ASKED}
    program = "import os; os.getuid = lambda: 0; import kosmos; print('USER' in os.environ)"
    run = subprocess.run([sys.executable, "-c", program], env=named, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
