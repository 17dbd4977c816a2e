"""PyTorch's own generators of random numbers, of which a process has one for all its threads.

A run seeds them, for weights and for dropout. In a notebook they are somebody else's too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, cast

import torch

_HELD = RLock()
# Else a thread that a fork leaves behind would hold it for ever.
os.register_at_fork(after_in_child=lambda: globals().update(_HELD=RLock()))


@contextmanager
def own_draws() -> Iterator[None]:
    """Around what seeds and draws by itself: whoever called finds the generators as they were.

    One thread at a time, since another that seeds meanwhile would change what this one draws: two runs that train in
    one process take turns, and each comes to what it comes to alone.
    """
    with _HELD:
        on_cpu = torch.default_generator.get_state()
        on_gpus = torch.cuda.get_rng_state_all() if cast(Any, torch.cuda).is_initialized() else []
        try:
            yield
        finally:
            torch.default_generator.set_state(on_cpu)
            for number, state in enumerate(on_gpus):
                torch.cuda.set_rng_state(state, number)
