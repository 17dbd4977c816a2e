"""The peer of ``train.py``: a Hugging Face Trainer with the same encoders, documents and decoder, padded as usual.

The decoder is ``LlamaForCausalLM`` of the same shape; a batch holds documents padded to the longest, sounds padded to
the longest sound. Started by ``train.py``, in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices
from workload import VOCABULARY, report_peer, resizing_at_speed, run_settings

from kosmos import make_run
from kosmos.compose import compose
from kosmos.data.decoding import decode_cells
from kosmos.data.plan import DocumentPlan, Planner
from kosmos.data.processor import Grid
from kosmos.plugins import load_plugins
from kosmos.run_sources import open_sources

BATCH = 16
IGNORED = -100


class Documents(Dataset[dict[str, Any]]):
    """Plans of documents (tokenized, no medium decoded yet); an item is decoded when it is asked for."""

    def __init__(self, planner: Planner, plans: Sequence[DocumentPlan]) -> None:
        self.planner, self.plans = planner, plans

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, index: int) -> dict[str, Any]:
        plan = self.plans[index]
        media = []
        for medium in plan.media:
            cells = decode_cells(medium, self.planner.routes[medium.media.modality].processor)
            media.append((medium.stream, torch.from_numpy(cells), medium.plan.grids))
        labels = torch.where(torch.from_numpy(plan.train), torch.from_numpy(plan.token_ids).long(), IGNORED)
        slots = {name: torch.from_numpy(s).long() for name, s in plan.slots.items()}
        return {"ids": torch.from_numpy(plan.token_ids).long(), "labels": labels, "media": media, "slots": slots}


def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Pad to the longest document, and each stream's items to its longest item."""
    longest = max(len(item["ids"]) for item in items)
    ids = torch.zeros(len(items), longest, dtype=torch.int64)
    labels = torch.full((len(items), longest), IGNORED)
    mask = torch.zeros(len(items), longest, dtype=torch.int64)
    streams: dict[str, dict[str, Any]] = {}
    for row, item in enumerate(items):
        length = len(item["ids"])
        ids[row, :length], labels[row, :length], mask[row, :length] = item["ids"], item["labels"], 1
        for name, cells, grids in item["media"]:
            stream = streams.setdefault(name, {"cells": [], "grids": [], "slots": []})
            stream["cells"] += torch.split(cells, [g.cells for g in grids])
            stream["grids"] += grids
        for name, slots in item["slots"].items():
            streams[name]["slots"].append(slots + row * longest)
    for stream in streams.values():  # the Trainer makes tuples again by its own rule
        stream["grids"] = torch.tensor(stream["grids"])
    return {"input_ids": ids, "labels": labels, "attention_mask": mask, "streams": streams}


class Padded(nn.Module):
    """Encoders and connectors of ours on padded batches, Llama of transformers behind them."""

    def __init__(self, streams: nn.ModuleDict, lora: int | None) -> None:
        super().__init__()
        self.streams = streams
        self.llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=VOCABULARY + 64, hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
                intermediate_size=1024, tie_word_embeddings=True, max_position_embeddings=8192,
            )
        )  # fmt: skip
        if lora is not None:
            from peft import LoraConfig, inject_adapter_in_model

            updates = LoraConfig(r=lora, lora_alpha=32, target_modules="all-linear", exclude_modules=["lm_head"])
            self.llama = inject_adapter_in_model(updates, self.llama)

    def forward(
        self, input_ids: Tensor, labels: Tensor, attention_mask: Tensor, streams: dict[str, Any], **unused: Any
    ) -> Any:
        x = self.llama.get_input_embeddings()(input_ids)
        flat = x.flatten(0, 1)
        for name, media in streams.items():
            slots = torch.cat(media["slots"])
            flat = flat.index_copy(0, slots, self._encode(name, media).to(flat.dtype))
        return self.llama(inputs_embeds=flat.view_as(x), attention_mask=attention_mask, labels=labels)

    def _encode(self, name: str, media: dict[str, Any]) -> Tensor:
        """Every item padded to the longest in time; the slots of the padding are thrown away."""
        stream: Any = self.streams[name]
        grids = [Grid(*grid) for grid in media["grids"].tolist()]
        longest = max(g.t for g in grids)
        padded = []
        for cells, grid in zip(media["cells"], grids, strict=True):
            more = (longest - grid.t) * grid.h * grid.w
            padded.append(torch.cat([cells, cells.new_zeros(more, *cells.shape[1:])]))
        shapes = torch.tensor([(longest, g.h, g.w) for g in grids])
        slots = stream(torch.cat(padded), shapes).unflatten(0, (len(grids), -1))
        counts = [stream.connector.slots(g) for g in grids]
        return torch.cat([row[:count] for row, count in zip(slots, counts, strict=True)])


