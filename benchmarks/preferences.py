"""Preferences (DPO) on a CPU: one epoch of pairs of answers through a Llama of transformers, beside TRL's DPOTrainer.

The pairs are questions of CommonsenseQA, OpenBookQA and TruthfulQA with the right answer and a wrong one, and goals of
PIQA with both ways (600 in all). The model is a Llama of 14 M parameters with a vocabulary of 8,000, in both from the
same files, and so is the model that it is compared with. TRL pads batches of eight pairs; Kosmos packs pairs to rows of
1,024 tokens. Both take fp32 weights, AdamW, beta 0.1 and the same schedule; time is that of the steps, as each reports.

python benchmarks/preferences.py --peer FOLDER        # in which trl lies: pip install --no-deps --target FOLDER trl
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from sft import RATE, ROW, make_model, speed_of, steps_of
from workload import DATA

PAIRS = {"commonsense_qa": 150, "openbook_qa": 150, "piqa": 150, "truthfulqa": 150}
BATCH = 8
PEER = """
import json, sys, torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

folder, output, precision, rate, batch = sys.argv[1:]
rows = [json.loads(line) for line in open(f"{folder}/pairs.jsonl", encoding="utf-8")]
model = AutoModelForCausalLM.from_pretrained(f"{folder}/model", dtype=torch.float32)
config = DPOConfig(
    output_dir=output, per_device_train_batch_size=int(batch), learning_rate=float(rate), num_train_epochs=1, beta=0.1,
    lr_scheduler_type="cosine", warmup_steps=0, weight_decay=0.0, logging_steps=20, save_strategy="no",
    report_to="none", use_cpu=True, bf16=precision == "bf16", max_length=1024, gradient_checkpointing=False,
    dataloader_num_workers=0, disable_tqdm=True,
)
tokenizer = AutoTokenizer.from_pretrained(f"{folder}/model")
trainer = DPOTrainer(model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
found = trainer.train()
accuracy = [row["rewards/accuracies"] for row in trainer.state.log_history if "rewards/accuracies" in row]
print("KOSMOS", json.dumps({"seconds": found.metrics["train_runtime"], "right": accuracy[-1]}))
"""


def pairs() -> list[dict[str, str]]:
    """Always the same."""
    chance, found = random.Random(0), []
    for name, count in PAIRS.items():
        rows = [
            json.loads(line) for line in (DATA / "bench" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for row in chance.sample(rows, count):
            if name == "truthfulqa":
                better, worse = row["best_answer"], chance.choice(row["incorrect"])
            else:
                better = row["choices"][row["gold"]]
                worse = chance.choice([choice for choice in row["choices"] if choice != better])
            found.append({"prompt": row.get("query") or row["goal"], "chosen": f" {better}", "rejected": f" {worse}"})
    chance.shuffle(found)
    return found


def kosmos(folder: Path, output: Path, precision: str) -> dict[str, float]:
    """Pairs a second of an epoch, all of its steps counted, and how many of the last ones are right."""
    run: dict[str, Any] = {
        "data": {"sources": str(folder / "pairs.jsonl"), "tokens_per_pack": ROW, "held_out": 0},
        "tokenizer": str(folder / "model"),
        "backbone": {"name": "hf", "model": str(folder / "model"), "dtype": "float32"},
        "train": {
            "objective": {"name": "dpo", "beta": 0.1}, "epochs": 1, "learning_rate": RATE, "weight_decay": 0,
            "warmup_steps": 0, "schedule": {"name": "cosine", "final": 0.0},
            "optimizer": {"name": "adamw", "betas": [0.9, 0.999]},
            "precision": precision,
        },
        "trackers": [],
    }  # fmt: skip
    rows = steps_of(run, output)
    last = rows[-20:]
    right = sum(row["objective"]["right"] * row["documents"] for row in last) / sum(row["documents"] for row in last)
    return {"speed": speed_of(rows), "right": right}


def trl(folder: Path, output: Path, precision: str, site: str) -> dict[str, float]:
    """The same, by the time that its trainer reports."""
    path = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
    given = [str(folder), str(output), precision, str(RATE), str(BATCH)]
    done = subprocess.run(
        [sys.executable, "-c", PEER, *given], check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("KOSMOS ")]
    if done.returncode or not lines:
        raise SystemExit(f"TRL ended with status {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    told = json.loads(lines[-1].removeprefix("KOSMOS "))
    return {"speed": sum(PAIRS.values()) / told["seconds"], "right": told["right"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, metavar="FOLDER", help="where trl lies")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    found: dict[str, list[dict[str, float]]] = {"kosmos": [], "TRL, padded": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = pairs()
        (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        texts = ({"text": row["prompt"] + row["chosen"]} for row in rows)
        (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts), encoding="utf-8")
        make_model(folder, "texts.jsonl")
        for number in range(given.rounds):
            found["kosmos"].append(kosmos(folder, folder / f"kosmos-{number}", given.precision))
            found["TRL, padded"].append(trl(folder, folder / f"trl-{number}", given.precision, given.peer))
    ours = median(one["speed"] for one in found["kosmos"])
    print("| side | pairs a second | of each round | Kosmos is | right at the end |\n|---|---|---|---|---|")
    for side, rounds in found.items():
        speeds = [one["speed"] for one in rounds]
        every, right = ", ".join(f"{speed:.1f}" for speed in speeds), 100 * median(one["right"] for one in rounds)
        print(f"| {side} | {median(speeds):.1f} | {every} | {ours / median(speeds):.2f}x | {right:.0f} % |")


if __name__ == "__main__":
    main()
