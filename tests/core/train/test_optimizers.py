"""Optimizers and schedules as the components that a run file names."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from kosmos import OptimizerSpec, hookimpl, resume_run, train_model
from kosmos.errors import ConfigError, PluginError
from kosmos.train.optim import adamw_compiled, lion_compiled
from kosmos.train.optim.blocks import block_of
from support.runs import assert_same_tensors, rows_of, small_run, ticks_registry


def groups_of(*parameters):
    return [{"params": list(parameters), "lr": 0.1, "weight_decay": 0.5, "name": "g", "names": ["p"]}]


def build(name, groups, **options):
    return ticks_registry().build("optimizer", name, groups, 0.1, options=options, path="train.optimizer")


@pytest.mark.parametrize("name", ["lion", "lion-pytorch"])
def test_lion_takes_the_step_of_its_paper(name):
    parameter = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimizer = build(name, groups_of(parameter), betas=(0.9, 0.99))
    momentum, expected = torch.zeros(3), parameter.detach().clone()
    for gradient in (torch.tensor([1.0, -1.0, 0.5]), torch.tensor([-9.0, 0.1, 0.5])):
        parameter.grad = gradient.clone()
        optimizer.step()
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * torch.sign(0.9 * momentum + 0.1 * gradient)
        momentum = 0.99 * momentum + 0.01 * gradient
    assert torch.allclose(parameter.detach(), expected, atol=1e-7)  # measured: 0.0


@pytest.mark.parametrize("name", ["lion", "lion8bit", "lion-pytorch", "adamw"])
def test_every_optimizer_finds_the_least_of_a_bowl(name):
    parameter = nn.Parameter(torch.full((64, 64), 3.0))
    optimizer = build(name, [{**groups_of(parameter)[0], "weight_decay": 0.0}])
    for _ in range(60):
        parameter.grad = parameter.detach() - 1
        optimizer.step()
    assert (parameter.detach() - 1).abs().max() < 0.6  # a sign of 0.1 a step, and what momentum overshoots


def flat(groups, learning_rate):
    return torch.optim.SGD([p for group in groups for p in group["params"]], learning_rate)


class Flat:
    KOSMOS_API = 1

    @hookimpl
    def kosmos_optimizers():
        yield OptimizerSpec(name="flat", target=f"{__name__}:flat", summary="Drops its groups.")


def by_layer(groups, learning_rate):
    """A tenth of the rate for what is in the first block."""
    own = [
        {"name": name, "params": [p], "lr": group["lr"] * (0.1 if "blocks.0" in name else 1.0), "weight_decay": 0.0}
        for group in groups
        for name, p in zip(group["names"], group["params"], strict=True)
    ]
    return torch.optim.SGD(own, learning_rate, momentum=0.9)


def losing(groups, learning_rate):
    own = [{**group, "name": f"{group['name']} {number}"} for number, group in enumerate(groups)]
    return torch.optim.SGD(own[:-1], learning_rate)


@pytest.fixture
def plugin(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(by_layer=by_layer, losing=losing))

    class Own:
        KOSMOS_API = 1

        @hookimpl
        def kosmos_optimizers():
            for name in ("by_layer", "losing"):
                yield OptimizerSpec(name=name, target=f"{__name__}:{name}", summary="Makes groups of its own.")

    return ticks_registry(plugin=Own)


def test_an_optimizer_may_split_its_groups_by_rates_of_their_own(tmp_path, plugin):
    train = {"optimizer": "by_layer", "steps": 4, "warmup_steps": 0, "learning_rate": 0.1, "schedule": "constant"}
    config = small_run(tmp_path / "run", train=train)
    output = train_model(config, registry=plugin).output
    rows = rows_of(output / "metrics.jsonl")
    rates = rows[0]["learning_rate_by_part"]
    assert [*{rate for name, rate in rates.items() if "blocks.0" in name}] == [pytest.approx(0.01)]
    assert [*{rate for name, rate in rates.items() if "blocks.0" not in name}] == [pytest.approx(0.1)]
    train_model(small_run(tmp_path / "cut", train={**train, "steps": 2}), registry=plugin)
    resumed = resume_run(tmp_path / "cut", {"train": {"steps": 4}}, registry=plugin)
    assert_same_tensors(output, resumed.output)
    assert "learning rate" not in "".join(resumed.warnings)


def test_a_rate_that_jumps_up_is_told_of_a_group_of_the_optimizer_too(tmp_path, plugin):
    train = {"optimizer": "by_layer", "steps": 2, "warmup_steps": 0, "learning_rate": 0.1}
    train_model(small_run(tmp_path / "run", train=train), registry=plugin)
    resumed = resume_run(tmp_path / "run", {"train": {"steps": 8}}, registry=plugin)
    (line,) = (line for line in resumed.warnings if "the learning rate" in line)
    assert "To go on evenly set train.learning_rate=" in line


def test_an_optimizer_that_loses_parameters_is_named(tmp_path, plugin):
    config = small_run(tmp_path / "run", train={"optimizer": "losing"})
    with pytest.raises(
        PluginError, match=r"^train\.optimizer: losing: its groups hold \d+ parameters, \d+ of the \d+ that"
    ):
        train_model(config, registry=plugin)


def test_an_optimizer_of_a_plugin_that_drops_its_groups_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(flat=flat))
    config = small_run(tmp_path / "run", train={"optimizer": "flat"})
    with pytest.raises(PluginError, match=r"^train\.optimizer: flat: keeps 1 groups of parameters, \d were given"):
        train_model(config, registry=ticks_registry(plugin=Flat))


@pytest.mark.parametrize("name", ["lion", "lion8bit", "muon", "adamw"])
def test_master_bits_of_weights_that_are_not_bf16_are_refused(name):
    with pytest.raises(ConfigError, match=r"train\.optimizer\.master: bits16 .* no trained weight is bf16; leave"):
        build(name, groups_of(nn.Parameter(torch.zeros(3))), master="bits16")


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        (
            "lion",
            {"betas": (0.9, 1.5)},
            r"train\.optimizer\.betas: expected two numbers from 0 to 1, got \(0\.9, 1",
        ),
        ("lion8bit", {"block": 16}, r"train\.optimizer\.block: expected 64 or more elements, got 16"),
        ("lion", {"master": "bits"}, r"train\.optimizer\.master: expected 'none' or 'stochastic' .* got 'bits'"),
    ],
)
def test_a_wrong_option_is_one_line(name, options, line):
    with pytest.raises(ConfigError, match=line):
        build(name, groups_of(nn.Parameter(torch.zeros(3))), **options)


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for source in (lion_compiled, adamw_compiled):
        source.binary.cache_clear()
    yield
    for source in (lion_compiled, adamw_compiled):
        source.binary.cache_clear()


def test_compiling_without_a_compiler_is_refused(no_compiler):
    with pytest.raises(ConfigError, match=r"compile: it needs a C\+\+ compiler: none is on the path of g\+\+, clang"):
        build("lion", groups_of(nn.Parameter(torch.zeros(3))), compile=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [("lion", {}), ("lion8bit", {}), ("adamw", {"master": "bits16"}), ("muon", {"master": "bits8"})],
)
@pytest.mark.parametrize(("rows", "compiles"), [(3_999, False), (4_000, True)])
def test_the_step_is_compiled_where_it_pays(name, options, rows, compiles):
    weights = nn.Parameter(torch.zeros(rows, 1_000, 1, dtype=torch.bfloat16))  # no matrix, which Muon would take
    assert build(name, groups_of(weights), **options).compile is compiles
    assert not build(name, groups_of(weights), compile=False, **options).compile


def test_of_muons_matrices_no_step_is_compiled():
    assert not build("muon", groups_of(nn.Parameter(torch.zeros(4_000, 1_000).bfloat16())), master="bits8").compile


@pytest.mark.parametrize(("name", "options"), [("lion", {}), ("adamw", {"master": "bits16", "betas": (0.0, 0.0)})])
def test_who_has_no_compiler_takes_the_step_uncompiled(no_compiler, name, options):
    weights = nn.Parameter(torch.ones(4_000, 1_000, dtype=torch.bfloat16))
    optimizer = build(name, groups_of(weights), **options)
    assert not optimizer.compile and "needs a C++ compiler" in optimizer.uncompiled
    weights.grad = torch.ones_like(weights)
    optimizer.step()
    assert torch.allclose(weights.float(), torch.tensor(0.85), atol=2e-3)  # 1 - 0.1 * (1 + 0.5)


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_schedules_warm_up_and_end_where_they_say(name):
    schedule = ticks_registry().build("schedule", name, 100, 10)
    shares = [schedule(step) for step in range(101)]
    assert shares[:10] == sorted(shares[:10])
    assert shares[0] == pytest.approx(1 / 11)
    assert shares[10] == 1.0
    assert shares[100] == pytest.approx({"linear": 0.0, "cosine": 0.1, "constant": 1.0}[name])


def test_a_row_of_the_smallest_block_is_quantized():
    assert block_of(torch.zeros(4, 64), 256) == 64
