"""Parts of another run that a run does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import load_run, make_run, resume_run, train_model
from kosmos.checkpoint.tensors import MODEL, OPTIMIZER, read_whole
from kosmos.compose import compose
from kosmos.config_weights import InitConfig
from kosmos.data.tokenizer import train_tokenizer
from kosmos.errors import ConfigError
from kosmos.model.weights import is_update
from kosmos.train.initial import open_initial, take_weights
from kosmos.train.saved import open_checkpoint
from support.runs import Listener, small_run, ticks_registry

ENCODER, CONNECTOR = "streams.ticks.encoder", "streams.ticks.connector"
PARTS = "backbone", ENCODER, CONNECTOR
WIDER = {"streams": {"ticks": {"encoder": {"width": 5}}}}
STILL = {"steps": 1, "optimizer": {"name": "lion", "betas": [0.9, 1.0]}}
"""Whose momentum stays as it is."""


def trained(output: Path, **over: Any) -> list[str]:
    config = make_run(small_run(output, **{"train": {"steps": 1}, **over}).model_dump(mode="json"))
    train_model(config, registry=ticks_registry(), reporter=(listener := Listener()))
    return listener.said


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    trained(folder)
    return folder


def taken(first: Path, leave: Any, **over: Any) -> tuple[set[str], list[str]]:
    """The parts that a run takes, while others stay as they were drawn, and what it says."""
    composition = compose(small_run(**over), ticks_registry())
    model, init = composition.model, InitConfig(path=first, leave=leave)
    drawn = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    before = load_run(first, device="cpu", registry=ticks_registry()).composition.model.state_dict()
    said = list(take_weights(model, open_initial(init, first / "tokenizer", model, composition), alone=True))
    found = set()
    for part in PARTS:
        own = {name: tensor for name, tensor in model.state_dict().items() if name.startswith(part)}
        stays = [torch.equal(tensor, drawn[name]) for name, tensor in own.items()]
        if not all(stays):
            assert all(torch.equal(tensor, before[name]) for name, tensor in own.items())
            found.add(part)
    return found, said


@pytest.mark.parametrize(
    ("leave", "over", "left"),
    [
        ([ENCODER], {}, [ENCODER]),
        (f"{ENCODER},{CONNECTOR}", WIDER, [CONNECTOR, ENCODER]),
        ("streams.ticks", {"streams": {"ticks": {"connector": {"name": "linear"}}}}, [CONNECTOR, ENCODER]),
        (["backbone"], {"backbone": {"heads": 4, "layers": 2}}, ["backbone"]),
    ],
)
def test_a_part_that_is_left_there_is_begun_as_in_a_new_run_and_may_be_another(first: Path, leave, over, left) -> None:
    found, said = taken(first, leave, **over)
    assert found == {*PARTS} - {*left}
    assert said[0].startswith(f"begins with {', '.join(part for part in PARTS if part in found)} of ")
    assert said[1:] == [f"left there (init.leave), and begun as a new run would: {', '.join(left)}"]


def test_the_connector_of_another_encoder_or_backbone_is_taken_only_where_shapes_fit(first: Path) -> None:
    for leave, over in ((ENCODER, WIDER), ("backbone", {"backbone": {"width": 64}})):
        with pytest.raises(
            ConfigError,
            match=r"init: streams\.ticks\.connector of .* is another: .*; give both the same options, or leave it "
            r"there \(init\.leave: \[streams\.ticks\.connector\]\)$",
        ):
            taken(first, leave, **over)


@pytest.mark.parametrize(
    ("leave", "line"),
    [
        (
            "streams.ticks.encodr",
            r"init\.leave: streams\.ticks\.encodr: neither this run nor \S+run has such a part; did you mean "
            r"streams\.ticks\.encoder\? parts: backbone, streams\.ticks\.encoder, streams\.ticks\.connector$",
        ),
        ("connector", r"init\.leave: connector: .* did you mean streams\.ticks\.connector\? parts: "),
        (["backbone", "streams.ticks"], r"init\.leave: nothing is taken of \S+run then; begin without init, or leave "),
    ],
)
def test_parts_that_neither_run_has_and_all_of_them_are_refused(first: Path, leave, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        taken(first, leave)


def test_parts_of_one_of_the_runs_may_be_named(first: Path) -> None:
    """As in a run file that is written once for several first runs."""
    stream = {"encoder": {"name": "ticks"}, "connector": {"name": "linear"}}
    over = {"streams": {"other": stream}, "modalities": {"ticks": {"stream": "other"}}}
    composition = compose(small_run(**over), ticks_registry())
    for leave in ("streams.other", "streams.ticks"):
        init = InitConfig(path=first, leave=leave)
        initial = open_initial(init, first / "tokenizer", composition.model, composition)
        assert not initial.left and [*take_weights(composition.model, initial, alone=True)][1:] == [
            "not there, and begun as a new run would: streams.other.connector, streams.other.encoder",
            "left there: streams.ticks.connector, streams.ticks.encoder",
        ]


def test_another_language_model_may_have_other_tokens(first: Path, tmp_path: Path) -> None:
    train_tokenizer(["one two three four"] * 9, vocab_size=280, folder=tmp_path / "bpe")
    over = {"tokenizer": str(tmp_path / "bpe"), "init": {"path": str(first), "leave": "backbone"}}
    said = trained(tmp_path / "second", **over)
    assert not any("among the tokens" in line for line in said)


def test_the_state_of_the_optimizer_and_updates_of_a_part_that_is_left_there_are_not_taken(tmp_path: Path) -> None:
    updates = {"backbone": {"lora": 2}, "streams": {"ticks": {"lora": 2}}}
    trained(tmp_path / "first", **updates)
    init = {"path": str(tmp_path / "first"), "optimizer": True, "keep_updates": True, "leave": [ENCODER]}
    said = trained(tmp_path / "second", init=init, train=STILL, **updates)
    (begins,) = [line for line in said if line.startswith("begins with backbone, streams.ticks.connector of ")]
    before = load_updates(tmp_path / "first")
    of_encoder = {name for name in before if name.startswith(ENCODER)}
    assert f"its {len(before.keys() - of_encoder) // 2} low-rank updates as they are" in begins
    state = read_whole(open_checkpoint(tmp_path / "second")[1].tensors, OPTIMIZER)
    assert of_encoder and not any(t.any() for name, t in state.items() if name.startswith(ENCODER))
    assert any(t.any() for name, t in state.items() if name.startswith("backbone"))


def load_updates(run: Path) -> dict[str, torch.Tensor]:
    tensors = read_whole(open_checkpoint(run)[1].tensors, MODEL)
    return {name: tensor for name, tensor in tensors.items() if is_update(name)}


def test_updates_of_a_part_that_is_left_there_are_not_put_into_it(tmp_path: Path) -> None:
    trained(tmp_path / "first", streams={"ticks": {"lora": 2}}, train={"steps": 2, "learning_rate": 0.1})
    found, _ = taken(tmp_path / "first", ENCODER)
    assert ENCODER not in found and "backbone" in found


def test_a_run_that_goes_on_keeps_what_it_left_there(first: Path, tmp_path: Path) -> None:
    trained(tmp_path / "second", init={"path": str(first), "leave": [ENCODER]})
    with pytest.raises(ConfigError, match=r"init: the run in .* goes on with its own weights; leave it out"):
        resume_run(tmp_path / "second", {"init": {"leave": []}}, registry=ticks_registry())
    resume_run(tmp_path / "second", {"train": {"steps": 2}}, registry=ticks_registry())
    assert f"leave:\n  - {ENCODER}" in (tmp_path / "second" / "run.yaml").read_text()
