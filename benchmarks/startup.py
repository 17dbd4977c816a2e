"""How long ``kosmos --help`` and ``kosmos plugins`` take, as whole processes, beside a bare interpreter.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 9
LIMIT_S = 0.5
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "kosmos --help": ["-m", "kosmos", "--help"],
    "kosmos plugins": ["-m", "kosmos", "plugins"],
}


def seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    """All commands in turn, so that a slow moment of the machine meets each of them."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for run in range(RUNS + 1):
        for name, arguments in COMMANDS.items():
            taken = seconds(arguments)
            if run:  # the first fills the caches
                times[name].append(taken)
    print(f"| command | median of {RUNS}, s | of the limit of {LIMIT_S} s |\n|---|---|---|")
    for name, taken in times.items():
        print(f"| `{name}` | {statistics.median(taken):.3f} | {statistics.median(taken) / LIMIT_S:.2f} |")


if __name__ == "__main__":
    main()
