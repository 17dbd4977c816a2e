"""How long the prompts are that Python asks a model: those that are too long are refused, or warned of once."""

from __future__ import annotations

from kosmos.compose import Composition
from kosmos.data.document_plan import DocumentPlan
from kosmos.errors import SampleError
from kosmos.generate import Look
from kosmos.given import warn_caller, whole


def told_lengths(composition: Composition, max_prompt_tokens: int | None) -> Look:
    """What looks at each prompt before anything of it is decoded.

    Args:
        max_prompt_tokens: the most that are taken. None takes all, and warns of the first that is longer than a row of
            the run.

    Raises:
        ConfigError: it is no number from 1 on.
    """
    most = None if max_prompt_tokens is None else whole("max_prompt_tokens", max_prompt_tokens, least=1)
    longest, warned = composition.planner.max_tokens, False

    def look(plan: DocumentPlan) -> None:
        nonlocal warned
        if most is not None:
            if len(plan) > most:
                raise SampleError(f"the prompt takes {len(plan):,} tokens, and max_prompt_tokens is {most:,}")
        elif len(plan) > longest and not warned:
            warned = True
            warn_caller(
                f"{plan.origin}: the prompt takes {len(plan):,} tokens, and a row of the run held {longest:,}: it was "
                "trained on no document so long; max_prompt_tokens=... says how long prompts may be"
            )

    return look
