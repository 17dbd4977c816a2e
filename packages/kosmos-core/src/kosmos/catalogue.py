"""Known components that may not be installed, and the packages that bring them."""

from __future__ import annotations

import json
from importlib.resources import files


def catalogue() -> dict[str, dict[str, str]]:
    """Kind and name of known components to the distribution that brings them."""
    found: dict[str, dict[str, str]] = json.loads(files("kosmos").joinpath("catalogue.json").read_text("utf-8"))
    return found


def install_hint(kind: str, name: str) -> str:
    """Which package to install: from the catalogue of known ones, else by the convention for modalities."""
    if (package := catalogue().get(kind, {}).get(name)) is not None:
        return f"pip install {package}"
    if kind == "modality":
        return f"by convention: pip install kosmos-{name}"
    return "'kosmos plugins' lists what is installed"
