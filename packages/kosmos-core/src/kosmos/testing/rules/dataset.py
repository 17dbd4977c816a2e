"""What a dataset promises: the same documents every time, in two parts that share nothing."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

from kosmos.components import DatasetSpec
from kosmos.data.document import Document, Mark, Text
from kosmos.data.fingerprint import fingerprint_of
from kosmos.data.shuffle import blocks_of
from kosmos.data.spread import spread
from kosmos.errors import DataError, SampleError, cause
from kosmos.testing import child
from kosmos.testing.jobs import document_fingerprint, fingerprint
from kosmos.testing.promise import BrokenPromise, Lacking, NotBuilt, Unchecked, rule
from kosmos.testing.subjects import ComponentUnderTest
from kosmos.testing.usable import row_of

LOOKED_AT = 300
"""Documents of a part that are compared."""
READ_AGAIN = 50
IN_A_WORKER = 4


def _open(dataset: ComponentUnderTest, split: str) -> Any:
    return dataset.build(split)


def _rows(source: Any, most: int = LOOKED_AT) -> list[int]:
    return list(map(int, spread(len(source), most)))


def _read(source: Any, rows: Iterable[int]) -> dict[int, Document]:
    """The documents of these rows. Those that cannot be used are passed over, as a run passes over them.

    Raises:
        BrokenPromise: none of them can be used.
    """
    found = {index: row_of(source, index) for index in rows}
    bad = [one for one in found.values() if isinstance(one, SampleError)]
    if bad and len(bad) == len(found):
        raise BrokenPromise(f"none of {len(bad)} rows can be used; the first: {bad[0]}") from bad[0]
    return {index: one for index, one in found.items() if not isinstance(one, SampleError)}


def _documents(source: Any) -> list[Document]:
    return list(_read(source, _rows(source)).values())


@rule("dataset", "builds", "the train and the held-out part are opened with the defaults, and hold documents")
def parts_hold_documents(dataset: ComponentUnderTest) -> None:
    for split in ("train", "held_out"):
        try:
            source = _open(dataset, split)
        except NotBuilt as error:
            if any(getattr(spec, "sample_set", None) == dataset.spec.name for spec in _modalities(dataset)):
                raise BrokenPromise(f"a sample set has to need nothing: {error}") from error
            if isinstance(error, Lacking):
                raise
            raise BrokenPromise(str(error)) from error
        if not len(source) > 0:
            raise BrokenPromise(f"{split} holds {len(source)} documents")
        if not isinstance(getattr(source, "name", None), str) or not source.name:
            raise BrokenPromise(f"{split}: its name is {getattr(source, 'name', None)!r}; metrics need one")
        document = row_of(source, len(source) - 1)
        if isinstance(document, SampleError):
            document = _documents(source)[-1]
        if not isinstance(document, Document) or not document.segments:
            raise BrokenPromise(f"{split}: the last document is {document!r:.80}; expected segments")
        try:
            blocks_of(source)
            fingerprint_of(source)
        except DataError as error:
            raise BrokenPromise(f"{split}: {error}") from error


def _modalities(dataset: ComponentUnderTest) -> list[Any]:
    return list(dataset.registry.specs("modality").values())


@rule("dataset", "documents-deterministic", "a row holds the same document whenever it is read, in any order")
def documents_are_deterministic(dataset: ComponentUnderTest) -> None:
    for split in ("train", "held_out"):
        one, other = _open(dataset, split), _open(dataset, split)
        rows = _rows(one, READ_AGAIN)
        if fingerprint_of(one) != fingerprint_of(other):
            raise BrokenPromise(f"{split}: its fingerprint is another when it is opened again, so that no run goes on")
        held = _read(one, rows)
        first = {index: (fingerprint(document), document.origin) for index, document in held.items()}
        for source, how in ((one, "again"), (other, "by a new source")):
            for index in reversed(rows):
                document = row_of(source, index)
                if isinstance(document, SampleError) or index not in held:
                    if isinstance(document, SampleError) and index not in held:
                        continue
                    raise BrokenPromise(f"{split} row {index} is a document once, and a bad sample {how}")
                if (fingerprint(document), document.origin) != first[index]:
                    raise BrokenPromise(f"{split} row {index} ({document.origin}) is another document when read {how}")
        for index, document in held.items():
            if fingerprint(document) != first[index][0]:
                raise BrokenPromise(
                    f"{split} row {index} ({document.origin}) changed as others were read; give it arrays of its own"
                )


@rule("dataset", "parts-disjoint", "no document is in both the train and the held-out part")
def parts_are_disjoint(dataset: ComponentUnderTest) -> None:
    trained = {fingerprint(document): document.origin for document in _documents(_open(dataset, "train"))}
    for document in _documents(_open(dataset, "held_out")):
        if (same := trained.get(fingerprint(document))) is not None:
            raise BrokenPromise(f"{document.origin!r} of held_out is {same!r} of train")


@rule("dataset", "origins-name-rows", "every document has an origin of its own")
def origins_name_rows(dataset: ComponentUnderTest) -> None:
    for split in ("train", "held_out"):
        source = _open(dataset, split)
        known: dict[str, int] = {}
        for index, document in _read(source, _rows(source)).items():
            if not isinstance(document.origin, str) or not document.origin.strip():
                raise BrokenPromise(f"{split} row {index}: its origin is {document.origin!r}")
            if document.origin in known:
                raise BrokenPromise(f"{split} rows {known[document.origin]} and {index} are both {document.origin!r}")
            known[document.origin] = index


@rule(
    "dataset", "modalities-declared", "documents hold text and the modalities that the dataset declares, and them all"
)
def modalities_are_declared(dataset: ComponentUnderTest) -> None:
    assert isinstance(dataset.spec, DatasetSpec)
    declared = set(dataset.spec.modalities)
    found: set[str] = set()
    for document in _documents(_open(dataset, "train")):
        held = {*document.modalities} - {"text"}
        found |= held
        if not held <= declared:
            raise BrokenPromise(f"{document.origin} holds {sorted(held - declared)}; declared: {sorted(declared)}")
    if found != declared:
        raise BrokenPromise(f"no document holds {sorted(declared - found)}, which the dataset declares")


@rule("dataset", "something-to-learn", "every document trains some text or medium, and held-out ones end in an answer")
def there_is_something_to_learn(dataset: ComponentUnderTest) -> None:
    for document in _documents(_open(dataset, "train")):
        for segments in (document.segments, document.rejected or document.segments):
            if not any(getattr(s, "train", False) for s in segments):
                raise BrokenPromise(f"{document.origin} has nothing that the loss looks at: Text(..., train=True)")
    for document in _documents(_open(dataset, "held_out")):
        last = document.segments[-1]
        is_answer = last.text.strip() if isinstance(last, Text) else True
        if not (is_answer and getattr(last, "train", False)):
            kind = repr(last) if isinstance(last, Text | Mark) else last.modality
            expected = "expected Text(answer, train=True), or a Mark or a medium that is trained"
            raise BrokenPromise(f"{document.origin} ends in {kind:.80}; {expected}")


@rule("dataset", "spawn-picklable", "a source can be pickled into a fresh process and gives the same documents")
def works_in_a_worker(dataset: ComponentUnderTest) -> None:
    source = _open(dataset, "train")
    rows = range(min(IN_A_WORKER, len(source)))
    mine = [document_fingerprint(source, index) for index in rows]
    theirs, whole, _ = _in_a_worker(source, len(mine))
    if whole != fingerprint_of(source):
        raise BrokenPromise("its fingerprint is another in a fresh process, so that no run goes on (hash() is random)")
    if mine != theirs:
        row = [one == other for one, other in zip(mine, theirs, strict=True)].index(False)
        raise BrokenPromise(f"row {row} is another document in a fresh process")


@rule("dataset", "torch-free", "reading documents imports no torch")
def reading_needs_no_torch(dataset: ComponentUnderTest) -> None:
    source = _open(dataset, "train")
    try:
        *_, importer = _in_a_worker(source, 1)
    except BrokenPromise as error:
        raise Unchecked("no fresh process could be made to read: see spawn-picklable") from error
    if importer:
        raise BrokenPromise(f"torch is imported by {importer}")


def _in_a_worker(source: Any, count: int) -> tuple[list[str], str | None, str | None]:
    try:
        pickle.dumps(source)
    except Exception as error:  # a seam: pickling runs the plugin's code
        raise BrokenPromise(f"cannot be pickled: {cause(error)}") from error
    try:
        found: tuple[list[str], str | None, str | None] = child.call(
            "kosmos.testing.jobs:read_documents", source, count
        )
    except child.ChildFailed as error:
        raise BrokenPromise(f"a fresh process {error}") from error
    return found


RULES = (
    parts_hold_documents,
    documents_are_deterministic,
    parts_are_disjoint,
    origins_name_rows,
    modalities_are_declared,
    there_is_something_to_learn,
    works_in_a_worker,
    reading_needs_no_torch,
)
