"""Whether what a run is to be compared by is there: refused before its first step, not at its first scoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kosmos.config import RunConfig
from kosmos.data.asked import text_answer_of
from kosmos.data.document import Document, Source
from kosmos.data.foreign import calling
from kosmos.data.mixture import Mixture
from kosmos.data.plan import Planner
from kosmos.data.sources.given import SPLIT, is_noted
from kosmos.errors import ConfigError, SampleError
from kosmos.names import did_you_mean, listed
from kosmos.plugins import Registry
from kosmos.train.measure import EXACT_MATCH, LOSS, Measure

LOOKED_AT = 64
"""Documents of a source among which one with an answer is looked for."""


def written_metrics(config: RunConfig, registry: Registry) -> dict[str, bool]:
    """The metrics of answers that a run writes, and whether lower is better; none where it writes none.

    Raises PluginError where one is not installed.
    """
    named = (metric.name for metric in config.evaluate.metrics) if config.evaluate.generate else ()
    return {name: bool(getattr(registry.get("metric", name), "lower_is_better", False)) for name in named}


def check_compared(
    config: RunConfig, held_out: Sequence[Source], choices: Sequence[Source], planner: Planner, registry: Registry
) -> dict[str, bool]:
    """What ``written_metrics`` gives, once all that is to be scored and compared by is there.

    Args:
        choices: questions, which have an exact match and no loss.

    Raises:
        ConfigError: something is not there.
        PluginError: as ``written_metrics``.
    """
    check_scored(config, [*held_out, *choices])
    check_written(config, held_out)
    metrics = written_metrics(config, registry)
    check_best(config, held_out, planner, [source.name for source in choices], metrics)
    return metrics


def check_written(config: RunConfig, held_out: Sequence[Source]) -> None:
    """Raises ConfigError where answers are to be written and no held-out document has one."""
    if config.evaluate.generate and not any(_any(one, config, text_answer_of) for one in held_out):
        raise ConfigError(
            "evaluate.generate: no held-out document has an answer, such as the caption of a picture or the last turn "
            "of a chat; leave it out"
        )


def check_scored(config: RunConfig, held_out: Sequence[Source]) -> None:
    """Raises ConfigError where something waits for scores and there is nothing to score."""
    waits = {
        "evaluate.patience": config.evaluate.patience,
        "checkpoint.keep_best": config.checkpoint.keep_best,
        "evaluate.best": config.evaluate.best is not None,
    }
    if not held_out and (field := next((name for name, value in waits.items() if value), None)):
        given = any(is_noted(entry.path) for entry in config.data.sources)
        what = f"give held_out beside sources ({SPLIT})" if given else "raise data.held_out"
        raise ConfigError(f"{field}: nothing is held out to go by; {what} or leave it out")


def check_best(
    config: RunConfig,
    held_out: Sequence[Source],
    planner: Planner,
    choices: Sequence[str] = (),
    metrics: Mapping[str, bool] | None = None,
) -> None:
    """Raises ConfigError where ``evaluate.best`` names what nothing that is scored has.

    Args:
        choices: names of questions, which have an exact match and no loss.
        metrics: of answers that are written.
    """
    stated = config.evaluate.best
    measure, names = Measure.of(stated, metrics or {}), [*(source.name for source in held_out), *choices]
    if measure.source in choices or (measure.source is None and not held_out):
        _check_best_of_choices(config, measure, choices)
        return
    if stated is None:
        return
    if measure.source not in (None, *names):
        raise ConfigError(f"evaluate.best: {_no_such(stated, measure, names, [*(metrics or {})])}")
    if measure.name == LOSS:
        return
    asked = [source for source in held_out if measure.source in (None, source.name)]
    if not any(_is_answered(source, planner, config) for source in asked):
        of, other = (f" of {measure.source}", f"{measure.source}.{LOSS}") if measure.source else ("", LOSS)
        raise ConfigError(
            f"evaluate.best: no held-out document{of} has an answer that is whole in a row, so that there is no "
            f"{measure.name}; take {other}"
        )


def _no_such(stated: str, measure: Measure, names: Sequence[str], metrics: Sequence[str]) -> str:
    """What to say of a name that nothing that is scored has."""
    source, _, behind = stated.rpartition(".")
    if source in names:
        more = "" if metrics else " (evaluate.metrics, of answers that evaluate.generate writes)"
        figures = [LOSS, EXACT_MATCH, *metrics]
        near = did_you_mean(behind, figures)
        return f"{source} has no {behind!r}; {f'{near} ' if near else ''}there are {listed(figures)}{more}"
    figures = [f".{figure}" for figure in (LOSS, EXACT_MATCH, *metrics)]
    near = did_you_mean(stated, [LOSS, EXACT_MATCH, *(f"{name}{part}" for name in names for part in ("", *figures))])
    if stated in metrics and names:
        near = f"did you mean {names[0]}.{stated}?"
    return (
        f"no held-out source is called {measure.source!r}; {f'{near} ' if near else ''}there are {listed(names)}: give "
        f"NAME, {listed([f'NAME{figure}' for figure in figures[:-1]])} or NAME{figures[-1]} of one of them"
    )


def _check_best_of_choices(config: RunConfig, measure: Measure, choices: Sequence[str]) -> None:
    """Raises ConfigError where scorings of questions alone are to be compared by what they have no figure of."""
    waits = config.evaluate.best or config.evaluate.patience or config.checkpoint.keep_best
    if waits and (measure.source is None or measure.name != EXACT_MATCH):
        what = "nothing is held out" if measure.source is None else "questions have no " + measure.name
        figures = listed(f"{name}.{EXACT_MATCH}" for name in choices)
        raise ConfigError(f"evaluate.best: {what}; the figures of evaluate.choices are {figures}")


def _is_answered(source: Source, planner: Planner, config: RunConfig) -> bool:
    """Whether one of the first documents that are scored has an answer that is whole in a row."""
    return _any(source, config, lambda document: any(plan.answer_start is not None for plan in planner.plan(document)))


def _any(source: Source, config: RunConfig, has: Callable[[Document], object]) -> bool:
    """Whether one of the first documents that are scored has something, or none can be read, of which scoring tells."""
    mixture = Mixture.read_once((source,), config.evaluate.max_documents, even=config.evaluate.is_even)
    unread = 0
    for draw in range(looked := min(mixture.limit(0), LOOKED_AT)):
        try:
            with calling(source, "document"):
                document = source.document(mixture.row(0, draw))
            if has(document):
                return True
        except SampleError:
            unread += 1
    return unread == looked
