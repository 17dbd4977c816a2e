"""Scoring, and encoders that are frozen, on a CPU in bf16: what is computed without gradients.

    python benchmarks/scoring.py                        # three rounds, six minutes
    python benchmarks/scoring.py --frozen               # encoders alone

The model of ``workload.py`` scores held-out documents, by turns: as it does; as it does with ``train.compile`` off, by
PyTorch's own attention and operations; and, of texts, the same weights as a model of transformers, in batches of eight
documents of like length, padded, as the HF Trainer evaluates them under autocast. The floor is the matrix products and
the attention of our own passes, taken again by themselves. Then encoders that are frozen in training: their forward
pass of a row of real media, with kernels and without.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from products import Products
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from workload import DATA, run_settings

from kosmos import compile_model, compose_run, make_run, open_held_out, open_training_rows, score

DTYPE, BATCH, DOCUMENTS = torch.bfloat16, 8, 128
FROZEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vit_base_patch16_224": ("image", "images/coco", {"name": "timm", "model": "vit_base_patch16_224"}),
    "vit_base_patch16_224 at 384": (
        "image", "images/coco", {"name": "timm", "model": "vit_base_patch16_224", "image_size": 384},
    ),
    "whisper (base)": (
        "audio", "audio/speech",
        {"name": "whisper", "width": 512, "layers": 6, "heads": 8, "feed_forward": 2048, "context": "30s"},
    ),
}  # fmt: skip


def composed(settings: dict[str, Any], **over: Any) -> Any:
    return compose_run(make_run(settings, over))


def by_turns(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of each, medians; the first round builds kernels and is left out."""
    taken: list[dict[str, float]] = []
    for _ in range(rounds + 1):
        taken.append({})
        for name, work in sides.items():
            begin = perf_counter()
            work()
            taken[-1][name] = perf_counter() - begin
    return {name: median(one[name] for one in taken[1:]) for name in sides}


def as_the_trainer(parts: Any, sources: list[Any]) -> Callable[[], None]:
    """What scores the texts of sources as the HF Trainer does."""
    model = parts.model.backbone.to_transformers(parts.planner.max_tokens)
    plans = [plan for source in sources for number in range(min(len(source), DOCUMENTS))
             for plan in parts.planner.plan(source.document(number))]  # fmt: skip
    tokens = sorted((torch.from_numpy(plan.token_ids).long() for plan in plans), key=len)

    def work() -> None:
        for start in range(0, len(tokens), BATCH):
            own = tokens[start : start + BATCH]
            ids = pad_sequence(own, batch_first=True)
            seen = torch.arange(ids.shape[1])[None] < torch.tensor([len(x) for x in own])[:, None]
            with torch.no_grad(), torch.autocast("cpu", DTYPE):
                logits = model(input_ids=ids, attention_mask=seen.long()).logits.float()
            F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].masked_fill(~seen[:, 1:], -100).flatten())

    return work


def scoring(mixture: str, sources: list[str], rounds: int) -> None:
    settings = run_settings(mixture, "bf16", tokens_per_pack=2048, workers=0)
    data = {"held_out": 0.5, **({"sources": sources} if sources else {})}
    parts, plain = composed(settings, data=data), composed(settings, data=data, train={"compile": False})
    held_out, tokens = open_held_out(parts.config, parts.registry), 0

    def count(document: Any, losses: Any) -> None:
        nonlocal tokens
        tokens += document.length

    def scored(one: Any, **more: Any) -> Any:
        return score(one, held_out, dtype=DTYPE, workers=0, max_documents=DOCUMENTS, **more)

    ours = scored(parts, told=count).overall.loss
    assert abs(ours / scored(plain).overall.loss - 1) < 2e-3
    noted = Products()
    with noted:
        scored(parts)
    sides: dict[str, Callable[[], Any]] = {"kosmos": lambda: scored(parts), "uncompiled": lambda: scored(plain)}
    if not settings["modalities"]:
        sides["transformers"] = as_the_trainer(parts, held_out)
    sides["products"] = noted.again()
    taken = by_turns(sides, rounds)
    own = taken["kosmos"]
    told = ", ".join(f"{name} {seconds / own:.2f}x" for name, seconds in taken.items() if name != "kosmos")
    name = "long texts" if sources else mixture
    print(f"{name}: {tokens:,} tokens at {tokens / own:,.0f} a second; of its seconds take {told}", flush=True)


def frozen(name: str, rounds: int) -> None:
    modality, source, encoder = FROZEN[name]
    settings = {"modalities": [modality],
                "data": {"sources": [str(DATA / source)], "workers": 0, "tokens_per_pack": 2048},
                "streams": {modality: {"encoder": encoder, "freeze": True}}, "trackers": [],
                "backbone": {"name": "decoder", "width": 384, "layers": 6, "heads": 6, "ffn_width": 1024}}  # fmt: skip
    parts, plain = composed(settings), composed(settings)
    compile_model(parts, dtype=DTYPE)
    with open_training_rows(parts) as rows:
        media = next(rows)[0].media[modality]

    def encoded(one: Any) -> Any:
        with torch.no_grad(), torch.autocast("cpu", DTYPE):
            return one.model.streams[modality].encoder.train(False)(media.values, media.grids)

    plain.model.load_state_dict(parts.model.state_dict())
    torch.testing.assert_close(encoded(parts).float(), encoded(plain).float(), rtol=0.1, atol=0.1)
    taken = by_turns({"kernels": lambda: encoded(parts), "without": lambda: encoded(plain)}, rounds)
    times = taken["without"] / taken["kernels"]
    print(f"{name}, {len(media.grids)} items, frozen: {taken['kernels'] * 1e3:.0f} ms, {times:.2f}x of without kernels")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frozen", action="store_true", help="encoders alone")
    given = parser.parse_args()
    long_texts = [str(DATA / "text" / "tinyshakespeare.txt")]
    for mixture, sources in (("text", long_texts), ("text", []), ("captions", []), ("all", [])):
        if not given.frozen:
            scoring(mixture, sources, given.rounds)
    for name in FROZEN:
        frozen(name, given.rounds)


if __name__ == "__main__":
    main()
