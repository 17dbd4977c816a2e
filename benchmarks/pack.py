"""How full rows are, how even the work of lanes is, and what filling a row costs.

    python benchmarks/pack.py

Limit: 100 % of the tokens of a row. Lengths are those of real documents (planned from headers, nothing decoded) and of
mixtures that are hard to pack. Peers, on the same lengths and look-ahead: padding a batch of 16, the same grouped by
length, first fit and best fit. Budgets of cells are a tenth more than a row of the mixture has. ``spread`` is the
largest over the mean number of encoder cells of four lanes' rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import mean
from time import perf_counter, process_time
from typing import Any

from workload import DATA, run_settings

from kosmos import make_run
from kosmos.compose import compose, make_feed
from kosmos.data.lane import Lane, Row
from kosmos.data.mixture import Cursor, Mixture
from kosmos.data.pack import choose
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources

ROW, LOOK_AHEAD, ROWS, BATCH = 2048, 256, 150, 16


@dataclass(frozen=True)
class Length:
    """As much of a plan as packing looks at."""

    tokens: int
    of: dict[str, int] = field(default_factory=dict)
    work: tuple[str, int] = field(init=False)

    def __post_init__(self) -> None:
        most = max(self.of, key=self.of.__getitem__, default="")
        object.__setattr__(self, "work", (most, self.of[most]) if self.cells(most) else ("", self.tokens))

    def __len__(self) -> int:
        return self.tokens

    def cells(self, stream: str) -> int:
        return self.of.get(stream, 0)

    @property
    def cells_by_stream(self) -> dict[str, int]:
        return self.of


def real() -> list[Length]:
    """Documents of the training benchmark."""
    config = make_run(run_settings("all", "fp32", tokens_per_pack=ROW))
    registry = load_plugins()
    parts = compose(config, registry)
    names = tuple(parts.streams)
    found = []
    for source in open_sources(config, registry, "train"):
        for i in range(min(600, len(source))):
            for plan in parts.planner.plan(source.document(i)):
                found.append(Length(len(plan), {name: plan.cells(name) for name in names}))
    return found


def mixtures() -> Iterator[tuple[str, list[Length]]]:
    yield "real media and text", real()
    draw = random.Random(0)
    yield "log-normal", [Length(min(ROW, max(2, int(draw.lognormvariate(4.5, 1.2))))) for _ in range(4000)]
    yield "half rows and a bit", [Length(draw.choice((1030, 1100, 400, 90))) for _ in range(4000)]
    yield "all of one length, 100", [Length(100)] * 4000


def subset(pending: list[Length]) -> list[int]:
    return choose(pending, ROW, {})  # type: ignore[arg-type]


def within_budgets(lengths: list[Length]) -> Callable[[list[Length]], list[int]]:
    """The same where each stream has a budget of cells, a tenth more than a row of the mixture has of them."""
    names = {name for length in lengths for name in length.of}
    tokens = sum(map(len, lengths))
    mean_of = {name: ROW * sum(length.cells(name) for length in lengths) / tokens for name in names}
    most = {name: max(length.cells(name) for length in lengths) for name in names}
    budgets = {name: max(most[name], round(1.1 * mean_of[name])) for name in names}
    return lambda pending: choose(pending, ROW, budgets)  # type: ignore[arg-type]


def first_fit(pending: list[Length]) -> list[int]:
    return _fit(pending, range(len(pending)))


def best_fit(pending: list[Length]) -> list[int]:
    return _fit(pending, [0, *sorted(range(1, len(pending)), key=lambda i: -len(pending[i]))])


def _fit(pending: list[Length], order: Any) -> list[int]:
    taken, room = [], ROW
    for i in order:
        if len(pending[i]) <= room:
            taken.append(i)
            room -= len(pending[i])
    return taken


def rows(lengths: list[Length], fill: Callable[[list[Length]], list[int]]) -> Iterator[tuple[list[Length], float]]:
    """Rows from an endless stream of the documents, and the seconds that filling each took."""
    draw = random.Random(1)
    stream = iter(lambda: draw.choice(lengths), None)
    pending: list[Length] = []
    for _ in range(ROWS):
        while len(pending) < LOOK_AHEAD:
            pending.append(next(stream))
        begin = perf_counter()
        taken = set(fill(pending))
        seconds = perf_counter() - begin
        yield [pending[i] for i in taken], seconds
        pending = [p for i, p in enumerate(pending) if i not in taken]


def padded(lengths: list[Length], *, grouped: bool) -> float:
    """Share of padding where batches are padded to their longest."""
    draw = random.Random(1)
    order = [len(draw.choice(lengths)) for _ in range(50 * BATCH)]
    order = sorted(order) if grouped else order
    batches = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
    return 1 - sum(order) / sum(max(batch) * len(batch) for batch in batches)


def spread(made: list[list[Length]]) -> float:
    steps = [made[i : i + 4] for i in range(0, len(made) - 3, 4)]
    totals = [[sum(sum(d.of.values()) for d in row) for row in step] for step in steps]
    return mean(max(step) / (sum(step) / 4) for step in totals if sum(step))


def spread_by_stream(made: list[list[Length]]) -> str:
    """The same for each stream by itself, largest first."""
    names = {name for row in made for document in row for name in document.of}
    of = {name: spread([[Length(0, {name: d.cells(name)}) for d in row] for row in made]) for name in names}
    return ", ".join(f"{name} {of[name]:.2f}" for name in sorted(of, key=of.__getitem__, reverse=True))


def lanes() -> Iterator[str]:
    """Whole lanes with the default look-ahead on pieces of real text of 24 characters, in rows of any length."""
    registry = load_plugins()
    text = {"path": str(DATA / "text" / "tinyshakespeare.txt"), "options": {"chunk_chars": 24}}
    for tokens in (512, 2_048, 8_192, 32_768):
        config = make_run({"data": {"sources": [text], "tokens_per_pack": tokens}})
        lane = Lane(make_feed(compose(config, registry), open_sources(config, registry, "train")), 0)
        begin, turns = perf_counter(), [lane.turn() for _ in range(30)]
        cost = 1000 * (perf_counter() - begin) / len(turns)
        made = [turn.arrays for turn in turns if isinstance(turn, Row)]
        missing = 1 - sum(len(row.token_ids) for row in made) / (tokens * len(turns))
        held = mean(len(row.documents) for row in made)
        yield f"| {tokens:,} | {held:,.0f} | {100 * missing:.3f} % | {cost:.1f} |"


def sizes() -> Iterator[str]:
    """A choice among log-normal lengths, six in ten with cells of one of the streams, each of which has a budget."""
    for streams in (0, 12):
        for tokens in (8_192, 32_768, 131_072):
            for look_ahead in (128, 1_000, 10_000):
                draw = random.Random(0)
                waiting: list[Length] = []
                while len(waiting) < look_ahead or sum(map(len, waiting)) < 2 * tokens:
                    length = min(tokens, max(2, int(draw.lognormvariate(5.5, 1.2))))
                    stream = f"{draw.randrange(streams)}" if streams and draw.random() < 0.6 else ""
                    waiting.append(Length(length, {stream: 2 * length} if stream else {}))
                budgets = {f"{i}": 1.56 * tokens / streams + 4_000 for i in range(streams)}
                cost = 1000 * least_s(lambda: choose(waiting, tokens, budgets), 10)  # type: ignore[arg-type]  # noqa: B023
                yield f"| {streams} | {tokens:,} | {look_ahead:,} ({len(waiting):,}) | {cost:.2f} |"


def picks() -> Iterator[str]:
    """What taking one document's source costs."""
    for number in (1, 4, 200):
        sources = tuple(Length(1_000) for _ in range(number))
        cursor = Cursor(Mixture(sources, (1.0,) * number, False, 0), 0)  # type: ignore[arg-type]
        draw = random.Random(0)

        def take(cursor: Cursor = cursor, draw: random.Random = draw) -> None:
            for _ in range(1_000):
                source = cursor.pick()
                assert source is not None
                cursor.count(source, draw.randrange(2, 600))

        yield f"| {number} | {1000 * least_s(take, 5):.1f} |"


