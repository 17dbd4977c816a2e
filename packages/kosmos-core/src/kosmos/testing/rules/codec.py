"""What a codec promises: the same codes of a medium everywhere, files that its modality reads, and no harm done."""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos.data.codec import Encoded
from kosmos.data.document import Media
from kosmos.errors import SampleError, cause
from kosmos.testing import child
from kosmos.testing.codes import files_of, no_codes, no_file, told
from kosmos.testing.items import planned
from kosmos.testing.jobs import digest
from kosmos.testing.promise import BrokenPromise, Rule, Unchecked, rule
from kosmos.testing.search import described
from kosmos.testing.subjects import CodecUnderTest, own


@rule("codec", "identity", "where it has an identity, that is a text, and the same of all that are made alike")
def identity_is_a_text(codec: CodecUnderTest) -> None:
    first, other = (getattr(made, "identity", "") for made in (codec.codec, codec.build()))
    if not isinstance(first, str):
        raise BrokenPromise(f"identity {first!r:.60}; expected a text")
    if first != other:
        raise BrokenPromise(f"identity {first!r:.60}, and {other!r:.60} of another one that was made alike")


@rule(
    "codec",
    "codes-in-size",
    "a medium has one code at least, each a whole number from 0 up to its size, in turn of its books",
)
def codes_are_in_size(codec: CodecUnderTest) -> None:
    _checked(codec)


@rule("codec", "codes-stay", "a medium has the same codes whenever it is encoded, by any that was made alike; it stays")
def codes_stay(codec: CodecUnderTest) -> None:
    found = _checked(codec)
    for how, encoder in (("again", codec.codec), ("by a new codec", codec.build())):
        for medium, codes in reversed(found):
            given = own(medium)
            _same(codes, encoder.encode(given), f"{described(medium)} encoded {how}")
            if isinstance(medium.source, np.ndarray) and digest(medium.source) != digest(given.source):
                raise BrokenPromise(f"{described(medium)} was changed by encode; work on a copy")


@rule("codec", "spawn-picklable", "it can be pickled into a fresh process, used or not, and gives the same codes there")
def works_in_a_worker(codec: CodecUnderTest) -> None:
    found = _checked(codec)
    media = [medium for medium, _ in found]
    for what, one in (("it", codec.build()), ("once used, it", codec.codec)):
        try:
            pickle.dumps(one)
        except Exception as error:  # a seam: pickling runs the plugin's code
            raise BrokenPromise(f"{what} cannot be pickled: {cause(error)}") from error
        try:
            theirs = child.call("kosmos.testing.codes:encode", one, media)
        except child.ChildFailed as error:
            raise BrokenPromise(f"a fresh process {error}") from error
        for (medium, codes), other in zip(found, theirs, strict=True):
            _same(codes, other, f"{described(medium)} in a fresh process")


@rule("codec", "decodes-to-files", "what is decoded of a medium's codes is a file that its modality plans and decodes")
def decodes_to_files(codec: CodecUnderTest) -> None:
    modality = codec.read_by
    processor, suffixes = modality.route.processor, modality.spec.suffixes
    for medium, made in _decoded(codec):
        if suffixes and made.suffix.lower() not in suffixes:
            raise BrokenPromise(f"suffix {made.suffix!r}; {modality.spec.name} has {', '.join(suffixes)}")
        with tempfile.TemporaryDirectory() as folder:
            for file in files_of(made, modality.spec.name, Path(folder)):
                try:
                    processor.decode(file, planned(processor, file))
                except SampleError as error:
                    what = f"the file of {described(medium)} ({described(file)})"
                    raise BrokenPromise(f"{what} is refused by {modality.spec.name}: {error}") from error


@rule("codec", "written-again", "a file that it has decoded can be encoded again, as a conversation that goes on does")
def encodes_what_it_wrote(codec: CodecUnderTest) -> None:
    for medium, made in _decoded(codec):
        try:
            codes = codec.codec.encode(Media(codec.spec.modality, made.content))
        except SampleError as error:
            raise BrokenPromise(f"it refuses the file of {described(medium)}: {error}") from error
        if wrong := no_codes(codec.codec, codes):
            raise BrokenPromise(f"the file of {described(medium)}: {wrong}")


@rule("codec", "hostile-codes", "of any codes it makes a file, or a SampleError, in time and within memory")
def survives_hostile_codes(codec: CodecUnderTest) -> None:
    _survive(codec, "write_anything", [np.asarray(codes, np.int64) for _, codes in _checked(codec)])


@rule("codec", "hostile-input", "a medium that is broken, foreign or far too large is refused with a SampleError")
def survives_hostile_input(codec: CodecUnderTest) -> None:
    _survive(codec, "survive", [medium for medium, _ in codec.encoded])
    if sys.platform != "linux":  # see hostile.limit_memory
        raise Unchecked("all but the memory was checked and holds: what a process takes is limited on Linux alone")


@rule(
    "codec", "runs-no-code", "no pickle in a medium is loaded: in a file, in one of numpy or of torch, or in an array"
)
def runs_no_code(codec: CodecUnderTest) -> None:
    _survive(codec, "run_code", [medium for medium, _ in codec.encoded])


def _checked(codec: CodecUnderTest) -> list[tuple[Media, NDArray[Any]]]:
    """Media and their codes. Raises BrokenPromise where these are none."""
    for medium, codes in codec.encoded:
        if wrong := no_codes(codec.codec, codes):
            raise BrokenPromise(f"{described(medium)}: {wrong}")
    return codec.encoded


def _decoded(codec: CodecUnderTest) -> list[tuple[Media, Encoded]]:
    found: list[tuple[Media, Encoded]] = []
    for medium, codes in _checked(codec):
        try:
            made: Any = codec.codec.decode(np.asarray(codes, np.int64))
        except SampleError as error:
            raise BrokenPromise(f"its own codes of {described(medium)} are refused: {error}") from error
        if wrong := no_file(codec.codec, made):
            raise BrokenPromise(f"{described(medium)}: {wrong}")
        found.append((medium, made))
    return found


def _same(codes: NDArray[Any], other: Any, what: str) -> None:
    if not np.array_equal(codes, other):
        of = told(np.asarray(other)) if other is not None else "refused"
        raise BrokenPromise(f"{what}: {of}; before: {told(codes)}")


def _survive(codec: CodecUnderTest, job: str, given: list[Any]) -> None:
    conditions = codec.conditions
    arguments = codec.build(), given, conditions.memory_mib, conditions.seconds
    try:
        wrong = child.call(f"kosmos.testing.codes:{job}", *arguments, seconds=90 + 2 * conditions.seconds)
    except child.ChildFailed as error:
        raise BrokenPromise(f"the process {error}") from error
    if wrong:
        raise BrokenPromise(wrong)


RULES: tuple[Rule, ...] = (
    identity_is_a_text,
    codes_are_in_size,
    codes_stay,
    works_in_a_worker,
    decodes_to_files,
    encodes_what_it_wrote,
    survives_hostile_codes,
    survives_hostile_input,
    runs_no_code,
)
