"""``evaluate.best``: by what scorings are compared, in a run whose sources disagree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kosmos import load_run
from kosmos.checkpoint.folder import committed, step_of
from kosmos.cli import main
from kosmos.errors import CheckpointError, ConfigError
from kosmos.evaluate.score import Score, Scores
from kosmos.train.best import best_step, values
from kosmos.train.early import EarlyStopping
from kosmos.train.measure import Measure
from kosmos.train.run import resume_run, train_model
from support.runs import Listener, rows_of, small_run, ticks_registry

STEPS = 10


@pytest.mark.parametrize(
    ("stated", "source", "name", "words"),
    [
        (None, None, "loss", "lowest held-out loss"),
        ("exact_match", None, "exact_match", "highest held-out exact match"),
        ("captions", "captions", "loss", "lowest held-out loss of captions"),
        ("v1.5.captions", "v1.5.captions", "loss", "lowest held-out loss of v1.5.captions"),
        ("v1.5.exact_match", "v1.5", "exact_match", "highest held-out exact match of v1.5"),
        ("loss.loss", "loss", "loss", "lowest held-out loss of loss"),
        (".loss", ".loss", "loss", "lowest held-out loss of .loss"),
    ],
)
def test_only_a_measure_behind_the_last_dot_is_split_off(
    stated: str | None, source: str | None, name: str, words: str
) -> None:
    measure = Measure.of(stated)
    assert (measure.source, measure.name, measure.best) == (source, name, words)


def row(step: int, unread: int = 0, **documents: tuple[int, float, float | None]) -> dict[str, Any]:
    """Of a scoring of sources, each with its documents, loss and exact match; its ``overall`` would mislead."""
    by = {n: {"documents": d, "loss": loss, "exact_match": exact} for n, (d, loss, exact) in documents.items()}
    overall = {"documents": sum(part["documents"] for part in by.values()), "loss": float(step), "exact_match": 0.0}
    return {
        "step": step,
        "held_out": {"overall": overall, "source": by, **({"unread": {"a": unread}} if unread else {})},
    }


def test_of_one_source_its_own_documents_alone_have_to_be_as_many() -> None:
    rows = [
        row(1, a=(4, 2.0, 0.5), b=(9, 1.0, None)),
        row(2, a=(4, 1.0, 0.25), b=(5, 1.0, None)),
        row(3, a=(4, 1.0, 0.75), b=(5, 1.0, None)),
        row(4, a=(3, 0.1, 1.0), b=(5, 1.0, None), unread=1),
        row(5, a=(4, 3.0, 0.75), b=(5, 1.0, None)),
        row(6, b=(5, 1.0, None), unread=4),
    ]
    assert values(rows, Measure.of("a")) == {1: 2.0, 2: 1.0, 3: 1.0, 5: 3.0}
    assert best_step(rows, measure=Measure.of("a")) == 2
    assert best_step(rows, measure=Measure.of("a.exact_match")) == 3  # the first of the highest
    assert best_step(rows, {1, 2, 5}, Measure.of("a.exact_match")) == 5
    assert values(rows, Measure.of("b.exact_match")) == values(rows, Measure.of("c")) == {}
    assert values(rows) == {2: 2.0, 3: 3.0, 5: 5.0}


def scores(loss: float, documents: int = 4, exact: float | None = None) -> Scores:
    """Of a source ``a`` beside others."""
    return Scores(Score(100, 1.0, 2.7, None), {}, {"a": Score(documents, loss, 1.0, exact)}, ())


def config(**evaluate: Any) -> Any:
    return small_run(evaluate={"every_steps": 1, "patience": 2, **evaluate}).evaluate


def test_early_stopping_counts_by_it() -> None:
    early = EarlyStopping(config(best="a.exact_match", least_gain=0.1))
    for step, exact in enumerate([0.5, 0.75, 0.75, None, 0.8], 1):  # None: those with an answer could not be read
        assert not early.wanted
        early.look(scores(9.0, exact=exact), step)
    assert early.wanted and (early.best, early.best_step, early.since) == (0.75, 2, 2)
    assert early.told(scores(9.0, exact=0.9)) == (
        "the held-out exact match of a was 75.00 % at step 2, 2 scorings ago, and none since higher by "
        "evaluate.least_gain 0.1; before the first step it was higher (90.00 %)"
    )
    by_loss = EarlyStopping(config(best="a"))
    by_loss.look(scores(2.0), 1)
    by_loss.look(Scores(Score(100, 0.1, 1.1, None), {}, {}, ()), 2)  # nothing of the source could be read
    assert (by_loss.since, by_loss.looked) == (0, 2)
    by_loss.look(scores(3.0), 3)
    assert str(by_loss) == "the held-out loss of a was lowest at step 1 (2.0000), 1 scoring ago"


def run_of(output: Path, **over: Any) -> Any:
    """A run that learns ticks, and less and less of a text, whose tokens are most of those that are scored."""
    text = output.parent / "text.jsonl"
    text.write_text("".join(json.dumps({"text": "QXZJKVW" * 9 + str(number)}) + "\n" for number in range(4)))
    settings = {"every_steps": 1, "max_documents": 4, "sources": [str(text)], **over.pop("evaluate", {})}
    train = {"steps": STEPS, "learning_rate": 0.03, "warmup_steps": 0, "schedule": "constant"}
    return small_run(output, evaluate=settings, train=train, **over)


def best_by(run: Path, source: str) -> int:
    """Of the scorings behind a step, by the ledger."""
    scored = {r["step"]: r["held_out"] for r in rows_of(run / "held_out.jsonl") if r["step"]}
    found = {step: (told["overall"] if source == "all" else told["source"][source]) for step, told in scored.items()}
    return min(found, key=lambda step: (found[step]["loss"], step))


KEPT = {"every_steps": 50, "keep_last": 1, "keep_best": True}


@pytest.fixture(scope="module")
def by_ticks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run whose best is that of ticks, and what it said."""
    run, listener = tmp_path_factory.mktemp("measure") / "run", Listener()
    kept = {"every_steps": 1, "keep_last": 9, "keep_best": True}
    config = run_of(run, evaluate={"best": "ticks", "patience": 3}, checkpoint=kept)
    train_model(config, registry=ticks_registry(), reporter=listener)
    assert best_by(run, "all") + 3 < best_by(run, "ticks")  # else this would show nothing
    return run, listener.said


