"""An encoder of pictures is there without what timm imports for nobody, which can be imported as ever afterwards."""

from __future__ import annotations

import subprocess
import sys


def test_the_encoder_imports_no_wandb_and_hides_none() -> None:
    code = (
        "import sys, kosmos_vision.timm_encoder\n"
        "assert 'timm' in sys.modules and 'wandb' not in sys.modules\n"
        "import wandb\n"
        "assert callable(wandb.init)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
