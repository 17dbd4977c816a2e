"""How long a large data set takes to open: Kosmos, which looks at every row, beside what a peer does first.

    python benchmarks/opening.py [--rows 400000] [--rounds 3]

Files are written anew: JSONL of lines of text, JSONL of chats about pictures (LLaVA's form), these as one JSON list,
parquet of the lines, a text file, and a folder of files in class folders. Kosmos keeps what it found for the second
start. Limit, for JSONL: ``json.loads`` of each line, once. Peer: ``datasets.load_dataset``, which converts the rows to
Arrow the first time and finds them in its cache the second. Medians of rounds in turn; the files are in the page cache
for all.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
from workload import DATA

from kosmos import make_run
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_both

PICTURE = (DATA / "images" / "flowers" / "daisy").glob("*.jpg")


def write(folder: Path, rows: int) -> dict[str, Path]:
    """Each kind of data set, with ``rows`` rows of real words."""
    words = (DATA / "text" / "tinyshakespeare.txt").read_text().split()
    draw = random.Random(0)

    def text(most: int) -> str:
        begin = draw.randrange(len(words) - most)
        return " ".join(words[begin : begin + draw.randrange(most // 4, most)])

    (folder / "pictures").mkdir()
    (folder / "pictures" / "one.jpg").write_bytes(next(PICTURE).read_bytes())
    lines, chats = folder / "lines.jsonl", folder / "pictures" / "chats.jsonl"
    with lines.open("w") as file:
        file.writelines(json.dumps({"id": n, "text": text(60)}) + "\n" for n in range(rows))
    with chats.open("w") as file:
        for number in range(rows):
            turns = [{"from": "human", "value": f"<image>\n{text(20)}"}, {"from": "gpt", "value": text(40)}]
            file.write(json.dumps({"id": str(number), "image": "one.jpg", "conversations": turns}) + "\n")
    one_list = folder / "pictures" / "chats.json"
    one_list.write_text(json.dumps([json.loads(line) for line in chats.open()]))
    plain = folder / "plain.txt"
    with plain.open("w") as file:
        file.writelines(text(60) + "\n" for _ in range(rows))
    for name in "abcdefgh":
        (folder / "classes" / name).mkdir(parents=True)
        for number in range(rows // 80):
            (folder / "classes" / name / f"{number}.jpg").touch()
    table = folder / "lines.parquet"
    pq.write_table(pa.Table.from_pylist([json.loads(line) for line in lines.open()]), table, row_group_size=10_000)
    cells = folder / "lines.csv"
    with cells.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *((n, text(60)) for n in range(rows))])
    return {
        "JSONL, lines": lines, "CSV, lines": cells, "JSONL, chats": chats, "JSON list, chats": one_list,
        "parquet, lines": table, "text": plain, "class folders": folder / "classes",
    }  # fmt: skip


def kosmos(path: Path) -> None:
    config = make_run({"modalities": ["image"], "data": {"sources": [str(path)]}})
    train, held_out = open_both(config, load_plugins())
    assert train and held_out


def limit(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def datasets(cache: Path) -> Callable[[Path], None]:
    def load(path: Path) -> None:
        from datasets import disable_progress_bars, load_dataset

        disable_progress_bars()
        kind = path.suffix.removeprefix(".").replace("jsonl", "json")
        load_dataset(kind, data_files=str(path), split="train", cache_dir=str(cache))

    return load


def seconds(act: Callable[[Path], None], path: Path) -> float:
    begin = perf_counter()
    act(path)
    return perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print("| data | rows | side | s | µs a row |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for kind, path in write(Path(name), given.rows).items():
            count = sum(1 for _ in path.glob("*/*")) if path.is_dir() else given.rows
            found: dict[str, list[float]] = {}
            for number in range(given.rounds):
                cache = Path(name) / f"cache-{kind}-{number}"
                os.environ["KOSMOS_CACHE"] = str(cache)
                arms = {"Kosmos, first": kosmos, "Kosmos, again": kosmos}
                if path.suffix == ".jsonl":
                    arms["json.loads of each line"] = limit
                if path.suffix in (".jsonl", ".json", ".parquet", ".csv"):
                    load = datasets(cache)
                    arms |= {"datasets, first": load, "datasets, again": load}
                for side, act in arms.items():
                    found.setdefault(side, []).append(seconds(act, path))
            for side, times in found.items():
                took = median(times)
                print(f"| {kind} | {count:,} | {side} | {took:.2f} | {1e6 * took / count:.2f} |", flush=True)


if __name__ == "__main__":
    main()
