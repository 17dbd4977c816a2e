"""Any number of processes and workers under any strategy: the same documents in the same steps, and the same losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import make_run
from kosmos.checkpoint.folder import load_newest, verify
from kosmos.checkpoint.tensors import MODEL, read_whole
from kosmos.compose import compose, make_feed
from kosmos.run_sources import open_sources
from support import torchrun, trainings
from support.ledgers import documents
from support.runs import SMALL, rows_of, ticks_registry
from support.torchrun import done, forked

pytestmark = pytest.mark.slow
LOSS = 1e-5
"""Relative, fp32; measured 0 of losses (the optimizer takes signs) and 1.5e-7 of gradient norms."""
STEPS = 6
WAYS = [
    *((1, "auto", workers) for workers in (0, 1, 2)),
    *((2, "fsdp", workers) for workers in (0, 2)),
    (4, "fsdp", 1),
    *((world, "ddp", 0) for world in (2, 4)),
    (4, "hsdp", 0),
]
"""Processes, strategy, workers."""
SHARDED = (2, "fsdp", 0)

RELEASED = [(1, "auto"), (4, "fsdp"), (4, "hsdp")]
"""Four lanes, so that one process has to add up gradients, and four need not."""
RELEASE = {"clip_norm": None, "optimizer": "adamw"}
LLAMA = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 54, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 300,
}  # fmt: skip


LORA = [(1, "auto"), (2, "fsdp"), (2, "ddp")]
MUON = [(1, "auto"), (4, "fsdp"), (4, "hsdp"), (2, "ddp")]
IN_8_BITS = {"name": "lion8bit", "block": 64}
ROWS_WITH_BLOCKS = {**SMALL["backbone"], "width": 64, "ffn_width": 128}  # type: ignore[dict-item]


def release(world: int) -> dict[str, bool]:
    return {"release_gradients": world > 1}


def run(output: Path, *, strategy: str, workers: int, steps: int = STEPS) -> dict[str, Any]:
    """Four lanes with dropout; rows of one or two documents, so that ranks often lack a modality."""
    ledger = str(output.with_suffix(".ledger"))
    data = {"tokens_per_pack": 48, "lanes": 4, "look_ahead": 4, "workers": workers, "sources": ["ticks", "sums"]}
    return {
        **SMALL,
        "data": data,
        "streams": {"ticks": {"encoder": {"name": "ticks", "ledger": ledger}}},
        "backbone": {**SMALL["backbone"], "dropout": 0.1},  # type: ignore[dict-item]
        "train": {**SMALL["train"], "steps": steps, "schedule": "constant"},  # type: ignore[dict-item]
        "evaluate": {
            "max_documents": 8,
            "every_steps": 3,
            "choices": [str(output.parent / "asked.jsonl")],
            "generate": {"documents": 3, "max_new_tokens": 6},
            "metrics": ["word_error_rate"],
        },
        "checkpoint": {"every_steps": 2},
        "parallel": parallel(strategy),
        "output": str(output),
    }


def unscored(output: Path, *, strategy: str, workers: int, steps: int) -> dict[str, Any]:
    """As ``run``, for tests that look at steps alone: nothing is written or answered, and the end alone is saved."""
    one = run(output, strategy=strategy, workers=workers, steps=steps)
    return {**one, "evaluate": {"max_documents": 2}, "checkpoint": {}}


def parallel(strategy: str) -> dict[str, Any]:
    return {"strategy": strategy, "shards": 2 if strategy == "hsdp" else None}


def goes_on(output: Path, world: int, strategy: str, steps: int) -> dict[str, Any]:
    over = {"train": {"steps": steps}, "parallel": parallel(strategy), "data": {"workers": steps % 3}}
    return {"world": world, "resume": str(output), "over": over}


def first_row_of_lane(lane: int) -> int:
    config = make_run(run(Path("none"), strategy="auto", workers=0))
    registry = ticks_registry()
    return make_feed(compose(config, registry), open_sources(config, registry, "train")).mixture.row(0, lane)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folders of all trainings of this module, which one launch of four processes makes."""
    folder = tmp_path_factory.mktemp("topologies")
    asked = [{"query": f"{n} is", "choices": [" a number", " none"], "gold": n % 2} for n in range(5)]
    (folder / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    entries = [
        {"world": world, "run": run(folder / f"{world} {strategy} {workers}", strategy=strategy, workers=workers)}
        for world, strategy, workers in WAYS
    ]
    offloaded = run(folder / "offloaded", strategy="fsdp", workers=0)
    offloaded["parallel"]["offload"] = True
    entries.append({"world": 2, "run": offloaded})
    frozen = unscored(folder / "frozen", strategy="fsdp", workers=0, steps=4)
    frozen["backbone"]["freeze"] = True
    profile = {"after_steps": 1, "steps": 2, "ranks": [0, 1]}
    entries.append(
        {"world": 2, "run": {**frozen, "checkpoint": {"every_steps": 1, "keep_last": 4}, "profile": profile}}
    )
    moved = folder / "moved"
    entries += [
        {"world": 2, "run": run(moved, strategy="fsdp", workers=0, steps=1)},
        *(
            goes_on(moved, *way)
            for way in ((1, "auto", 2), (2, "ddp", 3), (4, "hsdp", 4), (4, "fsdp", 5), (1, "auto", 6))
        ),
    ]
    for name, steps in (("8-bit whole", STEPS), ("8-bit moved", 2)):
        one = run(folder / name, strategy="auto", workers=0, steps=steps)
        one["train"]["optimizer"] = IN_8_BITS
        entries.append({"world": 1, "run": {**one, "backbone": ROWS_WITH_BLOCKS}})
    entries += [goes_on(folder / "8-bit moved", *way) for way in ((4, "fsdp", 4), (2, "fsdp", 5), (1, "auto", STEPS))]
    for world in (1, 2):
        bad = unscored(folder / f"bad {world}", strategy="auto", workers=0, steps=STEPS)
        bad["data"]["sources"] = [{"path": "ticks", "options": {"infinite": [first_row_of_lane(1)]}}, "sums"]
        entries.append({"world": world, "run": {**bad, "guard": {"non_finite": "skip"}}})
    for world, strategy in RELEASED:
        one = run(folder / f"released {world} {strategy}", strategy=strategy, workers=0, steps=3)
        entries.append({"world": world, "run": {**one, "train": {**one["train"], **RELEASE, **release(world)}}})
    for world in (1, 4):  # matrices that are shared by two ranks and sharded over two
        one = run(folder / f"released {world} tensor", strategy="auto", workers=0, steps=3)
        one["parallel"] = {"tensor": 2}
        one["data"] = {**one["data"], "lanes": 2}
        entries.append({"world": world, "run": {**one, "train": {**one["train"], **RELEASE, **release(world)}}})
    for world, strategy in MUON:
        one = unscored(folder / f"muon {world} {strategy}", strategy=strategy, workers=0, steps=3)
        large = {
            "optimizer": "muon",
            "learning_rate": 0.02,
            "warmup_steps": 0,
        }  # a wrong step is seen
        entries.append({"world": world, "run": {**one, "train": {**one["train"], **large}}})
    for world in (1, 2):
        output = folder / f"cut {world}"
        cut = run(output, strategy="auto", workers=0, steps=1)
        entries.append({"world": world, "run": {**cut, "backbone": {"name": "hf", "config": LLAMA}}})
        entries.append({"world": world, "resume": str(output), "parts": 3, "over": {"train": {"steps": 2}}})
    for world, strategy in LORA:
        one = run(folder / f"lora {world} {strategy}", strategy=strategy, workers=0, steps=3)
        lora = {"name": "hf", "config": LLAMA, "lora": {"rank": 4, "whole": ["embed_tokens"]}}
        entries.append({"world": world, "run": {**one, "backbone": lora}})
        one = unscored(Path(one["output"]), strategy=strategy, workers=0, steps=3)
        mixed = {**one, "output": f"{one['output']} mixed", "backbone": {**lora, "dtype": "bfloat16"}}
        entries.append({"world": world, "run": {**mixed, "train": {**one["train"], "precision": "bf16"}}})
        in_4_bits = {**lora, "config": {**LLAMA, "hidden_size": 64}, "lora": {"rank": 4, "quantize": "nf4"}}
        entries.append({"world": world, "run": {**one, "output": f"{one['output']} nf4", "backbone": in_4_bits}})
    (folder / "trainings.json").write_text(json.dumps(entries))
    done(forked(4, [trainings.__file__, folder / "trainings.json"], imports=torchrun.LLAMA), at_most_s=600)
    return lambda *name: folder / " ".join(map(str, name))


def assert_same(output: Path, alone: Path) -> None:
    rows, expected = rows_of(output / "metrics.jsonl"), rows_of(alone / "metrics.jsonl")
    assert [row["step"] for row in rows] == [row["step"] for row in expected] == list(range(1, STEPS + 1))
    for row, one in zip(rows, expected, strict=True):
        for name in ("documents", "tokens", "media_tokens", "target_tokens", "fill"):
            assert row[name] == one[name]
        for name in ("loss", "grad_norm"):
            assert row[name] == pytest.approx(one[name], rel=LOSS)
        assert row["loss_by_source"] == pytest.approx(one["loss_by_source"], rel=LOSS)
    assert documents(output.with_suffix(".ledger")) == documents(alone.with_suffix(".ledger"))
    loaded = [found for folder in (output, alone) if (found := load_newest(folder / "checkpoints"))]
    state, one_state = (found.state for found in loaded)
    assert state["data"] == one_state["data"]
    assert state["budget"] == one_state["budget"]
    assert state["guard"]["losses"] == pytest.approx(one_state["guard"]["losses"], rel=LOSS)
    scores, expected = (rows_of(folder / "held_out.jsonl") for folder in (output, alone))
    for step, one in {row["step"]: row for row in expected}.items():
        for row in (row for row in scores if row["step"] == step):
            sources, expected_sources = (told["held_out"]["source"] for told in (row, one))
            assert sources["asked"] == expected_sources["asked"] and sources["asked"]["answers"] == 5
            for name in sources.keys() - {"asked"}:  # which has no loss
                assert sources[name]["documents"] == expected_sources[name]["documents"]
                assert sources[name]["loss"] == pytest.approx(expected_sources[name]["loss"], rel=LOSS)
            assert row["held_out"]["generated"] == one["held_out"]["generated"] != {}
    texts, expected_texts = ({f.name: f.read_text() for f in (o / "answers").iterdir()} for o in (output, alone))
    both = texts.keys() & expected_texts.keys()  # one that was stopped in between has scored there, too
    assert both and {name: texts[name] for name in both} == {name: expected_texts[name] for name in both}
    weights, expected_weights = (read_whole(f.tensors) for f in loaded)
    for name, tensor in weights.items():
        # A sum in another order is seldom rounded to the code beside: measured 1 of 4,096.
        atol = 1 if tensor.dtype is torch.int8 else 1e-7
        torch.testing.assert_close(tensor, expected_weights[name], rtol=LOSS, atol=atol)


def test_ranks_that_are_asked_for_record_where_their_time_goes(trained: Callable[..., Path]) -> None:
    for rank in (0, 1):
        text = (trained("frozen") / "profile" / f"steps-2-3-rank{rank}.txt").read_text()
        assert "exchanges" in text and "c10d::" in text and "reading data" in text


@pytest.mark.parametrize("way", WAYS[1:], ids=lambda way: " ".join(map(str, way)))
def test_any_topology_takes_the_same_documents_to_the_same_losses(trained: Callable[..., Path], way: Any) -> None:
    assert_same(trained(*way), trained(*WAYS[0]))


def test_a_run_goes_on_in_any_other_topology(trained: Callable[..., Path]) -> None:
    assert_same(trained("moved"), trained(*WAYS[0]))


def test_8_bit_momentum_goes_on_in_any_other_topology(trained: Callable[..., Path]) -> None:
    whole, moved = trained("8-bit whole"), trained("8-bit moved")
    assert_same(moved, whole)
    found = load_newest(moved / "checkpoints")
    assert found is not None
    assert torch.int8 in {tensor.dtype for name, tensor in read_whole(found.tensors).items() if name.endswith("/codes")}


def test_an_offloaded_run_has_the_losses_of_one_that_is_not(trained: Callable[..., Path]) -> None:
    """Parameters, gradients and optimizer wait on the CPU, which is the device here too."""
    assert_same(trained("offloaded"), trained(*WAYS[0]))
    losses = [[row["loss"] for row in rows_of(trained(*way) / "metrics.jsonl")] for way in (("offloaded",), SHARDED)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_shards_of_what_is_frozen_are_linked_on_all_ranks(trained: Callable[..., Path]) -> None:
    checkpoints = sorted((trained("frozen") / "checkpoints").iterdir())
    linked = [{f.name: f.stat().st_ino for f in (c / "tensors").glob("frozen-*")} for c in checkpoints]
    assert [name.partition("-model-")[0] for name in sorted(linked[0])] == ["frozen-00001", "frozen-00002"]
    assert linked[2:] == linked[:2] and not {*linked[0].values()} & {*linked[1].values()}
    assert [verify(c) for c in checkpoints] == [None] * 4
    first, last = (read_whole(c / "tensors", MODEL) for c in (checkpoints[0], checkpoints[-1]))
    changed = {name.partition(".")[0] for name, tensor in first.items() if not torch.equal(tensor, last[name])}
    assert first.keys() == last.keys() and changed == {"streams"}


def test_what_a_step_costs_is_that_of_all_ranks(trained: Callable[..., Path]) -> None:
    """Operations are the sum, which one process takes alone."""
    one, two = (rows_of(trained(*way) / "metrics.jsonl")[-1] for way in (WAYS[0], SHARDED))
    assert two["flops"] == pytest.approx(one["flops"], rel=0.02)  # measured on pictures: 5e-5; of one rank alone half
    assert (one["processes"], two["processes"]) == (1, 2)
    for name in ("cells_by_stream", "imbalance_by_stream"):  # of the rows of both ranks
        assert two[name] == one[name] and one[name]


def test_a_gradient_that_is_no_number_on_one_rank_alone_is_left_out_on_all(trained: Callable[..., Path]) -> None:
    alone, two = trained("bad", 1), trained("bad", 2)
    (row,) = rows_of(two / "guards.jsonl")
    (expected,) = rows_of(alone / "guards.jsonl")
    assert (row["kind"], row["action"], row["step"]) == ("non_finite", "skip", expected["step"])
    assert sorted(row["documents"]) == sorted(expected["documents"])
    losses = [[r["loss"] for r in rows_of(f / "metrics.jsonl") if not r.get("skipped")] for f in (two, alone)]
    assert len(losses[0]) == STEPS - 1
    assert losses[0] == pytest.approx(losses[1], rel=LOSS)


@pytest.mark.parametrize(
    ("way", "alone"), [*((way, RELEASED[0]) for way in RELEASED[1:]), ((4, "tensor"), (1, "tensor"))]
)
def test_released_gradients_of_a_sharded_model_have_the_norm_of_all(
    trained: Callable[..., Path], way: tuple[int, str], alone: tuple[int, str]
) -> None:
    rows, expected = (rows_of(trained("released", *w) / "metrics.jsonl") for w in (way, alone))
    assert len(rows) == 3
    for name in ("loss", "grad_norm"):
        assert [row[name] for row in rows] == pytest.approx([row[name] for row in expected], rel=LOSS)
    written, alone_written = (
        [row["held_out"]["generated"] for row in rows_of(trained("released", *w) / "held_out.jsonl")]
        for w in (way, alone)
    )
    assert written == alone_written and written[-1]["ticks"]["documents"] == 3


@pytest.mark.parametrize("way", MUON[1:], ids=lambda way: " ".join(map(str, way)))
def test_ranks_that_share_matrices_out_train_as_one_that_has_all(
    trained: Callable[..., Path], way: tuple[int, str]
) -> None:
    """Each makes some of them orthogonal, in bf16, which the order of a sum may round otherwise."""
    rows, expected = (rows_of(trained("muon", *w) / "metrics.jsonl") for w in (way, MUON[0]))
    assert len(rows) == 3
    for name in ("loss", "grad_norm"):
        assert [row[name] for row in rows] == pytest.approx([row[name] for row in expected], rel=1e-3)


def test_a_sharded_model_of_transformers_takes_rows_in_parts_some_of_which_are_empty(
    trained: Callable[..., Path],
) -> None:
    rows, expected = (rows_of(trained("cut", world) / "metrics.jsonl") for world in (2, 1))
    assert len(rows) == 2
    for name in ("loss", "grad_norm"):
        assert [row[name] for row in rows] == pytest.approx([row[name] for row in expected], rel=LOSS)


@pytest.mark.parametrize("way", LORA[1:], ids=lambda way: " ".join(map(str, way)))
def test_low_rank_updates_beside_a_sharded_base_are_those_of_one_process(
    trained: Callable[..., Path], way: tuple[int, str]
) -> None:
    """Also where the base is in 4 bits, or in bf16 and the updates in fp32, whose losses only come near."""
    for kind, rel in (((), LOSS), (("nf4",), LOSS), (("mixed",), 1e-2)):
        outputs = [trained("lora", *one, *kind) for one in (way, LORA[0])]
        rows, expected = (rows_of(output / "metrics.jsonl") for output in outputs)
        assert len(rows) == 3
        for name in ("loss", "grad_norm"):
            assert [row[name] for row in rows] == pytest.approx([row[name] for row in expected], rel=rel)
    dtypes = {
        name: tensor.dtype for name, tensor in read_whole(load_newest(outputs[0] / "checkpoints").tensors).items()
    }  # type: ignore[union-attr]
    assert {dtype for name, dtype in dtypes.items() if "low_rank" in name} == {torch.float32}
    assert dtypes["model.backbone.model.model.layers.0.self_attn.q_proj.weight"] == torch.bfloat16


def test_steps_differ_in_their_documents(trained: Callable[..., Path]) -> None:
    """What the tests above rely on: the ledger tells rows apart, and a row has few documents."""
    found = documents(trained(*WAYS[0]).with_suffix(".ledger"))
    assert len(found) == 4 * STEPS
    assert len(set(map(tuple, found.values()))) == len(found)
    assert {"ticks", "sums:train"} == {origin.split()[0] for row in found.values() for origin in row}
