"""Codecs that are not those that a model learned to write by: its tokens would mean other media."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kosmos.errors import CheckpointError
from kosmos.run_codecs import path_of
from kosmos.train.order import CODECS


def check_codecs(order: Mapping[str, Any], codecs: Mapping[str, str], where: Path) -> None:
    """Refuse another codec than a checkpoint was made with, where the model is to write.

    Args:
        order: what its state has of ``kosmos.train.order.sample_order``.
        codecs: as ``Planner.codecs`` tells them now.
        where: the checkpoint.

    Raises:
        CheckpointError: names the modality.
    """
    for modality in _others(order, codecs):
        raise CheckpointError(
            f"{where}: was made with another {path_of(modality)}, by which its tokens mean other media; give it the "
            "options, and the weights, that it had"
        )


def codec_warnings(order: Mapping[str, Any], codecs: Mapping[str, str], folder: Path) -> Iterator[str]:
    """A line for each modality that a run writes by another codec than the one whose weights it begins with."""
    for modality in _others(order, codecs):
        yield (
            f"warning: {path_of(modality)}: another than in {folder}, so that its tokens begin as what they meant there"
        )


def _others(order: Mapping[str, Any], codecs: Mapping[str, str]) -> Iterator[str]:
    then: Any = order.get(CODECS)
    for modality, identity in codecs.items():
        if isinstance(then, Mapping) and then.get(modality, identity) != identity:
            yield modality
