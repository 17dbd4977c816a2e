"""The rows of a run, for a training loop of one's own."""

from __future__ import annotations

import gc
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import (
    ConfigError,
    DataError,
    Document,
    Documents,
    Text,
    compile_model,
    compose_run,
    load_run,
    open_training_rows,
)
from kosmos.compose import Composition
from kosmos.data.sources.since import opened_before
from kosmos.errors import CheckpointError, QuarantineFull
from kosmos.train.order import READ
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry
from support.ticks import TicksSource

CORE = ticks_registry()


def made(**over: Any) -> Composition:
    return compose_run(small_run(**over), registry=CORE)


def seen(steps: list[list[Any]]) -> list[Any]:
    """What rows hold, to be compared."""
    return [
        (batch.documents, batch.token_ids.tolist(), {n: m.values.tolist() for n, m in batch.media.items()})
        for step in steps
        for batch in step
    ]


def test_rows_are_those_of_the_run_and_give_its_losses(tmp_path: Path) -> None:
    config = small_run(tmp_path / "run", train={"steps": 4})
    logged = [row for row in rows_of(train_model(config, registry=CORE).output / "metrics.jsonl") if "loss" in row]
    parts = compose_run(config, registry=CORE)
    with open_training_rows(parts) as rows:
        steps = [next(rows) for _ in logged]
        assert (rows.step, rows.bad) == (4, []) and rows.waited_s > 0
        assert rows.epoch == pytest.approx(logged[-1]["epoch"])
    assert [len(step) for step in steps] == [2] * 4
    for step, row in zip(steps, logged, strict=True):
        assert sum(len(batch.token_ids) for batch in step) == row["tokens"]
        assert sum(batch.num_targets for batch in step) == row["target_tokens"]
        assert sum(len(batch.documents) for batch in step) == row["documents"]
    loss = sum(parts.model(batch).total for batch in steps[0]) / logged[0]["target_tokens"]
    assert float(loss.detach()) == pytest.approx(logged[0]["loss"], rel=1e-6)


def test_they_go_on_where_they_were_with_any_number_of_workers() -> None:
    parts, by_a_worker = made(), made(data={"workers": 1})
    with open_training_rows(parts) as rows:
        first = [next(rows) for _ in range(3)]
        state = json.loads(json.dumps(rows.state()))
        then = [next(rows) for _ in range(3)]
    with open_training_rows(by_a_worker) as rows:
        assert seen([next(rows) for _ in range(3)]) == seen(first)
    with open_training_rows(by_a_worker, state=state) as rows:
        assert seen([next(rows) for _ in range(3)]) == seen(then)


def test_documents_in_memory_are_taken_in_the_place_of_files() -> None:
    sums = Documents("sums", [Document(f"{n}", (Text(f"{n} + 1 = "), Text(f"{n + 1}", train=True))) for n in range(9)])
    with open_training_rows(made(), sources=[sums]) as rows:
        batch, _ = next(rows)
        state = rows.state()
    assert {document.source for document in batch.documents} == {"sums"}
    other = Documents("sums", [Document("7", (Text("7", train=True),))])
    for sources in ([other], None):
        with pytest.raises(CheckpointError, match=r"^state: was made with .*open the rows without state$"):
            open_training_rows(made(), sources=sources, state=state)
    with pytest.raises(DataError, match="holds no documents"):
        open_training_rows(made(), sources=[Documents("none", [])])


def test_bad_samples_are_told_and_too_many_end_it() -> None:
    with open_training_rows(made(), sources=[TicksSource("train", 60, broken=(3, 5))]) as rows:
        bad = [row for _ in range(20) for row in (next(rows), rows.bad)[1]]
    assert {row["origin"] for row in bad} == {"ticks 3", "ticks 5"} and bad[0]["code"] == "sample"
    mostly = TicksSource("train", broken=tuple(n for n in range(200) if n % 4))
    with open_training_rows(made(), sources=[mostly]) as rows:
        with pytest.raises(QuarantineFull):
            list(islice(rows, 100))
        given, state = rows.step, rows.state()
    assert 0 < given == state["step"] < 100
    with open_training_rows(made(), sources=[mostly], state=state) as rows, pytest.raises(QuarantineFull):
        next(rows)  # the step that was not given comes again, and what was counted is known


def test_rows_that_are_dropped_end_their_workers() -> None:
    rows = open_training_rows(made(data={"workers": 1}))
    next(rows)
    (process,) = (worker.process for worker in rows._feeder.workers)
    del rows
    gc.collect()
    assert process.poll() is not None


