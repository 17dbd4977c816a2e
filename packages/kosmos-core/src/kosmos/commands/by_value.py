"""``--by COLUMN``: figures of a source told apart by the values of a column of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import refuse_empty
from kosmos.commands.choices import share
from kosmos.errors import ConfigError, PluginError
from kosmos.names import listed
from kosmos.visible import in_a_line

if TYPE_CHECKING:
    from kosmos.data.document import Source
    from kosmos.evaluate.answer import Generated
    from kosmos.evaluate.by_value import Column
    from kosmos.evaluate.choices import Chosen
    from kosmos.evaluate.metrics import TextMetric

By = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Tell the figures of each source apart by the values of this column of its rows, such as speaker; "
        "expected is the right answer.",
    ),
]
SHOWN = 50
"""Values of which figures are printed, the most frequent ones."""
TOLD = 5
"""Different answers that are printed of a class, the most frequent ones."""
WIDE = 40
"""Characters of a value that are printed."""
Figures = dict[str, dict[str, Any]]
"""By value."""
Warn = Callable[[str], None]


class ByValue:
    """What ``--by`` asks for, and what came of it.

    Args:
        column: None where it was not said.
    """

    def __init__(self, column: str | None, warn: Warn) -> None:
        refuse_empty("--by", column)
        self._warn = warn
        self.column: Column | None = None
        if column is not None:
            from kosmos.evaluate.by_value import Column

            self.column = Column(column)
        self.found: dict[str, dict[str, Figures]] = {}
        """By what was scored, and source."""

    def settings(self) -> dict[str, Any]:
        """What lines of answers depend on, as plain values."""
        return {} if self.column is None else {"by": self.column.name}

    def check(self, sources: Sequence[Source], *, even: bool = False) -> None:
        """Warn of each source that has no such column.

        Args:
            sources: all that is scored.
            even: how its documents are chosen, as of ``spread``.

        Raises:
            ConfigError: none of them has it.
        """
        if self.column is None:
            return
        self.column.even = even
        lacks = [why for source in sources if (why := self.column.lack(source)) is not None]
        if lacks and len(lacks) == len(sources):
            raise ConfigError(f"--by: {'; '.join(lacks)}")
        for why in lacks:
            self._warn(f"--by: {why}; its figures are not told apart")

    def add_documents(self, scores: Mapping[str, Mapping[str, Any]]) -> None:
        """Losses and right answers of documents: ``Scores.by_value`` as plain values."""
        if self.column is not None:
            self.found["scored"] = {source: _ranked(by_value) for source, by_value in scores.items()}

    def add_questions(self, questions: Sequence[Chosen]) -> None:
        """Of questions that offer several answers."""
        if self.column is None:
            return
        from kosmos.evaluate.by_value import grouped
        from kosmos.evaluate.choices import ChoiceScore

        by_source: dict[str, list[Chosen]] = {}
        for question in questions:
            by_source.setdefault(question.source.name, []).append(question)
        kept = {}
        for name, asked in by_source.items():
            if self.column.lack(asked[0].source.source) is not None:
                continue
            groups = grouped(asked, self.column.of_questions(asked))
            kept[name] = {value: asdict(ChoiceScore.of(group)) for value, group in groups.items()}
        self.found["choices"] = kept

    def add_answers(
        self, source: Source, answers: Sequence[Generated], metrics: Mapping[str, TextMetric], max_documents: int
    ) -> None:
        """Of answers that were written for the documents of a source."""
        if self.column is None or not answers or self.column.lack(source) is not None:
            return
        values = self.column.of_answers(source, answers, max_documents)
        self.found.setdefault("generated", {})[source.name] = figures_by_value(answers, values, metrics, self._warn)

    def in_lines(self, rows: Sequence[dict[str, Any]], values: Sequence[str] | None) -> list[dict[str, Any]]:
        """Lines of answers with the value of each, so that ``kosmos score --by`` finds it; a key that they have
        stays as it is."""
        if self.column is None or values is None:
            return list(rows)
        key = self.column.name
        return [{**row, key: row.get(key, value)} for row, value in zip(rows, values, strict=True)]

    def of_answers(self, source: Source, answers: Sequence[Generated], max_documents: int) -> list[str] | None:
        """What each has there; None where it is no line's key."""
        from kosmos.evaluate.by_value import EXPECTED

        if self.column is None or self.column.name == EXPECTED or self.column.lack(source) is not None:
            return None
        return self.column.of_answers(source, answers, max_documents)

    def of_questions(self, questions: Sequence[Chosen]) -> list[str] | None:
        """As ``of_answers``, of what was chosen."""
        from kosmos.evaluate.by_value import EXPECTED

        if self.column is None or self.column.name == EXPECTED:
            return None
        return self.column.of_questions(questions)

    def as_row(self) -> dict[str, Any]:
        """As an object of JSON; empty where nothing was asked for."""
        if self.column is None:
            return {}
        return {"by_value": told(self.column.name, self.found)}


