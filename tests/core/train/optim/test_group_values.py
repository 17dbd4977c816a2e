"""What an optimizer keeps in its groups goes through checkpoints, into groups of any order and number."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kosmos import OptimizerSpec, hookimpl
from kosmos.checkpoint.folder import load_newest
from kosmos.errors import CheckpointError, PluginError
from kosmos.train.optim.group_values import MOST_VALUES, GroupValues
from kosmos.train.run import resume_run, train_model
from support.runs import Listener, rows_of, small_run, ticks_registry


class Falling(torch.optim.SGD):
    """Its rate falls by a count of its own, which stands in its groups."""

    def __init__(self, groups, learning_rate, momentum=0.9):
        super().__init__(groups, learning_rate, momentum=momentum)
        for group in self.param_groups:
            group["k"] = 0

    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            group["lr"] /= group["k"] ** 0.5
        super().step(closure)


class Told(torch.optim.SGD):
    """Its count stands in ``state_dict`` alone."""

    k = 0

    def step(self, closure=None):
        self.k += 1
        super().step(closure)

    def state_dict(self):
        return {**super().state_dict(), "k": self.k}

    def load_state_dict(self, state_dict):
        self.k = state_dict.pop("k")
        super().load_state_dict(state_dict)


def falling(groups, learning_rate, *, momentum: float = 0.9):
    return Falling(groups, learning_rate, momentum)


def told(groups, learning_rate):
    return Told(groups, learning_rate)


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(falling=falling, told=told))

    class Own:
        KOSMOS_API = 1

        @hookimpl
        def kosmos_optimizers():
            for name in ("falling", "told"):
                yield OptimizerSpec(name=name, target=f"{__name__}:{name}", summary="Counts.")

    return ticks_registry(plugin=Own)


def cut_run(folder, registry, **over):
    """A run of six steps that was killed after the third."""
    train = {"optimizer": "falling", "learning_rate": 0.1, "schedule": "constant"}
    train_model(
        small_run(folder, train=train, checkpoint={"every_steps": 3, "keep_last": 9}, **over), registry=registry
    )
    (folder / "checkpoints" / "step-00000006").rename(folder.parent / f"gone-{folder.name}")


def losses_of(folder):
    return [row["loss"] for row in rows_of(folder / "metrics.jsonl")]


def test_a_count_in_the_groups_survives_a_resume(tmp_path, registry):
    cut_run(tmp_path / "cut", registry)
    whole = losses_of(tmp_path / "cut")
    resume_run(tmp_path / "cut", registry=registry)
    assert losses_of(tmp_path / "cut") == whole


def test_a_checkpoint_of_before_is_gone_on_with_as_ever(tmp_path, registry):
    cut_run(tmp_path / "cut", registry)
    whole = losses_of(tmp_path / "cut")
    checkpoint = tmp_path / "cut" / "checkpoints" / "step-00000003"
    rewrite_state(checkpoint, lambda state: state.pop("optimizer_groups"))
    resume_run(tmp_path / "cut", registry=registry)
    again = losses_of(tmp_path / "cut")
    assert again[:4] == whole[:4] and again[5] != whole[5]  # the count began again, as it did before


def rewrite_state(checkpoint, change):
    from kosmos.checkpoint.folder import MANIFEST, STATE, digest

    state = json.loads((checkpoint / STATE).read_text())
    change(state)
    (checkpoint / STATE).write_text(json.dumps(state))
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    manifest["sha256"][STATE] = digest(checkpoint / STATE)
    (checkpoint / MANIFEST).write_text(json.dumps(manifest))


def test_an_option_that_a_resumed_run_changes_is_what_counts(tmp_path, registry):
    cut_run(tmp_path / "cut", registry)
    resume_run(tmp_path / "cut", {"train": {"optimizer": {"momentum": 0.5}}}, registry=registry)
    state = load_newest(tmp_path / "cut" / "checkpoints").state["optimizer_groups"]
    assert {*state[0]["values"]} == {"k"}  # momentum is the factory's


def test_groups_that_a_resumed_run_splits_go_on_from_the_count(tmp_path, registry):
    cut_run(tmp_path / "cut", registry)
    over = {"streams": {"ticks": {"connector_learning_rate": 0.1}}}
    resume_run(tmp_path / "cut", over, registry=registry)
    state = load_newest(tmp_path / "cut" / "checkpoints").state["optimizer_groups"]
    assert len(state) > 3
    assert {group["values"]["k"] for group in state} == {6}


def test_a_stage_that_takes_the_optimizers_state_takes_the_count(tmp_path, registry):
    cut_run(tmp_path / "first", registry)
    init = {"path": str(tmp_path / "first"), "optimizer": True}
    train = {"optimizer": "falling", "steps": 2, "learning_rate": 0.1}
    train_model(small_run(tmp_path / "next", init=init, train=train, data={"seed": 1}), registry=registry)
    state = load_newest(tmp_path / "next" / "checkpoints").state["optimizer_groups"]
    assert {group["values"]["k"] for group in state} == {5}


def test_optimizers_of_ours_keep_nothing_in_groups(tmp_path):
    train_model(small_run(tmp_path / "run", train={"steps": 1, "warmup_steps": 0}), registry=ticks_registry())
    assert load_newest(tmp_path / "run" / "checkpoints").state["optimizer_groups"] == []


def test_an_optimizer_that_keeps_more_in_its_state_dict_is_refused(tmp_path, registry):
    listener = Listener()
    with pytest.raises(PluginError, match=r"^train\.optimizer: told: its state_dict\(\) has k, which checkpoints") as e:
        train_model(small_run(tmp_path / "run", train={"optimizer": "told"}), registry=registry, reporter=listener)
    assert "\n" not in e.value.line()
    assert not (tmp_path / "run").exists()


def optimizer(*sizes):
    """One group for each size, with that many parameters."""
    made = [[nn.Parameter(torch.ones(2)) for _ in range(size)] for size in sizes]
    return torch.optim.SGD([{"params": params, "lr": 0.1, "betas": (0.9, 0.99)} for params in made])


def values_of(made, said=None):
    parameters = [p for group in made.param_groups for p in group["params"]]
    names = {id(p): f"p{number}" for number, p in enumerate(parameters)}
    return GroupValues(made, names, (said if said is not None else []).append)


def through_json(saved):
    return json.loads(json.dumps(saved))


@pytest.mark.parametrize(
    "value",
    [3, 2.5, float("inf"), True, None, "schedule", (0.5, (1, 2)), [1, [2.0]],
     torch.tensor(0.1), torch.tensor([[1, 2]]), torch.tensor([0.1], dtype=torch.float64), torch.zeros(0, 3)],
    ids=repr,
)  # fmt: skip
def test_a_plain_value_or_a_small_tensor_comes_back_as_it_was(value):
    made, again = optimizer(1), optimizer(1)
    values, others = values_of(made), values_of(again)
    made.param_groups[0]["own"] = value
    others.load(through_json(values.state()))
    found = again.param_groups[0]["own"]
    assert type(found) is type(value)
    if isinstance(value, torch.Tensor):
        assert found.dtype is value.dtype and torch.equal(found, value) and found.shape == value.shape
    else:
        assert found == value


def test_groups_in_another_order_find_their_values_by_names():
    made = optimizer(2, 1)
    values = values_of(made)
    for number, group in enumerate(made.param_groups):
        group["k"] = number
    again = optimizer(1, 2)
    parameters = [p for group in again.param_groups for p in group["params"]]
    others = GroupValues(again, dict(zip(map(id, parameters), ("p2", "p0", "p1"), strict=True)))
    others.load(through_json(values.state()))
    assert [group["k"] for group in again.param_groups] == [1, 0]


def test_groups_that_were_joined_need_one_value():
    made = optimizer(1, 1)
    values = values_of(made)
    for number, group in enumerate(made.param_groups):
        group["k"] = number
    with pytest.raises(
        CheckpointError, match=r"several before, whose k were 0 \(p0\) and 1 \(p1\); leave the learning"
    ):
        values_of(optimizer(2)).load(through_json(values.state()))
    made.param_groups[1]["k"] = 0
    again = optimizer(2)
    values_of(again).load(through_json(values.state()))
    assert again.param_groups[0]["k"] == 0


def test_a_run_that_goes_back_has_the_values_of_the_checkpoint_and_no_later_ones():
    made = optimizer(1)
    values = values_of(made)
    group = made.param_groups[0]
    saved = through_json(values.state())
    group |= {"betas": (0.5, 0.5), "k": 7}
    values.load(saved)
    assert group["betas"] == (0.9, 0.99) and "k" not in group


@pytest.mark.parametrize("value", [{"a": 1}, torch.zeros(MOST_VALUES + 1), object()], ids=("mapping", "large", "other"))
def test_what_is_not_kept_is_told_once(value):
    said: list[str] = []
    made = optimizer(1)
    values = values_of(made, said)
    assert values.state() == [] and said == []
    made.param_groups[0]["own"] = value
    assert values.state() == [] == values.state()
    (line,) = said
    assert line.startswith("warning: train.optimizer: SGD keeps own in its groups, no plain value or small tensor")


@pytest.mark.parametrize(
    "value", [{"a": 1}, [{"a": 1}], torch.zeros(MOST_VALUES + 1)], ids=("mapping", "list", "large")
)
def test_what_is_not_kept_and_changes_in_place_is_told_too(value):
    said: list[str] = []
    made = optimizer(1)
    made.param_groups[0]["own"] = value
    values = values_of(made, said)
    assert values.state() == [] and said == []
    if isinstance(value, torch.Tensor):
        value.add_(1)
    else:
        (value if isinstance(value, dict) else value[0])["a"] = 2
    assert values.state() == []
    assert said[0].startswith("warning: train.optimizer: SGD keeps own in its groups")


@pytest.mark.parametrize("damaged", [{"tensor": [1]}, {"tensor": [1], "shape": [2], "dtype": "int64"}, {"else": 1}])
def test_a_damaged_value_is_an_error_of_the_checkpoint_and_none_of_the_runs_is_taken(damaged):
    made = optimizer(1)
    with pytest.raises(CheckpointError, match="k of a group cannot be read"):
        values_of(made).load([{"names": ["p0"], "values": {"k": damaged}}])
    values_of(made).load([{"names": ["p0"], "values": {"params": [1], "lr": 7.0}}])
    assert len(made.param_groups[0]["params"]) == 1
    assert made.param_groups[0]["lr"] == 0.1


def test_values_that_differ_among_ranks_are_told():
    said: list[str] = []
    made = optimizer(1)
    values = values_of(made, said)
    made.param_groups[0]["k"] = 1
    assert values.state(lambda own: [own, own])[0]["values"] == {"k": 1} and said == []
    values.state(lambda own: [own, "[]"])
    assert said[0].startswith("warning: train.optimizer: groups of SGD hold other values on other ranks")
