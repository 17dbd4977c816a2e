"""A plugin made by ``kosmos plugin new --defaults``, installed without pip."""

from __future__ import annotations

import tomllib
from pathlib import Path

from kosmos.plugins import Registry
from kosmos.templates import make_plugin


def make(folder: Path, name: str) -> Path:
    """Make kosmos-NAME in ``folder`` and return its ``src``, in which stands what pip would add to be found."""
    made = make_plugin(name, folder, ask=False, registry=Registry.from_modules({}))
    add_metadata(made)
    return made / "src"


def add_metadata(package: Path) -> Path:
    """The ``dist-info`` that an installer makes of a package's pyproject.toml, beside its modules."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    info = package / "src" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    fields = {"Metadata-Version": "2.4", "Name": project["name"], "Version": project["version"]}
    if "license" in project:
        fields["License-Expression"] = project["license"]
    (info / "METADATA").write_text("".join(f"{field}: {value}\n" for field, value in fields.items()))
    points = "".join(f"{name} = {value}\n" for name, value in project["entry-points"]["kosmos"].items())
    (info / "entry_points.txt").write_text(f"[kosmos]\n{points}")
    return info
