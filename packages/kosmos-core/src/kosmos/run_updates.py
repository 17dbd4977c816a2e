"""The low-rank updates that a run file asks for: what fits together, and where they stand in a model that is built."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from kosmos.config import BackboneConfig, RunConfig, StreamConfig
from kosmos.errors import ConfigError
from kosmos.model.lora import add_lora
from kosmos.model.quantize import pack_weights
from kosmos.model.weights import seed_part


def check_updates(config: RunConfig) -> None:
    """Raises ConfigError where settings of updates do not go together."""
    streams = {f"streams.{name}": part for name, part in config.streams.items()}
    parts: dict[str, BackboneConfig | StreamConfig] = {"backbone": config.backbone, **streams}
    for path, part in parts.items():
        if part.lora is not None and part.freeze:
            raise ConfigError(f"{path}.lora: {path}.freeze trains nothing of it; leave one of them out")
        if part.lora is not None and part.lora.adapter is not None and part is not config.backbone:
            raise ConfigError(f"{path}.lora.adapter: adapters are of a language model alone (backbone.lora.adapter)")
    lora = config.backbone.lora
    if config.init is not None and config.init.keep_updates and lora is not None and lora.adapter is not None:
        raise ConfigError(
            f"init.keep_updates: both {config.init.path} and the adapter {lora.adapter} (backbone.lora.adapter) have "
            "values of the same updates; leave one of them out"
        )


def put_updates(
    config: RunConfig, path: str, part: nn.Module, settings: BackboneConfig | StreamConfig, leave: Sequence[Tensor] = ()
) -> None:
    """Give a part of a model its updates, and its frozen weights the type that is asked for.

    Args:
        path: of the part in the run file.
        settings: its own; they have ``lora``.
        leave: weights whose layers are read without being called.

    Raises:
        ConfigError: the part lacks a layer that is named, or has no weights that can be kept so.
    """
    assert settings.lora is not None
    seed_part(config.train.seed, f"{path}.lora")
    try:
        add_lora(part, f"{path}.lora", leave=leave, **settings.lora.model_dump(exclude={"quantize", "adapter"}))
    except ConfigError as error:
        if settings.lora.adapter is None:
            raise
        raise ConfigError(
            f"{path}.lora.adapter: what is taken from {settings.lora.adapter} does not fit: {error}; updates of "
            "embeddings and of the projection to the vocabulary are not read: merge such an adapter into its model by "
            "peft (merge_and_unload, then save_pretrained), and name that as backbone.model"
        ) from error
    if settings.lora.quantize is not None:
        pack_weights(part, f"{path}.lora", leave=leave)


def update_scales(config: RunConfig) -> dict[str, float]:
    """How often low-rank updates count, by the part of the model that has some."""
    lora = {"backbone": config.backbone.lora, **{f"streams.{n}.encoder": s.lora for n, s in config.streams.items()}}
    return {name: of.alpha / of.rank for name, of in lora.items() if of is not None}
