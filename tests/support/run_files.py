"""Whether a run file would be taken: its fields, and the options of its components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kosmos.config import ComponentConfig, RunConfig
from kosmos.options import check_options
from kosmos.plugins import Registry
from kosmos.run_file import make_run


def check_run(values: Mapping[str, Any], registry: Registry, where: str) -> RunConfig:
    """Load a run file and hold the options of its components against their signatures."""
    config = make_run(values, where=where)
    parts: list[tuple[str, ComponentConfig]] = [
        *(("codec", m.codec) for m in config.modalities.values() if m.codec is not None),
        ("backbone", config.backbone),
        ("optimizer", config.train.optimizer),
        ("schedule", config.train.schedule),
        *(("tracker", t) for t in config.trackers),
        *(("metric", m) for m in config.evaluate.metrics),
        *_stream_parts(config, registry),
        *(
            ("modality", ComponentConfig.model_validate({"name": name, **m.processor}))
            for name, m in config.modalities.items()
        ),
    ]
    for kind, part in parts:
        front = registry.get(kind, part.name).positional
        check_options(registry.resolve(kind, part.name), part.options, path=f"{where}: {part.name}", positional=front)
    return config


def _stream_parts(config: RunConfig, registry: Registry) -> Iterator[tuple[str, ComponentConfig]]:
    """Encoders and connectors that are stated; without a name they are those of the stream's modality."""
    for name, stream in config.streams.items():
        for kind, part in (("encoder", stream.encoder), ("connector", stream.connector)):
            if part is not None:
                own = part.name or getattr(registry.get("modality", name), kind)
                yield kind, ComponentConfig.model_validate({"name": own, **part.options})
