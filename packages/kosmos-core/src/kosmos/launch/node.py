"""``python -m kosmos.launch.node``: torchrun, with time to save and an exit status that says how it ended.

It takes torchrun's arguments and differs in three points. torchrun gives its ranks 30 seconds after a signal and then
kills them; here SIGTERM, SIGINT and SIGUSR1 are passed on and waited for, and whoever sent them sets the limit. And
torchrun ends with 1 whatever its ranks ended with; here a stop that was asked for can be told from a mistake in the
run file and from a crash, so that a scheduler tries again or not. And torchrun waits without an end where the node at
which all meet is frozen or cut off.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from socket import gethostname

from kosmos.errors import Interrupted, TrainingError, cause
from kosmos.launch.unseen import end_where_unseen
from kosmos.runtime.launch import LEFT_TO_TORCHRUN, exit_status, pass_signals_on, tell_killed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ranks of this node to their end and return their exit status."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import parse_args, run

    given = ["--signals-to-handle", LEFT_TO_TORCHRUN, *(sys.argv[1:] if argv is None else argv)]
    args = parse_args(given)  # type: ignore[no-untyped-call]
    pass_signals_on(as_signal=signal.SIGTERM)  # a scheduler's first signal may be any of them, and its last is this
    end_where_unseen()
    try:
        run(args)  # type: ignore[no-untyped-call]
    except ChildFailedError as failed:
        tell_killed({rank: failure.exitcode for rank, failure in failed.failures.items()}, f" on {gethostname()}")
        return exit_status(failure.exitcode for failure in failed.failures.values())
    except RendezvousError as error:
        line = f"on {gethostname()}: the nodes have not met, or the one at which they meet is gone: {cause(error)}"
        print(TrainingError(line).line(), file=sys.stderr, flush=True)
        return TrainingError.exit_status
    except KeyboardInterrupt:
        return Interrupted.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
