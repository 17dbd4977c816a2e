"""How the layers of a run file lie over each other where a component or a modality is named in one of them alone."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from kosmos import ConfigError, make_run
from kosmos.cli import main
from kosmos.compose import compose
from kosmos.data.plan import Route
from kosmos.data.slots import OnePerCell
from kosmos.model.huggingface import HuggingFaceBackbone
from kosmos.model.lora import add_lora
from kosmos.plugins import load_plugins
from kosmos.run_file import dump_run, lay_over, parse_overrides, read_run_file
from kosmos.train.doubts import doubts
from support.command import SMALL, lines_in
from support.runs import small_run, ticks_registry


def test_options_of_a_default_component_are_set_without_its_name() -> None:
    run = make_run(parse_overrides(["train.optimizer.betas=[0.9, 0.98]", "train.schedule.floor=0.2"]))
    assert (run.train.optimizer.name, run.train.optimizer.options) == ("lion", {"betas": [0.9, 0.98]})
    assert (run.train.schedule.name, run.train.schedule.options) == ("linear", {"floor": 0.2})


def test_options_of_a_modalitys_own_encoder_are_set_without_its_name(tmp_path: Path) -> None:
    config = small_run(streams={"ticks": {"encoder": {"width": 5}}})
    assert compose(config, ticks_registry()).model.streams["ticks"].encoder.width == 5
    file = tmp_path / "run.yaml"
    file.write_text(dump_run(config))
    assert make_run(read_run_file(file)) == config


def test_a_stream_that_no_modality_owns_needs_names() -> None:
    over = {"modalities": {"ticks": {"stream": "shared"}}, "streams": {"shared": {"encoder": {"width": 5}}}}
    with pytest.raises(ConfigError, match=r"^streams.shared: no modality has this name, so it needs both"):
        compose(small_run(**over), ticks_registry())


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_overrides_does_not_matter(order: int) -> None:
    pairs = ["backbone.name=hf", "backbone.model=folder", "backbone.freeze=true"][::order]
    assert make_run({"backbone": {"preset": "small"}}, parse_overrides(pairs)).backbone.options == {"model": "folder"}


def test_naming_modalities_keeps_what_is_set_of_them() -> None:
    base = {"modalities": {"image": {"processor": {"max_cells": 3}}, "video": {}}}
    run = make_run(base, {"modalities": "image,audio"})
    assert list(run.modalities) == ["image", "audio"]
    assert run.modalities["image"].processor == {"max_cells": 3}


def test_a_modality_that_is_named_by_a_list_can_be_set_by_its_path() -> None:
    for named in ("image,video", ["image", "video"], {"image": None, "video": None}):
        run = make_run({"modalities": named}, parse_overrides(["modalities.video.stream=image"]))
        assert list(run.modalities) == ["image", "video"]
        assert run.stream_of("video") == "image"


def test_an_option_and_a_field_may_set_different_parts_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--data", "sums", "data.sources.0.weight=2", "--documents", "0"]) == 0
    assert main(["data", "--data", "sums", "data.sources=[sums]"]) == 2
    assert "--data and data.sources=...: both are given" in capsys.readouterr().err
    named = ["data", "--data", "sums", "--modalities", "image", "--documents", "0"]
    assert main([*named, "modalities=[image]", "modalities.image.processor.resize=crop"]) == 0
    assert main([*named, "modalities=[audio]"]) == 2
    assert "--modalities and modalities=...: both are given" in capsys.readouterr().err


def test_a_run_that_is_found_goes_on_to_the_steps_of_the_command(tmp_path: Path) -> None:
    train = ["train", "--data", "sums", "--output", str(tmp_path / "run"), "--auto-resume", *map(str, SMALL)]
    for steps in (2, 3):
        status = main([*train, "--steps", str(steps), "data.workers=0", "evaluate.max_documents=2"])
        assert status == 0
        assert lines_in(tmp_path / "run" / "metrics.jsonl") == steps


def test_a_run_that_is_found_is_not_taken_for_one_on_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "run")
    for modality, status in (("image", 0), ("audio", 3)):
        given = ["--modalities", modality, "--output", output, "--auto-resume", "--steps", "1", *map(str, SMALL)]
        assert main(["train", *given, "data.workers=0", "evaluate.max_documents=2"]) == status
    assert "was made with data.sources" in capsys.readouterr().err.splitlines()[-1]


def test_nothing_is_held_out_where_none_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"text": "line {number}"}}\n' for number in range(40)))
    train = ["train", "--modalities", "text", "--data", str(rows), "data.held_out=0", "data.workers=0", "--steps", "1"]
    assert main([*train, "--output", str(tmp_path / "run"), *map(str, SMALL)]) == 0
    said = capsys.readouterr()
    assert "rows: 40 documents, 0 held out" in said.err and said.out == ""
    for field, value in (("evaluate.patience", "1"), ("checkpoint.keep_best", "true")):
        assert main([*train, "--output", str(tmp_path / "no"), f"{field}={value}", "evaluate.every_steps=1"]) == 2
        assert capsys.readouterr().err == (
            f"error[config]: {field}: nothing is held out to go by; raise data.held_out or leave it out\n"
        )
        assert not (tmp_path / "no").exists()


def test_what_is_hardly_meant_is_said(tmp_path: Path) -> None:
    def said(*pairs: str) -> list[str]:
        return list(doubts(make_run(parse_overrides(list(pairs))), (), resumed=False))

    assert said() == said("train.steps=10") == []
    assert said("train.epochs=3", "train.warmup_steps=2000") == []  # nobody has counted its steps yet
    (warmup,) = said("train.steps=59", "train.warmup_steps=60")
    assert warmup.startswith("train.warmup_steps 60 is more than train.steps 59: the learning rate never reaches")
    pretrained = ("backbone.name=hf", "backbone.model=my/model")
    (tokens,) = said(*pretrained)
    assert tokens.endswith("set tokenizer=my/model")
    (tokens,) = said("backbone.name=hf", f"backbone.model={tmp_path}")
    assert tokens.endswith("set tokenizer to the one that belongs to the model; its folder has no tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tokens,) = said("backbone.name=hf", f"backbone.model={tmp_path}")
    assert tokens.endswith(f"set tokenizer={tmp_path}")
    assert said(*pretrained, "tokenizer=my/model") == said(*pretrained, "backbone.pretrained=false") == []
    stated = ("backbone.name=hf", "backbone.config={model_type: llama}", "train.weights=bf16")
    (dtype, _) = said(*stated, "backbone.dtype=float32")
    assert dtype == (
        "backbone.dtype float32 has no effect: train.weights=bf16 makes all weights bf16; leave one of them out"
    )
    assert len(said(*stated)) == len(said(*stated, "backbone.dtype=bfloat16")) == 1
    run = make_run({"data": {"tokens_per_pack": 2048}})
    assert list(doubts(run, (), resumed=False, backbone=SimpleNamespace(made_for=2048))) == []
    assert list(doubts(run, (), resumed=False, backbone=SimpleNamespace(made_for=512, longest=512))) == []
    (positions,) = doubts(run, (), resumed=False, backbone=SimpleNamespace(made_for=512))
    assert positions.endswith("was made for 512 tokens; set data.tokens_per_pack=512 unless the documents are shorter")


def test_a_loss_of_the_router_that_is_not_added_is_said() -> None:
    run, mixture = make_run({}), {"model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 1}
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    for asks in (True, False):
        config = {**mixture, **small, "moe_intermediate_size": 16, "output_router_logits": asks}
        backbone = HuggingFaceBackbone(20, config={**config, "num_key_value_heads": 1})
        told = [line for line in doubts(run, (), resumed=False, backbone=backbone) if "router" in line]
        assert len(told) == asks and all("output_router_logits, and the router's own loss is not" in x for x in told)
        added = HuggingFaceBackbone(20, config={**config, "num_key_value_heads": 1}, router_loss=0.01)
        assert not [line for line in doubts(run, (), resumed=False, backbone=added) if "router" in line]


def test_experts_that_get_no_updates_are_said() -> None:
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "num_key_value_heads": 1}
    for kind, more in (("qwen3_moe", experts), ("qwen3", {"num_key_value_heads": 1})):
        backbone = HuggingFaceBackbone(20, config={"model_type": kind, **small, **more})
        add_lora(backbone, "backbone.lora", rank=2, alpha=4)
        for lora in (None, 2):
            run = make_run({"backbone": {"lora": lora}})
            told = [x for x in doubts(run, (), resumed=False, backbone=backbone) if "experts that are one tensor" in x]
            assert len(told) == (lora is not None and kind == "qwen3_moe")


def test_bf16_weights_whose_small_updates_nothing_keeps_are_said() -> None:
    half = torch.nn.Linear(2, 2, dtype=torch.bfloat16)

    def said(*pairs: str, resumed: bool = False, backbone: Any = None) -> list[str]:
        return list(doubts(make_run(parse_overrides(list(pairs))), (), resumed=resumed, backbone=backbone))

    (line,) = said("train.weights=bf16")
    assert line.startswith("train.optimizer.master: weights that learn are in bf16") and "(train.weights)" in line
    assert said("train.weights=bf16", "train.optimizer.master=bits16") == said("train.weights=bf16", resumed=True) == []
    assert said("train.weights=bf16", "train.optimizer.name=of_a_plugin") == []
    (line,) = said(backbone=half)
    assert "in bf16 (backbone), in which" in line
    assert said(backbone=half.requires_grad_(False)) == said(backbone=half.float().requires_grad_(True)) == []


def test_what_would_make_a_processor_faster_is_said(tmp_path: Path) -> None:
    run = make_run({})

    def said(processor: Any) -> list[str]:
        route = Route(processor, "smell", OnePerCell(), frozenset())
        return list(doubts(run, (), resumed=True, routes={"smell": route}))

    class Broken:
        @property
        def hints(self) -> Any:
            raise OSError("nothing here")

    assert said(SimpleNamespace()) == []
    assert said(SimpleNamespace(hints=("one", "two"))) == ["modalities.smell: one", "modalities.smell: two"]
    lost = "modalities.smell: what it could say cannot be shown:"
    assert said(Broken()) == [f"{lost} Broken.hints: OSError: nothing here"]
    (line,) = said(SimpleNamespace(hints="one"))
    assert line.startswith(lost) and line.endswith(
        "SimpleNamespace.hints: TypeError: expected a list of lines, got str"
    )


def test_a_run_without_a_compiler_says_what_resizes_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["data", "--modalities", "image", "--documents", "0", "--json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning.startswith("modalities.image: pictures are resized by Pillow, in two to four times the time: ")
    assert warning.endswith("CXX names no-such-compiler; install one, or set modalities.image.processor.compile=false")


def test_a_short_run_by_the_file_of_a_longer_one_is_no_doubt(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(dump_run(make_run({"train": {"steps": 100}})))

    def said(**train: int) -> list[str]:
        return list(doubts(make_run(read_run_file(file), {"train": train}), (), resumed=False))

    assert said(steps=5) == []
    (warmup,) = said(warmup_steps=101)
    assert warmup.startswith("train.warmup_steps 101 is more than train.steps 100")


def test_a_rate_of_a_connector_that_has_nothing_to_train_is_said() -> None:
    run = make_run({"modalities": ["image"], "streams": {"image": {"connector_learning_rate": 1e-3}}})
    built = compose(run, load_plugins()).model.streams
    assert not [line for line in doubts(run, (), resumed=True, streams=built.items()) if "_rate" in line]
    built["image"].connector.requires_grad_(False)
    (line,) = [line for line in doubts(run, (), resumed=True, streams=built.items()) if "_rate" in line]
    assert line == ("streams.image.connector_learning_rate: the connector has nothing to train, so it has no effect")


def test_an_encoder_that_is_frozen_as_it_was_drawn_is_said(tmp_path: Path) -> None:
    def said(encoder: dict[str, Any], *more: dict[str, Any], modality: str = "image") -> list[str]:
        streams = {"streams": {modality: {"encoder": encoder, "freeze": True}}}
        run = make_run({"modalities": [modality]}, streams, *more)
        built = compose(run, load_plugins()).model.streams.items()
        now, later = (doubts(run, (), resumed=resumed, streams=built) for resumed in (False, True))
        assert not any(".freeze" in line for line in later)
        return [line for line in now if ".freeze" in line]

    drawn = {"name": "timm", "model": "test_vit"}
    (line,) = said(drawn)
    assert line == (
        "streams.image.freeze: the encoder's weights are drawn at random, and it never learns; leave freeze out, or "
        "give it weights (streams.image.encoder.pretrained, streams.image.encoder.weights, init)"
    )
    (line,) = said({}, modality="audio")
    assert line.endswith("leave freeze out, or give it weights (init)")
    weights = tmp_path / "weights.safetensors"
    save_file(timm.create_model("test_vit", num_classes=0).state_dict(), weights)
    assert said({**drawn, "weights": str(weights)}) == []
    both = {"streams": {"image": {"freeze_connector": True}}}
    (line,) = said({**drawn, "weights": str(weights)}, both)
    assert line.startswith("streams.image.freeze_connector: the connector's weights are drawn at random, and it never")
    assert said(drawn, both, {"init": str(tmp_path)}) == []
    assert said(drawn, {"init": str(tmp_path)}) == said(drawn, {"streams": {"image": {"freeze": False}}}) == []


def test_a_backbone_that_is_frozen_as_it_was_drawn_is_said(tmp_path: Path) -> None:
    def said(backbone: dict[str, Any], **more: Any) -> list[str]:
        run = make_run({"modalities": ["image"], "backbone": {"freeze": True, **backbone}, **more})
        built = compose(run, load_plugins()).model.backbone
        now, later = (doubts(run, (), resumed=resumed, backbone=built) for resumed in (False, True))
        assert not any(".freeze" in line for line in later)
        return [line for line in now if ".freeze" in line]

    fields = {"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 64}
    HuggingFaceBackbone(300, config=fields).model.save_pretrained(tmp_path / "gpt2")
    drawn = "backbone.freeze: the backbone's weights are drawn at random, and it never learns; leave freeze out, or "
    assert said({}) == [f"{drawn}give it weights (init)"]
    stored = {"name": "hf", "model": str(tmp_path / "gpt2")}
    for backbone in ({"name": "hf", "config": fields}, {**stored, "pretrained": False}):
        assert said(backbone) == [f"{drawn}give it weights (backbone.model, backbone.pretrained, init)"]
    assert said(stored) == said({}, init=str(tmp_path)) == said({"freeze": False}) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_modality_that_no_document_holds_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    if again:  # of what was kept from the look before
        monkeypatch.setattr("kosmos.data.sources.scan_cache.LEAST_BYTES", 0)
        monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    Image.new("RGB", (16, 16)).save(tmp_path / "1.png")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"image": "1.png", "text": "line {number}"}}\n' for number in range(40)))
    train = ["train", "--modalities", "image,audio", "data.workers=0", "data.held_out=0", "--steps", "1"]
    for number in range(1 + again):
        assert main([*train, "--data", str(rows), "--output", str(tmp_path / str(number)), *map(str, SMALL)]) == 0
        warned = [line for line in capsys.readouterr().err.splitlines() if "warning: no document" in line]
        assert [line.split(",")[0] for line in warned] == ["warning: no document holds audio"]
    with_sounds = [*train, "--data", str(rows), "--data", "tones"]
    assert main([*with_sounds, "--output", str(tmp_path / "sounds"), *map(str, SMALL)]) == 0
    assert "no document holds" not in capsys.readouterr().err


def test_the_owner_of_a_stream_is_missed_only_where_no_other_modality_feeds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(Path(__file__).parents[2] / "examples" / "video-frames.yaml")

    def said(of: str) -> list[str]:
        (tmp_path / f"{of}.jsonl").write_text("".join(f'{{"{of}": "1", "text": "line {n}"}}\n' for n in range(4)))
        assert main(["data", run, "--data", str(tmp_path / f"{of}.jsonl"), "--documents", "0"]) == 3  # no such files
        told = capsys.readouterr().out.splitlines()
        return [line.removeprefix("warning").strip().split(";")[0] for line in told if "no document" in line]

    assert said("video") == []
    assert said("image") == ["no document holds video"]


def test_an_option_that_is_called_tokenizer_is_an_option():
    base = {
        "backbone": {"name": "mine", "tokenizer": "a"},
        "streams": {"s": {"encoder": {"name": "e", "tokenizer": "a"}}},
    }
    over = parse_overrides(["backbone.tokenizer=b", "streams.s.encoder.tokenizer=b", "tokenizer=bytes"])
    found = lay_over([base | {"tokenizer": {"name": "x", "turns": "chatml"}}], [over], where="run", over="over")
    assert found.backbone.options["tokenizer"] == found.streams["s"].encoder.options["tokenizer"] == "b"
    assert (found.tokenizer.name, found.tokenizer.turns.trim) == ("bytes", False)


def test_what_is_set_of_a_run_to_begin_with_is_laid_on_its_path(tmp_path) -> None:
    init = make_run(parse_overrides([f"init={tmp_path}", "init.optimizer=true"])).init
    assert init is not None and (init.path, init.optimizer) == (tmp_path, True)
