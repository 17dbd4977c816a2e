"""Where the time of a few steps goes: PyTorch's profiler, and a table of what it saw (``profile`` of the run file)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import compress
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType

from kosmos.config_profile import ProfileConfig
from kosmos.errors import ConfigError, TrainingError
from kosmos.train.flops import ATTENTION

KINDS = {
    "attention": (*ATTENTION, "attention", "flash", "fmha"),
    "exchanges": ("nccl", "gloo", "c10d"),
    "products": ("mm", "linear", "convolution", "matmul", "gemm", "cutlass", "nvjet", "xmma"),
    "copies": ("copy_", "_to_copy", "aten::cat", "clone", "Memcpy", "Memset", "aten::fill_", "aten::index", "gather"),
}
"""Kind of an operation by what its name holds; the first that fits counts."""
OTHERS, NONE = "other operations", "Python and waiting"
SPAN = "kosmos: "
"""In front of a phase of a step, as ``kosmos.train.watch.Watch.at`` names it, so that a trace shows it."""
STEP = f"{SPAN}step"
ROWS = 40
"""Operations in the table: the rest takes hundredths."""

At = Callable[..., None]


def check_profile(settings: ProfileConfig | None, steps: int, processes: int) -> None:
    """Raises ConfigError where a run of so many steps and processes would record nothing."""
    if settings is None:
        return
    if settings.after_steps + settings.steps > steps:
        raise ConfigError(
            f"profile: {settings.steps} steps after the first {settings.after_steps} are to be recorded, the run has "
            f"{steps} (train.steps); lower profile.after_steps"
        )
    if absent := [rank for rank in settings.ranks if not 0 <= rank < processes]:
        raise ConfigError(f"profile.ranks: {absent[0]} is no rank of {processes} processes (0 to {processes - 1})")


class Profiler:
    """Records some steps of this process and writes what they were."""

    def __init__(
        self,
        settings: ProfileConfig | None,
        folder: Path,
        *,
        rank: int,
        device: torch.device,
        at: At,
        report: Callable[[str], None],
    ) -> None:
        """
        Args:
            settings: None records nothing.
            folder: what is written goes into it; it is made.
            at: told what begins: see ``kosmos.train.watch.Watch.at``.
            report: shows a line to the user.
        """
        self.settings = settings if settings is not None and rank in settings.ranks else None
        self.folder, self.rank, self.device, self._at, self.report = folder, rank, device, at, report
        self.met = 0
        """Steps of this session that were taken."""
        self.first = self.last = 0
        """Numbers of the steps that were recorded whole; after a roll-back more steps have them."""
        self._whole: list[bool] = []
        """Of the steps that began while it recorded, which were taken to their end."""
        self._recording: Any = None
        self._span: Any = None

    def at(self, phase: str, **more: Any) -> None:
        """As ``Watch.at``, and begins a span of the trace."""
        self._at(phase, **more)
        if self._recording is not None:
            self._end_span()
            self._span = torch.profiler.record_function(SPAN + phase.partition(" (")[0])
            self._span.__enter__()

    @contextmanager
    def around(self, step: int) -> Iterator[None]:
        """A step is taken. What comes between two is not told as theirs.

        Args:
            step: its number.

        Raises:
            TrainingError: what was recorded cannot be written.
        """
        if self.settings is not None and self.met == self.settings.after_steps and self._recording is None:
            self.first, self.last, self._whole = step, 0, []
            self._recording = _open(self.device)
            with _without_a_word(self.device):
                self._recording.start()
        self._whole.append(False)
        with nullcontext() if self._recording is None else torch.profiler.record_function(STEP):
            try:
                yield
            finally:  # a step that is stopped or rolled back leaves no span open
                self._end_span()
            if self._recording is not None and self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # its last kernels are the step's, too
        self._whole[-1] = True
        self.first, self.last = min(self.first, step), max(self.last, step)
        self.met += 1
        if self.settings is not None and self.met == self.settings.after_steps + self.settings.steps:
            self._write()

    def close(self) -> None:
        """Write the whole steps that were recorded, of fewer than were wanted, and say where there are none."""
        self._end_span()
        if self.settings is None or self.met >= (wanted := self.settings.after_steps + self.settings.steps):
            return
        if self._recording is not None and self.met > self.settings.after_steps:
            try:
                self._write()
            except TrainingError as error:  # the run has ended, which may have a reason of its own
                self.report(f"profile: {error}")
            return
        if self._recording is not None:
            recorded, self._recording = self._recording, None
            with _without_a_word(self.device):
                recorded.stop()
        self.report(
            f"profile: nothing was recorded: this session took {self.met} of the {wanted} steps it takes; "
            "profile=false turns it off"
        )

    def _end_span(self) -> None:
        if self._span is not None:
            self._span.__exit__(None, None, None)
            self._span = None

    def _write(self) -> None:
        self._at("writing the profile")
        recorded, self._recording = self._recording, None
        with _without_a_word(self.device):
            recorded.stop()
        steps = f"{self.first}-{self.last}"
        table, trace = (self.folder / f"steps-{steps}-rank{self.rank}.{end}" for end in ("txt", "trace.json.gz"))
        text, shares = told(recorded.events(), self.device, self._whole)
        try:
            self.folder.mkdir(exist_ok=True)
            table.write_text(f"steps {self.first} to {self.last}, rank {self.rank}, {self.device.type}\n{text}")
            recorded.export_chrome_trace(str(trace))
        except OSError as error:
            raise TrainingError(f"{self.folder}: cannot write the profile ({error.strerror})") from error
        self.report(f"profile of steps {self.first} to {self.last}: {shares}; {table}, and {trace.name} for a viewer")


def _open(device: torch.device) -> Any:
    """A profiler of all threads: rows at once have their own."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    every = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    return torch.profiler.profile(activities=activities, acc_events=True, experimental_config=every)