def test_a_source_that_gets_better_is_trained_on_though_all_together_get_worse(
    by_ticks: tuple[Path, list[str]], tmp_path: Path
) -> None:
    run, said = by_ticks
    assert rows_of(run / "metrics.jsonl")[-1]["step"] == STEPS
    assert any("; of ticks loss " in line for line in said if line.startswith("step 1 "))

    other, listener = tmp_path / "run", Listener()
    train_model(run_of(other, evaluate={"patience": 3}, checkpoint=KEPT), registry=ticks_registry(), reporter=listener)
    best = best_by(other, "all")
    assert rows_of(other / "metrics.jsonl")[-1]["step"] == best + 3 < STEPS
    assert [step_of(checkpoint) for checkpoint in committed(other / "checkpoints")] == [best + 3, best]
    assert f"of what is saved step {best} has the lowest held-out loss; --step best takes it" in listener.said

    # Going on by another measure: what was scored counts by it, as if it had from the first step on.
    again = Listener()
    result = resume_run(other, {"evaluate": {"best": "ticks"}}, registry=ticks_registry(), reporter=again)
    assert result.step == STEPS
    assert not any(line.startswith("stopped early") for line in again.said)
    assert best_by(other, "ticks") in [step_of(checkpoint) for checkpoint in committed(other / "checkpoints")]


def test_going_on_by_another_measure_counts_the_scorings_that_there_are(
    by_ticks: tuple[Path, list[str]], tmp_path: Path
) -> None:
    run, listener = tmp_path / "run", Listener()
    shutil.copytree(by_ticks[0], run)
    more = {"evaluate": {"best": "loss"}, "train": {"steps": STEPS + 4}}
    assert resume_run(run, more, registry=ticks_registry(), reporter=listener).step == STEPS
    best = best_by(run, "all")
    assert any(f"the held-out loss was lowest at step {best} " in line for line in listener.said)


