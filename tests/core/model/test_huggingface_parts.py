"""The language model of a folder that transformers has written of several parts: its names, and whether it is tied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kosmos import ConfigError, ModelFolder, is_tied, language_name
from kosmos.model.model_folder import CONFIG, WEIGHTS

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


@pytest.mark.parametrize(
    ("there", "own"),
    [
        ("language_model.model.norm.weight", "model.norm.weight"),
        ("language_model.lm_head.weight", HEAD),
        ("model.language_model.norm.weight", "model.norm.weight"),
        ("language_model.norm.weight", "model.norm.weight"),
        ("lm_head.weight", HEAD),
        ("vision_tower.norm.weight", None),
    ],
)
def test_a_tensor_has_the_name_that_it_has_in_a_language_model_alone(there: str, own: str | None) -> None:
    assert language_name(there) == own


def folder(place: Path, *names: str, same: bool = True) -> ModelFolder:
    (place / CONFIG).write_text(json.dumps({}))
    save_file({name: torch.full((3, 2), float(not same and name == HEAD)) for name in names}, place / WEIGHTS)
    return ModelFolder(place)


@pytest.mark.parametrize(
    ("there", "same", "said", "tied"),
    [
        ((HEAD, TABLE), True, ({}, {}), False),  # two that have the same values compute the same
        ((HEAD, TABLE), True, ({"tie_word_embeddings": True}, {}), True),
        ((HEAD, TABLE), True, ({}, {"tie_word_embeddings": True}), True),
        ((HEAD, TABLE), True, ({"tie_word_embeddings": False}, {"tie_word_embeddings": True}), False),
        ((HEAD, TABLE), False, ({"tie_word_embeddings": True}, {}), False),  # as transformers reads them
        ((TABLE,), True, ({"tie_word_embeddings": False}, {"tie_word_embeddings": True}), True),
        ((HEAD,), True, ({"tie_word_embeddings": True},), False),
    ],
)
def test_what_is_there_counts_more_than_what_is_said(
    tmp_path: Path, there: tuple[str, ...], same: bool, said: tuple[dict[str, bool], ...], tied: bool
) -> None:
    assert is_tied(folder(tmp_path, *there, same=same), {name: name for name in there}, *said) is tied


@pytest.mark.parametrize("said", [{}, {"tie_word_embeddings": False}])
def test_a_projection_that_nobody_has_is_refused(tmp_path: Path, said: dict[str, bool]) -> None:
    with pytest.raises(ConfigError, match=r"tie_word_embeddings: expected true, since there is no lm_head\.weight"):
        is_tied(folder(tmp_path, TABLE), {TABLE: TABLE}, said)
