"""Codecs: a good one keeps its promises, and each that breaks one is caught by that."""

from __future__ import annotations

import unittest
from typing import NamedTuple

import numpy as np
import pytest

from kosmos import Media
from kosmos.testing import BrokenPromise, Conditions, Promise, promises_of
from support import beeps

FILE = np.linspace(-1, 1, 9, dtype="<f4").tobytes()
CONDITIONS = Conditions(examples={"beeps": [Media("beeps", FILE)]}, memory_mib=1024)
PROMISES = promises_of(beeps, conditions=CONDITIONS)


class Mutant(NamedTuple):
    codec: str
    broken: str
    says: str


MUTANTS = [
    Mutant("NoSize", "builds", "size: expected a whole number from 1 to 1,048,576, got '9'"),
    Mutant("OwnIdentity", "identity", "of another one that was made alike"),
    Mutant("NumberIdentity", "identity", "identity 3; expected a text"),
    Mutant("OneTooMany", "codes-in-size", "OneTooMany.encode: code 9; its size says 0 to 8"),
    Mutant("Empty", "codes-in-size", "Empty.encode: no codes; expected one at least"),
    Mutant("OddBooks", "builds", "books 2; expected a whole number that divides its size, 9"),
    Mutant("OutOfTurn", "codes-in-size", " where one of book "),
    Mutant("Odd", "codes-in-size", "7 codes; expected 2 for each stretch, one of each book"),
    Mutant("Floats", "codes-in-size", "expected an array of whole numbers [n], got float"),
    Mutant("Refuses", "codes-in-size", "good media of beeps: not mine"),
    Mutant("Draws", "codes-stay", "encoded again: "),
    Mutant("Spoils", "codes-stay", "was changed by encode; work on a copy"),
    Mutant("Unpicklable", "spawn-picklable", "it cannot be pickled"),
    Mutant("UnpicklableOnceUsed", "spawn-picklable", "once used, it cannot be pickled"),
    Mutant("ByHash", "spawn-picklable", "in a fresh process: "),
    Mutant("NoFile", "decodes-to-files", "NoFile.decode: expected Encoded(bytes, suffix), got b"),
    Mutant("NoSuffix", "decodes-to-files", "suffix '/../beep'; expected one of a file"),
    Mutant("OtherSuffix", "decodes-to-files", "suffix '.wav'; beeps has .beep"),
    Mutant("Unreadable", "decodes-to-files", "is refused by beeps: cannot be read"),
    Mutant("OneWay", "written-again", "of four values"),
    Mutant("Fragile", "hostile-codes", "1 codes (0) raised ZeroDivisionError"),
    Mutant("Repeats", "hostile-codes", "7 codes (0, 0, 0, 0, 0, 0, 0) raised IndexError: no peak"),
    Mutant("Greedy", "hostile-codes", "16384 codes ("),
    Mutant("Trusting", "hostile-input", "raised FileNotFoundError"),
    Mutant("Unpickles", "runs-no-code", "a .npy medium that holds a pickle ran its code"),
]


def promise_of(codec: str, name: str) -> Promise:
    (found,) = (p for p in PROMISES if p.component == f"codec {codec}" and p.id == name)
    return found


@pytest.mark.parametrize(
    "promise", [p for p in PROMISES if p.component in ("codec Good", "dataset beeps")], ids=lambda promise: promise.id
)
def test_a_good_codec_and_a_dataset_of_what_is_written_keep_their_promises(promise: Promise) -> None:
    promise.check()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.codec)
def test_a_codec_is_caught_by_the_promise_that_it_breaks(mutant: Mutant) -> None:
    with pytest.raises(BrokenPromise) as broken:
        promise_of(mutant.codec, mutant.broken).check()
    assert mutant.says in str(broken.value)


def test_each_promise_of_a_codec_is_broken_by_one() -> None:
    of_codecs = {p.id for p in PROMISES if p.component == "codec Good"}
    assert of_codecs - {"target-imports", "summary-is-a-line"} == {mutant.broken for mutant in MUTANTS}
    assert {mutant.codec for mutant in MUTANTS} == beeps.CODECS.keys() - {"Good"}


def test_a_codec_whose_modality_is_not_installed_is_not_checked_on_media() -> None:
    promise_of("Alone", "builds").check()
    with pytest.raises(unittest.SkipTest, match="the modality bells is not installed"):
        promise_of("Alone", "codes-stay").check()
