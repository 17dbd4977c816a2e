"""Score texts that the model really generates, document by document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import torch

from kosmos.compose import Composition
from kosmos.config import ComponentConfig
from kosmos.data.batch import ReadyDocument
from kosmos.data.document import Source
from kosmos.data.foreign import calling, first_line
from kosmos.data.mixture import Mixture
from kosmos.errors import PluginError, SampleError, own_line
from kosmos.evaluate.metrics import TextMetric
from kosmos.generate import generate_text, generate_together, prompt_of, ready_prompt, room_behind
from kosmos.plugins import Registry

AT_ONCE = 32
"""Documents that are continued together, where the backbone can."""


@dataclass(frozen=True)
class Generated:
    """What became of one document."""

    origin: str
    expected: str
    text: str


def generate_answers(
    composition: Composition,
    source: Source,
    *,
    device: torch.device,
    dtype: torch.dtype,
    max_documents: int,
    max_new_tokens: int = 256,
) -> list[Generated]:
    """Greedy continuations of the documents that end in an answer; at most ``max_documents``, evenly spread.

    Documents that cannot be read are left out: ``score`` names them.
    """
    mixture = Mixture((source,), (1.0,), True, 0, once=max_documents)
    backbone = composition.model.backbone
    answers: list[Generated] = []
    group: list[tuple[str, str, ReadyDocument]] = []

    def write_out() -> None:
        prompts = [prompt for _, _, prompt in group]
        written = generate_together(composition, prompts, max_new_tokens=max_new_tokens, device=device, dtype=dtype)
        for (origin, expected, _), ids in zip(group, written, strict=True):
            answers.append(Generated(origin, expected, composition.tokenizer.decode(ids)))
        group.clear()

    for draw in range(mixture.limit(0)):
        try:
            with calling(source, "document"):
                document = source.document(mixture.row(0, draw))
            if (parts := prompt_of(document)) is None:
                continue
            if not hasattr(backbone, "new_batch_cache"):
                text = generate_text(composition, parts[0], max_new_tokens=max_new_tokens, device=device, dtype=dtype)
                answers.append(Generated(document.origin, parts[1], text))
                continue
            prompt = ready_prompt(composition, parts[0])
            room_behind(backbone, len(prompt.plan), max_new_tokens)
        except SampleError:
            continue
        # No more tokens at once than memory sufficed for in training.
        tokens = sum(len(other.plan) for _, _, other in group) + len(prompt.plan)
        if group and (len(group) == AT_ONCE or tokens > composition.planner.max_tokens):
            write_out()
        group.append((document.origin, parts[1], prompt))
    if group:
        write_out()
    return answers


def text_metrics(registry: Registry, wanted: Sequence[ComponentConfig]) -> dict[str, TextMetric]:
    """``exact_match`` and the metrics of the run file, by name."""
    metrics: dict[str, TextMetric] = {"exact_match": registry.build("metric", "exact_match")}
    for number, metric in enumerate(wanted):
        path = f"evaluate.metrics.{number}"
        metrics[metric.name] = registry.build("metric", metric.name, options=metric.options, path=path)
    return metrics


def score_answers(answers: Sequence[Generated], metrics: Mapping[str, TextMetric]) -> dict[str, float]:
    """Each metric over the answers; empty where there is none.

    Raises:
        PluginError: a metric raised something or gives no number; it is named.
    """
    found: dict[str, float] = {}
    for name, metric in metrics.items() if answers else ():
        try:
            value: object = metric([a.text for a in answers], [a.expected for a in answers])
        except Exception as error:  # a seam: code of plugins
            where = own_line(error, getattr(metric, "__module__", ""))
            raise PluginError(f"metric {name} raised {first_line(error)}{where}") from error
        found[name] = _number(name, value)
    return found


def _number(name: str, value: object) -> float:
    """Raises PluginError where a metric gave none."""
    try:
        if isinstance(value, SupportsFloat):
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # an array or a tensor of several
        pass
    raise PluginError(f"metric {name} gave {type(value).__name__}, expected a number")
