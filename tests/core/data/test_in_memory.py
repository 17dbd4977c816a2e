"""Documents in memory as a source, and what tells the documents that a run is given from others."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest

from kosmos import ConfigError, Document, Documents, Mark, Media, SampleError, Text
from kosmos.data.fingerprint import LOOKED_AT, fingerprint_of, sampled_fingerprint
from kosmos.errors import DataError


def sums(many: int) -> list[Document]:
    return [Document(f"sum {n}", (Text(f"{n} + 1 = "), Text(str(n + 1), train=True))) for n in range(many)]


def test_a_list_or_a_generator_of_documents_is_a_source() -> None:
    source = Documents("sums", (document for document in sums(3)))
    assert (source.name, len(source), source.document(2).origin) == ("sums", 3, "sum 2")
    assert repr(source) == "Documents('sums', 3 documents)"
    assert len(Documents("none are left", [])) == 0


def test_an_array_that_is_filled_anew_for_each_document_is_told() -> None:
    def filled(several: list[np.ndarray[Any, Any]], answers: str = "abcd") -> tuple[str, ...]:
        media = [Media("image", array) for array in several]
        texts = [Text(answer, train=True) for answer in answers]
        documents = [Document(str(n), parts) for n, parts in enumerate(zip(media, texts, strict=True))]
        return Documents("photos", documents).remarks

    one = np.zeros((2, 2, 3), np.uint8)
    assert re.fullmatch(r"image: 4 media in its documents are one and the same array.*copy\(\)\)", *filled([one] * 4))
    assert filled([one[:] for _ in range(4)])
    assert not filled([one.copy() for _ in range(4)])
    assert not filled([one] * 3 + [one.copy()])  # several questions about some of the pictures
    assert not filled([one] * 4, "aaaa")
    one.flags.writeable = False
    assert not filled([one] * 4)


def test_documents_are_split_by_their_origins() -> None:
    train, held_out = Documents("sums", sums(200)).split(0.1)
    assert (repr(train), len(held_out)) == ("Documents('sums', 180 documents)", 20)
    origins = [{document.origin for document in part.documents} for part in (train, held_out)]
    assert origins[0] | origins[1] == {f"sum {n}" for n in range(200)}
    turned = Documents("turned", sums(200)[::-1]).split(0.1)[1]
    assert [document.origin for document in turned.documents] == [d.origin for d in held_out.documents][::-1]


def test_documents_of_one_origin_are_split_together() -> None:
    pairs = Documents("pairs", [document for document in sums(40) for _ in range(2)])
    train, held_out = pairs.split(0.25)
    assert len(held_out) == 20
    assert not {d.origin for d in train.documents} & {d.origin for d in held_out.documents}
    with pytest.raises(ConfigError, match=r"Documents 'one': split: .* there are no two origins"):
        Documents("one", sums(1) * 5).split(0.5)


@pytest.mark.parametrize("share", [0, 1, -0.1, True, "0.1", None])
def test_a_share_is_between_0_and_1(share: Any) -> None:
    with pytest.raises(ConfigError, match="Documents 'sums': split: expected a share between 0 and 1, got "):
        Documents("sums", sums(9)).split(share)


def test_a_copy_in_another_process_tells_itself_likewise() -> None:
    source = Documents("photos", [Document("a", (Media("image", np.zeros((2, 2, 3), np.uint8)), Mark("<|user|>")))])
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fingerprint() == source.fingerprint() and copy.document(0).segments[0].source.shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ((7, []), "Documents: name: expected a text, such as 'answers', got 7"),
        ((" ", []), "Documents: name: expected a text, such as 'answers', got ' '"),
        (("a", "rows.jsonl"), "Documents 'a': documents: expected a list of Document, got 'rows.jsonl'"),
        (("a", sums(1)[0]), "Documents 'a': documents: expected a list of Document, got Document("),
        (("a", [*sums(2), "text"]), "Documents 'a': documents[2]: expected a Document, got 'text'"),
    ],
)
def test_what_is_no_list_of_documents_is_refused(given: tuple[Any, Any], line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Documents(*given)
    assert str(refused.value).startswith(line)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, origin="another"),
        lambda one: replace(one, weight=-1.0),
        lambda one: replace(one, segments=(one.segments[0], Text("another", train=True))),
        lambda one: replace(one, segments=(one.segments[0], replace(one.segments[1], train=False))),
        lambda one: replace(one, segments=(*one.segments, Media("image", b""))),
    ],
    ids=["origin", "weight", "text", "what is learned", "media"],
)
def test_one_document_that_is_another_makes_another_list(change: Callable[[Document], Document]) -> None:
    documents = sums(1000)
    before = Documents("sums", documents).fingerprint()
    assert Documents("sums", sums(1000)).fingerprint() == before
    documents[501] = change(documents[501])
    assert Documents("sums", documents).fingerprint() != before


@dataclass
class Own:
    """A source of code of one's own, with no ``fingerprint``."""

    give: Callable[[int], Any]
    size: int = 1000
    name: str = "own"

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Any:
        return self.give(index)


