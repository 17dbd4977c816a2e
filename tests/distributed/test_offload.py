"""Parameters, gradients and optimizer offloaded from the device: the same losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import ticks
from support.command import SMALL, Started, install_plugin
from support.runs import rows_of
from support.torchrun import LOOPBACK


def test_an_offloaded_run_has_the_losses_of_one_that_is_not(tmp_path: Path) -> None:
    site = install_plugin(tmp_path / "site", "ticks", None, module=ticks.__name__)
    losses = {}
    for offload in ("false", "true"):
        output = tmp_path / offload
        more = ("data.lanes=2", "data.workers=0", "train.steps=4", "train.precision=fp32", "evaluate.max_documents=4")
        run = Started(
            "train", "--nproc", 2, "--modalities", "ticks", "--output", output, *SMALL, *more,
            f"parallel.offload={offload}", path=[site], **LOOPBACK,
        )  # fmt: skip
        status, said = run.end(at_most_s=90)
        assert status == 0, said
        losses[offload] = [row["loss"] for row in rows_of(output / "metrics.jsonl")]
    assert losses["true"] == pytest.approx(losses["false"], rel=1e-6)
