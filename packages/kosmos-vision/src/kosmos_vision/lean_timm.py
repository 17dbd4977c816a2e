"""timm, without wandb: timm imports that where it is installed, half a second, for a function that is not used here."""

from __future__ import annotations

import sys

_hidden = "wandb" not in sys.modules and "timm" not in sys.modules
if _hidden:
    sys.modules["wandb"] = None  # type: ignore[assignment]  # an import of it fails, which timm is prepared for
try:
    import timm as timm
finally:
    if _hidden:
        del sys.modules["wandb"]
