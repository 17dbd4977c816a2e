"""The errors that a user can act on: one line, a stable code and an exit status.

A line says what is wrong, where, what was expected and found, and what to do. Our own mistakes are
``assert`` statements; these classes are for input.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from itertools import takewhile
from types import FrameType
from typing import ClassVar

from kosmos.visible import visible


class KosmosError(Exception):
    """Base of all errors that a user's input can cause."""

    code: ClassVar[str] = "kosmos"
    """Stable name of the kind, printed in brackets before the line."""
    exit_status: int = 1
    """What the command exits with."""
    elsewhere: bool = False
    """Another rank has the cause, and prints it."""
    agreed: bool = False
    """All ranks raise it: their exchanges are whole."""

    def line(self) -> str:
        """The error as the one line that commands print."""
        return f"error[{self.code}]: {visible(' '.join(str(self).split()))}"

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the caller's own lines and the message. ``KOSMOS_DEBUG=1`` shows all, as in a terminal.

        All is shown too where the code of a plugin has failed, which may stand in a cell.
        """
        import traceback

        if debugs() or (isinstance(self, PluginError) and self.__cause__ is not None):
            return traceback.format_exception(self)
        steps = takewhile(lambda step: _package(step[0]) != "kosmos", traceback.walk_tb(self.__traceback__))
        own = traceback.StackSummary.extract(step for step in steps if _package(step[0]) != "IPython")
        return ["".join([*own.format(), f"{type(self).__name__}: {visible(str(self))}"])]


class ConfigError(KosmosError):
    """A run file, an override or an option is wrong."""

    code = "config"
    exit_status = 2


class NoSuchPart(ConfigError, TypeError):
    """A document is made of something that none is made of. Of a source's document, an error of that sample."""


class PluginError(KosmosError):
    """A plugin is missing, broken or asked for something that it does not bring."""

    code = "plugin"
    exit_status = 3


class Misnamed(ConfigError, PluginError):
    """No component has the name, and one that is there was meant: a mistake of the run file, whatever is installed."""


class DataError(KosmosError):
    """A source of documents cannot be used at all."""

    code = "data"
    exit_status = 3


class EmptySplit(DataError):
    """A source is sound and has no document in the part that was asked for."""

    code = "empty-split"


class SampleError(DataError):
    """One sample cannot be used. It is put in the quarantine ledger and the run goes on."""

    code = "sample"


class PlanMismatch(SampleError):
    """A processor decoded another number of cells than it had planned."""

    code = "plan-mismatch"


class QuarantineFull(DataError):
    """More samples were bad than the stated budget allows."""

    code = "quarantine-full"


class CheckpointError(KosmosError):
    """A checkpoint is missing, damaged or does not fit the run."""

    code = "checkpoint"
    exit_status = 3


class TrainingError(KosmosError):
    """The run itself went wrong: a loss that is not finite, a full disk."""

    code = "training"
    exit_status = 4


class NoRoom(TrainingError):
    """The disk is full, or fails: nothing that was asked for is wrong."""


class NoToken(TrainingError):
    """No token has a probability: the weights are of no use."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that may pass by themselves: no space, a quota, a limit on the size of files."""
_OF_THE_DISK = (*FULL, errno.EIO)


def unwritable(place: object, failed: BaseException, advice: str, what: str = "cannot write") -> KosmosError:
    """The error for a file or folder that cannot be written.

    Args:
        failed: an OSError, or what a library makes of one, which has its number in its text (``(os error 28)``).
        advice: what to do, such as ``name another file``.

    Returns:
        NoRoom where the disk is full or fails, ConfigError where nothing can be written there at all.
    """
    number = failed.errno if isinstance(failed, OSError) else None
    if number is None and (stated := re.search(r"\(os error (\d+)\)", str(failed))):
        number = int(stated[1])
    kind = NoRoom if number in _OF_THE_DISK else ConfigError
    return kind(f"{place}: {what} ({failed if number is None else os.strerror(number)}); {advice}")


LONGEST_CAUSE = 2000
"""Characters: a compiler's own words can be a hundred thousand."""


def cause(error: BaseException) -> str:
    """An exception as one line: ``ModuleNotFoundError: No module named 'x'``."""
    text = " ".join(str(error).split())
    if len(text) > LONGEST_CAUSE:
        text = f"{text[:LONGEST_CAUSE]} .. ({len(text)} characters; KOSMOS_DEBUG=1 shows all)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def own_line(error: BaseException, module: str | None) -> str:
    """Where in a plugin's own code an exception came up: `` (encoder.py:12)``; nothing where it did in other code.

    Args:
        module: any of the plugin's; all of its outermost package are its own. None knows of none, as methods of
            built-in types do.
    """
    package = (module or "").replace(":", ".").partition(".")[0]
    found, step = "", error.__traceback__ and error.__traceback__.tb_next  # the first frame is who caught it
    while step is not None:
        if str(step.tb_frame.f_globals.get("__name__")).partition(".")[0] == package:
            found = f" ({os.path.basename(step.tb_frame.f_code.co_filename)}:{step.tb_lineno})"
        step = step.tb_next
    return found


def debugs() -> bool:
    """Whether all of a traceback is wanted."""
    return os.environ.get("KOSMOS_DEBUG", "") not in ("", "0")


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed. By name: torch is not imported, and has no type for a CPU."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)


def missing_package(error: ModuleNotFoundError) -> PluginError | None:
    """What to tell of a module that no installed package brings; None where it is one of our own."""
    name = (error.name or "").partition(".")[0]
    if not name or name == "kosmos":
        return None
    return PluginError(
        f"{error}; install what brings it, with all that kosmos-core requires (from where it came: "
        "pip install 'kosmos-core>=26.11') or the plugin that needs it"
    )


def wrong_system() -> ConfigError | None:
    """What to tell on a system that Kosmos does not run on; None on others."""
    if sys.platform == "win32":
        return ConfigError("Kosmos does not run on Windows; use WSL 2")
    return None


class RankHangs(TrainingError):
    """A process of the run makes no progress."""

    code = "hang"
    exit_status = 5


class Interrupted(KosmosError):
    """The user or the scheduler asked the run to stop."""

    code = "interrupted"
    exit_status = 130


def say_interrupted() -> int:
    """Say that Ctrl-C has ended the command, of several processes once, and return the exit status."""
    if os.environ.get("RANK", "0") == "0":
        print(Interrupted("stopped (SIGINT)").line(), file=sys.stderr)
    return Interrupted.exit_status
