"""What a modality promises: plans that are exact, the same everywhere, made without torch, and safe on bad media."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from inspect import getattr_static
from typing import Any

import numpy as np

from kosmos.data.document import Media
from kosmos.data.foreign import called
from kosmos.data.marks import MARK, faults_of
from kosmos.data.processor import Grid, MediaPlan
from kosmos.data.slots import count_slots
from kosmos.errors import PluginError, SampleError, cause, own_line
from kosmos.testing import child
from kosmos.testing.items import planned
from kosmos.testing.jobs import digest
from kosmos.testing.promise import BrokenPromise, NotBuilt, Unchecked, rule
from kosmos.testing.search import described, is_array, search, stretches_of
from kosmos.testing.subjects import CHILD_MEDIA, ModalityUnderTest


@rule("modality", "builds", "the modality's own encoder, connector and processor are made with their defaults, offline")
def builds(modality: ModalityUnderTest) -> None:
    try:
        processor, stream = modality.route.processor, modality.stream
    except NotBuilt as error:
        raise BrokenPromise(str(error)) from error
    parts: list[tuple[Any, str, type]] = [
        (processor, "cell_shape", tuple),
        (processor, "cell_dtype", np.dtype),
        (stream.encoder, "width", int),
        (stream.encoder, "input", object),
        (stream.connector, "slots", object),
    ]
    for part, name, kind in parts:
        if not isinstance(getattr(part, name, None), kind) or getattr(part, name) is None:
            told = f"{type(part).__name__}.{name} is {getattr(part, name, None)!r:.80}"
            raise BrokenPromise(f"{told}; expected {kind.__name__}")


@rule("modality", "sample-set", "there is a sample set to train on where no data is named, and it holds the modality")
def has_a_sample_set(modality: ModalityUnderTest) -> None:
    if modality.spec.sample_set is None:
        raise Unchecked("the modality names no sample set; kosmos train then needs --data")
    try:
        found = modality.documents
    except NotBuilt as error:
        raise BrokenPromise(str(error)) from error
    if not found:
        raise BrokenPromise(f"no document of {modality.spec.sample_set} holds {modality.spec.name}")


@rule(
    "modality",
    "marks-declared",
    "its marks look like <name>, each is there once and none is a mark of core; those of its layouts are among them",
)
def marks_are_declared(modality: ModalityUnderTest) -> None:
    if faults := list(faults_of(modality.spec.marks)):
        raise BrokenPromise(f"marks: {'; '.join(faults)}")
    for medium in modality.media:
        for part in planned(modality.route.processor, medium).layout:
            if isinstance(part, str) and MARK.fullmatch(part) and part not in modality.spec.marks:
                raise BrokenPromise(f"{part} in the layout of {described(medium)}; marks: {modality.spec.marks}")


@rule("modality", "hints", "what it has to say as a run starts is a tuple or a list of lines")
def hints_are_lines(modality: ModalityUnderTest) -> None:
    processor: Any = modality.route.processor
    if getattr_static(processor, "hints", None) is None:
        return
    if not isinstance(hints := processor.hints, tuple | list) or not all(isinstance(hint, str) for hint in hints):
        raise BrokenPromise(f"{called(processor, 'hints')}: {hints!r:.80}; expected a tuple or a list of lines")


@rule("modality", "described", "what it tells of a planned medium, where it does, is one line")
def descriptions_are_lines(modality: ModalityUnderTest) -> None:
    processor: Any = modality.route.processor
    if getattr_static(processor, "described", None) is None:
        return
    for medium in modality.media:
        told = processor.described(medium, planned(processor, medium))
        if not isinstance(told, str) or "\n" in told:
            name = called(processor, "described")
            raise BrokenPromise(f"{name} of {described(medium)}: {told!r:.80}; expected one line")


@rule("modality", "doubt", "what it tells against a medium, where it does, is one line or empty")
def doubts_are_lines(modality: ModalityUnderTest) -> None:
    processor: Any = modality.route.processor
    if getattr_static(processor, "doubt", None) is None:
        return
    for medium in modality.media:
        told = processor.doubt(medium)
        if not isinstance(told, str) or "\n" in told:
            raise BrokenPromise(f"{called(processor, 'doubt')} of {described(medium)}: {told!r:.80}; expected one line")


@rule(
    "modality",
    "plan-deterministic",
    "the same medium has the same plan whenever it is planned, by any processor, and without its bytes where the "
    "processor says reads_headers = False",
)
def plans_are_deterministic(modality: ModalityUnderTest) -> None:
    processor = modality.route.processor
    other = modality.build(modality.stream.encoder.input)
    first = [planned(processor, medium) for medium in modality.media]
    for how, planner in (("again", processor), ("by a new processor", other)):
        for medium, plan in reversed(list(zip(modality.media, first, strict=True))):
            if (found := _difference(plan, planned(planner, medium))) is not None:
                raise BrokenPromise(f"{described(medium)} planned {how}: {found}")
    if not modality.route.reads_headers:
        _plans_without_bytes(processor, modality.media, first)


def _plans_without_bytes(processor: Any, media: Sequence[Media], plans: Sequence[MediaPlan]) -> None:
    """As media of archives come to a processor whose plans hang on no file."""
    for medium, plan in zip(media, plans, strict=True):
        who = (
            f"{type(processor).__name__} says reads_headers = False, but {described(medium)} planned without its bytes"
        )
        try:
            found = _difference(plan, planned(processor, Media(medium.modality, b"", medium.clip)))
        except (SampleError, BrokenPromise) as error:
            raise BrokenPromise(f"{who}: {error}") from error
        if found is not None:
            raise BrokenPromise(f"{who}: {found}")


@rule("modality", "cells-stay", "a medium has the same cells whenever it is decoded; they, and it, stay as they are")
def cells_stay(modality: ModalityUnderTest) -> None:
    processor, other = modality.route.processor, modality.build(modality.stream.encoder.input)
    media = modality.media[:CHILD_MEDIA]
    given = [digest(m.source) if isinstance(m.source, np.ndarray) else None for m in media]
    plans = [planned(processor, medium) for medium in media]
    held: list[tuple[Any, str]] = []
    for medium, plan in zip(media, plans, strict=True):
        cells = processor.decode(medium, plan)
        held.append((cells, digest(cells)))
    for how, decoder in (("again", processor), ("by a new processor", other)):
        for medium, plan, (_, before) in reversed(list(zip(media, plans, held, strict=True))):
            if digest(decoder.decode(medium, plan)) != before:
                raise BrokenPromise(f"{described(medium)} decoded {how}: other cells")
    for medium, before_all, (cells, before) in zip(media, given, held, strict=True):
        if digest(cells) != before:
            raise BrokenPromise(
                f"{described(medium)}: its cells changed as others were decoded; return an array of its own"
            )
        if isinstance(medium.source, np.ndarray) and digest(medium.source) != before_all:
            raise BrokenPromise(f"{described(medium)} was changed by plan or decode; work on a copy")


@rule(
    "modality",
    "augments-as-planned",
    "a processor that changes media in training gives as many cells as planned, and the same from the same numbers",
)
def augments_as_planned(modality: ModalityUnderTest) -> None:
    processor: Any = modality.route.processor
    if getattr_static(processor, "augmented", None) is None:
        if getattr(processor, "augments", False):
            raise BrokenPromise(f"{type(processor).__name__} says augments = True and has no augmented()")
        return
    for medium in modality.media[:CHILD_MEDIA]:
        plan = planned(processor, medium)
        found = [processor.augmented(medium, plan, np.random.default_rng(7)) for _ in range(2)]
        expected = (plan.cells, *processor.cell_shape)
        for cells in found:
            if not isinstance(cells, np.ndarray) or cells.shape != expected or cells.dtype != processor.cell_dtype:
                got = f"{cells.dtype} {cells.shape}" if isinstance(cells, np.ndarray) else type(cells).__name__
                raise BrokenPromise(f"{described(medium)} augmented: {got}, expected {processor.cell_dtype} {expected}")
        if digest(found[0]) != digest(found[1]):
            raise BrokenPromise(f"{described(medium)} augmented twice with the same generator: other cells")


@rule("modality", "spawn-picklable", "processor and slot counts can be pickled into a fresh process and plan the same")
def works_in_a_worker(modality: ModalityUnderTest) -> None:
    media = modality.media[:CHILD_MEDIA]
    plans, digests, _ = _in_a_worker(modality)
    processor = modality.route.processor
    for medium, theirs, cells in zip(media, plans, digests, strict=True):
        mine = planned(processor, medium)
        if (found := _difference(mine, theirs)) is not None:
            raise BrokenPromise(f"{described(medium)} in a fresh process: {found}")
        if digest(processor.decode(medium, mine)) != cells:
            raise BrokenPromise(f"{described(medium)} is decoded to other cells in a fresh process")


@rule("modality", "plan-torch-free", "planning and decoding import no torch")
def plans_need_no_torch(modality: ModalityUnderTest) -> None:
    try:
        importer = _in_a_worker(modality)[2]
    except BrokenPromise as error:
        raise Unchecked("no fresh process could be made to plan: see spawn-picklable") from error
    if importer:
        raise BrokenPromise(f"torch is imported by {importer}; processor and encoder input need a module without it")


def _in_a_worker(modality: ModalityUnderTest) -> tuple[list[MediaPlan], list[str], str | None]:
    known = modality.__dict__.get("_worker")
    if known is None:
        arguments = modality.route.processor, modality.route.slots, modality.media[:CHILD_MEDIA]
        for medium in modality.media[:CHILD_MEDIA]:
            planned(modality.route.processor, medium)  # what is wrong here too has a shorter name
        try:
            pickle.dumps(arguments)
        except Exception as error:  # a seam: pickling runs the plugin's code
            raise BrokenPromise(f"cannot be pickled: {cause(error)}") from error
        try:
            known = child.call("kosmos.testing.jobs:plan_media", *arguments)
        except child.ChildFailed as error:
            raise BrokenPromise(f"a fresh process {error}") from error
        modality.__dict__["_worker"] = known
    return known  # type: ignore[no-any-return]


def _difference(one: MediaPlan, other: MediaPlan) -> str | None:
    if one.layout != other.layout:
        return f"layout {_short(one.layout)}, then {_short(other.layout)}"
    if not _same(one.recipe, other.recipe):
        return f"recipe {one.recipe!r:.80}, then {other.recipe!r:.80}"
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other) or pickle.dumps(one) == pickle.dumps(other)


def _short(layout: tuple[str | Grid, ...]) -> str:
    return "[" + " ".join(part if isinstance(part, str) else "x".join(map(str, part)) for part in layout) + "]"


@rule(
    "modality", "cells-as-planned", "decode gives as many cells as planned, for media of the sample set and generated"
)
def as_many_cells_as_planned(modality: ModalityUnderTest) -> None:
    def check(medium: Media) -> None:
        plan, cells = _decoded(modality, medium)
        if cells is not None and len(cells) != plan.cells:
            raise BrokenPromise(f"{described(medium)}: planned {plan.cells} cells, decoded {len(cells)}")

    _search(modality, check)


@rule("modality", "cells-as-described", "cells have the shape and the type that the processor states")
def cells_are_as_described(modality: ModalityUnderTest) -> None:
    processor = modality.route.processor

    def check(medium: Media) -> None:
        _, cells = _decoded(modality, medium)
        if cells is None:
            return
        shape, dtype = tuple(processor.cell_shape), processor.cell_dtype
        if not isinstance(cells, np.ndarray) or cells.shape[1:] != shape or cells.dtype != dtype:
            got = f"{cells.dtype} {cells.shape[1:]}" if isinstance(cells, np.ndarray) else type(cells).__name__
            raise BrokenPromise(f"{described(medium)}: cells are {got}, the processor states {dtype} {shape}")

    _search(modality, check)


@rule("modality", "grids-hold-cells", "every grid of a plan holds a cell, and fills a token slot")
def grids_hold_cells(modality: ModalityUnderTest) -> None:
    for medium in modality.media:
        for grid in planned(modality.route.processor, medium).grids:
            try:
                slots = count_slots(modality.route.slots, grid, modality.spec.name)
            except PluginError as error:
                raise BrokenPromise(f"{described(medium)}: {error}") from error
            if min(grid) < 1 or slots < 1:
                what = f"grid {tuple(grid)} fills {slots} slots; expected a cell and a slot, or more"
                raise BrokenPromise(f"{described(medium)}: {what}")


def _search(modality: ModalityUnderTest, check: Any) -> None:
    if arrays := [medium for medium in modality.media if is_array(medium)]:
        search(stretches_of(arrays), check, most=40)
    for medium in modality.media:
        check(medium)
    if (strategy := modality.conditions.media.get(modality.spec.name)) is not None:
        search(strategy, check, most=100)


def _decoded(modality: ModalityUnderTest, medium: Media) -> tuple[MediaPlan, Any]:
    """The plan and the cells; None for a medium that is refused."""
    processor = modality.route.processor
    try:
        plan = planned(processor, medium)
        return plan, processor.decode(medium, plan)
    except SampleError:
        return MediaPlan(()), None
    except BrokenPromise as broken:
        raise BrokenPromise(f"{described(medium)}: {broken}") from broken
    except Exception as error:
        said = f"{cause(error)}{own_line(error, type(processor).__module__)}"
        raise BrokenPromise(f"{described(medium)} raised {said}; expected cells or a SampleError") from error


@rule(
    "modality",
    "hostile-input",
    "a medium that is broken, foreign or far too large is refused with a SampleError, in time and within memory",
)
def survives_hostile_input(modality: ModalityUnderTest) -> None:
    _survive(modality, "survive")
    if sys.platform != "linux":  # see hostile.limit_memory
        raise Unchecked("all but the memory was checked and holds: what a process takes is limited on Linux alone")


@rule(
    "modality",
    "runs-no-code",
    "no pickle in a medium is loaded: in a file, in one of numpy or of torch, or in an array",
)
def runs_no_code(modality: ModalityUnderTest) -> None:
    _survive(modality, "run_code")


def _survive(modality: ModalityUnderTest, job: str) -> None:
    conditions = modality.conditions
    arguments = modality.route.processor, modality.some_media, conditions.memory_mib, conditions.seconds
    try:
        wrong = child.call(f"kosmos.testing.hostile:{job}", *arguments, seconds=90 + 2 * conditions.seconds)
    except child.ChildFailed as error:
        raise BrokenPromise(f"the process {error}") from error
    if wrong:
        raise BrokenPromise(wrong)


RULES = (
    builds,
    has_a_sample_set,
    marks_are_declared,
    hints_are_lines,
    descriptions_are_lines,
    doubts_are_lines,
    plans_are_deterministic,
    cells_stay,
    augments_as_planned,
    works_in_a_worker,
    plans_need_no_torch,
    as_many_cells_as_planned,
    cells_are_as_described,
    grids_hold_cells,
    survives_hostile_input,
    runs_no_code,
)
