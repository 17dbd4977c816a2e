"""Whether two runs are the same run, whatever their processes; what a tensor is, whatever they share of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kosmos.checkpoint.folder import load_newest
from kosmos.checkpoint.tensors import MODEL, read_whole
from support.runs import rows_of


def assert_same_run(output: Path, other: Path, *, rel: float, weights: float) -> None:
    """The same documents in the same steps; losses, norms and held-out scores within ``rel``, weights absolutely."""
    rows, expected = rows_of(output / "metrics.jsonl"), rows_of(other / "metrics.jsonl")
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    for row, one in zip(rows, expected, strict=True):
        for name in ("documents", "tokens", "text_tokens", "media_tokens", "target_tokens", "fill"):
            assert row[name] == one[name]
        for name in ("loss", "grad_norm", "loss_by_source", "loss_by_modality"):
            assert row[name] == pytest.approx(one[name], rel=rel)
    scores, one_scores = (
        {row["step"]: row["held_out"] for row in rows_of(f / "held_out.jsonl")} for f in (output, other)
    )
    for step in scores.keys() & one_scores.keys():
        for name, score in scores[step]["source"].items():
            one = one_scores[step]["source"][name]
            none = [figure for figure in one if one[figure] is None]  # such as the perplexity of an objective
            assert [figure for figure in score if score[figure] is None] == none
            assert _numbers(score) == pytest.approx(_numbers(one), rel=rel)
    loaded = [found for folder in (output, other) if (found := load_newest(folder / "checkpoints"))]
    state, one_state = (found.state for found in loaded)
    for name in ("step", "data", "budget"):
        assert state[name] == one_state[name]
    tensors, one_tensors = (read_whole(found.tensors) for found in loaded)
    assert tensors.keys() == one_tensors.keys()
    for name in tensors:
        assert not name.startswith(MODEL) or tensors[name].shape == one_tensors[name].shape
        torch.testing.assert_close(
            tensors[name], one_tensors[name], rtol=0, atol=weights, msg=lambda m, n=name: f"{n}: {m}"
        )


def _numbers(score: dict[str, float | None]) -> dict[str, float]:
    return {figure: value for figure, value in score.items() if value is not None}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that may be sharded, whole. All ranks call this."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()
