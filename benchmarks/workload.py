"""The work that training benchmarks share: one model of 22 M parameters, one set of documents, in every framework.

ViT-tiny at 224 pixels with 2 x 2 pooling (49 slots a picture), a log-mel conv-transformer (50 slots a second), MLP
connectors, a Llama-shaped decoder (width 384, 6 layers, 6 heads, FFN 1,024, vocabulary 4,096), on digits, sounds,
speech, pictures with captions and lines of text.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("KOSMOS_TEST_DATA", ROOT.parent / "shared" / "data"))
VOCABULARY = 4096

SOUNDS = ["audio/fsdd", "audio/esc10", "audio/speech"]
PICTURES = ["images/flowers", "images/coco", "images/fashion"]
MIXTURES: dict[str, tuple[list[str], list[str], bool]] = {
    "all": (["image", "audio"], SOUNDS + PICTURES, True),
    "captions": (["image"], ["images/coco"], False),
    "text": ([], [], True),
}
"""Name to modalities, sources, and whether the lines of text are among them."""


def text_lines() -> Path:
    """The lines of WikiText-2, where they are in the data."""
    return DATA / "text" / "wikitext2_valid.txt"


@functools.cache
def tokenizer_folder() -> Path:
    """A byte-pair tokenizer of 4,096 tokens trained on the text, by ``kosmos tokenizer train``."""
    folder = Path(tempfile.gettempdir()) / f"kosmos-benchmark-tokenizer-{VOCABULARY}"
    if not (folder / "tokenizer.json").exists():
        from kosmos.data.tokenizer import train_tokenizer

        train_tokenizer(text_lines().read_text().splitlines(), vocab_size=VOCABULARY, folder=folder)
    return folder


def run_settings(mixture: str, precision: str, *, tokens_per_pack: int, workers: int | None = None) -> dict[str, Any]:
    """The run file of a mixture."""
    modalities, sources, with_text = MIXTURES[mixture]
    paths = [str(DATA / source) for source in sources] + ([str(text_lines())] if with_text else [])
    streams = {
        "image": {
            "encoder": {"name": "timm", "model": "vit_tiny_patch16_224", "image_size": 224},
            "connector": {"name": "pool", "factor": 2},
        },
        "audio": {"encoder": {"name": "logmel", "width": 192, "layers": 4, "heads": 3, "frames_per_cell": 2}},
    }
    return {
        "modalities": modalities,
        "tokenizer": str(tokenizer_folder()),
        "streams": {name: streams[name] for name in modalities},
        "backbone": {
            "name": "decoder", "width": 384, "layers": 6, "heads": 6, "ffn_width": 1024, "tie_embeddings": True,
        },
        "data": {
            "sources": paths, "tokens_per_pack": tokens_per_pack, "look_ahead": 256,
            **({} if workers is None else {"workers": workers}),
        },
        "train": {"steps": 10_000, "optimizer": "adamw", "precision": precision, "device": "auto"},
        "trackers": [],
    }  # fmt: skip


def resizing_at_speed(parts: Any) -> Any:
    """The composition, whose pictures are resized in C++ as soon as it is compiled, for a run is longer than what is
    measured of it."""
    from kosmos_vision.images import ImageProcessor
    from kosmos_vision.resampling import Resampler

    for processor in parts.processors.values():
        if isinstance(processor, ImageProcessor):
            processor.resampler = Resampler(pays_s=0.0)
    return parts


def peak_kib_of_ranks() -> int:
    """Most memory that this process has held, with what it has started; in torchrun that of all its ranks together."""
    own = os.getppid() if int(os.environ.get("WORLD_SIZE", 1)) > 1 else os.getpid()
    ranks = children(own) if own != os.getpid() else [own]
    return sum(peak_kib(process) for rank in ranks for process in (rank, *children(rank)))


def children(process: int) -> list[int]:
    """The processes that one has started."""
    threads = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for started in threads for child in started.read_text().split()]


def peak_kib(process: int) -> int:
    """Most memory that it has held since its program began. (``getrusage`` counts its parent's before that.)"""
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) if found else 0


def report_peer(*, tokens: int, places: int, seconds: float, steps: int, **more: Any) -> None:
    """The result of a side that pads: useful tokens among so many places. Of several ranks the first alone reports."""
    import torch

    if int(os.environ.get("RANK", 0)):
        return
    report(
        tokens_per_s=tokens / seconds,
        padding=1 - tokens / places,
        step_s=seconds / steps,
        peak_mib=peak_kib_of_ranks() / 1024,
        threads=torch.get_num_threads(),
        **more,
    )


def report(**values: Any) -> None:
    """One line of JSON for the script that started this process."""
    print("RESULT " + json.dumps(values), flush=True)
