"""What a person sees of a run: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, TextIO

import torch

from kosmos.compose import Composition
from kosmos.data.document import Source
from kosmos.data.shown import source_lines
from kosmos.errors import ConfigError
from kosmos.evaluate.score import Scores
from kosmos.model.nf4 import values_in
from kosmos.train.held_out import closing_table
from kosmos.train.interval import Interval
from kosmos.train.small_data import PassesTold
from kosmos.visible import say, visible


@dataclass(frozen=True)
class RunStart:
    """What a run is made of."""

    composition: Composition
    sources: Sequence[Source]
    held_out: Sequence[Source]
    device: torch.device
    dtype: torch.dtype
    """Of matrix products."""
    output: Path
    layout: str = ""
    """How many processes train it, and how they share the work; nothing of a process alone."""
    in_epochs: bool = False
    """Whether its length was given in epochs."""


@dataclass(frozen=True)
class RunResult:
    """What a run came to."""

    output: Path
    step: int
    before: Scores | None
    """Held-out scores before the first step; None where nothing was held out then."""
    after: Scores | None
    """Held-out scores after the last step; None where nothing is held out."""
    bad: int = 0
    """Samples that were left out, each with its cause in ``quarantine.jsonl``; of all sessions of the run."""
    warnings: tuple[str, ...] = ()
    """What a user should know, in the order in which it was said."""


class Reporter:
    """Shows nothing of a run; a reporter overrides what it shows.

    Of several processes that of the first alone is called.
    """

    def start(self, run: RunStart) -> None:
        """All is opened and built; nothing has been scored or trained."""

    def say(self, line: str) -> None:
        """A line about something out of the ordinary."""

    def step(self, row: Mapping[str, Any], steps: int) -> None:
        """The row of ``metrics.jsonl`` of a step, one of ``steps``."""

    def scored(self, step: int, scores: Scores) -> None:
        """What is held out was scored, before the first step (0) or behind a step."""

    @contextmanager
    def pause(self, what: str) -> Iterator[None]:
        """Around ``what`` is done between steps."""
        yield

    def finish(self, before: Scores | None, after: Scores | None, output: Path, bad: int) -> None:
        """The run has ended well, with ``bad`` samples left out."""

    def wants_stop(self) -> bool:
        """Asked before every step and while rows are waited for; True stops the run as Ctrl-C would.

        It is saved, and ``Interrupted`` says how to go on. For a run in another thread than the main one, where no
        signal is heard. Where the others are to stop, the first process has to ask for it.
        """
        return False

    def close(self) -> None:
        """The run has ended, however it did."""


def check_reporter(reporter: Reporter) -> None:
    """Raises ConfigError where a method of it cannot be called as a run does, which would end the run in its midst."""
    for name in ("start", "say", "step", "scored", "pause", "finish", "wants_stop", "close"):
        method, wanted = getattr(reporter, name), [*signature(getattr(Reporter, name)).parameters][1:]
        try:
            signature(method).bind(*wanted)
        except TypeError as error:
            called = f"{name}({', '.join(wanted)})"
            raise ConfigError(f"reporter: {type(reporter).__name__} cannot be called as {called}: {error}") from error
        except ValueError:  # of code that is not Python's and does not say what it takes
            continue


class Relay(Reporter):
    """Shows what ``reporter`` does."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def start(self, run: RunStart) -> None:
        self._show(lambda: self.reporter.start(run))

    def say(self, line: str) -> None:
        self._show(lambda: self.reporter.say(line))

    def step(self, row: Mapping[str, Any], steps: int) -> None:
        self._show(lambda: self.reporter.step(row, steps))

    def scored(self, step: int, scores: Scores) -> None:
        self._show(lambda: self.reporter.scored(step, scores))

    @contextmanager
    def pause(self, what: str) -> Iterator[None]:
        with ExitStack() as stack:
            self._show(lambda: stack.enter_context(self.reporter.pause(what)))
            yield

    def finish(self, before: Scores | None, after: Scores | None, output: Path, bad: int) -> None:
        self._show(lambda: self.reporter.finish(before, after, output, bad))

    def wants_stop(self) -> bool:
        return self.reporter.wants_stop()

    def close(self) -> None:
        self._show(self.reporter.close)

    def _show(self, act: Callable[[], object]) -> None:
        act()


