"""How fast media reach the trainer: Kosmos's feeder against the same decoding in bare loops, and against DataLoader.

    python benchmarks/data.py            # all kinds; a few minutes

Limit: as many bare loops as there are cores, each in a process of its own, decoding its share of the same files with
the same functions and keeping nothing. ``of the limit`` is what is left after planning, packing and handing rows to the
trainer. Peers: the same loops with what a user would call, without any check (Pillow, soundfile and torchaudio, PyAV,
to pictures, log-mel frames and frames of the same sizes); torch's DataLoader with as many workers as cores over our
decoding, handing on fp32 tensors as image folders do; torchvision's ImageFolder in one, with its own decoding, where
pictures lie in folders by class; and webdataset over a tar of the same files (where it is installed). No file is
read twice: there are as many copies as it takes, so that Kosmos reads every header too, as in a first epoch. Medians of
interleaved rounds, of rates and of what they are of the limit in the same round.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import multiprocessing
import os
import random
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from data_files import FILMS, ROWS, copies, long_films, parquet_of_pictures, tar_of_pictures
from torch.utils.data import DataLoader, Dataset
from workload import DATA, resizing_at_speed

from kosmos import make_run
from kosmos.compose import Composition, compose, make_feed
from kosmos.data.decoding import decode_cells
from kosmos.data.feeder import open_feeder
from kosmos.data.plan import DocumentPlan
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources
from kosmos_vision.images import ImageProcessor

IN_PARQUET, IN_TAR, LONG, FLOWERS = "in parquet", "in tar", "long", "images/flowers"
KINDS = {
    "JPEG, 640 pixels": (["image"], ["images/coco"], 800, 2400),
    "JPEG, 640 pixels, in parquet": (["image"], [IN_PARQUET], ROWS, 2400),
    "JPEG, 640 pixels, in tar": (["image"], [IN_TAR], ROWS, 2400),
    "JPEG, 160 pixels": (["image"], ["images/flowers"], 800, 9600),
    "FLAC, half a second": (["audio"], ["audio/fsdd"], 800, 9600),
    "flowers, coco and fsdd": (["image", "audio"], ["images/flowers", "images/coco", "audio/fsdd"], 868, 9600),
    "FLAC, seconds": (["audio"], ["audio/speech/*.flac"], 400, 600),
    "MP3, seconds": (["audio"], ["audio/speech/*.mp3"], 400, 600),
    "FLAC, MP3, OGG": (["audio"], ["audio/speech", "audio/esc10"], 400, 1200),
    "MP4": (["video"], ["video"], 800, 1600),
    "MP4, two minutes": (["video"], [LONG], FILMS, 40),
}
"""Name to modalities, sources, how many files of each source at most (1,200 in the mixture), how many are decoded."""
WARM_S = 2.0
"""Seconds before the clock runs, in which rows are filled ahead, and what resizes pictures is compiled."""
WAIT_S = 60.0
"""For all loops to be ready; one that failed before would be waited for."""
CORES = os.cpu_count() or 1


def composed(modalities: Sequence[str], sources: Sequence[Path]) -> tuple[Composition, list[Any]]:
    streams = {
        "image": {"encoder": {"name": "timm", "model": "test_vit", "image_size": 160}},
        "audio": {"encoder": {"name": "logmel", "layers": 1}},
        "video": {},
    }
    settings = {
        "modalities": list(modalities),
        "streams": {name: streams[name] for name in modalities if streams[name]},
        "data": {
            "sources": [str(s) for s in sources],
            "tokens_per_pack": 4096,
            "lanes": CORES,
            "held_out": 0,
        },
    }
    config, registry = make_run(settings), load_plugins()
    parts = resizing_at_speed(compose(config, registry))
    return parts, list(open_sources(config, registry, "train"))


def warm_s(parts: Composition) -> float:
    """Seconds before the clock runs: only pictures need any."""
    return WARM_S if "image" in parts.processors else 0.0


def is_ready(processor: Any) -> bool:
    """Whether it is as fast as it becomes."""
    return not isinstance(processor, ImageProcessor) or processor.resampler.is_compiled or bool(processor.hints)


def plans_of(parts: Composition, sources: Sequence[Any], count: int) -> list[DocumentPlan]:
    """Of every document, in random order."""
    places = [(source, index) for source in sources for index in range(len(source))]
    random.Random(0).shuffle(places)
    return [plan for source, index in places[:count] for plan in parts.planner.plan(source.document(index))]


def decode(parts: Composition, plan: DocumentPlan) -> list[Any]:
    routes = parts.planner.routes
    return [decode_cells(medium, routes[medium.media.modality].processor) for medium in plan.media]


def bare(
    parts: Composition,
    sources: Sequence[Any],
    plans: list[DocumentPlan],
    act: Callable[[Composition, DocumentPlan], Any] = decode,
) -> float:
    """Files a second of one loop a core; the clock runs while all of them do."""
    context = multiprocessing.get_context("fork")
    gate, seconds = context.Barrier(CORES + 1), context.Queue()

    def loop(mine: list[DocumentPlan]) -> None:
        torch.set_num_threads(1)
        begin, some = perf_counter(), cycle(plans[:9])
        act(parts, next(some))  # what is imported late
        while perf_counter() - begin < warm_s(parts):
            act(parts, next(some))
        assert act is not decode or all(is_ready(processor) for processor in parts.processors.values())
        gate.wait(WAIT_S)
        begin = perf_counter()
        for plan in mine:
            act(parts, plan)
        seconds.put(perf_counter() - begin)

    loops = [context.Process(target=loop, args=(plans[i::CORES],)) for i in range(CORES)]
    for process in loops:
        process.start()
    gate.wait(WAIT_S)
    slowest = max(seconds.get() for _ in loops)
    for process in loops:
        process.join()
    return len(plans) / slowest


def libraries(parts: Composition, sources: Sequence[Any], plans: list[DocumentPlan]) -> float:
    return bare(parts, sources, plans, _by_libraries)


def _by_libraries(parts: Composition, plan: DocumentPlan) -> None:
    for medium in plan.media:
        source = medium.media.source
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        _LIBRARIES[medium.media.modality](parts.planner.routes[medium.media.modality].processor, file)


def _picture(processor: Any, file: Any) -> Any:
    from PIL import Image

    height, width = processor.size_px
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB").resize((width, height), Image.Resampling.BICUBIC))


def _sound(processor: Any, file: Any) -> Any:
    import soundfile  # type: ignore[import-untyped]
    from torchaudio.functional import resample  # type: ignore[import-untyped]

    samples, rate_hz = soundfile.read(file, dtype="float32", always_2d=True)
    wave = resample(torch.from_numpy(samples).mean(1), rate_hz, processor.input.sample_rate_hz)
    return _mel(processor.input)(wave).clamp(min=1e-10).log10()


@cache
def _mel(wanted: Any) -> Any:
    from torchaudio.transforms import MelSpectrogram  # type: ignore[import-untyped]

    return MelSpectrogram(
        wanted.sample_rate_hz, wanted.fft_size, hop_length=wanted.hop, n_mels=wanted.num_mels,
        mel_scale=wanted.mel_scale, norm="slaney" if wanted.mel_scale == "slaney" else None,
    )  # fmt: skip


def _film(processor: Any, file: Any) -> Any:
    import av

    height, width = processor.size_px
    with open(file, "rb") as opened, av.open(opened) as container:
        frames = list(container.decode(video=0))
    picked = np.linspace(0, len(frames) - 1, processor.clip.frames).round().astype(int)
    return np.stack([frames[i].to_ndarray(format="rgb24", width=width, height=height) for i in picked])


_LIBRARIES: dict[str, Callable[[Any, Any], Any]] = {"image": _picture, "audio": _sound, "video": _film}


def kosmos(parts: Composition, sources: Sequence[Any], plans: list[DocumentPlan]) -> float:
    """Files a second that the feeder hands over, after its first rows."""
    feeder = open_feeder(make_feed(parts, sources), range(CORES), workers=CORES)
    try:
        _pass_over(iter(feeder.next_step, None), 4, parts)
        begin, taken = perf_counter(), 0
        while taken < len(plans):
            taken += sum(len(row.arrays.documents) for row in feeder.next_step())
        return taken / (perf_counter() - begin)
    finally:
        feeder.close()


def _pass_over(batches: Iterator[Any], least: int, parts: Composition) -> None:
    """What is ready before anybody asks, and what comes before the clock runs."""
    begin = perf_counter()
    for number, _ in enumerate(batches, 1):
        if number >= least and perf_counter() - begin >= warm_s(parts):
            return
    raise AssertionError("nothing is left to be timed")


class Decoded(Dataset[list[torch.Tensor]]):
    def __init__(self, parts: Composition, plans: list[DocumentPlan]) -> None:
        self.parts, self.plans = parts, plans

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.from_numpy(cells).float() for cells in decode(self.parts, self.plans[index])]


def dataloader(parts: Composition, sources: Sequence[Any], plans: list[DocumentPlan]) -> float:
    size = min(16, len(plans) // 16)
    loader = DataLoader(Decoded(parts, plans), batch_size=size, num_workers=CORES, collate_fn=list, shuffle=True)
    batches = iter(loader)
    _pass_over(batches, 4 * CORES, parts)
    begin, taken = perf_counter(), 0
    for batch in batches:
        taken += len(batch)
    return taken / (perf_counter() - begin)


def image_folder(parts: Composition, sources: Sequence[Any], plans: list[DocumentPlan]) -> float:
    """torchvision's, over the folders of the flowers, as many times as it takes."""
    from torch.utils.data import ConcatDataset
    from torchvision import transforms  # type: ignore[import-untyped]
    from torchvision.datasets import ImageFolder  # type: ignore[import-untyped]

    steps = transforms.Compose([transforms.Resize((160, 160)), transforms.ToTensor()])
    folder = ImageFolder(str(DATA / "images" / "flowers"), steps)
    often: Dataset[Any] = ConcatDataset([folder] * -(-len(plans) // len(folder)))
    batches = iter(DataLoader(often, batch_size=16, num_workers=CORES, shuffle=True))
    _pass_over(batches, 4 * CORES, parts)
    begin, taken = perf_counter(), 0
    for pictures, _ in batches:
        taken += len(pictures)
    return taken / (perf_counter() - begin)


def webdataset(parts: Composition, sources: Sequence[Any], plans: list[DocumentPlan]) -> float:
    """The same files from a tar for each worker."""
    import webdataset as wds

    with tempfile.TemporaryDirectory() as folder:
        for shard in range(CORES):
            with tarfile.open(f"{folder}/{shard:03d}.tar", "w") as tar:
                for number, plan in list(enumerate(plans))[shard::CORES]:
                    source = plan.media[0].media.source
                    content = source if isinstance(source, bytes) else Path(str(source)).read_bytes()
                    entry = tarfile.TarInfo(f"{number:06d}.bin")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))

        def open_sample(sample: dict[str, Any]) -> list[torch.Tensor]:
            plan = plans[int(sample["__key__"])]
            return [torch.from_numpy(cells).float() for cells in decode(parts, plan)]

        urls = [f"{folder}/{shard:03d}.tar" for shard in range(CORES)]
        data = wds.WebDataset(urls, shardshuffle=False).map(open_sample)
        loader = iter(DataLoader(data, batch_size=min(16, len(plans) // 16), num_workers=CORES, collate_fn=list))
        _pass_over(loader, 4 * CORES, parts)
        begin, taken = perf_counter(), 0
        for batch in loader:
            taken += len(batch)
        return taken / (perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    arms: dict[str, Callable[..., float]] = {
        "bare loops": bare, "libraries": libraries, "Kosmos": kosmos, "DataLoader": dataloader,
    }  # fmt: skip
    if importlib.util.find_spec("webdataset"):
        arms["webdataset"] = webdataset
    else:
        print("webdataset is not installed: left out")
    print(f"{CORES} cores\n| files | side | files/s | of the limit |\n|---|---|---|---|")
    for kind in given.kind or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            compare(kind, Path(folder), arms, given.rounds)


def compare(kind: str, folder: Path, arms: dict[str, Callable[..., float]], rounds: int) -> None:
    """The rows of one kind. ``folder`` is empty."""
    modalities, names, most, count = KINDS[kind]
    made = {IN_PARQUET: parquet_of_pictures, IN_TAR: tar_of_pictures, LONG: long_films}
    places = [made[names[0]](folder)] if names[0] in made else copies(names, most, count, folder)
    parts, sources = composed(modalities, places)
    plans = plans_of(parts, sources, count)
    sides = dict(arms)
    if names == [FLOWERS]:
        sides["ImageFolder"] = image_folder
    if names == [IN_PARQUET]:
        sides.pop("webdataset", None)  # it reads files
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, arm in sides.items():
            rates[name].append(arm(parts, sources, plans))
    for name, found in rates.items():
        share = median(rate / limit for rate, limit in zip(found, rates["bare loops"], strict=True))
        print(f"| {kind} | {name} | {median(found):,.0f} | {100 * share:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