def least_s(act: Callable[[], Any], times: int) -> float:
    def once() -> float:
        begin = process_time()
        act()
        return process_time() - begin

    return min(once() for _ in range(times))


def main() -> None:
    print("| documents | method | padding | ms a row | spread of cells (by stream) |")
    print("|---|---|---|---|---|")
    methods = {"Kosmos, subset sum": subset, "first fit": first_fit, "best fit": best_fit}
    for name, lengths in mixtures():
        media = any(d.of for d in lengths)
        more = {"Kosmos, budgets of cells": within_budgets(lengths)} if media else {}
        for method, fill in {**methods, **more}.items():
            made = list(rows(lengths, fill))
            padding = 1 - sum(len(d) for row, _ in made for d in row) / (ROW * len(made))
            cost = 1000 * mean(seconds for _, seconds in made)
            even = "-"
            if media:
                even = f"{spread([row for row, _ in made]):.2f} ({spread_by_stream([row for row, _ in made])})"
            print(f"| {name} | {method} | {100 * padding:.3f} % | {cost:.2f} | {even} |")
        for method, grouped in (("padded batch of 16", False), ("the same, grouped by length", True)):
            print(f"| {name} | {method} | {100 * padded(lengths, grouped=grouped):.1f} % | - | - |")
    print("\n| tokens of a row | documents of it | missing | ms a row, drawn and planned |")
    print("|---|---|---|---|")
    for line in lanes():
        print(line)
    print("\n| streams with budgets | tokens of a row | look-ahead (documents that wait) | ms a choice, least of 10 |")
    print("|---|---|---|---|")
    for line in sizes():
        print(line)
    print("\n| sources | microseconds a document |")
    print("|---|---|")
    for line in picks():
        print(line)


if __name__ == "__main__":
    main()