def told(column: str, found: Mapping[str, Mapping[str, Figures]]) -> dict[str, Any]:
    """Figures by value as an object of JSON, with the means over the values."""
    from kosmos.evaluate.by_value import mean_over_values

    means = {what: {n: mean_over_values(f) for n, f in by_source.items()} for what, by_source in found.items()}
    return {"column": column, **found, "means": means}


def figures_by_value(
    answers: Sequence[Generated], values: Sequence[str], metrics: Mapping[str, TextMetric], warn: Warn
) -> Figures:
    """Each metric of the answers of each value, without those that give no finite number for it, and those that need
    documents of other classes where it has those of one alone."""
    from kosmos.evaluate.answer_scores import figures_of
    from kosmos.evaluate.by_value import grouped
    from kosmos.evaluate.class_metrics import need_other_classes

    failed: list[tuple[str, PluginError]] = []
    needy: dict[str, int] = {}
    found: Figures = {}
    for value, group in grouped(answers, values).items():
        errors: list[PluginError] = []
        without = need_other_classes(group, metrics)
        needy |= {name: needy.get(name, 0) + 1 for name in without}
        told_of = {name: metric for name, metric in metrics.items() if name not in without}
        found[value] = figures_of(group, told_of, errors.append, finite=True)
        failed += [(value, error) for error in errors]
    if needy:
        warn(
            f"--by: left out of {max(needy.values()):,} of {len(found):,} values: {listed(needy)}, which takes "
            "documents that expect other classes, too; the table of classes has the F1 of each"
        )
    if failed:
        value, error = failed[0]
        more = f" (and {len(failed) - 1:,} more)" if len(failed) > 1 else ""
        warn(f"--by: of {_short(value)}: {error}; that figure is left out{more}")
    return found


def _ranked(by_value: Mapping[str, dict[str, Any]]) -> Figures:
    from kosmos.evaluate.by_value import ranked

    return {value: by_value[value] for value in ranked({value: one["documents"] for value, one in by_value.items()})}


def value_lines(by_value: Mapping[str, Any], what: str) -> Iterator[str]:
    """A table for each source, as plain lines.

    Args:
        by_value: what ``told`` gave.
        what: of it: ``scored``, ``choices`` or ``generated``.
    """
    for source, found in by_value.get(what, {}).items():
        heads = [name for name in _columns(found) if not all(_cell(one, name) == "-" for one in found.values())]
        rows = [(_short(value), *(_cell(one, name) for name in heads)) for value, one in list(found.items())[:SHOWN]]
        if rest := list(found.values())[SHOWN:]:
            documents = sum(one["documents"] for one in rest)
            rows.append((f"and {len(rest):,} more values (--json has all)", f"{documents:,}", *[""] * (len(heads) - 1)))
        if means := by_value["means"][what][source]:
            cells = (f"{100 * means[name]:.2f} %" if name in means else "" for name in heads)
            rows.append(("mean over values", *cells))
        yield from aligned((f"{what}, {source} by {by_value['column']}", *(_HEADS.get(n, n) for n in heads)), rows)


_HEADS = {
    "bits_per_byte": "bits/byte",
    "exact_match": "exact match",
    "accuracy_by_length": "by length",
}
_HIDDEN = ("torn", "pieces")


def _columns(found: Figures) -> list[str]:
    """Names of the figures that stand in the table."""
    names = dict.fromkeys(name for figures in found.values() for name in figures)
    return [name for name in names if name not in _HIDDEN and not name.endswith("_standard_error")]


def _cell(figures: Mapping[str, Any], name: str) -> str:
    value = figures.get(name)
    if value is None or value != value:
        return "-"
    if f"{name}_standard_error" in figures:
        return share(figures, name)
    if name == "chance":
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if name in ("documents", "answers", "cut") else f"{value:.4g}"


def _short(value: str) -> str:
    line = in_a_line(value)
    return line if len(line) <= WIDE else f"{line[: WIDE - 2]}.."


def class_lines(by_class: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """A table for each source whose answers are classes, as plain lines: what was answered is the row of each class in
    the table of confusion."""
    for source, found in by_class.items():
        rows = []
        for name, figures in found.items():
            shares = (f"{100 * figures[what]:.2f} %" for what in ("precision", "recall", "f1"))
            answered = ", ".join(
                f"{_short(said)} {count:,}" for said, count in list(figures["answered"].items())[:TOLD]
            )
            rest = len(figures["answered"]) - TOLD
            more = f", and {rest:,} more" if rest > 0 else ""
            rows.append((_short(name), f"{figures['documents']:,}", *shares, answered + more))
        heads = (f"classes, {_short(source)}", "documents", "precision", "recall", "F1", "answered")
        yield from aligned(heads, rows, last_left=True)


def aligned(heads: Sequence[str], rows: Sequence[Sequence[str]], *, last_left: bool = False) -> Iterator[str]:
    """Lines of cells that are on the right of their columns but for the first, and with ``last_left`` the last."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    for row, indent in ((heads, ""), *((row, "  ") for row in rows)):
        cells = [f"{indent}{row[0]}".ljust(widths[0] + 2)]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        if last_left:
            cells[-1] = row[-1]
        yield "  ".join(cells).rstrip()
