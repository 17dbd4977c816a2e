"""The kit in a process of its own, which a plugin may end or fill: ``kosmos plugin test`` then goes on in another.

No torch here. The process says what it is at by lines of JSON; this one watches the memory that it takes.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from kosmos import collector
from kosmos.data.free_memory import memory
from kosmos.errors import PluginError
from kosmos.selection import asked_plugins, only_plugins
from kosmos.testing.child import ended
from kosmos.testing.promise import Verdict, told
from kosmos.testing.scorecard import ScoreCard

SHARE = 0.5
"""Of the memory that is free when a component's promises begin: what checking them may take of it."""
LOOKS_S = 0.1
"""Between two looks at the memory. One page after another, 0.3 GiB are filled in that time."""
LEAVES_S = 3.0
"""For a process that is interrupted, to remove its files."""


@dataclass(frozen=True)
class Stated:
    """A promise, as the other process states it."""

    component: str
    id: str
    says: str


def check_apart(
    distribution: str,
    *,
    fast: bool,
    limit_s: float | None,
    begin: Callable[[Sequence[Stated]], None] = lambda promises: None,
    watch: Callable[[Stated], None] = lambda promise: None,
    done: Callable[[Verdict], None] = lambda verdict: None,
) -> ScoreCard:
    """The score card of an installed distribution, whatever it does to the process that checks it.

    What the plugin prints goes to standard error.

    Args:
        distribution, fast, limit_s, watch, done: as of ``check_distribution``.
        begin: told all promises, before the first is checked.

    Raises:
        PluginError: as of ``promises_of``; or the process ended before it came to a promise.
        ModuleNotFoundError: a package of the extra ``testing`` is not installed.
    """
    promises: list[Stated] = []
    verdicts: list[Verdict] = []
    stopped: dict[str, str] = {}
    version = ""
    while True:
        kit = _Kit(distribution, fast, limit_s, len(verdicts), stopped)
        with closing(kit.messages()) as messages:
            for message in messages:
                if "error" in message:
                    raise PluginError(message["error"])
                if "missing" in message:
                    raise ModuleNotFoundError(message["missing"], name=message["missing"])
                if "promises" in message:
                    version, first = message["version"], not promises
                    promises = [Stated(**stated) for stated in message["promises"]]
                    if first:
                        begin(promises)
                elif "watch" in message:
                    watch(promises[message["watch"]])
                    kit.mark(promises[len(verdicts)].component)
                else:
                    verdicts.append(Verdict(**message))
                    if verdicts[-1].stopped:
                        stopped[verdicts[-1].component] = verdicts[-1].id
                    done(verdicts[-1])
        if promises and len(verdicts) == len(promises):
            return ScoreCard(distribution, version, tuple(verdicts))
        if not promises:
            raise PluginError(f"{distribution}: the process that was to check it {kit.end}")
        at = promises[len(verdicts)]
        text = told(at.component, at.id, at.says, f"the process that checked it {kit.end}")
        seconds = 0.0 if kit.since is None else round(monotonic() - kit.since, 3)
        verdicts.append(Verdict(at.id, at.component, "failed", text, seconds, stopped=True))
        stopped[at.component] = at.id
        done(verdicts[-1])


class _Kit:
    """A process that checks the promises from ``begin`` on, and the memory that it takes."""

    def __init__(
        self, distribution: str, fast: bool, limit_s: float | None, begin: int, stopped: Mapping[str, str]
    ) -> None:
        # A group of its own, which is ended as a whole. Its path comes with the job, as that of ``testing.child``.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self._out = self.process.stdout
        with suppress(BrokenPipeError), self.process.stdin as job:
            pickle.dump((sys.path, asked_plugins(), distribution, fast, limit_s, begin, dict(stopped)), job)
        self.since: float | None = None
        """When the promise at hand began."""
        self.end = ""
        """How it came to its end."""
        self._component, self._had, self._free = "", 0, 0

    def mark(self, component: str) -> None:
        """A promise of ``component`` begins."""
        self.since = monotonic()
        if component != self._component:
            there = memory()
            self._component, self._had = component, _resident(self.process.pid)
            self._free = there.free if there is not None else 0

    def messages(self) -> Generator[dict[str, Any]]:
        """What it says, until it ends by itself or for want of memory. Closed earlier, it ends it."""
        try:
            for line in self._lines():
                yield json.loads(line)
        except BaseException:  # an interrupt, or an error of whoever reads
            self._finish(signal.SIGINT)
            raise
        self._finish()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            while True:
                if not selector.select(LOOKS_S):
                    if self._takes_too_much():
                        return
                    continue
                if not (read := os.read(self._out.fileno(), 1 << 16)):
                    return
                *lines, rest = (rest + read).split(b"\n")
                yield from lines

    def _takes_too_much(self) -> bool:
        more = _resident(self.process.pid) - self._had
        if not self._free or more <= SHARE * self._free:
            return False
        took, free = (f"{size / 2**30:.2g} GiB" for size in (more, self._free))
        self.end = (
            f"took {took} of memory since the first promise of this component, of {free} that were free, and was "
            "stopped; give it smaller options or media in Conditions if it needs so much"
        )
        return True

    def _finish(self, by: signal.Signals = signal.SIGKILL) -> None:
        """End it, if it has not, and what it has started."""
        if by != signal.SIGKILL:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self.process.pid, by)
                self.process.wait(LEAVES_S)
        if not self.end:  # its pipe is closed: it is about to
            with suppress(subprocess.TimeoutExpired):
                self.end = ended(self.process.wait(LEAVES_S))
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self.end = self.end or ended(status)
        self._out.close()


def _resident(pid: int) -> int:
    """Bytes that a process has in memory; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def main() -> None:
    """Check promises and say what comes of them; what plugins print goes to standard error and not in between."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    collector.pause()  # while torch is imported
    sys.path[:], plugins, distribution, fast, limit_s, begin, stopped = pickle.load(sys.stdin.buffer)  # noqa: S301

    def say(**message: Any) -> None:
        print(json.dumps(message), file=out, flush=True)

    try:
        with only_plugins(plugins):
            from kosmos.testing.check import promises_of, verdicts_of
            from kosmos.testing.installed import plugins_of

            promises = promises_of(distribution, fast=fast)
            collector.imported()
            collector.go_on()
            (record, *_) = plugins_of(distribution)[1]
            stated = [asdict(Stated(promise.component, promise.id, promise.says)) for promise in promises]
            say(promises=stated, version=record.version)
            numbers = iter(range(begin, len(promises)))
            for verdict in verdicts_of(promises[begin:], lambda _: say(watch=next(numbers)), limit_s, stopped):
                say(**asdict(verdict))
    except PluginError as error:
        say(error=str(error))
    except ModuleNotFoundError as error:
        say(missing=error.name)
    except BrokenPipeError:  # whoever asked is gone
        os._exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
