"""What a document of a large file costs beside decoding: text in parquet and JSONL, and tar files that workers share.

    python benchmarks/reading.py [--rounds 5]

Text: processor time a document of one lane, in random order, drawn, tokenized and packed. Limit: the same rows in the
order of the file, read at once and tokenized, nothing else. Peer: ``datasets``, map-style in a random order, tokenized:
what a ``DataLoader`` over it does before it collates. By turns, medians. The tokenizer is bytes for all.

Tar files: bytes that four workers of one lane read, over the bytes of the pictures that they handed on (``rchar`` of
Linux). 1 is the limit; where each worker read what it leaves to the others, it would be 4.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import composed, tar_of_pictures
from workload import text_lines

from kosmos import make_run
from kosmos.compose import compose, make_feed
from kosmos.data.feeder import open_feeder
from kosmos.data.lane import Lane, Row
from kosmos.data.tokenizer import Tokenizer
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources

ROWS, TAKEN = 40_000, 3_000
PICTURES, WORKERS = 600, 4


def write(folder: Path) -> dict[str, Path]:
    """Lines of WikiText-2, again and again, in each form."""
    lines = [line for line in text_lines().read_text().splitlines() if line.strip()]
    rows = [{"text": lines[number % len(lines)]} for number in range(ROWS)]
    table, found = pa.Table.from_pylist(rows), {}
    for group in (100, 1_000):
        path = folder / f"groups-of-{group}.parquet"
        pq.write_table(table, path, row_group_size=group)
        found[f"parquet, groups of {group:,}"] = path
    found["JSONL"] = folder / "lines.jsonl"
    found["JSONL"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def kosmos(path: Path) -> tuple[Iterator[int], Tokenizer]:
    """Documents of each row of a lane, as it makes them."""
    settings = {"data": {"sources": [str(path)], "tokens_per_pack": 4096, "held_out": 0}}
    config, registry = make_run(settings), load_plugins()
    parts = compose(config, registry)
    lane = Lane(make_feed(parts, list(open_sources(config, registry, "train"))), 0)

    def rows() -> Iterator[int]:
        while isinstance(row := lane.turn(), Row):
            yield len(row.arrays.documents)

    return rows(), parts.planner.tokenizer


def in_order(path: Path, tokenizer: Tokenizer) -> Iterator[int]:
    if path.suffix == ".parquet":
        for batch in pq.ParquetFile(path).iter_batches():
            for text in batch.column(0).to_pylist():
                tokenizer.encode(text)
                yield 1
    else:
        with path.open() as file:
            for line in file:
                tokenizer.encode(json.loads(line)["text"])
                yield 1


def datasets(path: Path, tokenizer: Tokenizer, cache: Path) -> Iterator[int]:
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    kind = path.suffix.removeprefix(".").replace("jsonl", "json")
    rows = load_dataset(kind, data_files=str(path), split="train", cache_dir=str(cache))
    for index in np.random.default_rng(0).permutation(len(rows)).tolist():
        tokenizer.encode(rows[index]["text"])
        yield 1


def microseconds(documents: Iterator[int]) -> float:
    """Of the processor, each; the first few are not timed."""
    next(documents)
    begin, taken = process_time(), 0
    while taken < TAKEN:
        taken += next(documents)
    return 1e6 * (process_time() - begin) / taken


def compare_texts(folder: Path, rounds: int) -> None:
    print("| text in | Kosmos, µs a document | in order, µs | datasets, µs | datasets takes |\n|---|---|---|---|---|")
    for name, path in write(folder).items():
        found: dict[str, list[float]] = {}
        own, tokenizer = kosmos(path)
        peers: dict[str, Callable[[], Iterator[int]]] = {
            "in order": lambda path=path, t=tokenizer: in_order(path, t),
            "datasets": lambda path=path, t=tokenizer: datasets(path, t, folder / "cache"),
        }
        for _ in range(rounds):
            found.setdefault("Kosmos", []).append(microseconds(own))
            for side, start in peers.items():
                found.setdefault(side, []).append(microseconds(start()))
        ours, order, theirs = (median(times) for times in found.values())
        print(f"| {name} | {ours:.0f} | {order:.0f} | {theirs:.0f} | {theirs / ours:.2f}x |", flush=True)


def compare_tar(folder: Path) -> None:
    parts, sources = composed(["image"], [tar_of_pictures(folder)])
    feeder = open_feeder(make_feed(parts, sources), range(1), workers=WORKERS)
    try:
        taken = 0
        while taken < PICTURES:
            taken += sum(len(row.arrays.documents) for row in feeder.next_step())
        read = sum(map(_read_bytes, _children()))
    finally:
        feeder.close()
    files = list(islice(folder.glob("*.tar"), 4))
    each = sum(file.stat().st_size for file in files) / sum(map(len, sources))
    print(f"\ntar, {WORKERS} workers of one lane: {read / 1e6:.0f} MB read for {taken} pictures of {each / 1e3:.0f} kB")
    print(f"that is {read / (taken * each):.2f} times their bytes, with rows that are ready and code that is loaded")


def _children() -> list[int]:
    pid = os.getpid()
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _read_bytes(pid: int) -> int:
    """Bytes that a process has read by calls of the system."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compare_texts(folder, given.rounds)
        (folder / "tar").mkdir()
        compare_tar(folder / "tar")


if __name__ == "__main__":
    main()
