"""What the parts of a training promise: optimizers, schedules, metrics, trackers, observers, commands."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import tempfile
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from kosmos.components import OptimizerSpec
from kosmos.errors import PluginError
from kosmos.testing.promise import BrokenPromise, rule
from kosmos.testing.subjects import ComponentUnderTest
from kosmos.train.optim.group_values import GroupValues
from kosmos.train.optim.release import GradientRelease
from kosmos.train.parameter_groups import rated_groups

Optimizer = torch.optim.Optimizer
RATE = 0.01
"""At which optimizers are tried."""
STEP_ROW = {
    "step": 1, "loss": 2.5, "tokens": 512, "text_tokens": 400, "media_tokens": 112, "target_tokens": 90,
    "documents": 8, "fill": 0.98, "loss_by_modality": {"text": 2.5}, "loss_by_source": {"sums": 2.5},
    "learning_rate": 3e-4, "grad_norm": 0.7, "step_s": 0.1, "data_wait_s": 0.0, "data_wait_share": 0.0,
    "tokens_per_s": 5120.0, "text_tokens_per_s": 4000.0, "media_tokens_per_s": 1120.0, "samples_per_s": 80.0,
    "peak_memory_bytes": 2**30, "cells_by_stream": {"s": 64}, "imbalance_by_stream": {"s": 1.2},
    "tokens_by_source": {"sums": 512}, "documents_by_source": {"sums": 8},
}  # fmt: skip
SCORE_ROW = {"step": 1, "held_out": {"overall": {"documents": 8, "loss": 2.5, "perplexity": 12.2, "exact_match": 0.5}}}
ANSWER_ROW = {
    "step": 1, "source": "sums", "document": "sums.jsonl:1", "prompt": "1 + 1 =", "media": [], "expected": " 2",
    "answer": " 3", "prompt_tokens": 4, "tokens": 2, "ended": "end", "scores": {"exact_match": 0.0},
}  # fmt: skip


def _quadratic(optimizer: ComponentUnderTest) -> tuple[list[nn.Parameter], Optimizer]:
    torch.manual_seed(0)
    matrix, vector = nn.Parameter(torch.randn(8, 4)), nn.Parameter(torch.randn(5))
    groups = [
        {"name": "w", "names": ["w"], "params": [matrix], "lr": RATE, "weight_decay": 0.1},
        {"name": "b", "names": ["b"], "params": [vector], "lr": RATE, "weight_decay": 0.0},
    ]
    return [matrix, vector], optimizer.build(groups, RATE)


def _steps(parameters: list[nn.Parameter], optimizer: Optimizer, count: int) -> list[float]:
    losses = []
    for _ in range(count):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.stack([parameter.square().mean() for parameter in parameters]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@rule("optimizer", "lowers-a-loss", "200 steps lower a quadratic loss, at a rate of 0.01")
def lowers_a_loss(optimizer: ComponentUnderTest) -> None:
    parameters, made = _quadratic(optimizer)
    losses = _steps(parameters, made, 200)
    if not losses[-1] < 0.9 * losses[0]:
        raise BrokenPromise(f"the loss went from {losses[0]:.4g} to {losses[-1]:.4g}")


@rule("optimizer", "obeys-the-rate", "each parameter is in one group, and at a rate of 0 nothing moves")
def obeys_the_rate(optimizer: ComponentUnderTest) -> None:
    parameters, made = _quadratic(optimizer)
    given = [{"params": [parameter]} for parameter in parameters]
    try:
        as_given = rated_groups(made.param_groups, given) is given
    except PluginError as error:
        raise BrokenPromise(str(error)) from error
    if as_given and [p for g in made.param_groups for p in g["params"]] != parameters:
        raise BrokenPromise("2 groups were given and param_groups holds other parameters")
    for group in made.param_groups:
        group["lr"] = 0.0
    before = [parameter.detach().clone() for parameter in parameters]
    _steps(parameters, made, 2)
    if not all(torch.equal(a, b) for a, b in zip(before, parameters, strict=True)):
        raise BrokenPromise("with lr = 0 in every group the parameters moved; the schedule sets it there")


@rule("optimizer", "state-round-trips", "a run that goes on from the saved state takes the same steps")
def optimizer_state_round_trips(optimizer: ComponentUnderTest) -> None:
    first, made = _quadratic(optimizer)
    kept = _values(first, made)
    _steps(first, made, 5)
    second, again = _quadratic(optimizer)
    with torch.no_grad():
        for mine, theirs in zip(second, first, strict=True):
            mine.copy_(theirs)
    # As checkpoints do it: the state of each parameter, and plain values of groups, put into a new optimizer.
    _values(second, again).load(json.loads(json.dumps(kept.state())))
    for mine, theirs in zip(second, first, strict=True):
        saved = made.state.get(theirs, {})
        if bad := [key for key, v in saved.items() if not isinstance(v, torch.Tensor | int | float | str | bool)]:
            raise BrokenPromise(f"state {bad[0]!r} is {type(saved[bad[0]]).__name__}; use tensors and plain values")
        again.state[mine] = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in saved.items()}
    one, other = _steps(first, made, 5), _steps(second, again, 5)
    if one != other:
        step = [a == b for a, b in zip(one, other, strict=True)].index(False)
        raise BrokenPromise(
            f"step {step + 1} after loading has loss {other[step]:.8g}, without a stop {one[step]:.8g}; "
            "checkpoints hold the state of each parameter and plain values of param_groups, nothing else of it"
        )
    if lost := [name for name, value in _numbers(made).items() if _numbers(again).get(name) != value]:
        now, then = _numbers(again).get(lost[0]), _numbers(made)[lost[0]]
        raise BrokenPromise(f"self.{lost[0]} is {now} after loading, without a stop {then}; keep it in param_groups")


def _values(parameters: list[nn.Parameter], made: Optimizer) -> GroupValues:
    """What checkpoints keep of its groups. Raises BrokenPromise where they would lose something."""

    def say(line: str) -> None:
        raise BrokenPromise(line.removeprefix("warning: train.optimizer: "))

    try:
        return GroupValues(made, {id(p): name for p, name in zip(parameters, "wb", strict=True)}, say)
    except PluginError as error:
        raise BrokenPromise(str(error)) from error


def _numbers(made: Optimizer) -> dict[str, int | float]:
    """Of its own attributes, not of those of its base."""
    return {name: value for name, value in vars(made).items() if isinstance(value, int | float) and name[0] != "_"}


@rule(
    "optimizer",
    "steps-alone",
    "where its descriptor says `parameterwise`, steps of one parameter after the other come to the same",
)
def steps_alone(optimizer: ComponentUnderTest) -> None:
    if not cast(OptimizerSpec, optimizer.spec).parameterwise:
        return
    together, made = _quadratic(optimizer)
    _steps(together, made, 5)
    alone, other = _quadratic(optimizer)
    with GradientRelease(other) as release:
        for _ in range(5):
            torch.stack([parameter.square().mean() for parameter in alone]).sum().backward()  # type: ignore[no-untyped-call]
            release.finish()
    for name, one, two in zip(("w", "b"), together, alone, strict=True):
        if not torch.allclose(one, two, rtol=1e-5, atol=1e-7):
            off = float((one - two).abs().max().detach())
            raise BrokenPromise(
                f"{name} is off by {off:.3g} after 5 steps of one parameter at a time; "
                "keep what it counts in the state of each parameter, or leave parameterwise out"
            )


@rule("schedule", "share-of-the-peak", "each step has a finite share of the peak rate, from 0 to 1, and one is above 0")
def shares_of_the_peak(schedule: ComponentUnderTest) -> None:
    for steps, warmup in ((100, 10), (1, 0), (5, 5), (10, 60), (1000, 0)):
        share = schedule.build(steps, warmup)
        found = [share(step) for step in range(steps)]
        for step, value in enumerate(found):
            if not isinstance(value, int | float) or not math.isfinite(value) or not -1e-9 <= value <= 1 + 1e-9:
                raise BrokenPromise(f"steps={steps}, warmup_steps={warmup}: {value!r} at step {step}")
        if not max(found) > 0:
            raise BrokenPromise(f"steps={steps}, warmup_steps={warmup}: every share is 0")


@rule("schedule", "warms-up", "the rate rises over the warmup steps")
def warms_up(schedule: ComponentUnderTest) -> None:
    share = schedule.build(100, 10)
    if not share(0) < share(9):
        raise BrokenPromise(f"warmup_steps=10: {share(0):.4g} at step 0 and {share(9):.4g} at step 9")


@rule(
    "metric",
    "tells-right-from-wrong",
    "a metric of texts is a finite float, and right texts do not score as wrong ones",
)
def tells_right_from_wrong(metric: ComponentUnderTest) -> None:
    references = ["a red square", "two blue circles", "three plus four is seven"]
    wrong = ["nothing", "of that", "sort at all here"]
    score = metric.build()
    right, bad = score(list(references), list(references)), score(wrong, list(references))
    for name, value in (("right", right), ("wrong", bad)):
        if not isinstance(value, float) or not math.isfinite(value):
            raise BrokenPromise(f"{name} texts score {value!r}; expected a finite float")
    if right == bad:
        raise BrokenPromise(f"texts that are all right and all wrong both score {right}")
    if score(list(references), list(references)) != right:
        raise BrokenPromise("the same texts score otherwise the second time")


@rule("metric", "empty-texts", "predictions and references of no words are scored, alone too")
def scores_empty_texts(metric: ComponentUnderTest) -> None:
    score = metric.build()
    for predictions, references in (
        ([""], ["a word"]), (["a word"], ["other words"]), (["", "x"], ["x", "x"]),
        (["x", "x"], ["", "x"]), (["", "x"], ["", "x"]), (["a word"], [""]), ([""], [""]), (["a word"], [" "]),
    ):  # fmt: skip
        value = score(list(predictions), list(references))
        # Errors over no words at all may be infinite.
        sound = math.isfinite if any(map(str.split, references)) else lambda number: not math.isnan(number)
        if not isinstance(value, float) or not sound(value):
            raise BrokenPromise(f"predictions {predictions}, references {references}: {value!r}; expected a number")


@rule("metric", "several-answers", "where it has `of_several`, that gives of one right answer each what its call gives")
def takes_several(metric: ComponentUnderTest) -> None:
    score = metric.build()
    if (of_several := getattr(score, "of_several", None)) is None:
        return
    said, right = ["a red square", "two circles", "four"], ["a red square", "two blue circles", "seven"]
    alone, several = score(list(said), list(right)), of_several(list(said), [[text] for text in right])
    if several != alone:
        raise BrokenPromise(f"of one right answer each of_several gives {several!r}, and the call {alone!r}")
    value = of_several(list(said), [[text, "something else", text] for text in right])
    if not isinstance(value, float) or not math.isfinite(value):
        raise BrokenPromise(f"three right answers each score {value!r}; expected a finite float")


@rule("metric", "given-stays", "the lists of predictions and references are after scoring what they were before")
def lists_stay(metric: ComponentUnderTest) -> None:
    score, texts = metric.build(), {"predictions": ["two", "one", ""], "references": ["two", "a longer one", "none"]}
    given = copy.deepcopy(texts)
    score(given["predictions"], given["references"])
    if changed := [name for name in texts if given[name] != texts[name]]:
        raise BrokenPromise(f"it changed {' and '.join(changed)}: {given[changed[0]]} were {texts[changed[0]]}")


@rule(
    "tracker",
    "logs-and-closes",
    "rows of steps and of held-out scores are logged (and answers, if it has `log_answers`, and flushed, if it has "
    "`flush`), and close() ends it",
)
def logs_and_closes(tracker: ComponentUnderTest) -> None:
    _log(tracker)


@rule("tracker", "given-stays", "the run and its rows are after logging what they were before")
def rows_stay(tracker: ComponentUnderTest) -> None:
    for name, (given, before) in _log(tracker).items():
        if given != before:
            raise BrokenPromise(f"it changed {_changed(given, before)} of {name}; work on a copy")


def _log(tracker: ComponentUnderTest) -> dict[str, tuple[Any, Any]]:
    """Log some rows; what the tracker was given, each with a copy of before."""
    before: dict[str, dict[str, Any]] = {
        "the run": {"train": {"steps": 2}, "modalities": {}},
        "a row of scores": SCORE_ROW,
        "a row of answers": ANSWER_ROW,
        "a row of a step": STEP_ROW,
        "a row of the next step": {**STEP_ROW, "step": 2},
    }
    run, *rows = given = copy.deepcopy(list(before.values()))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "run-001"
        output.mkdir()
        made = tracker.build(output, run)
        try:
            for row in rows:
                getattr(made, "log_answers", lambda rows: None)([row]) if "answer" in row else made.log(row)
                getattr(made, "flush", lambda: None)()
        finally:
            made.close()
    return {name: (now, then) for (name, then), now in zip(before.items(), given, strict=True)}


def _changed(row: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Names of a row under which something else stands."""
    return sorted(key for key in {*row, *before} if row.get(key) != before.get(key) or (key in row) != (key in before))