def test_a_source_that_does_not_tell_itself_is_told_by_documents_from_the_first_to_the_last() -> None:
    read: list[int] = []

    def reading(index: int) -> Document:
        read.append(index)
        return sums(1000)[index]

    before = sampled_fingerprint(Own(reading))
    assert before and len({*read}) == LOOKED_AT and {0, 999} <= {*read}
    gaps = np.diff(sorted({*read}))
    assert gaps.min() >= 66 and gaps.max() <= 67
    assert sampled_fingerprint(Own(sums(1000).__getitem__)) == before
    other = sums(1000)
    other[999] = other[0]
    assert sampled_fingerprint(Own(other.__getitem__)) not in (None, before)
    assert fingerprint_of(Own(reading)) is None


@pytest.mark.parametrize("size", [1, 2, LOOKED_AT])
def test_of_few_documents_all_are_looked_at(size: int) -> None:
    found = {sampled_fingerprint(Own(sums(size).__getitem__, size))}
    for changed in range(size):
        other = sums(size)
        other[changed] = replace(other[changed], origin="another")
        found.add(sampled_fingerprint(Own(other.__getitem__, size)))
    assert len(found) == size + 1 and None not in found


def test_documents_that_are_made_anew_each_time_are_not_compared() -> None:
    drawn = count()
    assert sampled_fingerprint(Own(lambda index: Document(f"{index} of draw {next(drawn)}", ()))) is None


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_two_draws_that_are_alike_by_chance_are_not_taken_for_the_same_documents(size: int) -> None:
    for seed in range(40):  # of two prompts each; without more reads half of those of one document would agree
        draws = Random(seed)
        assert sampled_fingerprint(Own(lambda index: Document(draws.choice("ab"), ()), size)) is None  # noqa: B023


def test_no_more_documents_are_read_than_of_many() -> None:
    for size in (0, 1, 5, LOOKED_AT, 1000):
        read: list[int] = []
        sampled_fingerprint(Own(lambda index: Document("a", (Text(f"{read.append(index)}"),)), size))  # noqa: B023
        assert len(read) <= 2 * LOOKED_AT, size


def test_of_documents_that_cannot_be_used_it_counts_which_they_are_and_not_why() -> None:
    def failing(at: int, error: Callable[[], Exception]) -> str | None:
        def give(index: int) -> Any:
            if index == at:
                raise error()
            return sums(9)[index]

        return sampled_fingerprint(Own(give, 9))

    before = failing(3, lambda: SampleError("no such picture"))
    assert failing(3, lambda: ValueError(f"at {object()}")) == before is not None
    assert failing(4, lambda: SampleError("no such picture")) != before
    assert sampled_fingerprint(Own(lambda index: [sums(9)[index], None][index == 3], 9)) == before
    assert sampled_fingerprint(Own(lambda index: Document("a", ("no Text",)), 9))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the disk is gone"):
        failing(3, lambda: DataError("the disk is gone"))
