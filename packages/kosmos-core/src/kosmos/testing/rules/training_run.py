"""What a modality promises of whole runs: it trains, and in two processes as in one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from kosmos.testing import child, ranks
from kosmos.testing.items import apart, cut_items, planned, row
from kosmos.testing.promise import BrokenPromise, NotBuilt, Unchecked, rule
from kosmos.testing.subjects import SMALL_BACKBONE, ModalityUnderTest

TOLERANCE = 1e-4
"""Of losses, gradient norms and weights; 0 was measured, since two addends have one order."""


@rule(
    "modality",
    "two-ranks",
    "two processes of which one has no media train without a hang, and as one process does",
    slow=True,
)
def two_ranks_train_as_one(modality: ModalityUnderTest) -> None:
    if modality.spec.sample_set is None:
        raise Unchecked("the modality names no sample set")
    if not any(planned(modality.route.processor, medium).grids for medium in modality.media[:3]):
        raise Unchecked("its media become text and no cells, by the options of its processor")
    run = _run(modality)
    registry = ranks.with_kit(modality.registry, modality.spec.name)
    with tempfile.TemporaryDirectory(prefix="kosmos-testing-") as place:
        folder = Path(place)
        try:
            ranks.train_alone_and_together(registry, run, folder, seconds=modality.conditions.ranks_seconds)
        except child.ChildFailed as error:
            raise BrokenPromise(str(error)) from error
        alone, together = (_rows(folder / name) for name in (ranks.ALONE, ranks.TOGETHER))
        _check_media(alone)
        if _draws_at_random(modality):
            return  # each process draws its own: dropout cannot be the same
        for one, two in zip(alone, together, strict=True):
            for name in ("loss", "grad_norm"):
                if not abs(one[name] - two[name]) <= TOLERANCE * max(abs(one[name]), 1e-6):
                    raise BrokenPromise(f"step {one['step']}: {name} {two[name]:.6g} of two, {one[name]:.6g} of one")
        _compare_weights(folder, registry)


def _run(modality: ModalityUnderTest) -> dict[str, Any]:
    """The run file: every row holds one document."""
    name, spec = modality.spec.name, modality.registry.get("dataset", str(modality.spec.sample_set))
    options = dict(modality.conditions.options_of("dataset", spec.name))
    rows: dict[str, Any] = {"target": spec.target, "modality": name, "options": options}
    source = ranks.TwoRows("train", **rows)
    others: dict[str, Any] = {n: {} for n in source.document(0).modalities if n != "text"}
    try:
        plan = modality.composition.planner.plan(source.document(0))[0]
    except Exception as error:
        raise NotBuilt(f"the sample set cannot be planned: {error}") from error
    return {
        "modalities": {**others, name: {"processor": modality.options}},
        "streams": {name: {"encoder": modality.encoder_options}} if modality.encoder_options else {},
        "backbone": SMALL_BACKBONE,
        "data": {
            "sources": [{"path": ranks.TwoRows.name, "options": rows}],
            "tokens_per_pack": max(64, len(plan)), "lanes": ranks.WORLD, "look_ahead": 1, "workers": 0,
            "seed": ranks.seed_of_turns(source),
        },
        "train": {
            "steps": ranks.STEPS, "optimizer": "kit-descent", "learning_rate": 0.05, "weight_decay": 0.0,
            "schedule": "constant", "warmup_steps": 0, "clip_norm": None, "precision": "fp32", "device": "cpu",
        },
        "trackers": [],
    }  # fmt: skip


def _rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _check_media(rows: list[dict[str, Any]]) -> None:
    for found in rows:
        if not (found["documents"] == ranks.WORLD and found["media_tokens"] > 0):
            raise BrokenPromise(
                f"step {found['step']} has {found['documents']} documents and {found['media_tokens']} media tokens; "
                "the sample set's own documents were put in quarantine"
            )


def _draws_at_random(modality: ModalityUnderTest) -> bool:
    """Whether the stream has dropout or the like in training mode."""
    stream, processor = modality.stream, modality.route.processor
    plan = processor.plan(modality.media[0])
    items = cut_items(processor.decode(modality.media[0], plan), plan.grids)
    with torch.no_grad():
        one, other = (stream.train()(*row(items, items[0])) for _ in range(2))
    return not torch.equal(one, other)


def _compare_weights(folder: Path, registry: Any) -> None:
    from kosmos.train.saved import load_run

    alone, together = (
        dict(load_run(folder / name, device="cpu", registry=registry).composition.model.named_parameters())
        for name in (ranks.ALONE, ranks.TOGETHER)
    )
    for name, weights in alone.items():
        if not (error := apart(weights.detach(), together[name].detach())) <= TOLERANCE:
            raise BrokenPromise(f"after {ranks.STEPS} steps {name} differs by {error:.2g} of the largest")


RULES = (two_ranks_train_as_one,)
