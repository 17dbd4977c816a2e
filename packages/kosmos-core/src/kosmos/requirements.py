"""What an installed distribution requires, against what is installed: ``pip install --no-deps`` looks at neither."""

from __future__ import annotations

from importlib import metadata

import kosmos

OURS = "kosmos-"


def unmet(distribution: str) -> list[str]:
    """A line for each requirement that is absent or of another version; none for a distribution without metadata."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        texts = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # a source tree on the path
        return []
    lines = []
    for text in texts:
        try:
            required = Requirement(text)
        except InvalidRequirement:  # not ours to repair
            continue
        if required.marker is not None and not required.marker.evaluate({"extra": ""}):
            continue
        version = _version(required.name)
        if version is None or not required.specifier.contains(version, prereleases=True):
            required.marker = None
            wanted = str(required)
            found = "which is not installed" if version is None else f"and {version} is installed"
            whence = ", from where kosmos-core came" if required.name.startswith(OURS) else ""
            lines.append(f"requires {wanted}, {found}: pip install '{wanted}'{whence}")
    return lines


def _version(name: str) -> str | None:
    """Of an installed distribution; of core that of the code that runs."""
    if name == "kosmos-core":
        return kosmos.__version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
