"""``python -m kosmos``, and the ``kosmos`` command: what stands before ``kosmos.cli`` can be imported."""

from __future__ import annotations

import signal
import sys

from kosmos.collector import pause
from kosmos.ending import end_if_broken
from kosmos.errors import missing_package, say_interrupted, unwritable, wrong_system
from kosmos.interrupts import keep_in_mind
from kosmos.own_output import is_command, written

PAUSED = ("train", "eval", "generate", "chat", "export", "plan", "explain")
"""Commands that import much and say when they have started."""


ANYWHERE: tuple[list[str], ...] = ([], ["--help"], ["-h"], ["--version"])
"""What the command can be asked on any system."""


def main() -> int:
    """As ``kosmos.cli.main``. Its imports too can be interrupted, or lack a package."""
    is_command()
    status = _main()
    end_if_broken(status)
    return status


def _main() -> int:
    if sys.argv[1:2] not in ANYWHERE and (refused := wrong_system()) is not None:
        print(refused.line(), file=sys.stderr)
        return refused.exit_status
    put_back = keep_in_mind([signal.SIGINT])
    if sys.argv[1:2] and sys.argv[1] in PAUSED:
        pause()
    try:
        from kosmos.cli import main as run

        return _written(run())
    except KeyboardInterrupt:
        return say_interrupted()
    except ModuleNotFoundError as error:
        if (missing := missing_package(error)) is None:
            raise
        print(missing.line(), file=sys.stderr)
        return missing.exit_status
    finally:
        put_back()


def _written(status: int) -> int:
    """The status once all that was printed is written. A pipe that nobody reads any more is passed over in silence."""
    try:
        written(sys.__stdout__)
    except BrokenPipeError:
        return status or 1
    except OSError as failed:
        if not status:  # else something was said already
            error = unwritable("standard output", failed, "make room, or write elsewhere")
            print(error.line(), file=sys.stderr)
            return error.exit_status
    return status


if __name__ == "__main__":
    sys.exit(main())
