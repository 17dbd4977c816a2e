"""Known components that may not be installed, and the packages that bring them."""

from __future__ import annotations

import json
from importlib.resources import files

SINCE = "26.11"
"""The first release. Packages of our names that others have put on PyPI, as its kosmos-core, have lesser versions."""


def catalogue() -> dict[str, dict[str, str]]:
    """Kind and name of known components to the distribution that brings them."""
    found: dict[str, dict[str, str]] = json.loads(files("kosmos").joinpath("catalogue.json").read_text("utf-8"))
    return found


def install_hint(kind: str, name: str) -> str:
    """Which package to install: from the catalogue of known ones, else by the convention for modalities."""
    if (package := catalogue().get(kind, {}).get(name)) is not None:
        return f"from where kosmos-core came: pip install '{package}>={SINCE}'"
    if kind == "modality":
        return f"by convention it is named kosmos-{name}"
    return "'kosmos plugins' lists what is installed"
