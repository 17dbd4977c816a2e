"""What an author may tell the kit about a plugin that cannot be derived from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kosmos.components import KINDS
from kosmos.data.document import Media
from kosmos.errors import PluginError
from kosmos.names import listed, nearest
from kosmos.plugins import Registry


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Further inputs, and options to build components with. All may be left out.

    A plugin module names its own in ``KOSMOS_TESTING = "my_package.conditions:CONDITIONS"``, which the kit imports;
    ``promises_of`` takes others. A module that no run imports is the place for them: it may import hypothesis.

    Example:
        Conditions(
            media={"depth": arrays(np.float32, st.tuples(st.integers(0, 99), st.just(3))).map(partial(Media, "depth"))},
            examples={"depth": [Media("depth", Path("scan.npy").read_bytes())]},
            options={"encoder unet": {"layers": 2}},
        )
    """

    media: Mapping[str, Any] = field(default_factory=dict)
    """Modality to a hypothesis strategy of ``Media``, good or bad: planned and decoded like those of the sample set."""
    examples: Mapping[str, Sequence[Media]] = field(default_factory=dict)
    """Modality to good media, beside those of the sample set: encoded files as bytes, say. Broken in every way."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """``"encoder unet"`` to the options to build this component with; defaults are taken otherwise."""
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Layout to a small run that it can write, as in a run file; best with a backbone ``hf``."""
    memory_mib: int = 2048
    """What one hostile medium may take beyond what the process had."""
    seconds: float = 20.0
    """How long one hostile medium may take."""
    ranks_seconds: float = 60.0
    """How long a run of two processes may take."""
    documents: int = 8
    """Documents of the sample set that encoders are checked on."""

    def options_of(self, kind: str, name: str) -> Mapping[str, Any]:
        return self.options.get(f"{kind} {name}", {})


def check_names(conditions: Conditions, registry: Registry, where: str) -> None:
    """Raises PluginError, which begins with ``where``, at the name of a modality or a component that is not there."""
    modalities = list(registry.specs("modality"))
    components = [f"{kind.kind} {name}" for kind in KINDS for name in registry.specs(kind.kind)]
    layouts = list(registry.specs("layout"))
    fields = (
        ("media", conditions.media, modalities), ("examples", conditions.examples, modalities),
        ("options", conditions.options, components), ("runs", conditions.runs, layouts),
    )  # fmt: skip
    for field_name, stated, known in fields:
        for name in stated:
            if name not in known:
                raise PluginError(f"{where}: {field_name}: {name!r}: unknown; {_meant(str(name), known)}")


def _meant(name: str, known: Sequence[str]) -> str:
    """What was meant, be it the name of a component without its kind."""
    likely = [one for one in known if one.endswith(f" {name}")] or [one for one in [nearest(name, known)] if one]
    if likely:
        return f"did you mean {' or '.join(map(repr, likely))}?"
    form = (
        "KIND NAME of a component that is installed, such as"
        if any(" " in one for one in known)
        else "installed modalities:"
    )
    return f"{form} {listed(known)}"
