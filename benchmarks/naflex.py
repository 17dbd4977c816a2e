"""Pictures of their own shapes: one row without padding against what timm does with them.

    python benchmarks/naflex.py                       # fp32 and bf16, forward and backward (three minutes)

Both sides run the same model (width 192, 12 blocks) on the same real pictures, interleaved; medians. Kosmos computes by
its kernels, as a run with a large backbone does. A NaFlex model takes pictures as a padded batch in timm: the limit is
the share of cells in it that are no padding. A plain vision transformer takes one shape at a time
(``dynamic_img_size``), nearly always one picture.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import timm
import torch
from torch import Tensor
from workload import DATA

from kosmos import make_run
from kosmos.compose import compose
from kosmos.data.decoding import decode_cells
from kosmos.model.cpu_kernels import use_kernels
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources

SHAPE = {"embed_dim": 192, "depth": 12, "num_heads": 3}
MODEL = "naflexvit_base_patch16_gap"
PLAIN = "vit_base_patch16_224"
PICTURES = 16
ROUNDS = 7


def batches(model: str, count: int) -> tuple[Any, list[list[tuple[Tensor, tuple[int, int]]]]]:
    """The encoder, and batches of pictures as cells with their (rows, columns)."""
    encoder = {"name": "timm", "model": model, "variable": True, "model_options": SHAPE}
    sources = [str(DATA / "images" / name) for name in ("flowers", "coco")]
    run = {"modalities": ["image"], "streams": {"image": {"encoder": encoder}}, "data": {"sources": sources}}
    config, registry = make_run(run), load_plugins()
    parts = compose(config, registry)
    found = []
    for source in open_sources(config, registry, "train"):
        for number in range(len(source)):
            for plan in parts.planner.plan(source.document(number)):
                for medium in plan.media:
                    cells = torch.from_numpy(decode_cells(medium, parts.planner.routes["image"].processor))
                    (grid,) = medium.plan.grids
                    found.append((cells, (grid.h, grid.w)))
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0)).tolist()
    taken = [found[i] for i in order[: count * PICTURES]]
    stream: Any = parts.model.streams["image"]
    use_kernels(stream.encoder)
    return stream.encoder, [taken[i : i + PICTURES] for i in range(0, len(taken), PICTURES)]


def packed(encoder: Any, pictures: list[tuple[Tensor, tuple[int, int]]]) -> Tensor:
    grids = torch.tensor([(1, h, w) for _, (h, w) in pictures])
    features: Tensor = encoder(torch.cat([cells for cells, _ in pictures]), grids)
    return features


def padded(model: Any, pictures: list[tuple[Tensor, tuple[int, int]]]) -> Tensor:
    """As timm's own NaFlex collator lays a batch out: the shorter pictures end in masked patches."""
    longest = max(len(cells) for cells, _ in pictures)
    patches = torch.zeros(len(pictures), longest, 3 * 16 * 16)
    coords = torch.zeros(len(pictures), longest, 2, dtype=torch.int64)
    valid = torch.zeros(len(pictures), longest, dtype=torch.bool)
    for i, (cells, (h, w)) in enumerate(pictures):
        patches[i, : len(cells)] = ((cells / 255 - 0.5) / 0.5).permute(0, 2, 3, 1).flatten(1)
        coords[i, : len(cells)] = torch.cartesian_prod(torch.arange(h), torch.arange(w)).view(-1, 2)
        valid[i, : len(cells)] = True
    features: Tensor = model.forward_features(patches, patch_coord=coords, patch_valid=valid)["patches"]
    return features[:, model.num_prefix_tokens :][valid]


def one_by_one(model: Any, pictures: list[tuple[Tensor, tuple[int, int]]]) -> Tensor:
    found = []
    for cells, (h, w) in pictures:
        pixels = cells.view(h, w, 3, 16, 16).permute(2, 0, 3, 1, 4).reshape(1, 3, h * 16, w * 16)
        found.append(model.forward_features((pixels / 255 - 0.5) / 0.5)[0, model.num_prefix_tokens :])
    return torch.cat(found)


def seconds(run: Callable[[], Tensor]) -> float:
    started = perf_counter()
    run().square().mean().backward()
    return perf_counter() - started


def compare(name: str, theirs: Any, run_theirs: Callable[..., Tensor]) -> None:
    encoder, work = batches(name, ROUNDS + 2)
    theirs.load_state_dict(encoder.model.state_dict(), strict=False)
    fill = median(sum(len(cells) for cells, _ in own) / max(len(cells) for cells, _ in own) / len(own) for own in work)
    limit = f"{1 / fill:.2f}x" if run_theirs is padded else "-"
    for precision in ("fp32", "bf16"):
        speeds: dict[str, list[float]] = {"own": [], "timm": []}
        for number, own in enumerate(work):
            cells = sum(len(picture) for picture, _ in own)
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                found = seconds(lambda own=own: packed(encoder, own)), seconds(lambda own=own: run_theirs(theirs, own))
            for side, took in zip(speeds, found, strict=True):
                speeds[side] += [cells / took] if number >= 2 else []  # the first two warm up
        a, b = (median(speeds[side]) for side in speeds)
        print(f"| {name}, {precision} | {a:,.0f} | {b:,.0f} | {a / b:.2f}x | {limit} |", flush=True)


def main() -> None:
    print(
        "| model, precision | Kosmos, cells/s | timm, cells/s | Kosmos is | limit by padding |\n|---|---|---|---|---|"
    )
    compare(MODEL, timm.create_model(MODEL, num_classes=0, **SHAPE), padded)
    compare(PLAIN, timm.create_model(PLAIN, num_classes=0, dynamic_img_size=True, **SHAPE), one_by_one)


if __name__ == "__main__":
    main()