def test_what_is_kept_listed_loaded_and_reported_is_best_by_it(
    by_ticks: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry, run = ticks_registry(), tmp_path / "run"
    shutil.copytree(by_ticks[0], run)
    best, of_all = best_by(run, "ticks"), best_by(run, "all")
    load = {"device": "cpu", "registry": registry}
    assert load_run(run, step="best", **load).step == best
    assert load_run(run, step="best", overrides={"evaluate": {"best": "loss"}}, **load).step == of_all
    with pytest.raises(ConfigError, match=r"evaluate.best: has no effect on a trained run; give --step best with it"):
        load_run(run, overrides={"evaluate": {"best": "loss"}}, **load)
    with pytest.raises(
        CheckpointError, match=r"by its held-out loss of tick .evaluate.best; scored were documents of "
    ):
        load_run(run, step="best", overrides={"evaluate": {"best": "tick"}}, **load)

    losses = {r["step"]: r["held_out"] for r in rows_of(run / "held_out.jsonl")}
    assert main(["checkpoint", "ls", str(run), "--json"]) == 0
    listed = {one["step"]: one for one in json.loads(capsys.readouterr().out)}
    assert [step for step, one in listed.items() if one["best"]] == [best]
    assert listed[best]["measured"] == pytest.approx(losses[best]["source"]["ticks"]["loss"], rel=1e-3)
    assert listed[best]["held_out_loss"] == pytest.approx(losses[best]["overall"]["loss"], rel=1e-3)
    assert main(["checkpoint", "ls", str(run)]) == 0
    marked = [line for line in capsys.readouterr().out.splitlines() if " best " in line]
    loss = losses[best]["source"]["ticks"]["loss"]
    assert [line.split()[1] for line in marked] == [str(best)] and f"ticks loss {loss:.4f} best" in marked[0]

    assert main(["report", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["held_out_best"]
    assert (told["step"], told["source"]) == (best, "ticks") and set(told) == {"step", "source", "loss"}
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (other / "run.yaml").read_text()
    (other / "run.yaml").write_text(text.replace("best: ticks", "best: ticks.exact_match"))
    assert main(["report", str(run), str(other)]) == 0
    lines = capsys.readouterr().out
    assert "lowest held-out loss of ticks " in lines and "highest held-out exact match of ticks" in lines

    assert main(["checkpoint", "prune", str(run), "--keep-last", "1"]) == 0
    assert {step_of(checkpoint) for checkpoint in committed(run / "checkpoints")} == {STEPS, best}


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        (
            "tics",
            r"no held-out source is called 'tics'; did you mean ticks\? there are ticks, text: give NAME, NAME.loss or "
            "NAME.exact_match of one of them",
        ),
        ("ticks.exactmatch", r"ticks has no 'exactmatch'; did you mean exact_match\? "),
        ("captions", "no held-out source is called 'captions'; there are ticks, text: give NAME, NAME.loss or NAME"),
        ("text.exact_match", "no held-out document of text has an answer that is whole .* take text.loss"),
    ],
)
def test_what_no_held_out_document_has_is_refused_before_anything_is_made(
    tmp_path: Path, stated: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"^evaluate.best: {why}"):
        train_model(run_of(tmp_path / "run", evaluate={"best": stated}), registry=ticks_registry())
    assert not (tmp_path / "run").exists()


def test_answers_of_any_source_do_for_the_exact_match_of_all(tmp_path: Path) -> None:
    config = run_of(tmp_path / "run", evaluate={"best": "exact_match"}, checkpoint=KEPT)
    train_model(config, registry=ticks_registry())
    scored = {r["step"]: r["held_out"]["overall"]["exact_match"] for r in rows_of(tmp_path / "run" / "held_out.jsonl")}
    kept = {step_of(checkpoint) for checkpoint in committed(tmp_path / "run" / "checkpoints")}
    assert kept == {STEPS, max(sorted(scored)[1:], key=lambda step: (scored[step], -step))}


def test_it_wants_something_to_be_held_out(tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps({"text": f"line {number}"}) + "\n" for number in range(20)))
    config = small_run(data={"sources": [str(train)], "held_out": 0}, evaluate={"best": "train"}, modalities={})
    with pytest.raises(ConfigError, match=r"^evaluate.best: nothing is held out to go by; raise data.held_out"):
        train_model(config.model_copy(update={"output": tmp_path / "run"}), registry=ticks_registry())
