"""Low-rank updates (LoRA 16) of a Llama of 91 M parameters on a CPU, beside weights in bf16 or in 4 bits.

Rows of 1,024 tokens of Shakespeare, one a step, full in all of them: nobody pads. The peers are PEFT's layers, and
bitsandbytes' NF4 under them, in a loop that does nothing else: autocast to bf16, cross entropy, AdamW. Kosmos trains as
``kosmos train`` does. Speed is the median of the steps after the second, memory the most that a process held, with the
libraries that it imports.

python benchmarks/lora.py --peer FOLDER        # pip install --no-deps --target FOLDER peft bitsandbytes
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from workload import DATA

ROW, STEPS, WARM, RANK, RATE = 1024, 10, 2, 16, 1e-4
SHAPE = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12}
PEER = """
import json, sys, time, torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

folder, bits, row, steps, rank, rate = sys.argv[1:]
few = dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
more = {"quantization_config": BitsAndBytesConfig(**few)} if bits == "4" else {}
model = AutoModelForCausalLM.from_pretrained(folder + "/model", dtype=torch.bfloat16, device_map="cpu", **more)
made = LoraConfig(r=int(rank), lora_alpha=2 * int(rank), target_modules="all-linear", task_type="CAUSAL_LM")
model = get_peft_model(model, made).train()
tokenizer = AutoTokenizer.from_pretrained(folder + "/model")
text = "\\n".join(json.loads(line)["text"] for line in open(folder + "/texts.jsonl", encoding="utf-8"))
ids = tokenizer(text, return_tensors="pt").input_ids[0]
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=float(rate), weight_decay=0.0)
times = []
for step in range(int(steps)):
    began, batch = time.perf_counter(), ids[step * int(row) : (step + 1) * int(row)][None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter() - began)
print("TIMES", json.dumps(times))
"""


def make(folder: Path) -> None:
    """Texts of about a row each, a tokenizer of them and the model."""
    text = (DATA / "text" / "tinyshakespeare.txt").read_text(encoding="utf-8")
    size = 3 * ROW
    rows = [{"text": text[start : start + size]} for start in range(0, len(text) - size, size)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    program = [sys.executable, "-m", "kosmos", "tokenizer", "train", str(folder / "model")]
    subprocess.run([*program, "--data", str(folder / "texts.jsonl"), "--vocab-size", "8000"], check=True)
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokens = len(AutoTokenizer.from_pretrained(folder / "model"))
    config = LlamaConfig(vocab_size=tokens, max_position_embeddings=2 * ROW, tie_word_embeddings=True, **SHAPE)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "model")


def measured(command: list[str], env: dict[str, str]) -> tuple[str, float]:
    """What a program printed, and the most memory that it held, in GiB."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=env)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        if process.returncode:
            raise SystemExit(f"{command[:4]} ended with status {process.returncode}:\n{err.read()[-2000:]}")
        return out.read(), used.ru_maxrss / 2**20


def kosmos(folder: Path, output: Path, quantize: str | None) -> tuple[float, float]:
    """Tokens a second, and memory."""
    run: dict[str, Any] = {
        "modalities": [],
        "data": {
            "sources": str(folder / "texts.jsonl"), "tokens_per_pack": ROW, "held_out": 0,
        },
        "tokenizer": str(folder / "model"),
        "backbone": {
            "name": "hf", "model": str(folder / "model"), "dtype": "bfloat16",
            "lora": {"rank": RANK, "alpha": 2 * RANK, "quantize": quantize},
        },
        "train": {
            "steps": STEPS, "learning_rate": RATE, "weight_decay": 0, "precision": "bf16",
            "optimizer": {"name": "adamw", "betas": [0.9, 0.999]},
        },
        "trackers": [],
    }  # fmt: skip
    file = output.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(run), encoding="utf-8")
    command = [sys.executable, "-m", "kosmos", "train", str(file), "--output", str(output)]
    _, memory = measured(command, dict(os.environ))
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return median(row["tokens"] / row["step_s"] for row in rows[WARM:]), memory


def peft(folder: Path, bits: str, site: str) -> tuple[float, float]:
    """The same of PEFT."""
    path = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
    given = [str(folder), bits, *map(str, (ROW, STEPS, RANK, RATE))]
    env = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    printed, memory = measured([sys.executable, "-c", PEER, *given], env)
    line = next(line for line in printed.splitlines() if line.startswith("TIMES "))
    return ROW / median(json.loads(line.removeprefix("TIMES "))[WARM:]), memory


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, metavar="FOLDER", help="where peft and bitsandbytes lie")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        for number in range(given.rounds):
            sides = {
                "Kosmos, bf16": lambda n=number: kosmos(folder, folder / f"whole-{n}", None),
                "PEFT, bf16": lambda: peft(folder, "16", given.peer),
                "Kosmos, nf4": lambda n=number: kosmos(folder, folder / f"nf4-{n}", "nf4"),
                "PEFT and bitsandbytes, nf4": lambda: peft(folder, "4", given.peer),
            }
            for side, run in sides.items():
                found.setdefault(side, []).append(run())
    ours = [median(of[0] for of in found[f"Kosmos, {kind}"]) for kind in ("bf16", "nf4")]
    print("| side | tokens a second | of each round | Kosmos is | most memory, GiB |\n|---|---|---|---|---|")
    for number, (side, rounds) in enumerate(found.items()):
        speeds, memory = [speed for speed, _ in rounds], median(of for _, of in rounds)
        ratio = ours[number // 2] / median(speeds)
        each = ", ".join(f"{speed:,.0f}" for speed in speeds)
        print(f"| {side} | {median(speeds):,.0f} | {each} | {ratio:.2f}x | {memory:.2f} |")


if __name__ == "__main__":
    main()
