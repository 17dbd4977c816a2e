"""Begin with the low-rank updates of another run, and go on with them beside the weights that it kept."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose

from torch import nn

from kosmos.checkpoint.folder import Loaded
from kosmos.checkpoint.tensors import MODEL, shapes
from kosmos.compose import Composition
from kosmos.errors import ConfigError
from kosmos.model.lora import updates_among, updates_in
from kosmos.run_updates import update_scales

PLACE = "init.keep_updates"


def kept_updates(
    loaded: Loaded, scales: Mapping[str, float], model: nn.Module, composition: Composition
) -> frozenset[str]:
    """Names of the updates of a checkpoint that a model takes as they are: all of the parts that both have.

    Args:
        scales: how often those of the checkpoint count, by the part that has some.

    Raises:
        ConfigError: there is none, or the model has no such place for one.
    """
    found = {n.removeprefix(MODEL): s for n, s in shapes(loaded.tensors).items() if n.startswith(MODEL)}
    here, parameters = update_scales(composition.config), dict(model.named_parameters())
    own = {name: tuple(parameters[name].shape) for name in updates_in(model)}
    both = {part: scale for part, scale in scales.items() if any(n.startswith(f"{part}.") for n in parameters)}
    names = updates_among(found, both)
    if not names:
        raise ConfigError(f"{PLACE}: {loaded.folder} has no low-rank updates of this run's parts; leave it out")
    for name in sorted(names):
        part = _part_of(name, scales)
        field = f"{part.removesuffix('.encoder')}.lora"
        if name not in own:
            raise ConfigError(
                f"{PLACE}: {loaded.folder} has an update of {name.rpartition('.')[0]}, and this run has none there; "
                f"give it the {field} of that run, or leave {PLACE} out, which puts updates into the weights"
            )
        if own[name] != found[name] or not isclose(here[part], scales[part], rel_tol=1e-6):
            raise ConfigError(
                f"{PLACE}: {field}: {name} is {list(found[name])} and counts {scales[part]:g} times there, "
                f"here it is {list(own[name])} and counts {here[part]:g} times; give both the same rank and alpha"
            )
    return frozenset(names)


def _part_of(name: str, scales: Mapping[str, float]) -> str:
    return next(part for part in scales if name.startswith(f"{part}."))
