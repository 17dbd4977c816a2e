"""How fast sounds become tokens that a model writes: Kosmos's feeder against bare loops of the same codec.

    python benchmarks/codec.py           # some minutes

The codec is EnCodec in the shape of its published model of 24 kHz, with random weights (what its codes mean takes no
time), and eight codebooks; the sounds are spoken digits. Limits: as many bare loops as there are cores, each in a
process of its own, that encode their share of the sounds and keep nothing; where the codes are kept already, loops that
read each from a ``.npy`` of its own, as somebody has it who encoded all data beforehand. Kosmos has its sources plan,
pack and hand rows to the trainer: in a first pass, where nothing is kept, with all kept, and with rows that hold the
codes themselves (``{"codes": [...]}``). The first pass ends before a sound comes again. Medians of interleaved rounds,
of rates and of what they are of the limit in the same round.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from workload import DATA

from kosmos import make_run
from kosmos.compose import Composition, compose, make_feed
from kosmos.data.document import Media
from kosmos.data.feeder import open_feeder
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources

CORES = os.cpu_count() or 1
BOOKS = 8
WAIT_S = 120.0
SPOKEN = DATA / "audio" / "fsdd"
SOUNDS = 1200
PASSES = 10
"""Over all sounds, where they take no time."""
FIRST = 4
"""Rows of each lane that come before the clock runs: some are ready before anybody asks."""
ENCODED, READ = "bare loops that encode", "bare loops that read codes"
SIDES = {
    ENCODED: ENCODED, "Kosmos, nothing kept": ENCODED, "Kosmos, all kept": READ, "Kosmos, rows of codes": READ,
    READ: READ,
}  # fmt: skip
"""Each with its limit."""


def encodec(folder: Path) -> Path:
    """A folder with a model of random weights, in EnCodec's own shape."""
    from transformers import EncodecConfig, EncodecModel

    torch.manual_seed(0)
    EncodecModel(EncodecConfig()).save_pretrained(folder)
    return folder


def composed(weights: Path, rows: Path) -> tuple[Composition, list[Any]]:
    settings = {
        "modalities": {"audio": {"codec": {"name": "neural-audio", "weights": str(weights), "codebooks": BOOKS}}},
        "streams": {"audio": {"encoder": {"name": "logmel", "layers": 1}}},
        "data": {
            "sources": [{"path": str(rows), "root": str(SPOKEN), "template": "{text} → [audio]"}],
            "tokens_per_pack": 4096,
            "lanes": CORES,
            "look_ahead": 16,  # sounds that are encoded before the row that they are in is due
            "held_out": 0,
        },
    }
    config, registry = make_run(settings), load_plugins()
    return compose(config, registry), list(open_sources(config, registry, "train"))


def loops(act: Callable[[Path], Any], files: Sequence[Path]) -> float:
    """Files a second of one loop a core; the clock runs while all of them do."""
    context = multiprocessing.get_context("fork")
    gate, seconds = context.Barrier(CORES + 1), context.Queue()

    def loop(mine: Sequence[Path]) -> None:
        torch.set_num_threads(1)
        act(files[0])  # what is imported late
        gate.wait(WAIT_S)
        begin = perf_counter()
        for file in mine:
            act(file)
        seconds.put(perf_counter() - begin)

    every = [context.Process(target=loop, args=(files[i::CORES],)) for i in range(CORES)]
    for process in every:
        process.start()
    gate.wait(WAIT_S)
    slowest: float = max(seconds.get() for _ in every)
    for process in every:
        process.join()
    return len(files) / slowest


def fed(parts: Composition, sources: Sequence[Any], count: int) -> float:
    """Sounds a second that the feeder hands over, after its first rows."""
    feeder = open_feeder(make_feed(parts, sources), range(CORES), workers=CORES)
    try:
        for _ in range(FIRST):
            feeder.next_step()
        begin, taken = perf_counter(), 0
        while taken < count:
            taken += sum(len(row.arrays.documents) for row in feeder.next_step())
        return taken / (perf_counter() - begin)
    finally:
        feeder.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        show(measured(Path(folder), rounds))


def measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Sounds a second of every side in every round. ``folder`` is empty."""
    sounds = sorted(SPOKEN.glob("*/*.flac"))[:SOUNDS]
    weights = encodec(folder / "encodec")
    rows = rows_of(
        folder / "rows.jsonl", [{"text": sound.stem[0], "audio": str(sound.relative_to(SPOKEN))} for sound in sounds]
    )
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    for number in range(rounds):
        os.environ["KOSMOS_CACHE"] = str(folder / f"cache-{number}")
        parts, sources = composed(weights, rows)
        writer = parts.planner.routes["audio"].writer
        assert writer is not None
        codec = writer.codec
        rates[ENCODED].append(loops(partial(encoded, codec), sounds[::2]))
        rates["Kosmos, nothing kept"].append(fed(parts, sources, 2 * len(sounds) // 3))
        fed(parts, sources, len(sounds))  # the rest is kept
        rates["Kosmos, all kept"].append(fed(parts, sources, PASSES * len(sounds)))
        if not number:
            files, held = stored(codec, sounds, folder)
        rates[READ].append(loops(np.load, files))
        rates["Kosmos, rows of codes"].append(fed(*composed(weights, held), PASSES * len(sounds)))
    return rates


def encoded(codec: Any, sound: Path) -> Any:
    return codec.encode(Media("audio", sound))


def rows_of(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def stored(codec: Any, sounds: Sequence[Path], folder: Path) -> tuple[list[Path], Path]:
    """The codes of each sound as a file of its own, and rows that hold them."""
    files, rows = [], []
    for number, sound in enumerate(sounds):
        codes = encoded(codec, sound)
        files.append(folder / f"{number}.npy")
        np.save(files[-1], codes)
        rows.append({"text": sound.stem[0], "audio": {"codes": codes.tolist()}})
    return files, rows_of(folder / "codes.jsonl", rows)


def show(rates: dict[str, list[float]]) -> None:
    print(f"{CORES} cores\n| side | sounds/s | of the limit |\n|---|---|---|")
    for name, limit in SIDES.items():
        share = median(rate / most for rate, most in zip(rates[name], rates[limit], strict=True))
        print(f"| {name} | {median(rates[name]):,.0f} | {100 * share:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
