"""Scores of held-out documents as rows of ``held_out.jsonl`` and as lines for a person."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kosmos.evaluate.score import Score, Scores
from kosmos.train.measure import COUNT, CUT, ERRORS, EXACT_MATCH, HOW, LOWER


def row_of(
    step: int,
    scores: Scores,
    questions: Sequence[str] = (),
    lower: Sequence[str] = (),
    written: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Scores as a row of ``held_out.jsonl``.

    Args:
        questions: sources that offer answers to choose from, which are not among all documents.
        lower: metrics of answers that are written, of which lower is better.
        written: how these are written, which compare where that is the same.
    """
    parts = {"overall": asdict(scores.overall)}
    by = {kind: {n: asdict(s) for n, s in getattr(scores, f"by_{kind}").items()} for kind in ("modality", "source")}
    unread = Counter(incident.source for incident in scores.incidents)
    generated = {name: dict(figures) for name, figures in scores.generated.items()}
    more: dict[str, Any] = {"unread": dict(unread), "questions": [*questions], "generated": generated}
    if generated:
        more |= {LOWER: [*lower], HOW: written}
    return {"step": step, "held_out": {**parts, **by, **{name: found for name, found in more.items() if found}}}


def how_written(row: Mapping[str, Any]) -> Any:
    """How answers of a scoring were written; None where none were."""
    return (row.get("held_out") or {}).get(HOW)


def scores_of(row: Mapping[str, Any]) -> Scores | None:
    """What ``row_of`` made a row of, without its incidents; None where the row is none of its own."""
    try:
        told = row["held_out"]
        by_modality, by_source = (
            {name: _score(part) for name, part in told[kind].items()} for kind in ("modality", "source")
        )
        generated = {name: _written(figures) for name, figures in told.get("generated", {}).items()}
        return Scores(_score(told["overall"]), by_modality, by_source, (), generated)
    except (KeyError, TypeError, AttributeError):
        return None


def _written(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Without what was no finite number, for which JSON has null."""
    return {name: value for name, value in figures.items() if value is not None}


def _score(part: Mapping[str, Any]) -> Score:
    loss, perplexity = (math.nan if part[key] is None else part[key] for key in ("loss", "perplexity"))  # JSON: null
    return Score(
        part["documents"],
        loss,
        perplexity,
        part["exact_match"],
        part.get("answers", 0),
        part.get("torn", 0),
        part.get("pieces", 0),
        part.get("bits_per_byte"),
    )


def line_of(step: int, scores: Scores, source: str | None = None) -> str:
    """One line: the loss and the share of right answers, of all documents and, where there are several, by modality.

    Args:
        source: told beside them.
    """
    parts = [f"{name} {_words(part)}" for name, part in scores.by_modality.items()]
    of_all = _words(scores.overall) + (f" ({'; '.join(parts)})" if len(parts) > 1 else "")
    asked = (name for name, score in scores.by_source.items() if is_asked(score) or name == source)
    own = [f"of {name} {_words(scores.by_source[name])}" for name in asked]
    written = [f"written for {n} {_figures(figures)}" for n, figures in scores.generated.items()]
    return f"step {step}  held out: {'; '.join([*([of_all] if scores.overall.documents else []), *own, *written])}"


def is_asked(score: Score) -> bool:
    """Whether it is of questions (``evaluate.choices``), which have no loss."""
    return math.isnan(score.loss) and score.answers == score.documents and not score.pieces


def _words(score: Score) -> str:
    loss = [] if is_asked(score) else [f"loss {score.loss:.4f}"]
    return ", ".join([*loss, *([] if score.exact_match is None else [f"{percent(score.exact_match)} right"])])


def closing_table(before: Scores | None, after: Scores) -> list[str]:
    """Scores by modality, before and after, as plain lines. Of another number of documents, before tells nothing.

    Texts that ask nothing have no accuracy: where no row has one, the perplexity stands in its place.
    """
    several = len(after.by_source) > 1
    parts = {
        **after.by_modality,
        **{f"source {name}": score for name, score in after.by_source.items() if several or is_asked(score)},
    }
    earlier = {**before.by_modality, **{f"source {n}": s for n, s in before.by_source.items()}} if before else {}
    others = {n: earlier[n].documents for n, s in parts.items() if n in earlier and earlier[n].compared != s.compared}
    pairs = {name: (None if name in others else earlier.get(name), score) for name, score in parts.items()}
    told = ", ".join(f"{count} of {name}" for name, count in others.items())
    why = [f"before, other documents were scored ({told}), which compare with none of these"] if told else []
    return [*_rows(pairs), *why, *_written_lines(before, after)]


def _rows(pairs: Mapping[str, tuple[Score | None, Score]]) -> Iterator[str]:
    """The table of scores before and after; what no row has a figure of has no columns."""
    columns = {"loss before": (12, 8, _loss), "accuracy before": (16, 8, _accuracy)}
    if all(_accuracy(score) == "-" for pair in pairs.values() for score in pair):
        columns["perplexity before"] = (18, 12, _perplexity)
    shown = {
        head: column for head, column in columns.items()
        if any(column[2](score) != "-" for pair in pairs.values() for score in pair)
    }  # fmt: skip
    yield f"{'held out':<20} {'documents':>9}" + "".join(f" {h:>{w}} {'after':>{a}}" for h, (w, a, _) in shown.items())
    for name, (before, after) in pairs.items():
        figures = (f" {told(before):>{wide}} {told(after):>{as_wide}}" for wide, as_wide, told in shown.values())
        yield f"{name:<20} {after.documents:>9}" + "".join(figures)


def _loss(score: Score | None) -> str:
    return "-" if score is None or is_asked(score) else f"{score.loss:.4f}"


def _perplexity(score: Score | None) -> str:
    return "-" if score is None or is_asked(score) else f"{score.perplexity:,.2f}"


def _accuracy(score: Score | None) -> str:
    return percent(score.exact_match if score else None)


def _written_lines(before: Scores | None, after: Scores) -> Iterator[str]:
    """Metrics of the answers that were written, before and after; before those of as many documents alone."""
    for name, figures in after.generated.items():
        earlier = before.generated.get(name, {}) if before else {}
        same = earlier.get(COUNT) == figures[COUNT]
        changes = [
            f"{metric} {_figure(metric, earlier[metric])} -> {_figure(metric, value)}"
            if same and metric in earlier
            else f"{metric} {_figure(metric, value)}"
            for metric, value in _shown(figures).items()
        ]
        yield f"written for {name}, {figures[COUNT]:,.0f} documents{_cut(figures)}: {', '.join(changes)}"


def _figures(figures: Mapping[str, float]) -> str:
    told = ", ".join(f"{metric} {_figure(metric, value)}" for metric, value in _shown(figures).items())
    return f"{told}{_cut(figures)}"


def _cut(figures: Mapping[str, float]) -> str:
    cut = figures.get(CUT)
    return f" ({cut:,.0f} of {figures[COUNT]:,.0f} cut off by max_new_tokens)" if cut else ""


def _shown(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in figures.items() if name not in (COUNT, CUT, *ERRORS)}


def _figure(metric: str, value: float) -> str:
    return percent(value) if metric == EXACT_MATCH else f"{value:.4g}"


def percent(share: float | None) -> str:
    """Such as ``91.2 %``; a dash for None."""
    return "-" if share is None else f"{100 * share:.1f} %"