@contextmanager
def _without_a_word(device: torch.device) -> Iterator[None]:
    """From torch 2.14 on the profiler says that it starts and stops, and a CUDA build on a machine without a GPU calls
    that an error. It could be told to say nothing at all, but of a GPU errors are of interest."""
    if device.type == "cuda":
        yield
        return
    said = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(said, 2)
        os.close(said)


def told(events: Iterable[Any], device: torch.device, whole: Sequence[bool]) -> tuple[str, str]:
    """What was recorded, for people: a text of several lines, and the shares by kind in one.

    Args:
        events: of PyTorch's profiler (``FunctionEvent``).
        whole: of the steps that began, which were not stopped or rolled back in their midst.
    """
    events, on_gpu = _of_steps(events, whole), device.type == "cuda"
    spans = [event for event in events if event.name.startswith(SPAN) and event.device_type == DeviceType.CPU]
    wall = max(1e-9, sum(span.time_range.elapsed_us() for span in spans if span.name == STEP))
    times, calls = _times(events, on_gpu=on_gpu)
    # Threads may compute at once, so that times sum to more than the steps took.
    idle = max(0.0, 1 - _covered(events, on_gpu=on_gpu) / wall)
    share = {name: (1 - idle) * taken / max(1e-9, sum(times.values())) for name, taken in times.items()}
    kinds: Counter[str] = Counter()
    for name, of_all in share.items():
        kinds[kind_of(name)] += of_all
    by_kind = _shares([*kinds.most_common(), ("the GPU waits" if on_gpu else NONE, idle)])
    phases: Counter[str] = Counter()
    for span in spans:
        if span.name != STEP:
            phases[span.name.removeprefix(SPAN)] += span.time_range.elapsed_us() / wall
    rows = [
        f"{share[name]:8.1%} {taken / 1e3:10,.1f} {calls[name]:8,}  {name[:80]}"
        for name, taken in times.most_common(ROWS)
    ]
    lines = [
        f"{wall / 1e6:.3f} s under the profiler, which slows small operations down",
        f"by phase: {_shares(phases.most_common())}",
        f"by kind: {by_kind}",
        "",
        f"{'share':>8} {'ms':>10} {'calls':>8}  operation, without those that it calls",
        *rows,
    ]
    return "\n".join(lines) + "\n", by_kind


def _of_steps(events: Iterable[Any], whole: Sequence[bool]) -> list[Any]:
    """Those within a step that is whole: scoring and saving come between two."""
    events = list(events)
    ranges = [e.time_range for e in events if e.name == STEP and e.device_type == DeviceType.CPU]
    ranges = [*compress(sorted(ranges, key=lambda r: r.start), whole)]
    return [e for e in events if any(r.start <= e.time_range.start <= r.end for r in ranges)]


def kind_of(name: str) -> str:
    """Kind of an operation or a kernel, by its name."""
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), OTHERS)


def _times(events: Iterable[Any], *, on_gpu: bool) -> tuple[Counter[str], Counter[str]]:
    """Microseconds, and calls, by operation; on a GPU by kernel."""
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in events:
        if _is_counted(event, on_gpu=on_gpu):
            times[event.name] += event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
            calls[event.name] += 1
    return times, calls


def _covered(events: Iterable[Any], *, on_gpu: bool) -> float:
    """Microseconds in which any operation runs, on a GPU any kernel: they may overlap."""
    ranges = sorted(
        (event.time_range.start, event.time_range.end) for event in events if _is_counted(event, on_gpu=on_gpu)
    )
    covered, reached = 0.0, float("-inf")
    for start, end in ranges:
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def _is_counted(event: Any, *, on_gpu: bool) -> bool:
    is_kernel = event.device_type == DeviceType.CUDA
    return is_kernel == on_gpu and not event.is_user_annotation and not event.name.startswith(SPAN)


def _shares(parts: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in parts if share >= 0.001)
