"""Encoders of sound on clips of many lengths: packed in a row, one clip after another, and padded by their library.

    python benchmarks/encoders.py                       # fp32 and bf16, forward and backward (a quarter of an hour)
    python benchmarks/encoders.py --device cuda

All sides have the same weights and hear the same real clips (sentences and digits), interleaved; medians. Kosmos
attends by its kernels on a CPU, as a run with a large backbone does. transformers fills every clip of Whisper's up to
30 s, as its feature extractor does; torchaudio's models pad to the longest clip of the batch and mask what they padded.
Nothing of the inputs is computed while the clock runs. The last column is how many cells the padded batch has for each
that is none: a limit but for attention, which grows faster.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from workload import DATA

from kosmos import Media
from kosmos.model.cpu_kernels import use_kernels
from kosmos_audio.wav2vec2 import STRIDE, Wav2Vec2Encoder
from kosmos_audio.waveform import AudioProcessor
from kosmos_audio.whisper import POSITIONS, WhisperEncoder

CLIPS, SENTENCES = 16, 4
"""Of a batch, and how many of them are sentences; the others are digits."""
ROUNDS, PADDED_ROUNDS, WARMUP = 7, 2, 1


class Clips(NamedTuple):
    """A batch."""

    cells: list[Tensor]
    grids: Tensor

    @property
    def lengths(self) -> Tensor:
        return self.grids[:, 0]


def files(folder: str) -> list[Media]:
    lines = (DATA / "audio" / folder / "manifest.jsonl").read_text().splitlines()
    return [Media("audio", DATA / "audio" / folder / json.loads(line)["audio"]) for line in lines]


def batches(encoder: Any, count: int, device: torch.device, clips: int, sentences: int) -> list[Clips]:
    processor, random = AudioProcessor(encoder.input), Random(0)
    spoken, digits = files("speech"), files("fsdd")
    found = []
    for _ in range(count):
        media = random.sample(spoken, sentences) + random.sample(digits, clips - sentences)
        plans = [processor.plan(medium) for medium in media]
        cells = [torch.from_numpy(processor.decode(m, p)).to(device) for m, p in zip(media, plans, strict=True)]
        found.append(Clips(cells, torch.tensor([grid for plan in plans for grid in plan.grids])))
        assert len(found[-1].grids) == len(cells), "a clip was split"
    return found


def packed(encoder: Any, clips: Clips) -> Tensor:
    out: Tensor = encoder(torch.cat(clips.cells), clips.grids)
    return out


def one_by_one(encoder: Any, clips: Clips) -> Tensor:
    return torch.cat([encoder(cells, grid[None]) for cells, grid in zip(clips.cells, clips.grids, strict=True)])


def whisper_padded(encoder: Any, clips: Clips) -> Tensor:
    mels = [cells.flatten(0, 1).T for cells in clips.cells]
    filled = torch.stack([F.pad(mel, (0, 2 * POSITIONS - mel.shape[1]), value=-0.5) for mel in mels])
    out: Tensor = encoder.encoder(filled).last_hidden_state
    return _real(out, clips.lengths)


def wav2vec2_padded(encoder: Any, clips: Clips) -> Tensor:
    samples = pad_sequence([F.pad(cells.flatten(), (0, 80)) for cells in clips.cells], batch_first=True)
    lengths = (clips.lengths * STRIDE + 80).to(samples.device)
    out: Tensor = encoder.model(samples, lengths)[0]
    return _real(out, clips.lengths)


def conformer_padded(encoder: Any, clips: Clips) -> Tensor:
    frames = pad_sequence([cells.flatten(1) for cells in clips.cells], batch_first=True)
    out: Tensor = _original(encoder)(encoder.stem(frames), clips.lengths.to(frames.device))[0]
    return _real(out, clips.lengths)


@functools.cache
def _original(encoder: Any) -> Any:
    """torchaudio's own model of the same weights, whose layers are not ours."""
    from torchaudio.models import Conformer

    model: Any = Conformer(256, 4, 1024, 8, 15, use_group_norm=True).to(next(encoder.parameters()).device)
    model.load_state_dict(encoder.model.state_dict())
    return model


def _real(out: Tensor, lengths: Tensor) -> Tensor:
    seen = torch.arange(out.shape[1])[None] < lengths[:, None]
    return out[seen.to(out.device)]


def conformer() -> Any:
    from kosmos_audio.conformer import ConformerEncoder

    return ConformerEncoder(width=256, layers=8, feed_forward=1024)


SMALL: dict[str, Any] = {"width": 384, "layers": 12, "heads": 6, "feed_forward": 1536, "channels": 256}
ENCODERS: dict[str, tuple[Callable[[], Any], Callable[[Any, Clips], Tensor]]] = {
    "whisper (tiny)": (WhisperEncoder, whisper_padded),
    "wav2vec2 (of a quarter of the base's size)": (lambda: Wav2Vec2Encoder(**SMALL), wav2vec2_padded),
    "hubert (large in kind, of that size)": (lambda: Wav2Vec2Encoder(model="hubert_large", **SMALL), wav2vec2_padded),
    "conformer (width 256, 8 layers)": (conformer, conformer_padded),
    "whisper (small)": (lambda: WhisperEncoder(width=768, layers=12, heads=12, feed_forward=3072), whisper_padded),
}
OF_A_GPU = "whisper (small)"
HEAD = "| encoder | packed | one by one | padded | of one by one | of padded | cells of padded |\n" + "|---" * 7 + "|"


def seconds(run: Callable[[], Tensor], device: torch.device) -> float:
    started = perf_counter()
    run().float().square().mean().backward()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - started


def measure(name: str, precision: str, device: torch.device, *, count: int = CLIPS, sentences: int = SENTENCES) -> str:
    """A line of the table, of batches of ``count`` clips."""
    build, padded = ENCODERS[name]
    torch.manual_seed(0)
    encoder = build().to(device)
    if device.type == "cpu":
        use_kernels(encoder)  # as a run with a large model has it
    sides = {"packed": packed, "one by one": one_by_one, "padded": padded}
    took: dict[str, list[float]] = {side: [] for side in sides}
    work = batches(encoder, WARMUP + ROUNDS, device, count, sentences)
    for number, clips in enumerate(work):
        for side, run in sides.items():
            if side == "padded" and number >= WARMUP + PADDED_ROUNDS:
                continue
            for model in (encoder, *([_original(encoder)] if padded is conformer_padded else [])):
                model.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                spent = seconds(lambda run=run, clips=clips: run(encoder, clips), device)
            took[side] += [spent] if number >= WARMUP else []
    cells = median(int(clips.lengths.sum()) for clips in work)
    longest = POSITIONS if "whisper" in name else median(int(clips.lengths.max()) for clips in work)
    own, alone, theirs = (1e3 * median(times) for times in took.values())
    ratios = f"{alone / own:.2f}x | {theirs / own:.2f}x | {count * longest / cells:.1f}x"
    return f"| {name}, {precision} | {own:,.1f} | {alone:,.1f} | {theirs:,.1f} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="encoders whose names begin so")
    given = parser.parse_args()
    print(f"{CLIPS} clips a batch, {SENTENCES} of them sentences; milliseconds, forward and backward\n{HEAD}")
    for name in ENCODERS:
        if not name.startswith(given.only) or (name == OF_A_GPU and given.device == "cpu"):
            continue
        for precision in ("fp32", "bf16"):
            print(measure(name, precision, torch.device(given.device)), flush=True)


if __name__ == "__main__":
    main()
