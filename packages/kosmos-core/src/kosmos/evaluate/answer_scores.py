"""Scores of answers that were written, by metrics of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import SupportsFloat

from kosmos.config import ComponentConfig
from kosmos.data.foreign import first_line
from kosmos.errors import ConfigError, PluginError, own_line
from kosmos.evaluate.answer import Generated
from kosmos.evaluate.meters import standard_error
from kosmos.evaluate.metrics import TextMetric
from kosmos.names import listed
from kosmos.plugins import Registry

SPREAD = "exact_match_standard_error"
FIGURES = frozenset(["documents", "cut", SPREAD, *"loss perplexity bits_per_byte step source lower_is_better".split()])
"""Names that no metric may have."""
_EXACT_MATCH = ComponentConfig(name="exact_match")


def text_metrics(
    registry: Registry, wanted: Sequence[ComponentConfig], named: Sequence[ComponentConfig] = ()
) -> dict[str, TextMetric]:
    """``exact_match``, the metrics of the run file, and those ``named``; by name.

    Args:
        named: of a command, no two of one name. One with options takes the place of the run file's of that name.

    Raises:
        ConfigError: an option is wrong, one is named twice, or has the name of a figure that stands beside them.
        PluginError: a metric is absent, or cannot be made.
    """
    names = [metric.name for metric in wanted]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"evaluate.metrics: {twice} stands there twice, and one of them would be lost; leave one out")
    places = {metric.name: (f"evaluate.metrics.{number}", metric) for number, metric in enumerate(wanted)}
    places |= {one.name: (f"--metric {one.name}", one) for one in named if one.options or one.name not in places}
    metrics: dict[str, TextMetric] = {}
    for name, (path, metric) in ({"exact_match": ("", _EXACT_MATCH)} | places).items():
        if name in FIGURES:
            raise ConfigError(f"{path}: {name} is what a figure beside the metrics is called; rename the metric")
        metrics[name] = registry.build("metric", name, options=metric.options, path=path)
    return metrics


def score_answers(answers: Sequence[Generated], metrics: Mapping[str, TextMetric]) -> dict[str, float]:
    """Each metric over the answers that are expected and those that were written; empty where there is none.

    Where any answer has several ``references``, a metric that has a method ``of_several`` gets them all, and another
    the expected texts alone.

    Args:
        metrics: by name, functions of the texts written and the texts expected that give a number, such as your own or
            ``registry.build("metric", "word_error_rate")``.

    Raises:
        ConfigError: ``answers`` or ``metrics`` are something else.
        PluginError: a metric raised something or gives no number; it is named.
    """
    if not isinstance(answers, Sequence) or not all(isinstance(answer, Generated) for answer in answers):
        raise ConfigError(f"answers: expected a list of Generated, as list(generate_answers(...)), got {answers!r:.60}")
    if not isinstance(metrics, Mapping) or not all(map(callable, metrics.values())):
        such = '{"bleu": registry.build("metric", "bleu")}'
        raise ConfigError(f"metrics: expected a mapping of names to functions, such as {such}, got {metrics!r:.60}")
    found: dict[str, float] = {}
    several = have_several(answers)
    for name, metric in metrics.items() if answers else ():
        of_several = _of_several(metric) if several else None
        texts, expected = [a.text for a in answers], [a.expected or "" for a in answers]
        with _seam(name, metric):
            if of_several is None:
                value: object = metric(texts, expected)
            else:
                value = of_several(texts, _all_right(answers))
        found[name] = _number(name, value)
    return found


@contextmanager
def _seam(name: str, metric: TextMetric) -> Iterator[None]:
    """Raises PluginError in the place of what code of a plugin raises."""
    try:
        yield
    except Exception as error:
        where = own_line(error, getattr(metric, "__module__", ""))
        raise PluginError(f"metric {name} raised {first_line(error)}{where}") from error


def _all_right(answers: Sequence[Generated]) -> list[list[str]]:
    return [list(a.references) or [a.expected or ""] for a in answers]


def parts_of_each(answers: Sequence[Generated], name: str, metric: TextMetric) -> list[tuple[float, float]] | None:
    """What each answer adds to both sides of the ratio of sums that a metric is; None of one that is none.

    Raises:
        PluginError: its method ``of_each`` raised something, or gives no two finite numbers for each answer.
    """
    of_each = getattr(metric, "of_each", None)
    if not callable(of_each):
        return None
    with _seam(name, metric):
        found = [(float(over), float(under)) for over, under in of_each([a.text for a in answers], _all_right(answers))]
    if len(found) != len(answers):
        raise PluginError(f"metric {name}: of_each gave {len(found):,} pairs for {len(answers):,} answers")
    if (bad := next((pair for pair in found if not all(map(math.isfinite, pair))), None)) is not None:
        raise PluginError(f"metric {name}: of_each gave {bad}, expected two finite numbers for each answer")
    return found


def scores_of_each(answers: Sequence[Generated], metrics: Mapping[str, TextMetric]) -> list[dict[str, float]]:
    """What each answer has in the metrics that are a ratio of sums over the answers, by itself; a metric that fails,
    and an answer that adds nothing to the lower sum, have none."""
    found: list[dict[str, float]] = [{} for _ in answers]
    for name, metric in metrics.items() if answers else ():
        try:
            parts = parts_of_each(answers, name, metric) or []
        except PluginError:  # the figure of all answers is what is told of
            continue
        for scores, (over, under) in zip(found, parts, strict=False):
            if under:
                scores[name] = over / under
    return found


def without_several(answers: Sequence[Generated], metrics: Mapping[str, TextMetric]) -> list[str]:
    """Names of the metrics that get one of several right answers alone; none where no answer has several."""
    return [name for name, metric in metrics.items() if _of_several(metric) is None] if have_several(answers) else []


def have_several(answers: Sequence[Generated]) -> bool:
    """Whether any of them has several right answers."""
    return any(answer.references for answer in answers)


def _of_several(metric: TextMetric) -> Callable[[list[str], list[list[str]]], object] | None:
    found = getattr(metric, "of_several", None)
    return found if callable(found) else None


def _number(name: str, value: object) -> float:
    """Raises PluginError where a metric gave none; a truth value is a figure of one answer and of no more."""
    is_bool = isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")  # of numpy and PyTorch, too
    try:
        if isinstance(value, SupportsFloat) and not is_bool:
            return float(value)
    except (TypeError, ValueError, RuntimeError):  # an array or a tensor of several
        pass
    raise PluginError(f"metric {name} gave {'bool' if is_bool else type(value).__name__}, expected a number")


def figures_of(
    answers: Sequence[Generated],
    metrics: Mapping[str, TextMetric],
    on_failure: Callable[[PluginError], object] | None = None,
    *,
    finite: bool = False,
) -> dict[str, float]:
    """How many answers there are, how many of them ``max_new_tokens`` cut off, and each metric of them; of
    ``exact_match`` its standard error, too.

    Args:
        on_failure: told of a metric that fails, which is then left out; None raises it.
        finite: a metric that gives what is no finite number fails, too.
    """
    found: dict[str, float] = {"documents": len(answers), "cut": sum(a.ended == "max_new_tokens" for a in answers)}
    for name, metric in metrics.items():
        try:
            value = score_answers(answers, {name: metric})
            if finite and not all(map(math.isfinite, value.values())):
                raise PluginError(f"metric {name} gave {value[name]}")
            found |= value
        except PluginError as error:
            if on_failure is None:
                raise
            on_failure(error)
    spread = standard_error(found.get("exact_match"), len(answers))
    return found if spread is None else {**found, SPREAD: spread}


def no_numbers(source: str, figures: Mapping[str, float | None]) -> list[str]:
    """What a person is told of metrics that gave NaN for a source, a line each."""
    bad = [name for name, value in figures.items() if value is not None and math.isnan(value)]
    return [f"{source}: metric {name} gave nan, which is no figure to compare by" for name in bad]


def only_expected(metrics: Sequence[str]) -> str:
    """What a person is told of ``without_several``, of which there are some."""
    get = f"metrics {listed(metrics)} get" if len(metrics) > 1 else f"metric {listed(metrics)} gets"
    return f"{get} the expected answer alone, where several are right (it takes a method of_several)"
