"""What to do with an object of Python that stands where a run file has a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLAIN = (str, int, float, list, tuple, Mapping, type(None))
BY_PLUGIN = (
    "a run names its parts: register it by a plugin, which a script or notebook can be itself "
    "(load_plugins(beside={'own': '__main__'})), and give its name"
)


def what_to_do(value: Any) -> str:
    """Advice about an object that no run file can hold; empty of what one can, numbers that are not finite too."""
    if isinstance(value, PLAIN):
        return ""
    if callable(getattr(value, "save_pretrained", None)):
        return "a run names files: save it (save_pretrained('FOLDER')) and give 'FOLDER'"
    if all(hasattr(value, part) for part in ("name", "document", "__len__")):
        return "give it to train_model(config, sources=[...])"
    is_code = callable(value) or isinstance(value, type) or hasattr(value, "param_groups")
    return BY_PLUGIN if is_code else ""