def test_wrong_states_are_refused() -> None:
    parts = made()
    with open_training_rows(parts) as rows:
        next(rows)
        state = rows.state()
    for wrong in ({}, [], 5, {**state, "data": {}}, {**state, "order": {}}):
        with pytest.raises(ConfigError, match=r"^state: .*expected|what TrainingRows.state\(\) gave"):
            open_training_rows(parts, state=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="these training rows are closed"):
        next(rows)
    with pytest.raises(CheckpointError, match=r"data.lanes 2, the run now has 4; the order of samples would not go on"):
        open_training_rows(made(data={"lanes": 4}), state=state)
    lacking = {**state, "data": {**state["data"], "lanes": {"0": state["data"]["lanes"]["0"]}}}
    with pytest.raises(CheckpointError, match=r"^state: has no lane 1; give the state of the same rank"):
        open_training_rows(parts, state=lacking)
    other = {**lacking, "step": 2, "data": {**state["data"], "lanes": {"1": state["data"]["lanes"]["1"]}}}
    for mixed, why in (([lacking, state], "have the same lanes"), ([lacking, other], "of steps 1, 2")):
        with pytest.raises(CheckpointError, match=why):
            open_training_rows(parts, state=mixed)


def test_a_run_that_was_loaded_takes_other_sources(tmp_path: Path) -> None:
    sums = Documents("sums", [Document(f"{n}", (Text(f"{n} + 1 = "), Text(f"{n + 1}", train=True))) for n in range(9)])
    config = small_run(tmp_path / "run", train={"steps": 1}, evaluate={"max_documents": 1})
    saved = load_run(train_model(config, sources=[sums], registry=CORE).output, registry=CORE)
    with open_training_rows(saved.composition, sources=[sums]) as rows:
        assert {document.source for document in next(rows)[0].documents} == {"sums"}
    (tmp_path / "text.txt").write_text("a\n\nb\n")
    weighed = made(data={"sources": [{"path": str(tmp_path / "text.txt"), "weight": 2.0}]})
    with open_training_rows(weighed, sources=[sums, TicksSource("train")]) as rows:
        assert len(next(rows)) == 2


def test_a_model_is_compiled_as_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kosmos.model.kernels_in_use.WORTH", 1)
    parts = made()
    with open_training_rows(parts) as rows:
        batch, _ = next(rows)
    before = parts.model(batch).total
    compile_model(parts)
    assert parts.model.backbone.blocks[0].by_kernels
    torch.testing.assert_close(parts.model(batch).total, before, rtol=1e-5, atol=1e-5)
    for wrong in ({"composition": parts.model}, {"composition": parts, "dtype": "bf16"}):
        with pytest.raises(ConfigError, match=r"^(composition|dtype): expected "):
            compile_model(**wrong)  # type: ignore[arg-type]


def test_what_a_loop_of_ones_own_does_not_do_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"^init: the weights of .* are not loaded here; load_run has them") as told:
        made(init=str(tmp_path))
    assert told[0].filename == __file__
    better, worse = ((Text("1 = "), Text(answer, train=True)) for answer in "12")
    pairs = Documents("pairs", [Document(f"{n}", better, rejected=worse) for n in range(9)])
    with (
        pytest.warns(UserWarning, match=r"^train.objective dpo: is not that of model\(batch\)") as told,
        open_training_rows(made(train={"objective": "dpo"}), sources=[pairs]) as rows,
    ):
        assert [document.is_rejected for document in next(rows)[0].documents[:2]] == [False, True]
    assert told[0].filename == __file__


def test_a_state_from_before_a_rule_goes_on_by_the_rules_that_it_knew(tmp_path: Path) -> None:
    """Patients whose ids are untidy: with the rule that spaces are none of them others are held out."""
    spelled = ("P{:03}", "P{:03} ", " P{:03}", "P{:03}")
    rows = [{"text": f"row {n}", "patient": spelled[n % 4].format(n // 4)} for n in range(32)]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"path": str(tmp_path / "all.jsonl"), "columns": {"group": "patient"}, "held_out": 0.3}
    parts = made(modalities=[], data={"sources": [source]})
    with opened_before(lacking=["spaces"]), open_training_rows(parts) as first:
        before = seen([next(first)])
        state, following = first.state(), seen([next(first), next(first)])
        state["order"] = {**state["order"], "reads": [rule for rule in READ if rule != "spaces"]}
    with open_training_rows(parts) as new:
        assert seen([next(new)]) != before
    with open_training_rows(parts, state=json.loads(json.dumps(state))) as again:
        assert seen([next(again), next(again)]) == following
