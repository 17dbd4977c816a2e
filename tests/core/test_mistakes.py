"""What an unknown field, or a value that a field does not take, was probably meant for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kosmos.compose import check_components, check_parts
from kosmos.config import RunConfig
from kosmos.data.sources.file_options import read_options
from kosmos.errors import ConfigError
from kosmos.names import nearest
from kosmos.plugins import load_plugins
from kosmos.reference.topics import find
from kosmos.run_file import lay_over, make_run, parse_overrides

MIXTURE = {"data": {"sources": [{"path": "shapes", "weight": 1}, {"path": "texts/wiki.jsonl", "weight": 2}]}}


def check(over: dict[str, Any]) -> None:
    """Fields, and the options of components, as a run looks at them."""
    config, registry = make_run({"modalities": ["image"]}, over), load_plugins()
    check_components(config, registry)
    check_parts(config, registry)


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("data.weights=[1,2]", "unknown field; did you mean data.sources.N.weight?"),
        ("data.weight=2", "unknown field; did you mean data.sources.N.weight?"),
        ("train.betas=[0,1]", "unknown field; did you mean train.optimizer.betas?"),
        ("train.adam_beta2=0.9", "unknown field; did you mean train.optimizer.betas?"),
        ("train.clip_grad=1", "unknown field; did you mean clip_norm?"),
        ("train.clip=1", "unknown field; did you mean clip_norm?"),
        ("train.grad_accum=4", "data.lanes says what a step takes, and each process accumulates its part"),
        ("train.max_tokens=9", "did you mean tokens?"),
        ("train.fp8=row", "got 'row'; did you mean rowwise?"),
        ("train.precision=fp8", "got 'fp8'; train.fp8 multiplies in 8 bits"),
        ("train.precision=bfloat16", "got 'bfloat16'; did you mean bf16?"),
        ("train.device=mps", "got 'mps'; Apple's GPU is not used; auto takes the CPU there"),
        ("train.steps=1.5e0", "input should be a valid integer, unable to parse string as an integer, got '1.5e0'"),
        ("backbone.lr=1", "unknown field; did you mean backbone.learning_rate? ("),
        ("backbone.weight_decay=1", "unknown field; did you mean train.weight_decay? ("),
        ("backbone.num_hidden_layers=3", "unknown field; did you mean layers? ("),
        ("backbone.n_embd=64", "unknown field; did you mean width? ("),
        ("backbone={name: hf, hidden_size: 64}", "unknown field; did you mean backbone.config.hidden_size? ("),
        ("backbone.zzz=1", "dropout, name, freeze, lora, learning_rate)"),
        ("streams.image.encoder.lr=1", "unknown field; did you mean streams.image.learning_rate? ("),
        ("train.optimizer.fused=true", "train.optimizer.fused: unknown field (fields: betas, "),
        (
            "evaluate.sources=[{path:x.jsonl,weight:2}]",
            "evaluate.sources.0.path:x.jsonl: unknown field; YAML wants a space after the colon: path: x.jsonl; eval",
        ),
        ("train.schedule={name:wsd,decay:2}", "train.schedule.name:wsd: unknown field; YAML wants a space after the c"),
        ("backbone={width:32}", "backbone.width:32: unknown field; YAML wants a space after the colon: width: 32"),
        ("train={steps:3}", "train.steps:3: unknown field; YAML wants a space after the colon: steps: 3"),
        ("evaluate.metrics=[{name:bleu}]", "got {'name:bleu': None}; YAML wants a space after the colon: name: bleu"),
        ("data.sources=[{path: a, columns: {text:b}}]", "got None; YAML wants a space after the colon: text: b"),
    ],
)
def test_what_was_meant_is_said(override: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(parse_overrides([override]))
    assert hint in str(caught.value)


def test_options_of_files_want_a_space_after_a_colon_too() -> None:
    with pytest.raises(ConfigError, match="chunk_chars:5: unknown field; YAML wants a space after the colon: chunk_ch"):
        read_options({"chunk_chars:5": None}, "data.sources.0")


@pytest.mark.parametrize(
    ("name", "found"), [("fused", None), ("lr", None), ("clip", "clip_norm"), ("row", "rowwise"), ("Sede", "seed")]
)
def test_the_nearest_name_is_spelled_nearly_so_or_begins_so(name: str, found: str | None) -> None:
    assert nearest(name, ["seed", "lora", "clip_norm", "rowwise_with_gw_hp", "rowwise"]) == found


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.sources.wiki.weight=2", "data.sources.wiki: data.sources is a list; wiki is data.sources.1"),
        ("data.sources.shapes.weight=2", "data.sources.shapes: data.sources is a list; shapes is data.sources.0"),
        (
            "data.sources.pile.weight=2",
            "data.sources.pile: data.sources is a list; write [{path: PATH, name: pile}], or set an item by its number",
        ),
        (
            "data.sources.weight=2",
            "data.sources.weight: data.sources is a list; set it of an item, such as data.sources.0.weight",
        ),
        (
            "trackers.wandb.project=x",
            "trackers.wandb: trackers is a list; write [{name: wandb}], or set an item by its number",
        ),
    ],
)
def test_an_item_of_a_list_is_not_set_by_its_name(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        lay_over([MIXTURE], [parse_overrides([override])], where="run.yaml", over="command line")
    assert str(caught.value) == said


def test_one_source_may_stand_alone_where_several_stood() -> None:
    over = {"path": "other.jsonl", "columns": {"text": "caption"}}
    (source,) = make_run(MIXTURE, {"data": {"sources": over}}).data.sources
    assert (source.path, source.columns) == (over["path"], over["columns"])


def test_whole_numbers_may_be_written_with_their_power_of_ten() -> None:
    given = parse_overrides(["train.steps=1e5", "data.tokens_per_pack=1.5E3", "data.cells_per_pack.image=1e+3"])
    config = make_run(given, {"tokenizer": "1e5", "output": "1e5"})
    assert (config.train.steps, config.data.tokens_per_pack, config.data.cells_per_pack) == (
        100_000, 1500, {"image": 1000},
    )  # fmt: skip
    assert (config.tokenizer.name, config.output) == ("1e5", Path("1e5"))  # text stays text
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cooldown", "train.schedule: {name: wsd, decay_steps: N}"),
        ("decay_steps", "decay_steps, an option of schedule wsd"),
        ("ema", "there is no moving average of the weights as a run goes; kosmos checkpoint average"),
        ("init_std", "built-in parts take no other scale"),
        ("adam_beta1", "betas, an option of optimizer adamw"),
        ("train.precision=fp8", "Multiply in 8 bits within the backbone's blocks"),
        ("train.steps=3", "Optimizer steps."),
    ],
)
def test_a_word_of_another_trainer_has_an_honest_entry(name: str, said: str) -> None:
    assert said in "\n".join(f"{topic.title}\n{topic.about}" for topic in find(name, load_plugins()))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "modalities.video.processor.fps=2",
            "modalities.video.processor.fps: unknown field; did you mean frame_rate_hz?",
        ),
        ("modalities.video.processor.nframes=2", "processor.nframes: unknown field; did you mean num_frames?"),
        ("modalities.video.stream=imgae", "needs both an encoder and a connector; did you mean image?"),
    ],
)
def test_what_was_meant_for_films_is_told(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_parts(make_run({"modalities": ["image", "video"]}, parse_overrides([override])), load_plugins())
    assert said in str(caught.value)


def test_an_option_of_an_encoder_for_other_media_is_not_named() -> None:
    def said(modality: str) -> str:
        over = {"streams": {modality: {"encoder": {"pretrained": True}}}}
        with pytest.raises(ConfigError) as caught:
            check_parts(make_run({"modalities": [modality]}, over), load_plugins())
        return str(caught.value)

    assert said("audio").startswith("streams.audio.encoder.pretrained: unknown field (fields: width, ")
    assert "timm has it (streams.video.encoder.name=timm)" in said("video")


def test_of_an_option_of_another_modalitys_processor_no_field_is_advised_that_does_not_exist() -> None:
    over = parse_overrides(["modalities.video.processor.colour=0.2"])
    with pytest.raises(ConfigError) as caught:
        check_parts(make_run({"modalities": ["video"]}, over), load_plugins())
    known = "colour: unknown field; the processor of modality image has it (fields: "
    assert str(caught.value).startswith(f"modalities.video.processor.{known}")
    assert ".name" not in str(caught.value)
