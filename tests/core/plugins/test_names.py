"""The nearest name to a misspelt one."""

from __future__ import annotations

import pytest

from kosmos.names import did_you_mean, listed, nearest, unfit


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("patchsize", ["patch_size", "width"], "patch_size"),
        ("log-mel", ["logmel", "conformer"], "logmel"),
        ("LogMel", ["logmel"], "logmel"),
        ("depth", ["picture", "sound"], None),
        ("anything", [], None),
    ],
)
def test_the_nearest_name_ignores_case_and_dashes(name: str, candidates: list[str], expected: str | None) -> None:
    assert nearest(name, candidates) == expected


def test_the_question_is_empty_where_nothing_is_near() -> None:
    assert did_you_mean("patchsize", ["patch_size"]) == "did you mean patch_size?"
    assert did_you_mean("depth", ["sound"]) == ""


def test_long_lists_are_cut_with_their_number() -> None:
    assert listed([]) == "none"
    assert listed("abc", at_most=2) == "a, b and 1 more"


def test_names_are_what_can_stand_in_lists_in_places_and_before_values() -> None:
    assert not any(map(unfit, ("imu", "exact_match", "lion8bit", "imu-folder", "LogMel", "a1_b-2")))
    assert all(map(unfit, ("", "a.b", "a,b", "x=y", "my imu", "imu/2", "7b", "-a", "a-", "a--b", "größe", "imu\n")))


def test_a_name_of_the_same_letters_is_near() -> None:
    assert did_you_mean("--vedio", ["--prompt", "--video", "--seed"]) == "did you mean --video?"
    assert did_you_mean("sum", ["mus"]) == ""
