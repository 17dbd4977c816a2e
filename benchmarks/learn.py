"""What ``kosmos train`` learns on real media and on its sample sets, and how fast: the command, as a user types it.

    python benchmarks/learn.py digits fashion          # some cases
    python benchmarks/learn.py                         # all of them
    KOSMOS_TEST_DATA=/path/to/data python benchmarks/learn.py

Prints a row a case: held-out exact match before and after, by source, the seconds of the whole command
and the command. ``together`` is compared with ``digits`` at equal digit tokens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("KOSMOS_TEST_DATA", ROOT.parent / "shared" / "data"))

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "sample-sets": ("image,audio", [], []),
    "video-samples": ("video", [], []),
    "text-samples": ("text", [], []),
    "digits": ("audio", ["audio/fsdd"], []),
    "fashion": ("image", ["images/fashion"], []),
    "flowers": ("image", ["images/flowers"], []),
    "esc10": ("audio", ["audio/esc10"], []),
    "videos": ("video", ["video"], []),
}
"""Name to modalities, sources and further arguments."""

TOGETHER = ["audio/fsdd", "images/fashion", "images/flowers", "audio/esc10", "video"]


def run(name: str, modalities: str, sources: list[str], more: list[str]) -> dict[str, object]:
    """Run the command in a folder of its own and read what it left."""
    with tempfile.TemporaryDirectory() as folder:
        data = [part for source in sources for part in ("--data", str(DATA / source))]
        command = ["train", "--modalities", modalities, *data, *more]
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "kosmos", *command, "--output", f"{folder}/run"], check=True)
        seconds = time.perf_counter() - begin
        held = [json.loads(line)["held_out"] for line in Path(folder, "run", "held_out.jsonl").read_text().splitlines()]
        steps = len(Path(folder, "run", "metrics.jsonl").read_text().splitlines())
    shown = " ".join(part.replace(f"{DATA}/", "DATA/") for part in command)
    return {"name": name, "command": f"kosmos {shown}", "seconds": seconds, "held": held, "steps": steps}


def show(result: dict[str, object]) -> None:
    before, after = result["held"][0]["source"], result["held"][-1]["source"]  # type: ignore[index]
    for source, score in after.items():
        match = [f"{100 * s['exact_match']:.1f} %" for s in (before[source], score)]
        cells = (result["name"], source, score["documents"], *match, result["steps"], f"{result['seconds']:.0f}")
        print("| " + " | ".join(str(cell) for cell in (*cells, f"`{result['command']}`")) + " |", flush=True)


def main() -> None:
    wanted = sys.argv[1:] or [*CASES, "together"]
    if unknown := set(wanted) - {*CASES, "together"}:
        raise SystemExit(f"{', '.join(sorted(unknown))}: unknown; give some of {', '.join([*CASES, 'together'])}")
    print("| case | source | held-out documents | before | after | steps | seconds | command |")
    print("|---|---|---|---|---|---|---|---|")
    for name in wanted:
        if name == "together":
            show(run(name, "image,audio,video", TOGETHER, together_settings()))
        else:
            show(run(name, *CASES[name]))


def together_settings() -> list[str]:
    """As many digit tokens as 1,000 steps of digits alone: documents of all sources are drawn equally often, and by
    their planned lengths 65.4 % of the tokens are digits."""
    return ["--steps", os.environ.get("TOGETHER_STEPS", "1529")]


if __name__ == "__main__":
    main()
