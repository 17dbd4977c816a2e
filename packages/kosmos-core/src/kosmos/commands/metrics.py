"""``--metric``: a metric by name, or with options beside it as in the run file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos.commands.arguments import refuse_empty
from kosmos.commands.fields import yaml_of
from kosmos.errors import ConfigError

if TYPE_CHECKING:
    from kosmos.config import ComponentConfig

SUCH_AS = "'{name: word_error_rate, ignore_case: true}'"
Metric = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Score what --generate writes by this too, beside the run's metrics: a name, or with options such as "
        f"{SUCH_AS}; may be repeated.",
    ),
]


def metrics_of(given: Sequence[str]) -> list[ComponentConfig]:
    """What each ``--metric`` names, as an entry of ``evaluate.metrics`` would.

    Raises:
        ConfigError: one is no such entry, or two of a name have other options.
    """
    from pydantic import ValidationError

    from kosmos.config import EvaluateConfig
    from kosmos.mistakes import explain

    found: dict[str, ComponentConfig] = {}
    for text in given:
        refuse_empty("--metric", text)
        value = yaml_of("--metric", text, f"a name, or one with options as {SUCH_AS}")
        try:
            named = EvaluateConfig.model_validate({"metrics": value}).metrics
        except ValidationError as error:
            raise ConfigError(f"--metric {text}: {explain(error).replace('metrics.0.', '')}") from error
        for metric in named:
            if found.setdefault(metric.name, metric) != metric:
                raise ConfigError(
                    f"--metric: {metric.name} stands there twice with other options, and one of the two would be lost; "
                    "leave one out"
                )
    return list(found.values())
