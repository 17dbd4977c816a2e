"""An optimizer's step over 50 M parameters in 37 tensors, beside its peers and a copy of the same bytes.

    python benchmarks/optim.py [--dtype fp32 bf16] [--threads 2] [--device cuda] [--rounds 9]

The limit, written first: a step cannot be faster than its bytes over the bandwidth of a plain copy, measured in the
same rounds. Bytes a parameter, each tensor read once and written once if it changes:

| optimizer | weights | gradient | state | fp32 | bf16 |
|---|---|---|---|---|---|
| Lion | read, write | read | momentum read, write | 20 | 10 |
| 8-bit Lion | read, write | read | 1 byte and 4 / 256 read, write | 14 | 8 |
| AdamW | read, write | read | two means read, write | 28 | 14 |
| bf16 Lion with 16 extra bits | read, write | read | momentum and bits read, write | - | 14 |
| bf16 AdamW with 16 extra bits | read, write | read | two means in fp32 and bits read, write | - | 26 |
| the same with 8, or rounded at random | read, write | read | the same with fewer bits or none | - | 24, 22 |

A copy reads and writes the weights: 8 and 4 bytes. Nor can a step of Lion be faster than what reads its weights,
gradients and momentum once and writes nothing: PyTorch's sum of each, the row `read once`, whose times of lion-pytorch
is the most that this machine's memory allows anybody. Targets: 2x lion-pytorch's eager step without compiling, 4x with;
on a GPU 85 % of the copy's bandwidth and 3x. Candidates take turns in every round, each round beginning with another;
medians over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from kosmos.train.optim.adamw import MasterAdamW
from kosmos.train.optim.lion import Lion

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
RATE = 1e-4
WIDTH = 1024

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Candidate:
    """What takes a step."""

    name: str
    make: Make
    bytes_in: dict[str, float]
    """Bytes a parameter by dtype that a step must read and write."""


@dataclass(frozen=True)
class Timing:
    """How long steps took."""

    name: str
    step_ms: float
    limit_ms: float
    """Bytes over the copy's bandwidth."""
    first_s: float
    """The first step, with its compilation."""
    state_bytes: float
    """Bytes a parameter."""


LION = {"fp32": 20.0, "bf16": 10.0}
LION8 = {"fp32": 14 + 8 / 256, "bf16": 8 + 8 / 256}
ADAMW = {"fp32": 28.0, "bf16": 14.0}
PEER = "lion-pytorch eager"
READ = "read once"


def candidates(device: torch.device) -> Iterator[Candidate]:
    """Ours first, as a run file's defaults make them, then the peers."""
    settings = {"lr": RATE, "weight_decay": 0.1, "compile": "auto"}
    yield Candidate("Lion", partial(Lion, **settings), LION)
    yield Candidate("Lion, 8-bit momentum", partial(Lion, block=256, **settings), LION8)
    yield Candidate("Lion, stochastic rounding", partial(Lion, master="stochastic", **settings), {"bf16": 10})
    yield Candidate("Lion, 16 extra bits", partial(Lion, master="bits16", **settings), {"bf16": 14})
    yield Candidate("AdamW, 16 extra bits", partial(MasterAdamW, **settings), {"bf16": 26})
    if device.type == "cpu":
        yield Candidate("AdamW, 8 extra bits", partial(MasterAdamW, master="bits8", **settings), {"bf16": 24})
        yield Candidate("AdamW, stochastic", partial(MasterAdamW, master="stochastic", **settings), {"bf16": 22})
        settings["compile"] = False
        yield Candidate("Lion, no compiler", partial(Lion, **settings), LION)
        yield Candidate("Lion, 8-bit momentum, no compiler", partial(Lion, block=256, **settings), LION8)
        yield Candidate("AdamW, 16 extra bits, no compiler", partial(MasterAdamW, **settings), {"bf16": 26})
    yield from peers(device)


def peers(device: torch.device) -> Iterator[Candidate]:
    """lion-pytorch's optimizers and PyTorch's AdamW."""
    from lion_pytorch import Lion as PeerLion
    from lion_pytorch.foreach import Lion as ForeachLion

    settings = {"lr": RATE, "weight_decay": 0.1}
    yield Candidate(PEER, partial(PeerLion, **settings), LION)
    yield Candidate("lion-pytorch foreach", partial(ForeachLion, **settings), LION)
    if device.type == "cuda":
        yield Candidate("lion-pytorch Triton", partial(PeerLion, use_triton=True, **settings), LION)
    yield Candidate("AdamW fused", partial(torch.optim.AdamW, fused=True, **settings), ADAMW)
    yield Candidate("AdamW foreach", partial(torch.optim.AdamW, foreach=True, **settings), ADAMW)


