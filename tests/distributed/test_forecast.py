"""Bytes that a rank is said to hold, against those that two ranks hold after a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support import held
from support.runs import small_run
from support.torchrun import done, forked

UNEVEN = {"width": 36, "heads": 2, "ffn_width": 47}
"""Sizes that two ranks do not divide."""
SHARED: dict[str, dict[str, Any]] = {
    "fsdp, uneven": {"backbone": UNEVEN, "train": {"optimizer": "adamw"}},
    "fsdp, 8 bits": {"backbone": {"width": 64, "ffn_width": 128},
                     "train": {"weights": "bf16", "precision": "bf16",
                               "optimizer": {"name": "lion8bit", "master": "bits8"}}},
    "fsdp, 4 bits": {"backbone": {"name": "hf", "lora": {"rank": 4, "quantize": "nf4"},
                                  "config": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
                                             "num_attention_heads": 2, "intermediate_size": 96}}},
    "tensor": {"backbone": {"width": 128, "ffn_width": 256, "bias": True, "sub_ln": True}, "parallel": {"tensor": 2},
               "train": {"optimizer": "lion8bit"}},
}  # fmt: skip


def test_of_two_ranks_the_one_that_holds_most_holds_what_was_told(tmp_path: Path) -> None:
    runs = [small_run(None, **over).model_dump(mode="json", exclude_unset=True) for over in SHARED.values()]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    lines = done(forked(2, [held.__file__, str(tmp_path / "runs.json"), str(tmp_path)])).splitlines()
    for (name, over), line in zip(SHARED.items(), lines, strict=True):
        ranks = json.loads(line)
        assert {what: max(rank[what] for rank in ranks) for what in ranks[0]} == held.told(over, 2), name