class Batches(Sampler[int]):
    """Random or length-grouped batches, as the Trainer's samplers make them, of which ``steps`` are taken evenly.

    A few batches as they come would be all digits or all long sounds: the work of an epoch is what lies evenly spread
    over all batches in the order of their sizes. They are gone through in random order.
    """

    def __init__(self, lengths: Sequence[int], steps: int, *, grouped: bool, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        if grouped:
            order = get_length_grouped_indices(list(lengths), BATCH, generator=generator)
        else:
            order = torch.randperm(len(lengths), generator=generator).tolist()
        whole = [order[i : i + BATCH] for i in range(0, len(order) - BATCH + 1, BATCH)]
        whole.sort(key=lambda batch: sum(lengths[i] for i in batch))
        taken = [whole[int((n + 0.5) * len(whole) / steps)] for n in range(steps)]
        self.order = [i for b in torch.randperm(steps, generator=generator).tolist() for i in taken[b]]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


class Ordered(Trainer):
    order: Batches

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self.order


class Clock(TrainerCallback):
    def __init__(self) -> None:
        self.at: list[float] = []

    def on_step_end(self, *unused: Any, **more: Any) -> None:
        self.at.append(perf_counter())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixture", default="all")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--grouped", action="store_true")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--documents", type=int, default=4096, help="the more, the less padding grouping leaves")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lora", type=int, metavar="RANK")
    given = parser.parse_args()
    config = make_run(run_settings(given.mixture, given.precision, tokens_per_pack=8192))
    registry = load_plugins()
    parts = resizing_at_speed(compose(config, registry))
    plans = []
    for source in open_sources(config, registry, "train"):
        for i in range(len(source)):
            plans += parts.planner.plan(source.document(i))
    plans *= -(-given.documents // len(plans))  # a small set is read more than once, as an epoch after another
    plans = [plans[i] for i in torch.randperm(len(plans), generator=torch.Generator().manual_seed(given.seed))]
    plans = plans[: given.documents]
    lengths = [len(plan) for plan in plans]
    ranks = int(os.environ.get("WORLD_SIZE", 1))  # each takes a batch of a step
    timed = Batches(lengths, (given.steps - given.warmup) * ranks, grouped=given.grouped, seed=given.seed)
    warm = timed.order[: given.warmup * ranks * BATCH]
    used, timed.order = timed.order, warm + timed.order
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, max_steps=given.steps, report_to=[], save_strategy="no",
            use_cpu=not torch.cuda.is_available(), bf16=given.precision == "bf16", remove_unused_columns=False,
            logging_strategy="no", disable_tqdm=True, max_grad_norm=1.0, optim="adamw_torch_fused",
            ddp_find_unused_parameters=True,  # for batches without a modality
        )  # fmt: skip
        trainer = Ordered(
            Padded(parts.model.streams, given.lora), arguments, train_dataset=Documents(parts.planner, plans),
            data_collator=collate, callbacks=[clock],
        )  # fmt: skip
        trainer.order = timed
        trainer.train()
    seconds = clock.at[-1] - clock.at[given.warmup - 1]
    tokens = sum(lengths[i] for i in used)
    batches = [used[i : i + BATCH] for i in range(0, len(used), BATCH)]
    rectangles = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    media, steps = sum(len(s) for i in used for s in plans[i].slots.values()) / tokens, given.steps - given.warmup
    report_peer(tokens=tokens, places=rectangles, seconds=seconds, steps=steps, media=media, documents=len(plans))


if __name__ == "__main__":
    main()
