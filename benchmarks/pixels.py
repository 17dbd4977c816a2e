"""How near the pixels are to those of published processors, and how fast: ``exact`` against transformers' own.

    python benchmarks/pixels.py          # half a minute

One process, one core: a file is opened, decoded, brought to 336 x 336 pixels and handed on as bytes, by the processor
of pictures with and without ``exact``, and by CLIPImageProcessor (crop), SiglipImageProcessor (squash) and
LlavaImageProcessor (pad) after Pillow. Apart are both from the peer, in steps of 255: the largest of all pictures, and
the mean. Times are medians of interleaved rounds. The large pictures are those of COCO, enlarged and saved as JPEG.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import CLIPImageProcessor, LlavaImageProcessor, SiglipImageProcessor
from workload import DATA

from kosmos import Media
from kosmos_vision.images import ImageInput, ImageProcessor
from kosmos_vision.resampling import Resampler

SIDE, LARGE = 336, (4032, 3024)
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SQUARE = {"height": SIDE, "width": SIDE}
_PLAIN: dict[str, Any] = {"do_rescale": False, "do_normalize": False, "resample": 3}
PEERS: dict[str, Any] = {
    "crop": CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SQUARE, **_PLAIN),
    "squash": SiglipImageProcessor(size=SQUARE, **_PLAIN),
    "pad": LlavaImageProcessor(
        size={"shortest_edge": SIDE}, crop_size=SQUARE, do_pad=True, image_mean=list(MEAN), **_PLAIN
    ),
}
Taken = Callable[[Path], np.ndarray[Any, Any]]


def ours(resize: Any, *, exact: bool) -> Taken:
    made = ImageInput((SIDE, SIDE), (SIDE, SIDE), mean=MEAN, std=STD)
    processor = ImageProcessor(made, resize=resize, exact=exact)
    processor.resampler = Resampler(pays_s=0.0)
    picture = Media("image", np.zeros((64, 99, 3), np.uint8))
    while not (processor.resampler.is_compiled or processor.hints):
        processor.decode(picture, processor.plan(picture))

    def taken(file: Path) -> np.ndarray[Any, Any]:
        media = Media("image", file)
        return processor.decode(media, processor.plan(media))[0]

    return taken


def theirs(resize: str) -> Taken:
    def taken(file: Path) -> np.ndarray[Any, Any]:
        with Image.open(file) as picture:
            found: torch.Tensor = PEERS[resize](picture.convert("RGB"), return_tensors="pt")["pixel_values"][0]
        return found.numpy()

    return taken


def apart(one: Sequence[Any], other: Sequence[Any]) -> str:
    found = [np.abs(a.astype(int) - b.astype(int)) for a, b in zip(one, other, strict=True)]
    return f"{max(f.max() for f in found)}, {np.mean([f.mean() for f in found]):.2f}"


def compare(files: Sequence[Path], what: str, rounds: int) -> None:
    for resize in PEERS:
        sides = {"exact": ours(resize, exact=True), "else": ours(resize, exact=False), "peer": theirs(resize)}
        times: dict[str, list[float]] = {name: [] for name in sides}
        made: dict[str, list[Any]] = {}
        for _ in range(rounds):
            for name, take in sides.items():
                begin = perf_counter()
                made[name] = [take(file) for file in files]
                times[name].append((perf_counter() - begin) / len(files) * 1e3)
        exact, other, peer = (median(times[name]) for name in sides)
        ratio = median(p / e for p, e in zip(times["peer"], times["exact"], strict=True))
        print(
            f"| {what} | {resize} | {apart(made['exact'], made['peer'])} | {apart(made['else'], made['peer'])} "
            f"| {exact:.1f} | {other:.1f} | {peer:.1f} | {ratio:.2f}x |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    small = sorted((DATA / "images" / "coco").rglob("*.jpg"))[:40]
    print("| pictures | resize | exact: apart | else: apart | exact, ms | else, ms | peer, ms | peer / exact |")
    print("|---|---|---|---|---|---|---|---|")
    compare(small, "COCO, 640 pixels", given.rounds)
    with tempfile.TemporaryDirectory() as folder:
        large = [Path(folder) / file.name for file in small[:6]]
        for file, place in zip(small, large, strict=False):
            Image.open(file).convert("RGB").resize(LARGE, Image.Resampling.BICUBIC).save(place, quality=90)
        compare(large, "12 megapixels", given.rounds)


if __name__ == "__main__":
    main()