def matrices(count: int, tensors: int, dtype: torch.dtype, device: torch.device) -> list[nn.Parameter]:
    """About ``count`` parameters in equal matrices, with gradients."""
    rows = max(1, round(count / tensors / WIDTH))
    random = torch.Generator(device).manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(rows, WIDTH, generator=random, device=device).to(dtype)

    made = [nn.Parameter(normal() * 0.05) for _ in range(tensors)]
    for parameter in made:
        parameter.grad = normal()
    return made


def measure(
    found: Sequence[Candidate], dtype: str, device: torch.device, *, count: int, tensors: int, rounds: int
) -> tuple[float, list[Timing]]:
    """Milliseconds of a copy of the weights, and what each candidate took. All share weights and gradients."""
    weights = matrices(count, tensors, DTYPES[dtype], device)
    room = [torch.empty_like(w) for w in weights]
    optimizers = {c.name: c.make(weights) for c in found if dtype in c.bytes_in}
    firsts = {name: _seconds(o.step, device) for name, o in optimizers.items()}
    copied = partial(_copy, room, weights)
    copied()
    actions = {"copy": copied, READ: partial(_read, room, weights)} | {name: o.step for name, o in optimizers.items()}
    times: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:  # nobody is always behind the copy
            times[name].append(_seconds(actions[name], device))
    copy_s, total = statistics.median(times["copy"]), sum(w.numel() for w in weights)
    bandwidth = 2 * total * weights[0].element_size() / copy_s
    read = 3 * total * weights[0].element_size() / bandwidth
    return copy_s * 1e3, [Timing(READ, statistics.median(times[READ]) * 1e3, read * 1e3, 0, 0)] + [
        Timing(
            c.name,
            statistics.median(times[c.name]) * 1e3,
            c.bytes_in[dtype] * total / bandwidth * 1e3,
            firsts[c.name],
            _state_bytes(optimizers[c.name]) / total,
        )
        for c in found
        if dtype in c.bytes_in
    ]


def free_a_large_block() -> None:
    """As every training has before its first step: glibc keeps what is freed for the next temporary, instead of asking
    the system for it each time, only up to the size of the largest block that was ever freed (32 MiB at most). Without
    this the peers' temporaries are fresh pages: lion-pytorch eager took 175 ms in place of 50 (machine C, fp32)."""
    torch.empty(31 << 20, dtype=torch.uint8)


def _copy(into: list[Tensor], source: list[nn.Parameter]) -> None:
    with torch.no_grad():
        for target, weight in zip(into, source, strict=True):
            target.copy_(weight)


def _read(momentum: list[Tensor], weights: list[nn.Parameter]) -> None:
    """Two bf16 numbers are read as one of fp32, whose sum waits for memory alone."""
    for mean, weight in zip(momentum, weights, strict=True):
        for tensor in (weight.detach(), weight.grad, mean):
            tensor.view(torch.float32).sum()


def _seconds(action: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    begin = time.perf_counter()
    action()
    _wait(device)
    return time.perf_counter() - begin


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    values = [v for state in optimizer.state.values() for v in state.values()]
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, Tensor))


def table(dtype: str, copy_ms: float, timings: Sequence[Timing]) -> str:
    """As Markdown; ratios are of medians."""
    peer = next(t.step_ms for t in timings if t.name == PEER)
    head = f"| {dtype} (a copy of the weights: {copy_ms:.1f} ms) | step, ms | limit, ms | share of the limit |"
    lines = [f"{head} times {PEER} | state, B a parameter | first step, s |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {t.name} | {t.step_ms:.1f} | {t.limit_ms:.1f} | {t.limit_ms / t.step_ms:.2f} | {peer / t.step_ms:.2f} "
        f"| {t.state_bytes:.2f} | {t.first_s:.2f} |"
        for t in timings
    ]
    return "\n".join(lines)


def main() -> None:
    """Read the options, measure each dtype and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="of PyTorch; the default is its own")
    parser.add_argument("--parameters", type=float, default=50e6)
    parser.add_argument("--tensors", type=int, default=37)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    free_a_large_block()
    found = list(candidates(device))
    count = int(options.parameters)
    print(f"{count:,} parameters in {options.tensors} tensors, {device}, {torch.get_num_threads()} threads\n")
    for dtype in options.dtype:
        timed = measure(found, dtype, device, count=count, tensors=options.tensors, rounds=options.rounds)
        print(table(dtype, *timed), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
