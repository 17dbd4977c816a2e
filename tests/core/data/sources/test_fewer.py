"""A limit on the documents of a source that are trained on."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos.data.document import Blocks, Document, Text
from kosmos.data.sources.fewer import some_of
from kosmos.errors import CheckpointError, ConfigError
from kosmos.run_sources import open_both, open_named
from kosmos.train.run import resume_run, train_model
from support.runs import rows_of, small_run, ticks_registry


class Numbers:
    """Documents that are their own numbers, read in blocks of four."""

    name = "numbers"

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def document(self, index: int) -> Document:
        return Document(f"number {index}", (Text(str(index), train=True),))

    def blocks(self) -> Blocks:
        return Blocks(np.arange(self.size) // 4, 2)


def origins(source: object) -> list[str]:
    return [source.document(index).origin for index in range(len(source))]  # type: ignore[attr-defined, arg-type]


@given(size=st.integers(1, 60), fewer=st.integers(1, 70), more=st.integers(1, 70), seed=st.integers(-(2**63), 2**63))
def test_a_lower_limit_takes_some_of_what_a_higher_one_takes(size: int, fewer: int, more: int, seed: int) -> None:
    low, high = (origins(some_of(Numbers(size), limit, seed)) for limit in sorted((fewer, more)))
    assert len(high) == min(max(fewer, more), size) and len(low) == min(fewer, more, size)
    assert set(low) <= set(high) <= {f"number {index}" for index in range(size)}
    assert len(set(high)) == len(high)


def test_documents_of_a_block_stay_in_it_and_keep_their_numbers() -> None:
    source = pickle.loads(pickle.dumps(some_of(Numbers(40), 9, 3)))  # as data workers get it
    numbers = [int(origin.split()[1]) for origin in origins(source)]
    assert source.blocks().of.tolist() == [number // 4 for number in numbers] and source.blocks().at_once == 2
    assert [source.origin(index) for index in range(9)] == [f"numbers: row {number}" for number in numbers]


def test_what_is_held_out_is_the_same_with_any_limit(tmp_path: Path) -> None:
    lines = (json.dumps({"text": f"line {number}"}) for number in range(200))
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    pq.write_table(pa.table({"text": [f"row {n}" for n in range(100)]}), tmp_path / "r.parquet", row_group_size=10)
    opened = []
    for limit in (None, 20):
        files = [{"path": str(tmp_path / name), "limit": limit} for name in ("lines.jsonl", "r.parquet")]
        config = small_run(data={"sources": [*files, {"path": "ticks", "limit": limit}], "held_out": 0.1})
        opened.append(open_both(config, ticks_registry()))
    (every, held), (some, still_held) = opened
    assert [origins(source) for source in held] == [origins(source) for source in still_held]
    assert [len(source) for source in some] == [20, 20, 20]
    for few, whole in zip(some, every, strict=True):
        assert set(origins(few)) < set(origins(whole))
    blocks = some[1].blocks()  # type: ignore[attr-defined]
    assert blocks is not None and len(blocks.of) == 20


def test_a_source_may_hold_out_a_share_of_its_own_and_a_run_goes_on_with_it(tmp_path: Path) -> None:
    lines = (json.dumps({"text": f"line {number}"}) for number in range(400))
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    (tmp_path / "again.jsonl").write_bytes((tmp_path / "lines.jsonl").read_bytes())
    of_run, own = ({"path": str(tmp_path / name)} for name in ("lines.jsonl", "again.jsonl"))
    config = small_run(tmp_path / "run", data={"sources": [of_run, {**own, "held_out": 0.3, "limit": 50}]})
    trained, held = open_both(config, ticks_registry())
    assert [len(source) for source in trained] == [400 - len(held[0]), 50]
    assert 5 < len(held[0]) < 40 and 90 < len(held[1]) < 150
    assert {origin.split(":")[-1] for origin in origins(held[0])} < {o.split(":")[-1] for o in origins(held[1])}
    assert [len(source) for source in open_named(config, ticks_registry(), [own["path"]])] == [len(held[1])]
    split = small_run(data={"sources": [of_run, {"path": "ticks", "held_out": 0.3}]})
    with pytest.raises(ConfigError, match=r"^data.sources.1.held_out: the data state themselves what is held out"):
        open_both(split, ticks_registry())
    train_model(config, registry=ticks_registry())
    over = {"data": {"sources": {1: {"held_out": 0}}}, "train": {"steps": 8}}
    with pytest.raises(CheckpointError, match=r"was made with data\.sources\.1\.held_out 0.3"):
        resume_run(tmp_path / "run", over, registry=ticks_registry())


def test_a_run_trains_on_so_many_alone_and_goes_on_with_no_other_limit(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", data={"sources": [{"path": "ticks", "limit": 3}], "tokens_per_pack": 64})
    train_model(run, registry=ticks_registry())
    assert sum(row["documents"] for row in rows_of(tmp_path / "run" / "metrics.jsonl")) > 3
    over = {"data": {"sources": {0: {"limit": 4}}}, "train": {"steps": 8}}
    with pytest.raises(CheckpointError, match=r"was made with data\.sources\.0\.limit 3, .* Leave .*limit as"):
        resume_run(tmp_path / "run", over, registry=ticks_registry())
