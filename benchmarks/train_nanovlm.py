"""The peer of ``train.py`` on pictures with captions: nanoVLM's own model, packing, collation and step.

Started by ``train.py --nanovlm FOLDER``, in a process of its own; FOLDER holds a checkout of nanoVLM, which is no
package, and einops must be installed. Its model gets the shape of ours, its packing our documents; the loop does what
its ``train.py`` does: autocast around the forward pass, AdamW as it comes, clipping to 1, the loss and the number of
tokens read at every step. Its packed documents see each other, which ours do not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
from workload import VOCABULARY, report_peer, resizing_at_speed, run_settings, tokenizer_folder

from kosmos import make_run
from kosmos.compose import Composition, compose
from kosmos.data.decoding import decode_cells
from kosmos.data.plan import DocumentPlan
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources

SLOTS = 49
"""Of a picture."""
MARKS = 8
"""Room for its own special tokens, between our words and our marks."""


class Captions:
    """Our documents as its samples. Its packing asks for ``dataset``, ``tokenizer`` and ``mp_image_token_length``."""

    mp_image_token_length = SLOTS

    def __init__(self, parts: Composition, plans: Sequence[DocumentPlan], tokenizer: Any) -> None:
        self.dataset, self.processor, self.tokenizer = plans, parts.planner.routes["image"].processor, tokenizer

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        plan = self.dataset[index]
        ids = torch.from_numpy(plan.token_ids).long()
        ids = torch.where(ids >= VOCABULARY, ids + MARKS, ids)
        labels = torch.where(torch.from_numpy(plan.train), ids, -100).roll(-1)
        labels[-1] = -100
        ids[torch.from_numpy(plan.slots["image"]).long()] = self.tokenizer.image_token_id
        (medium,) = plan.media
        cells = torch.from_numpy(decode_cells(medium, self.processor))
        picture = cells.view(14, 14, 3, 16, 16).permute(2, 0, 3, 1, 4).reshape(1, 3, 224, 224) / 255
        return {"images": [picture], "input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}


def build(length: int) -> Any:
    """Its model in the shape of ours, from scratch."""
    from models.config import VLMConfig  # type: ignore[import-not-found]
    from models.vision_language_model import VisionLanguageModel  # type: ignore[import-not-found]

    config = VLMConfig(
        vit_hidden_dim=192, vit_inter_dim=768, vit_patch_size=16, vit_img_size=224, vit_n_heads=3, vit_n_blocks=12,
        lm_hidden_dim=384, lm_inter_dim=1024, lm_n_heads=6, lm_n_kv_heads=6, lm_n_blocks=6, lm_tie_weights=True,
        lm_base_vocab_size=VOCABULARY, extra_token_amount=64 + MARKS, lm_vocab_size=VOCABULARY + 64 + MARKS,
        lm_max_length=length, mp_pixel_shuffle_factor=2, mp_image_token_length=SLOTS, max_img_size=224,
        lm_tokenizer=str(tokenizer_folder()), vlm_extra_tokens={"image_token": "<|its image|>"}, lm_chat_template="",
        vlm_load_backbone_weights=False, hf_repo_name=None,
    )  # fmt: skip
    return VisionLanguageModel(config, load_backbone=False).train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkout", required=True)
    parser.add_argument("--mixture", default="captions")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256, help="of its sequences, into which documents are packed")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.path[0] = given.checkout  # in place of this folder, which has a ``data`` too
    from data.advanced_datasets import ConstantLengthDataset  # type: ignore[import-not-found]
    from data.collators import VQACollator  # type: ignore[import-not-found]

    config = make_run(run_settings(given.mixture, given.precision, tokens_per_pack=8192))
    registry = load_plugins()
    parts = resizing_at_speed(compose(config, registry))
    sources = open_sources(config, registry, "train")
    plans = [plan for s in sources for i in range(len(s)) for plan in parts.planner.plan(s.document(i))]
    plans *= -(-given.steps * given.batch * given.length * 2 // sum(len(plan) for plan in plans))
    plans = [plans[i] for i in torch.randperm(len(plans), generator=torch.Generator().manual_seed(given.seed))]
    model = build(given.length)
    packed = ConstantLengthDataset(
        Captions(parts, plans, model.tokenizer), max_sample_length=given.length, queue_size=8,
        seq_length=given.length, num_of_sequences=4 * given.batch, max_images_per_knapsack=18,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(
        packed, given.batch, num_workers=1, collate_fn=VQACollator(model.tokenizer, given.length), drop_last=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens, places = 0, 0
    for number, batch in enumerate(loader):
        if number == given.warmup:
            begin, tokens, places = perf_counter(), 0, 0
        if number == given.steps:
            break
        with torch.autocast("cpu", torch.bfloat16, enabled=given.precision == "bf16"):
            _, loss = model(
                batch["input_ids"], batch["images"], attention_mask=batch["attention_mask"], targets=batch["labels"]
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        tokens += int(batch["attention_mask"].sum())
        places += batch["input_ids"].numel()
    seconds = perf_counter() - begin
    media, steps = SLOTS * len(plans) / sum(len(plan) for plan in plans), given.steps - given.warmup
    report_peer(tokens=tokens, places=places, seconds=seconds, steps=steps, media=media, documents=len(plans))


if __name__ == "__main__":
    main()
