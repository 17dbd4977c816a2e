"""Supervised fine-tuning on a CPU: one epoch of chats through a Llama of transformers, beside LLaMA-Factory.

The chats are GSM8K's worked solutions (400) and multiple-choice questions with one-letter or short answers (600), the
model is a Llama of 14 M parameters with a vocabulary of 8,000, in both from the same files. LLaMA-Factory runs as its
users run it, from its own environment: padded batches of eight, grouped by length, and packed to rows of 1,024 tokens
of which documents see each other or, ``neat``, do not. Kosmos packs to rows of 1,024 in which they never do.

python benchmarks/sft.py --peer ENVIRONMENT/bin/llamafactory-cli
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from workload import DATA

LONG, SHORT, ROW, VOCABULARY = 400, 600, 1024, 8000
RATE = 1e-4
PADDED = {"per_device_train_batch_size": 8}
PACKED = {"per_device_train_batch_size": 1, "packing": True}
PEERS: dict[str, dict[str, Any]] = {
    "padded": PADDED,
    "grouped": {**PADDED, "train_sampling_strategy": "group_by_length"},
    "packed": PACKED,
    "packed, neat": {**PACKED, "neat_packing": True},
}
RUNTIME = re.compile(r"'train_runtime': '?([\d.]+)")


def chats() -> list[tuple[str, str]]:
    """Questions and answers, always the same."""
    solutions, short = [], []
    for line in (DATA / "bench" / "gsm8k.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        solutions.append((row["query"], row["answer"]))
    for name in ("commonsense_qa", "arc_easy"):
        for line in (DATA / "bench" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            short.append((row["query"], row["choices"][row["gold"]]))
    chance = random.Random(0)
    found = chance.sample(solutions, LONG) + chance.sample(short, SHORT)
    chance.shuffle(found)
    return found


def write_data(folder: Path) -> None:
    """The chats as each reads them, the tokenizer and the model."""
    found = chats()
    rows = [[{"role": "user", "content": asked}, {"role": "assistant", "content": said}] for asked, said in found]
    text = "".join(json.dumps({"messages": row}) + "\n" for row in rows)
    (folder / "chats.jsonl").write_text(text, encoding="utf-8")
    theirs = [{"instruction": asked, "input": "", "output": said} for asked, said in found]
    (folder / "chats.json").write_text(json.dumps(theirs), encoding="utf-8")
    (folder / "dataset_info.json").write_text(json.dumps({"chats": {"file_name": "chats.json"}}), encoding="utf-8")
    make_model(folder, "chats.jsonl")


def make_model(folder: Path, texts: str) -> None:
    """A tokenizer of the texts in that file of the folder, and a Llama of 14 M parameters with it: ``model`` there."""
    program = [sys.executable, "-m", "kosmos", "tokenizer", "train", str(folder / "model")]
    sized = ["--data", str(folder / texts), "--vocab-size", str(VOCABULARY)]
    subprocess.run([*program, *sized], check=True, capture_output=True)
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6,
        max_position_embeddings=2 * ROW, tie_word_embeddings=True, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder / "model")


def kosmos(folder: Path, output: Path, precision: str, rank: int | None) -> float:
    """Chats a second of an epoch, all of its steps counted."""
    model = {"name": "hf", "model": str(folder / "model"), "dtype": "float32"}
    run = {
        "data": {"sources": str(folder / "chats.jsonl"), "tokens_per_pack": ROW, "held_out": 0},
        "tokenizer": str(folder / "model"),
        "backbone": model if rank is None else {**model, "lora": {"rank": rank, "alpha": 2 * rank}},
        "train": {
            "epochs": 1, "learning_rate": RATE, "weight_decay": 0, "warmup_steps": 0, "schedule": "cosine",
            "optimizer": {"name": "adamw", "betas": [0.9, 0.999]}, "precision": precision,
        },
        "trackers": [],
    }  # fmt: skip
    return speed_of(steps_of(run, output))


def steps_of(run: dict[str, Any], output: Path) -> list[dict[str, Any]]:
    """The metrics of each step of a run of ``kosmos train``."""
    file = output.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(run), encoding="utf-8")
    command = [sys.executable, "-m", "kosmos", "train", str(file), "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def speed_of(rows: list[dict[str, Any]]) -> float:
    """Documents a second, of all steps."""
    return float(sum(row["documents"] for row in rows) / sum(row["step_s"] for row in rows))


def llama_factory(
    folder: Path, output: Path, precision: str, rank: int | None, cli: str, given: dict[str, Any]
) -> float:
    """The same, by the time that its trainer reports."""
    file = folder / "peer.yaml"
    run = {
        "model_name_or_path": str(folder / "model"), "stage": "sft", "do_train": True, "template": "default",
        "dataset": "chats", "dataset_dir": str(folder), "cutoff_len": ROW, "output_dir": str(output),
        "overwrite_cache": True, "learning_rate": RATE, "num_train_epochs": 1.0, "lr_scheduler_type": "cosine",
        "logging_steps": 20, "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": precision == "bf16",
        **({"finetuning_type": "full"} if rank is None else {"finetuning_type": "lora", "lora_rank": rank}), **given,
    }  # fmt: skip
    file.write_text(yaml.safe_dump(run), encoding="utf-8")
    done = subprocess.run([cli, "train", str(file)], check=False, capture_output=True, text=True)
    runtime = RUNTIME.findall(done.stdout + done.stderr)
    if done.returncode or not runtime:
        raise SystemExit(f"{cli} ended with status {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return (LONG + SHORT) / float(runtime[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, metavar="FILE", help="llamafactory-cli of its environment")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--lora", metavar="RANK", type=int, help="train updates beside all linear layers of the blocks")
    parser.add_argument("--side", action="append", choices=list(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    speeds: dict[str, list[float]] = {"kosmos": [], **{side: [] for side in given.side or PEERS}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        for number in range(given.rounds):
            for side, found in speeds.items():
                output = folder / f"{side.split(',')[0]}-{number}-{len(side)}"
                own = folder, output, given.precision, given.lora
                found.append(kosmos(*own) if side == "kosmos" else llama_factory(*own, given.peer, PEERS[side]))
    ours = median(speeds["kosmos"])
    print("| side | chats a second | of each round | Kosmos is |\n|---|---|---|---|")
    for side, found in speeds.items():
        every = ", ".join(f"{speed:.1f}" for speed in found)
        print(f"| {side} | {median(found):.1f} | {every} | {ours / median(found):.2f}x |")


if __name__ == "__main__":
    main()
