"""Runs that begin with the weights of another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kosmos import Document, Documents, Text, load_run, make_run, resume_run, train_model
from kosmos.checkpoint.tensors import OPTIMIZER, read_whole
from kosmos.compose import compose
from kosmos.config import DataConfig
from kosmos.config_weights import InitConfig
from kosmos.errors import ConfigError, PluginError
from kosmos.train.initial import Initial, drawn_again, held_out_otherwise, open_initial, take_weights
from kosmos.train.progress import ConsoleReporter
from kosmos.train.saved import open_checkpoint
from support.runs import Listener, rows_of, small_run, ticks_registry
from support.ticks_encoder import TicksEncoder


def trained(output: Path, registry=None, **over):
    config = make_run(small_run(output, **over).model_dump(mode="json"))
    return train_model(config, registry=registry or ticks_registry())


def weights(output: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    run = load_run(output, step=step, device="cpu", registry=ticks_registry())
    return dict(run.composition.model.state_dict())


STREAM = {"encoder": {"name": "ticks"}, "connector": {"name": "linear"}}
STAGE = {"train": {"steps": 4}, "checkpoint": {"every_steps": 2, "keep_last": 5}}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    trained(folder, **STAGE)
    return folder


def test_a_second_stage_begins_where_the_first_ended(first: Path, tmp_path: Path) -> None:
    second = {
        "train": {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0, "optimizer": {"name": "adamw"}, "seed": 5}
    }
    trained(tmp_path / "second", init=str(first), **second)
    before, after = weights(first), weights(tmp_path / "second")
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


def test_a_checkpoint_of_a_run_can_be_named(first: Path, tmp_path: Path) -> None:
    over = {"train": {"steps": 1, "learning_rate": 1e-12, "weight_decay": 0}}
    trained(tmp_path / "second", init=str(first / "checkpoints" / "step-00000002"), **over)
    found = weights(tmp_path / "second")
    assert all(torch.allclose(found[n], w, atol=1e-6) for n, w in weights(first, step=2).items())
    assert not all(torch.allclose(found[n], w, atol=1e-6) for n, w in weights(first).items())


def test_what_the_first_had_not_is_drawn_and_the_rest_taken(first: Path, tmp_path: Path) -> None:
    trained(tmp_path / "texts", modalities=["ticks"], data={"sources": ["sums"]}, init=str(first), train={"steps": 1})
    loaded = open_checkpoint(first)[1]
    model = compose(
        small_run(streams={"other": STREAM}, modalities={"ticks": {"stream": "other"}}), ticks_registry()
    ).model
    drawn = {name: t.clone() for name, t in model.state_dict().items()}
    said = list(take_weights(model, Initial(loaded, "lion", {}), alone=True))
    assert said[0].startswith("begins with backbone of ") and said[1:] == [
        "not there, and begun as a new run would: streams.other.connector, streams.other.encoder",
        "left there: streams.ticks.connector, streams.ticks.encoder",
    ]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, drawn[name] if name.startswith("streams") else weights(first)[name])


@pytest.mark.parametrize(
    ("over", "cause"),
    [
        ({"backbone": {"width": 64}}, r"backbone of .* is another: backbone\..* it has \[.*\], this run has \[.*\]"),
        (
            {"streams": {"ticks": {"encoder": {"width": 5}}}},
            r"streams\.ticks\.encoder of .* is another: .*; give both the same options",
        ),
        (
            {"streams": {"ticks": {"connector": {"name": "pool", "factor": 1}}}},
            r"streams\.ticks\.connector of .*run is another: mlp there, pool here; name mlp, or leave it there "
            r"\(init\.leave: \[streams\.ticks\.connector\]\)",
        ),
        (
            {"backbone": {"heads": 4}},
            r"backbone of .*run is another: heads: 2 there, 4 here, and its weights are of no use otherwise; "
            r"set backbone\.heads=2",
        ),
        ({"backbone": {"positions": "xpos"}}, r"backbone of .* is another: positions: rope there, xpos here, .*"),
        ({"init": "nowhere"}, r".*nowhere: no run is here; give the output folder of a run"),
    ],
)
def test_another_model_is_refused_and_leaves_no_run(first: Path, tmp_path: Path, over, cause) -> None:
    with pytest.raises(ConfigError, match=f"init: {cause}") as caught:
        trained(tmp_path / "second", **{"init": str(first), **over})
    assert "\n" not in caught.value.line()
    assert not (tmp_path / "second").exists()


def test_a_file_in_the_place_of_a_run_is_refused_and_the_run_that_it_is_of_is_named(
    first: Path, tmp_path: Path
) -> None:
    exported = tmp_path / "model.safetensors"
    exported.write_bytes((first / "run.yaml").read_bytes())
    inside = next(first.glob("checkpoints/step-*/manifest.json"))
    for file, which in (
        (
            exported,
            "a run, the output of 'kosmos train': an exported model cannot stand in its place; begin with the .*",
        ),
        (first / "run.yaml", f"the run, {first}"),
        (inside, f"the run, {first}"),
    ):
        with pytest.raises(ConfigError, match=rf"^init: {file}: is a file; give the folder of {which}$"):
            trained(tmp_path / "second", init=str(file))


def test_a_folder_with_a_run_file_is_no_run_of_a_file_in_it(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.yaml").write_bytes((first / "run.yaml").read_bytes())
    (tmp_path / "model.safetensors").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"^model\.safetensors: is a file; give the folder of a run, the output of 'k"
    ):
        load_run("model.safetensors")
    monkeypatch.chdir(first)
    with pytest.raises(ConfigError, match=rf"^run\.yaml: is a file; give the folder of the run, {first}$"):
        load_run("run.yaml")


def test_a_folder_of_transformers_is_said_to_be_a_backbone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=rf"; a language model .* is a backbone: {{name: hf, model: {tmp_path}}}$"):
        trained(tmp_path / "second", init=str(tmp_path))


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({}, ["wiki"]),  # of the other all documents were drawn
        ({"seed": 1}, []),
        ({"sources": [{"name": "wiki", "documents": 9}]}, []),
        ({"sources": [{"name": "web", "documents": 8}]}, []),
        ({"sources": [{"name": "wiki", "documents": 8, "weight": 3}]}, ["wiki"]),
        ({"lanes": 4}, ["wiki"]),
    ],
)
def test_documents_that_the_weights_know_are_known_to_come_again(change, again) -> None:
    data = {"seed": 0, "lanes": 2, "sources": [{"name": "wiki", "documents": 8}, {"name": "few", "documents": 2}]}
    drawn = {"lanes": {"0": {"draws": [3, 1]}, "1": {"draws": [4, 1]}}}
    assert drawn_again({"order": {"data": data}, "data": drawn}, {"data": {**data, **change}}) == again


@pytest.mark.parametrize(
    ("there", "here", "again"),
    [("a", "b", []), ("a", "a", ["answers"]), ("a", None, ["answers"]), (None, "b", ["answers"])],
)
def test_other_documents_under_one_name_do_not_come_again(
    there: str | None, here: str | None, again: list[str]
) -> None:
    facts = [{"name": "answers", "documents": 8, **({"fingerprint": told} if told else {})} for told in (there, here)]
    orders = [{"data": {"seed": 0, "lanes": 1, "sources": [of]}} for of in facts]
    assert drawn_again({"order": orders[0], "data": {"lanes": {"0": {"draws": [3]}}}}, orders[1]) == again


def test_rows_in_blocks_come_in_the_same_order_only_to_as_many_lanes() -> None:
    data = {"seed": 0, "lanes": 1, "sources": [{"name": "wiki", "documents": 8, "blocks": "ab"}]}
    before = {"order": {"data": data}, "data": {"lanes": {"0": {"draws": [3]}}}}
    assert drawn_again(before, {"data": data}) == ["wiki"]
    assert drawn_again(before, {"data": {**data, "lanes": 2}}) == []


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        (0.4, 0.1, "of texts a share of 0.4 was held out in FIRST, and 0.1 is here, so that some of what was held out "
         "there is trained on here; set it to 0.4"),
        (0.1, 0.4, "of texts a share of 0.1 was held out in FIRST, and 0.4 is here, so that some of what is scored "
         "here was trained on there; set it to 0.1"),
        (0.4, {"held_out": 0.0}, "of texts a share of 0.4 was held out in FIRST, and 0 is here, so that some of what "
         "was held out there is trained on here; set it to 0.4"),
        (0.4, {"held_out": 0.4}, ""),
        ({"held_out": 0.4, "name": "first"}, 0.4, ""),
    ],
)  # fmt: skip
def test_another_share_of_a_source_of_both_runs_is_told(tmp_path: Path, monkeypatch, there, here, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "line {n}"}}\n' for n in range(40)))
    warned = []
    for number, share in enumerate((there, here)):
        own, general = (share, 0.05) if isinstance(share, dict) else ({}, share)
        path = "texts.jsonl" if number else str(tmp_path / "texts.jsonl")
        data = {"sources": [{"path": path, **own}], "held_out": general, "seed": number}
        begin = {"init": "FIRST"} if number else {}
        over = {"modalities": [], "data": data, "train": {"steps": 1}, "evaluate": {"max_documents": 2}, **begin}
        train_model(small_run(Path("second" if number else "FIRST"), **over), reporter=(listener := Listener()))
        warned = [line for line in listener.said if "was held out in" in line]
    place = "data.sources.0.held_out" if isinstance(here, dict) else "data.held_out"
    assert warned == ([f"warning: {place}: {said.replace('FIRST', str(tmp_path / 'FIRST'))}"] if said else [])


@pytest.mark.parametrize(
    ("more", "path", "warns"),
    [
        ({}, "rows", True),
        ({}, "rows/b.jsonl", True),  # whose rows the folder has too
        ({"id": "{name} {n}"}, "rows", False),
        ({"split": "{split}"}, "rows", False),
    ],
)
def test_rows_without_ids_that_a_folder_has_grown_by_are_told(tmp_path: Path, monkeypatch, more, path, warns) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows").mkdir()

    def write(name: str) -> None:
        rows = [{"text": f"{name} {n}", **{key: of.format(name=name, n=n, split=("test", "train")[n > 3])
                for key, of in more.items()}} for n in range(40)]  # fmt: skip
        (tmp_path / "rows" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("b")
    warned: list[str] = []
    over = {"modalities": [], "train": {"steps": 1}, "evaluate": {"max_documents": 2}}
    train_model(small_run(Path("first"), data={"sources": [path]}, **over))
    data = {"sources": ["rows"], "seed": 1}
    for is_grown in (False, True):
        train_model(
            small_run(Path(f"grown-{is_grown}"), data=data, init="first", **over), reporter=(said := Listener())
        )
        warned = [line for line in said.said if "without an id" in line]
        assert len(warned) == (warns and is_grown)
        write("a")
    for line in warned:
        assert "rows has other rows or files than" in line and "in evaluate.sources" in line


def test_data_that_state_their_split_have_no_share_to_be_told(tmp_path: Path) -> None:
    facts = {"name": "texts", "fingerprint": "ab"}
    data = [DataConfig(sources=[{"path": str(tmp_path)}], held_out=share) for share in (0.1, 0.2)]
    order = {"data": {"sources": [facts]}}
    assert list(held_out_otherwise(data[0], order, data[1], order, tmp_path)) == []
    other = {"data": {"sources": [{**facts, "fingerprint": "cd"}]}}
    assert len(list(held_out_otherwise(data[0], order, data[1], other, tmp_path))) == 1


def test_sources_of_one_file_are_compared_by_their_names(tmp_path: Path) -> None:
    def data(shares: dict[str, float]) -> DataConfig:
        entries = [{"path": str(tmp_path), "name": name, "held_out": share} for name, share in shares.items()]
        return DataConfig(sources=entries)

    def order(prints: dict[str, str]) -> dict[str, Any]:
        return {"data": {"sources": [{"name": name, "fingerprint": told} for name, told in prints.items()]}}

    there, prints = data({"plain": 0.1, "asked": 0.2}), {"plain": "ab", "asked": "cd"}
    turned = data({"asked": 0.2, "plain": 0.1})
    assert list(held_out_otherwise(there, order(prints), turned, order({"asked": "ef", "plain": "gh"}), tmp_path)) == []
    here = data({"asked": 0.4, "plain": 0.1})
    (line,) = held_out_otherwise(there, order(prints), here, order({"asked": "ef", "plain": "ab"}), tmp_path)
    assert line.startswith("data.sources.0.held_out: of asked a share of 0.2 was held out in ")


def test_other_values_by_which_rows_are_held_out_are_told(tmp_path: Path) -> None:
    first, second, share = (
        DataConfig(sources=[{"path": str(tmp_path), "held_out": of}]) for of in ({"fold": 1}, {"fold": [2, 3]}, 0.1)
    )
    order, other = ({"data": {"sources": [{"name": "texts", "fingerprint": told}]}} for told in ("ab", "cd"))
    assert list(held_out_otherwise(first, order, first, other, tmp_path)) == []
    (line,) = held_out_otherwise(first, order, second, other, tmp_path)
    assert line.startswith(
        f"data.sources.0.held_out: of texts what has fold 1 was held out in {tmp_path}, and what has fold 2, 3 is here"
    )
    (line,) = held_out_otherwise(share, order, first, other, tmp_path)
    assert "of texts a share of 0.1 was held out in" in line


def test_nothing_is_held_out_of_documents_that_were_given(tmp_path: Path) -> None:
    data = [{"held_out": share} for share in (0, 0.05)]
    texts = [[Document(f"{n} of {turn}", (Text(f"text {n}", train=True),)) for n in range(20)] for turn in range(2)]
    said = []
    for turn, (name, begin) in enumerate((("first", {}), ("second", {"init": str(tmp_path / "first")}))):
        config = small_run(tmp_path / name, modalities=[], data=data[turn], train={"steps": 1}, **begin)
        train_model(config, sources=[Documents("answers", texts[turn])], reporter=(listener := Listener()))
        said = [line for line in listener.said if line.startswith("warning")]
    assert [line for line in said if "held out" in line or "come again" in line] == []


def test_a_run_that_goes_on_has_its_own_weights(first: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trained(whole, init=str(first), train={"steps": 4})
    trained(parts, init=str(first), train={"steps": 2})
    resume_run(parts, {"train": {"steps": 4}}, registry=ticks_registry())
    assert [row["loss"] for row in rows_of(whole / "metrics.jsonl")] == [
        row["loss"] for row in rows_of(parts / "metrics.jsonl")
    ]


STILL = {"name": "lion", "betas": [0.9, 1.0]}
"""Whose momentum stays as it is."""


def momenta(output: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    tensors = open_checkpoint(output, step)[1].tensors
    return {name.removesuffix("/exp_avg"): t for name, t in read_whole(tensors, OPTIMIZER).items()}


def test_a_stage_goes_on_with_the_state_of_the_optimizer(first: Path, tmp_path: Path, capsys) -> None:
    init = {"path": str(first / "checkpoints" / "step-00000002"), "optimizer": True}
    config = small_run(tmp_path / "second", init=init, train={"steps": 1, "optimizer": STILL}, data={"seed": 7})
    train_model(config, registry=ticks_registry(), reporter=ConsoleReporter())
    before, after = momenta(first, 2), momenta(tmp_path / "second")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert all(before[name].any() for name in before if "ffn" in name or "query" in name)
    told = f"takes the optimizer's state of {len(before)} of the {len(before)} tensors that are trained"
    assert told in " ".join(capsys.readouterr().err.split())


def test_what_was_frozen_begins_without_a_state(first: Path, tmp_path: Path) -> None:
    trained(tmp_path / "a", train={"steps": 1}, streams={"ticks": {"freeze": True}})
    trained(
        tmp_path / "b", init={"path": str(tmp_path / "a"), "optimizer": True}, train={"steps": 1, "optimizer": STILL}
    )
    before, after = momenta(tmp_path / "a"), momenta(tmp_path / "b")
    anew = after.keys() - before.keys()
    assert anew and all(name.startswith("streams.ticks.encoder") for name in anew)
    assert not any(after[name].any() for name in anew) and all(torch.equal(after[n], before[n]) for n in before)


@pytest.mark.parametrize(
    ("over", "line"),
    [
        (
            {"train": {"optimizer": "adamw"}},
            r"init\.optimizer: .* was trained with lion, whose state is none of adamw; ",
        ),
        (
            {"backbone": {"lora": 4}, "streams": {"other": STREAM}, "modalities": {"ticks": {"stream": "other"}}},
            r"init\.optimizer: .* has the optimizer's state of no parameter that this run trains; leave it out",
        ),
    ],
)
def test_the_state_of_another_optimizer_is_refused(first: Path, tmp_path: Path, over, line) -> None:
    with pytest.raises(ConfigError, match=line):
        trained(tmp_path / "second", init={"path": str(first), "optimizer": True}, **over)
    assert not (tmp_path / "second").exists()


def test_a_state_in_another_type_is_refused_where_it_could_not_be_gone_on_from(first: Path, tmp_path: Path) -> None:
    low = {"weights": "bf16", "precision": "bf16", "steps": 1}
    init = {"path": str(tmp_path / "a"), "optimizer": True}
    for optimizer in ("adamw", "lion"):
        trained(tmp_path / "a", train={"optimizer": optimizer, "steps": 1})
        over = {"init": init, "train": {"optimizer": optimizer, **low}}
        if optimizer == "adamw":
            with pytest.raises(ConfigError, match=r"init\.optimizer: \S+ is in float32 and bfloat16 there and here"):
                trained(tmp_path / "b", **over)
            shutil.rmtree(tmp_path / "a")
        else:
            trained(tmp_path / "b", **over)


def test_what_a_run_began_with_is_not_changed_as_it_goes_on(first: Path, tmp_path: Path) -> None:
    trained(tmp_path / "b", init=str(first), train={"steps": 1})
    with pytest.raises(ConfigError, match=r"init: the run in .* goes on with its own weights; leave it out"):
        resume_run(tmp_path / "b", {"init": {"path": str(first), "optimizer": True}}, registry=ticks_registry())
    resume_run(tmp_path / "b", {"init": None, "train": {"steps": 2}}, registry=ticks_registry())
    assert f"path: {first}" in (tmp_path / "b" / "run.yaml").read_text()
    (row,) = rows_of(tmp_path / "b" / "changes.jsonl")
    assert set(row["changed"]) == {"train.steps"}


def test_bf16_weights_begin_with_those_of_fp32(first: Path, tmp_path: Path) -> None:
    over = {"steps": 1, "weights": "bf16", "precision": "bf16", "learning_rate": 1e-12, "weight_decay": 0}
    trained(tmp_path / "second", init=str(first), train=over)
    before, after = weights(first), weights(tmp_path / "second")
    assert all(torch.equal(before[n].bfloat16(), after[n].bfloat16()) for n in before if before[n].is_floating_point())


def told(first: Path, **over) -> list[str]:
    """What a run says of the options of parts that it takes."""
    composition = compose(small_run(**over), ticks_registry())
    return list(open_initial(InitConfig(path=first), first / "tokenizer", composition.model, composition).others)


def test_options_that_are_not_what_they_were_are_told(first: Path) -> None:
    over = {"backbone": {"rope_base": 500, "dropout": 0.5}, "modalities": {"ticks": {"processor": {"lie": 1}}}}
    was = f"in {first.resolve()}"
    assert told(first, **over) == [
        f"warning: backbone.rope_base: 10000.0 {was}, 500.0 here; unless that is meant, set it as it was",
        f"warning: backbone.dropout: 0.0 {was}, 0.5 here; unless that is meant, set it as it was",
        f"warning: modalities.ticks.processor.lie: 0 {was}, 1 here; unless that is meant, set it as it was",
    ]


def test_a_run_says_them_behind_the_parts_that_it_took(first: Path) -> None:
    composition = compose(small_run(backbone={"rope_base": 500}), ticks_registry())
    model = composition.model
    initial = open_initial(InitConfig(path=first), first / "tokenizer", model, composition)
    said = list(take_weights(model, initial, alone=True))
    assert said[0].startswith("begins with ") and said[1:] == list(initial.others) and len(said) == 2


def test_defaults_that_are_stated_are_no_difference(first: Path) -> None:
    parts = {"encoder": {"name": "ticks", "width": 8}, "connector": {"name": "mlp", "hidden": 32, "pool": [1, 1, 1]}}
    over = {
        "backbone": {"preset": "small", "layers": 1, "kv_heads": 2, "rope_base": "1e4", "tie_embeddings": False},
        "streams": {"ticks": parts},
        "modalities": {"ticks": {"processor": {"lie": 0}}},
    }
    assert told(first, **over) == []


def test_what_the_files_of_the_first_run_stated_is_told_with_those_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the mean of pictures that stands beside the weights of an encoder."""
    made = TicksEncoder.__init__

    def from_files(self, *, width: int = 8, gain: float = 1.0, weights: str | None = None) -> None:
        made(self, width=width)
        self.without_files = {"weights": None, "gain": 3.0} if weights else {}

    monkeypatch.setattr(TicksEncoder, "__init__", from_files)
    named = {"streams": {"ticks": {"encoder": {"name": "ticks", "weights": "w.safetensors"}}}}
    trained(tmp_path / "first", train={"steps": 1}, **named)
    assert told(tmp_path / "first", **named) == []
    (line,) = told(tmp_path / "first")
    assert line.startswith("warning: streams.ticks.encoder.gain: 3.0 in ")
    assert line.endswith("1.0 here; unless that is meant, name weights: w.safetensors again, which stated it")
    elsewhere = {"name": "ticks", "gain": 3.0}
    assert told(tmp_path / "first", streams={"ticks": {"encoder": elsewhere}}) == []


def test_a_component_that_does_not_tell_its_options_is_named(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TicksEncoder, "in_effect", lambda options: options["none"], raising=False)
    with pytest.raises(PluginError, match=r"streams\.ticks\.encoder: in_effect of encoder 'ticks' fails: 'none'"):
        told(first)