class Steady(Relay):
    """As long as somebody listens: a pipe that closes or a full disk end no run."""

    def _show(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            self.reporter = Reporter()


WARNING = "warning: "
"""How a line begins that says what a user should know."""


class Noting(Relay):
    """Keeps the warnings, and has those of its own of many passes over the data."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(reporter)
        self.warnings: list[str] = []
        self.passes = PassesTold()

    def start(self, run: RunStart) -> None:
        super().start(run)
        self.passes.start(run.sources, in_epochs=run.in_epochs)

    def step(self, row: Mapping[str, Any], steps: int) -> None:
        super().step(row, steps)
        for line in self.passes.at(row, steps):
            self.say(f"{WARNING}{line}")

    def finish(self, before: Scores | None, after: Scores | None, output: Path, bad: int) -> None:
        for line in self.passes.at_end():
            self.say(line)
        super().finish(before, after, output, bad)

    def say(self, line: str) -> None:
        if line.startswith(WARNING):
            self.warnings.append(line.removeprefix(WARNING))
        super().say(line)


class ConsoleReporter(Reporter):
    """Writes to standard error (the run's talk) and standard output (its closing table)."""

    EVERY_S = 10.0
    """Seconds between lines where there is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        class Plain(Console):
            """Says that nobody reads any more, where rich's would end the process."""

            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        # In a notebook rich would make an output of HTML of each line, beside standard error.
        self.console = Plain(stderr=True, highlight=False, soft_wrap=True, force_jupyter=False)
        # FORCE_COLOR, as CI sets it, has rich call a file a terminal, and a dumb one cannot go back in its line.
        self.has_bar = sys.stderr.isatty() and not self.console.is_dumb_terminal
        self.table: TextIO | None = None  # where the closing table goes; None is standard output
        self.bar: Any = None
        self.task: Any = None
        self.said_at = 0.0
        self.since = Interval()
        self.began_at: float | None = None
        self.first_step = 0
        self.in_epochs = False

    def start(self, run: RunStart) -> None:
        self.in_epochs = run.in_epochs
        for line in source_lines(run.sources, run.held_out):
            self.say(line)
        composition = run.composition
        if not composition.config.data.sources:
            self.say("          generated by plugins, to try them: --data PATH trains on your own")
        self.say(
            f"backbone  {composition.config.backbone.name}: {_count(composition.model.backbone)}, "
            f"{composition.tokenizer.vocab_size:,} tokens"
        )
        for name, stream in composition.model.streams.items():
            module: Any = stream
            self.say(f"stream    {name}: encoder {_count(module.encoder)}, connector {_count(module.connector)}")
        self.say(f"device    {run.device}, products in {str(run.dtype).removeprefix('torch.')}")
        if run.layout:
            self.say(f"processes {run.layout}")
        self.say(f"output    {run.output}")

    def say(self, line: str) -> None:
        (self.bar.console if self.bar else self.console).print(visible(line), markup=False)

    def step(self, row: Mapping[str, Any], steps: int) -> None:
        now = time.perf_counter()
        if self.began_at is None:  # behind the first step, which may take as long as hundreds
            self.began_at, self.first_step = now, row["step"]
        done = row["step"] - self.first_step
        left = ((now - self.began_at) / done if done else row["step_s"]) * (steps - row["step"])
        self.since.add(row)
        loss, end = f"loss {row['loss']:.4f}{_right(row)}", f"{_clock(left)} left"
        is_told = "epoch" in row and (self.in_epochs or row["epoch"] > 1)
        epoch = [f"epoch {row['epoch']:.2f}"] if is_told else []
        if self.has_bar:
            speed = f"{row['tokens_per_s']:,.0f} tokens/s"
            limits = [_waiting(row), *([f"MFU {_percent(row['mfu'])}"] if "mfu" in row else [])]
            room = self.console.width - len(f"step {row['step']}/{steps} ")
            self._show_bar(row["step"], steps, fitting([loss, end, *epoch, speed, *limits], room))
        elif now - self.said_at > self.EVERY_S or row["step"] in (1, steps):
            self.said_at = now
            means, self.since = self.since.mean(row), Interval()
            self.say("  ".join([f"step {row['step']}/{steps}", *epoch, loss, *meters(means), end]))

    def _show_bar(self, step: int, steps: int, line: str) -> None:
        if self.bar is None:
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"))
            self.bar = Progress(*columns, console=self.console)
            self.task = self.bar.add_task(line, total=steps)
            self.bar.start()
        self.bar.update(self.task, completed=step, description=line)

    @contextmanager
    def pause(self, what: str) -> Iterator[None]:
        self.say(what)
        begin = time.perf_counter()
        yield
        if self.began_at is not None:
            self.began_at += time.perf_counter() - begin

    def finish(self, before: Scores | None, after: Scores | None, output: Path, bad: int) -> None:
        self.close()
        if bad:
            were = "1 bad sample was" if bad == 1 else f"{bad} bad samples were"
            self.say(f"{were} left out; each with its cause: {output / 'quarantine.jsonl'}")
        sys.stderr.flush()
        if after is not None:
            say("\n".join(closing_table(before, after)), file=self.table, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def fitting(parts: Sequence[str], room: int) -> str:
    """As many of the parts, the most wanted first, as go into a line of so many characters beside the steps."""
    whole = [parts[:number] for number in range(len(parts), 0, -1)]
    return next((line for some in whole if len(line := "  ".join(some)) <= room), "")


def meters(row: Mapping[str, Any]) -> Iterator[str]:
    """What steps came to and what they cost, of a row of metrics."""
    apart = f" ({row['text_tokens_per_s']:,.0f} text, {row['media_tokens_per_s']:,.0f} media)"
    yield f"{row['tokens_per_s']:,.0f} tokens/s" + (apart if row["media_tokens"] else "")
    yield f"{row['samples_per_s']:,.1f} samples/s"
    yield f"fill {_percent(row['fill'])}"
    if row["imbalance_by_stream"]:
        yield "imbalance " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in row["imbalance_by_stream"].items())
    if "mfu" in row:
        of = ", ".join(f"{name} {100 * share:.1f}" for name, share in row["mfu_by_module"].items())
        most = f" of {row['peak_flops'] / 1e12:,.3g} TFLOP/s" if "peak_flops" in row else ""
        yield f"MFU {_percent(row['mfu'])}{most} ({of}; causal attention halved {100 * row['mfu_half_causal']:.1f})"
    yield _waiting(row)
    yield f"peak {row['peak_memory_bytes'] / 2**30:,.1f} GiB"
    if "compilations" in row:
        yield f"compiled {row['compilations']:,}"


def _waiting(row: Mapping[str, Any]) -> str:
    return f"data wait {_percent(row['data_wait_share'])}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _count(module: torch.nn.Module) -> str:
    total = sum(map(values_in, module.parameters()))
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    return f"{total:,} parameters" + (f" ({trained:,} trained)" if trained != total else "")


def _right(row: Mapping[str, Any]) -> str:
    """Of how many units of the step an objective says that the model is right."""
    right = row.get("objective", {}).get("right")
    return "" if right is None else f", {100 * right:.1f} % right"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
