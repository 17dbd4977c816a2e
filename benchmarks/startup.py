"""How long ``kosmos --help`` and ``kosmos plugins`` take, as whole processes, beside a bare interpreter.

Then ``kosmos plugins`` with ten broken distributions installed, each broken in another way, and how long a default run
on the sample sets takes to its first step: imports, the model, the score before training, the first rows decoded.

python benchmarks/startup.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 9
LIMIT_S, FIRST_STEP_LIMIT_S = 0.5, 10.0
TRAIN = ["-m", "kosmos", "train", "--modalities", "image,audio"]
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "kosmos --help": ["-m", "kosmos", "--help"],
    "kosmos plugins": ["-m", "kosmos", "plugins"],
}


BROKEN = {
    "absent": "import acme_lost",
    "leaves": "raise SystemExit(3)",
    "syntax": "def broken(:",
    "raises": "raise RuntimeError('no licence')",
    "unversioned": "del KOSMOS_API",
    "newer": "KOSMOS_API = 2",
    "misspelt": "@hookimpl\ndef kosmos_encoder(): ...",
    "takes": "@hookimpl\ndef kosmos_encoders(config): ...",
    "divides": "@hookimpl\ndef kosmos_encoders(): return 1 / 0",
    "none": "@hookimpl\ndef kosmos_encoders(): ...",
}
"""Source of the plugins of the distributions; tests/core/plugins/test_broken_plugins.py says what is said of each."""


def install_broken(site: Path) -> None:
    """Ten distributions of one module each."""
    for name, source in BROKEN.items():
        (site / f"acme_{name}.py").write_text(f"from kosmos import hookimpl\nKOSMOS_API = 1\n{source}\n")
        info = site / f"acme_{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[kosmos]\n{name} = acme_{name}\n")


def seconds(arguments: list[str], path: str = "") -> float:
    """Wall time of a process, with ``path`` in front of what is importable."""
    before = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, before)))}
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment)
    taken = time.perf_counter() - begin
    said = done.stdout.count("\nproblem: ")
    assert said == (len(BROKEN) if path else 0), f"{said} problems were named"
    return taken


def first_step_seconds() -> float:
    """From the command to the first row of metrics; the run is then ended."""
    with tempfile.TemporaryDirectory() as folder:
        rows, null = Path(folder, "run", "metrics.jsonl"), subprocess.DEVNULL
        begin = time.perf_counter()
        with subprocess.Popen([sys.executable, *TRAIN, "--output", f"{folder}/run"], stdout=null, stderr=null) as run:
            while run.poll() is None and not (rows.exists() and rows.stat().st_size):
                time.sleep(0.01)
            taken = time.perf_counter() - begin
            assert run.poll() is None, f"kosmos train ended with {run.returncode}"
            run.kill()
    return taken


def main() -> None:
    """All commands in turn, so that a slow moment of the machine meets each of them."""
    with tempfile.TemporaryDirectory() as site:
        install_broken(Path(site))
        cases = {name: (arguments, "") for name, arguments in COMMANDS.items()}
        cases["kosmos plugins, ten of them broken"] = (COMMANDS["kosmos plugins"], site)
        times: dict[str, list[float]] = {name: [] for name in cases}
        for run in range(RUNS + 1):
            for name, (arguments, path) in cases.items():
                taken = seconds(arguments, path)
                if run:  # the first fills the caches
                    times[name].append(taken)
    limits = dict.fromkeys(times, LIMIT_S)
    first = "kosmos train --modalities image,audio, to the first step"
    times[first], limits[first] = [first_step_seconds() for _ in range(4)][1:], FIRST_STEP_LIMIT_S
    print(f"| command | median of {RUNS} (training: 3), s | limit, s | of it |\n|---|---|---|---|")
    for name, taken_s in times.items():
        middle = statistics.median(taken_s)
        print(f"| `{name}` | {middle:.3f} | {limits[name]} | {middle / limits[name]:.2f} |")


if __name__ == "__main__":
    main()