@rule("observer", "sees-rows", "it is called with each row of metrics and leaves the row as it is")
def sees_rows(observer: ComponentUnderTest) -> None:
    made, row = observer.build(), copy.deepcopy(STEP_ROW)
    drawn = torch.get_rng_state()
    with contextlib.redirect_stdout(io.StringIO()):
        made(row)
    if not torch.equal(drawn, torch.get_rng_state()):
        raise BrokenPromise("it seeds or draws from PyTorch's generator, which changes the run; take one of your own")
    if row != STEP_ROW:
        raise BrokenPromise(f"it changed {_changed(row, STEP_ROW)}")


@rule("command", "has-help", "typer wraps it, and --help says what it does")
def has_help(command: ComponentUnderTest) -> None:
    import typer

    target: Any = command.registry.resolve("command", command.spec.name)
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command(command.spec.name)(target)
        target = app
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        typer.main.get_command(target).main(["--help"], prog_name=command.spec.name, standalone_mode=False)
    if "usage" not in said.getvalue().lower():
        raise BrokenPromise(f"--help printed {said.getvalue()!r:.80}")


RULES = (
    lowers_a_loss,
    obeys_the_rate,
    optimizer_state_round_trips,
    steps_alone,
    shares_of_the_peak,
    warms_up,
    tells_right_from_wrong,
    scores_empty_texts,
    takes_several,
    lists_stay,
    logs_and_closes,
    rows_stay,
    sees_rows,
    has_help,
)
