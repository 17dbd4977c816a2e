"""What an installed distribution requires, against what is installed: ``pip install --no-deps`` looks at neither."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

import kosmos
from kosmos.catalogue import catalogue

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet

CORE = "kosmos-core"


def unmet(distribution: str) -> list[str]:
    """A line for each requirement that is absent or of another version; none for a distribution without metadata."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        texts = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # a source tree on the path
        return []
    ours = {CORE, *(name for names in catalogue().values() for name in names.values())}
    lines = []
    for text in texts:
        try:
            required = Requirement(text)
        except InvalidRequirement:  # not ours to repair
            continue
        if not _applies(required.marker):
            continue
        version = _version(name := canonicalize_name(required.name))
        if version is None or not _meets(version, required.specifier):
            required.marker = None
            wanted = str(required)
            found = "which is not installed" if version is None else f"and {version} is installed"
            whence = ", from where kosmos-core came" if name in ours else ""
            lines.append(f"requires {wanted}, {found}: pip install '{wanted}'{whence}")
    return lines


def _applies(marker: Marker | None) -> bool:
    """Here and without extras. Not where that cannot be told, as of a kernel whose release is no version."""
    try:
        return marker is None or marker.evaluate({"extra": ""})
    except ValueError:
        return False


def _meets(version: str, wanted: SpecifierSet) -> bool:
    """A version of before PEP 440 has no order: it is any, or the one that is named as it stands."""
    from packaging.version import InvalidVersion

    try:
        return wanted.contains(version, prereleases=True)
    except InvalidVersion:  # by packaging of before 26; of today it is compared as below
        return all(one.operator == "===" and one.version == version for one in wanted)


def _version(name: str) -> str | None:
    """Of an installed distribution; of core that of the code that runs."""
    if name == CORE:
        return kosmos.__version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
