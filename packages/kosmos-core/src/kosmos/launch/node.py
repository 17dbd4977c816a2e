"""``python -m kosmos.launch.node``: torchrun, with time to save and an exit status that says how it ended.

It takes torchrun's arguments and differs in two points. torchrun gives its ranks 30 seconds after a signal and then
kills them; here SIGTERM, SIGINT and SIGUSR1 are passed on and waited for, and whoever sent them sets the limit. And
torchrun ends with 1 whatever its ranks ended with; here a stop that was asked for can be told from a mistake in the
run file and from a crash, so that a scheduler tries again or not.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from kosmos.errors import Interrupted
from kosmos.runtime.launch import LEFT_TO_TORCHRUN, exit_status, pass_signals_on


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ranks of this node to their end and return their exit status."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    given = ["--signals-to-handle", LEFT_TO_TORCHRUN, *(sys.argv[1:] if argv is None else argv)]
    args = parse_args(given)  # type: ignore[no-untyped-call]
    pass_signals_on(as_signal=signal.SIGTERM)  # a scheduler's first signal may be any of them, and its last is this
    try:
        run(args)  # type: ignore[no-untyped-call]
    except ChildFailedError as failed:
        return exit_status(failure.exitcode for failure in failed.failures.values())
    except KeyboardInterrupt:
        return Interrupted.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
