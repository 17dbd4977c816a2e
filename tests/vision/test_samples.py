"""The sample set of drawn shapes."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest

from kosmos import ConfigError, Media, Text
from kosmos_vision.samples import COLOURS, SHAPES, shapes


def pictures(source: object, count: int) -> list[bytes]:
    return [source.document(i).segments[0].source.tobytes() for i in range(count)]  # type: ignore[attr-defined]


def caption(index: int) -> str:
    text = shapes("train").document(index).segments[1]
    assert isinstance(text, Text)
    return text.text


def test_a_document_is_a_picture_and_then_its_caption() -> None:
    document = shapes("train").document(5)
    picture, text = document.segments
    assert isinstance(picture, Media)
    assert isinstance(picture.source, np.ndarray)
    assert (picture.modality, picture.source.shape) == ("image", (64, 64, 3))
    assert picture.source.dtype == np.uint8
    assert isinstance(text, Text)
    assert text.train
    assert document.origin == "shapes/train:5"


def test_documents_depend_on_seed_split_and_index_alone() -> None:
    source = shapes("train", size=20)
    assert pictures(source, 20) == pictures(pickle.loads(pickle.dumps(shapes("train"))), 20)
    others = [pictures(shapes("held_out"), 20), pictures(shapes("train", seed=1), 20)]
    assert len({*pictures(source, 20), *others[0], *others[1]}) == 60


def test_all_captions_follow_from_the_vocabulary() -> None:
    captions = [caption(i) for i in range(1000)]
    assert set(captions) == {f"{colour} {shape}" for colour in COLOURS for shape in SHAPES}
    # the most frequent caption of 30: knowing the captions alone cannot pass for seeing
    assert Counter(captions).most_common(1)[0][1] < 50


def test_the_end_and_bad_options_are_refused() -> None:
    assert len(shapes("held_out", size=3)) == 3
    with pytest.raises(IndexError):
        shapes("held_out", size=3).document(3)
    with pytest.raises(ConfigError, match="picture_px 8"):
        shapes("train", picture_px=8)
