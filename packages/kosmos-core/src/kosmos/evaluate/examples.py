"""Examples in front of questions whose media cannot be decoded: others stand in their place."""

from __future__ import annotations

from collections.abc import Sequence

from kosmos.data.batch import ready_document
from kosmos.data.choices import ChoiceSource
from kosmos.data.document import Document
from kosmos.data.plan import Planner
from kosmos.data.quarantine import Incident
from kosmos.errors import SampleError
from kosmos.runtime.parallel import Parallel


def pass_over_broken(planner: Planner, sources: Sequence[ChoiceSource], parallel: Parallel) -> list[Incident]:
    """Decode each example that is drawn once, so that a broken one costs no question; those are named by their rows.

    Args:
        parallel: the processes that share the questions, of which the first one decodes.
    """

    def look(document: Document) -> None:
        if media := tuple(document.media):
            ready_document(planner.prompt(Document(document.origin, media)), planner.routes, "")

    incidents = []
    for source in sources:
        if (pool := source.pool) is None:
            continue
        if source.broken_drawn is None:  # else an earlier scoring of the run has looked
            source.broken_drawn = parallel.main_only(lambda source=source: source.broken_examples(look))  # type: ignore[misc]
            pool.broken.update(source.broken_drawn)
        for place, why in source.broken_drawn.items():
            cause = f"is no example in front of other questions: {why}"
            origin = pool.source.origin(pool.rows[place])
            incidents.append(Incident(origin, source.name, SampleError.code, cause))
    return incidents
