"""Goodput of a run that is killed again and again.

    python benchmarks/goodput.py                          # 20 minutes, a kill every 2
    python benchmarks/goodput.py --minutes 2 --every 0.5

A real ``kosmos train`` on the sample sets with a checkpoint every few seconds; SIGKILL to it and all that it started;
resumed at once. Limit: 100 %. Prints ``kosmos report``, and what saving held the training up of the time it took.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KOSMOS = [sys.executable, "-m", "kosmos"]
RUN = [
    "--modalities", "image,audio", "--steps", "1000000", "checkpoint.every_steps=50", "evaluate.max_documents=16",
    "trackers=[]", "train.schedule=constant",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=2.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "run")
        end, kills = time.monotonic() + 60 * given.minutes, 0
        arguments = ["train", *RUN, "--output", str(output)]
        while time.monotonic() < end:
            process = subprocess.Popen(
                [*KOSMOS, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )
            last = time.monotonic() + 60 * given.every >= end
            try:
                _, said = process.communicate(timeout=max(1.0, min(60 * given.every, end - time.monotonic())))
                raise SystemExit(f"the run ended by itself:\n{said.decode()[-2000:]}")
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT if last else signal.SIGKILL)
                kills += not last
                process.communicate()
            arguments = ["train", "--resume", str(output)]
        steps = [json.loads(line)["step"] for line in (output / "metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(1, len(steps) + 1)), "a step is missing or stands twice"
        print(f"{kills} kills, {len(steps)} steps, each once", flush=True)
        subprocess.run([*KOSMOS, "report", str(output)], check=True)


if __name__ == "__main__":
    main()
