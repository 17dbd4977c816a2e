"""Long lists as arrays are the same lists."""

from __future__ import annotations

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.sources.packed import PackedKinds, PackedTexts

NAMES = st.text(max_size=9, alphabet=st.characters(codec="utf-8")) | st.binary(max_size=9).map(os.fsdecode)


@given(values=st.lists(NAMES, max_size=20), part=st.slices(20))
def test_texts_and_kinds_are_those_of_the_list(values, part):
    for packed in (PackedTexts(values), PackedKinds(values), pickle.loads(pickle.dumps(PackedTexts(values)))):
        assert list(packed) == values
        assert [packed[i] for i in range(-len(values), 0)] == values
        assert packed[part] == values[part]
        with pytest.raises(IndexError):
            packed[len(values)]


def test_values_may_be_anything_of_few_kinds():
    packed = PackedKinds([None, "train", None, *map(str, range(300))])
    assert packed.kinds[:3] == (None, "train", "0")
    assert (packed[0], packed[1], packed[2], packed[-1], len(packed)) == (None, "train", None, "299", 303)
