"""Plans of media: made by processors, and kept for files that have not changed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from kosmos.data.document import FileSpan, Media, StoredMedia
from kosmos.data.foreign import called, calling
from kosmos.data.processor import MediaPlan, Processor
from kosmos.errors import SampleError

MOST_KEPT = 500_000
"""Parts of layouts that a process keeps with the plans of files: some 40 MB, of 45,000 pictures or 1,000 films."""
PLAN_PARTS = 8
"""What a plan counts beside its parts."""


class KeptPlans:
    """Plans of media in files, so that a header is read once and not at every epoch. Left behind when pickled."""

    def __init__(self) -> None:
        self.plans: dict[tuple[Any, ...], MediaPlan] = {}
        self.keys: list[tuple[Any, ...]] = []
        """Those of ``plans``, in no order."""
        self.parts = 0
        self.random = Random(0)

    def __reduce__(self) -> Any:
        return KeptPlans, ()

    def plan(
        self, media: Media | StoredMedia, processor: Processor, *, looks: bool = False
    ) -> tuple[Media | StoredMedia, MediaPlan]:
        """The medium, with its bytes where they were needed, and its plan, for which the processor is not asked again
        while the file keeps its size and the time of its last change.

        Args:
            looks: whether it is looked at (``look_at``), as the plan hangs on no file.
        """
        try:
            key = _state(media)
            kept = self.plans.get(key) if key is not None else None
        except (OSError, ValueError, TypeError):
            key = kept = None  # the processor says what is wrong with the file or what it was given
        if kept is not None:
            return media, kept
        media = media.load()
        plan = plan_of(processor, media)
        if looks:
            look_at(media, plan, processor)
        if key is not None:
            self._keep(key, plan)
        return media, plan

    def _keep(self, key: tuple[Any, ...], plan: MediaPlan) -> None:
        self.parts += _parts(plan)
        # Any of them goes: if the oldest did, a set larger than all that is kept would find none at its next epoch.
        while self.parts > MOST_KEPT and self.keys:
            number = self.random.randrange(len(self.keys))
            self.keys[number], self.keys[-1] = self.keys[-1], self.keys[number]
            self.parts -= _parts(self.plans.pop(self.keys.pop()))
        self.keys.append(key)
        self.plans[key] = plan


def _parts(plan: MediaPlan) -> int:
    return len(plan.layout) + PLAN_PARTS


def _state(media: Media | StoredMedia) -> tuple[Any, ...] | None:
    """What the plan of a medium in a file hangs on; None of others."""
    source = media.source
    if isinstance(source, FileSpan):
        path, begin = source.path, source.begin
    elif isinstance(source, Path):
        path, begin = source, 0
    else:
        return None
    state = os.stat(name := str(path))
    return name, begin, state.st_mtime_ns, state.st_size, media.modality, media.clip, media.rate_hz


def plan_of(processor: Processor, media: Media) -> MediaPlan:
    """What the processor plans. Raises SampleError where it cannot use the medium, or gives no plan."""
    with calling(processor, "plan"):
        plan = processor.plan(media)
    if wrong := no_plan(processor, plan):
        raise SampleError(wrong)
    return plan


def look_at(media: Media, plan: MediaPlan, processor: Processor) -> None:
    """Raises SampleError of a medium of zero bytes, and of one of which a processor that says what it makes of media
    (``described``) can say nothing: its header cannot be read, or is refused."""
    source = media.source
    size: int | None = len(source) if isinstance(source, bytes) else None
    if isinstance(source, Path):
        with suppress(OSError):  # the processor says what is wrong with it
            size = source.stat().st_size
    if size == 0:
        raise SampleError("medium of zero bytes")
    if (describe := getattr(processor, "described", None)) is not None:
        with calling(processor, "described"):
            describe(media, plan)


def no_plan(processor: Processor, plan: Any) -> str:
    """What is wrong with what a processor planned; empty where it is a plan."""
    if isinstance(plan, MediaPlan):
        return ""
    return f"{called(processor, 'plan')}: expected a MediaPlan, got {type(plan).__name__}"
