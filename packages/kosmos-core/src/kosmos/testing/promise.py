"""A promise: one sentence about one component, and the function that tries to break it."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, Protocol

from kosmos.errors import cause, own_line
from kosmos.testing.limit import LimitPassed, within


class BrokenPromise(AssertionError):
    """What a plugin does otherwise than promised, with the smallest example that was found."""


class Unchecked(unittest.SkipTest):
    """A promise that does not apply or cannot be checked here, and why. pytest shows it as skipped."""


class NotBuilt(Exception):
    """A part that others are checked on cannot be had; the promise ``builds`` is the one to break."""


class Lacking(NotBuilt):
    """Nor does it break ``builds``: it needs an option, a file or a package that is not here."""


class Subject(Protocol):
    """What a rule is checked on."""

    @property
    def label(self) -> str:
        """Kind and name: ``"modality depth"``."""
        ...

    @property
    def module(self) -> str:
        """Where its code is, as an entry point or a target names it."""
        ...


@dataclass(frozen=True)
class Rule:
    """A promise of all components of one kind."""

    kind: str
    """Kind of component, or ``"plugin"``."""
    id: str
    """Stable name, such as ``plan-deterministic``."""
    says: str
    """What is promised, as a sentence."""
    function: Callable[[Any], None]
    """Raises ``BrokenPromise`` or ``Unchecked``."""
    slow: bool = False
    """Starts trainings or compilers: left out by ``--fast``."""


def rule(kind: str, id: str, says: str, *, slow: bool = False) -> Callable[[Callable[[Any], None]], Rule]:
    """Make a function the rule of a kind of component."""
    return lambda function: Rule(kind, id, says, function, slow)


@dataclass(frozen=True)
class Verdict:
    """What became of one promise."""

    id: str
    component: str
    outcome: Literal["passed", "failed", "skipped"]
    message: str
    """Why it failed or was skipped; empty where it holds."""
    seconds: float
    stopped: bool = False
    """It took longer than it may, and the component is not tried further."""


@dataclass(frozen=True)
class Promise:
    """A rule for one component of a plugin."""

    rule: Rule
    subject: Subject
    left_out: bool = False
    """Not checked: slow, and only the fast ones are wanted."""

    @property
    def id(self) -> str:
        return self.rule.id

    @property
    def component(self) -> str:
        return self.subject.label

    @property
    def says(self) -> str:
        return self.rule.says

    def __str__(self) -> str:
        return f"{self.component.replace(' ', '-')}/{self.id}"

    def check(self) -> None:
        """Try to break it.

        Raises:
            BrokenPromise: with the smallest example that was found.
            unittest.SkipTest: it does not apply, or cannot be checked here.
        """
        import torch

        if self.left_out:
            raise Unchecked("left out: slow")
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")  # a verdict must not depend on the filters of whoever asks
            torch.manual_seed(0)
            try:
                self.rule.function(self.subject)
            except BrokenPromise as broken:
                raise BrokenPromise(self._told(str(broken))) from broken.__cause__
            except NotBuilt as error:
                raise Unchecked(f"not checked: {error}") from error
            except unittest.SkipTest:
                raise
            except (Exception, SystemExit) as error:  # a seam: the plugin's own code
                raise BrokenPromise(
                    self._told(f"raised {cause(error)}{own_line(error, self.subject.module)}")
                ) from error

    def verdict(self, *, limit_s: float | None = None) -> Verdict:
        """Check it, and say what came of it.

        Args:
            limit_s: seconds after which it is stopped and has failed. Kept in the main thread alone, by ``SIGALRM``.
        """
        begin = perf_counter()
        outcome: Literal["passed", "failed", "skipped"] = "passed"
        message, stopped = "", False
        try:
            with within(limit_s):
                self.check()
        except BrokenPromise as broken:
            outcome, message = "failed", str(broken)
        except unittest.SkipTest as reason:
            outcome, message = "skipped", str(reason)
        except LimitPassed as passed:
            outcome, message, stopped = "failed", self._told(str(passed)), True
        return Verdict(self.id, self.component, outcome, message, round(perf_counter() - begin, 3), stopped)

    def _told(self, what: str) -> str:
        return told(self.component, self.id, self.says, what)


def told(component: str, id: str, says: str, what: str) -> str:
    """A broken promise in a line."""
    return f"{component} breaks {id} ({says}): {what}"
