"""Systems other than Linux, as far as one can seem to be there on it."""

from __future__ import annotations

import subprocess
import sys

from support.command import environment


def test_a_mac_is_told_nothing_of_output_that_nobody_redirects() -> None:
    """Of torch's, which notes it as its launcher or its checkpoints are imported."""
    program = (
        "import sys, torch; sys.platform = 'darwin'\n"
        "import kosmos.checkpoint.tensors, torch.distributed.elastic.multiprocessing.redirects as torchs\n"
        "print(torchs.IS_MACOS)"
    )
    run = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("True\n", "")
