from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from kosmos.errors import TrainingError
from kosmos.train import checkpoint


def save(folder: Path, step: int) -> Path:
    return checkpoint.save(folder, step, {"model": {"w": torch.full((8,), float(step))}}, {"step": step})


@pytest.mark.parametrize("keep_last", [1, 2])
def test_pruning_after_a_fallback_never_deletes_what_was_just_saved(tmp_path: Path, keep_last: int) -> None:
    save(tmp_path, 200)
    damaged = save(tmp_path, 400) / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    checkpoint.prune(tmp_path, keep_last, save(tmp_path, 300))
    assert checkpoint.load_newest(tmp_path).folder.name == "step-00000300"
    assert len(checkpoint.committed(tmp_path)) == keep_last


def test_a_checkpoint_that_cannot_be_written_is_one_line_and_leaves_the_older_whole(tmp_path: Path) -> None:
    save(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))  # no file may grow past 16 bytes
    try:
        with pytest.raises(TrainingError, match=r"cannot write the checkpoint .* bytes are free"):
            save(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoint.load_newest(tmp_path).state == {"step": 1}
