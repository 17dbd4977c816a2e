"""``kosmos explain``: what a name means, of whatever is installed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kosmos import names
from kosmos.cli import main
from kosmos.components import KINDS, EncoderSpec
from kosmos.config import RunConfig
from kosmos.errors import ConfigError, KosmosError
from kosmos.mistakes import paths_in
from kosmos.plugins import PluginRecord, Registry, load_plugins
from kosmos.reference.figures import COLUMNS, GOODPUT
from kosmos.reference.glossary import WORDS
from kosmos.reference.topics import find, overview
from kosmos.train.goodput import CLASSES
from kosmos.train.run import train_model
from support.runs import rows_of, small_run, ticks_registry


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins()


def told(capsys: pytest.CaptureFixture[str], *name: str) -> str:
    assert main(["explain", *name]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", [path for path, _ in paths_in(RunConfig)])
def test_every_field_of_the_run_file_has_its_meaning(path: str, registry: Registry) -> None:
    (topic,) = find(path, registry)
    takes, meaning = topic.about.split("\n\n", 1)
    assert topic.title == path and takes and len(meaning) > 10


@pytest.mark.parametrize("kind", [kind.kind for kind in KINDS if kind.kind != "command"])
def test_every_component_that_is_installed_has_its_options(kind: str, registry: Registry) -> None:
    for name, spec in registry.specs(kind).items():
        topic = next(topic for topic in find(name, registry) if topic.title.startswith(f"{kind} {name}, of plugin"))
        assert topic.about == spec.summary
        taken = list(inspect.signature(registry.resolve(kind, name)).parameters)[spec.positional :]
        assert [entry.name for entry in topic.entries] == taken


def errors_under(kind: type[KosmosError]) -> Iterator[type[KosmosError]]:
    for one in kind.__subclasses__():
        yield one
        yield from errors_under(one)


def test_every_code_of_errors_has_its_meaning(registry: Registry) -> None:
    for kind in errors_under(KosmosError):
        if kind.__module__ == "kosmos.errors":
            topic = find(kind.code, registry)[0]
            assert topic.title == f"error[{kind.code}]" and topic.about.endswith(f"Exit status {kind.exit_status}.")


def test_a_field_is_told_with_its_type_its_default_and_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "train.clip_norm") == (
        "train.clip_norm\n"
        "  number or null, above 0; by default 1.0\n"
        "  Largest norm of the gradient of all parameters; None does not clip.\n"
    )
    assert told(capsys, "clip_norm") == told(capsys, "train.clip_norm")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("data.sources[0].weight", "Share of the tokens drawn."),
        ("data.sources.N.weight", "Share of the tokens drawn."),
        ("data.sources.weight", "Share of the tokens drawn."),
        ("trainer.max_epochs", "train.epochs"),
        ("ledger", "an option of encoder ticks"),
        ("streams.anything.freeze", "Train none of the encoder's parameters."),
        ("backbone.lora.rank", "Rank of an update"),
        ("backbone.ffn_width", "an option of backbone decoder"),
        ("train.optimizer.betas", "an option of optimizer lion"),
        ("modalities.ticks.processor.lie", "an option of modality ticks"),
        ("streams.ticks.encoder.ledger", "an option of encoder ticks"),
        ("max_grad_norm", "Largest norm of the gradient"),
        ("gradient_accumulation_steps", "data.lanes says what a step takes"),
        ("cosine_with_warmup", "half a cosine"),
        ("sequence_length", "data.tokens_per_pack"),
        ("local_batch_size", "data.lanes rows"),
        ("min_lr_factor", "final: SHARE"),
        ("decay_ratio", "{name: wsd, decay: SHARE}"),
        ("split", "data.held_out"),
        ("moe", "a model of transformers may"),
        ("sliding_window", "the window of its configuration"),
        ("rope_scaling", "scales no positions"),
        ("bpb", "says the bits per byte"),
        ("model_flops_utilization", "mfu, a column of metrics.jsonl"),
        ("input_ids", "tokenizes text itself"),
        ("megatron", "tokenizes text itself"),
        ("mmap", "tokenizes text itself"),
    ],
)
def test_paths_lead_through_lists_names_and_components(path: str, expected: str) -> None:
    registry = ticks_registry()
    text = "\n".join(f"{topic.title}\n{topic.about}" for topic in find(path, registry))
    assert expected in text


def test_a_section_is_told_with_all_in_it_and_where_components_stand_with_their_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = told(capsys, "guard")
    assert all(f"\n  {name}: " in text for name in RunConfig.model_fields["guard"].default.__class__.model_fields)
    assert "optimizers: lion, lion8bit, lion-pytorch, muon, adamw" in told(capsys, "train.optimizer")


def test_a_broken_plugin_leaves_the_options_of_others_alone(registry: Registry) -> None:
    broken = PluginRecord(
        "sound", "", "", "nowhere", (EncoderSpec(name="hearing", target="nowhere:Hearing", summary="None."),)
    )
    bare = Registry([*registry.plugins, broken])
    assert "hearing" in bare.specs("encoder")
    told = [topic.title for topic in find("streams.image.encoder.model", bare)]
    assert told[0] == "model, an option of encoder timm" and len(told) > 2
    assert [topic.title for topic in find("modalities.image.processor.flip", bare)] == [
        "flip, an option of modality image"
    ]


FILES = Path(__file__).resolve().parents[2] / "docs" / "files.md"


def test_all_columns_of_the_metrics_are_told_those_of_a_run_and_those_of_the_docs(
    tmp_path: Path, registry: Registry
) -> None:
    train_model(small_run(tmp_path / "run", train={"steps": 1}), registry=ticks_registry())
    (row,) = rows_of(tmp_path / "run" / "metrics.jsonl")
    assert set(row) <= set(COLUMNS)
    table = FILES.read_text(encoding="utf-8").partition("### metrics.jsonl")[2].partition("### ")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in first for name in re.findall("`(.*?)`", cell)} == set(COLUMNS)
    for name in COLUMNS:
        assert find(name, registry)[-1].title == f"{name}, a column of metrics.jsonl"


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("data wait", ["data_wait_share, a column of metrics.jsonl", "data_wait, a class of goodput"]),
        ("imbalance", ["imbalance_by_stream, a column of metrics.jsonl"]),
        ("MFU", ["mfu, a column of metrics.jsonl"]),
        ("tokens/s", ["tokens_per_s, a column of metrics.jsonl"]),
        ("tokens", ["train.tokens", "tokens, a column of metrics.jsonl"]),
        ("compile", ["train.compile", "compile, a class of goodput"]),
        ("goodput", ["goodput"]),
    ],
)
def test_what_progress_lines_and_reports_say_is_told_beside_fields_of_the_name(
    name: str, titles: list[str], registry: Registry
) -> None:
    assert [topic.title for topic in find(name, registry)] == titles


def test_goodput_is_told_with_all_its_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(GOODPUT) == CLASSES
    text = told(capsys, "goodput")
    assert all(f"\n  {name}: {meaning}" in text for name, meaning in GOODPUT.items())


@pytest.mark.parametrize("name", ["lane", "slots", "Cells", "sample-set", "held_out", "row"])
def test_words_of_the_glossary_are_told(name: str, registry: Registry) -> None:
    title, about = next((t.title, t.about) for t in find(name, registry) if t.title.endswith("a word of the glossary"))
    assert names.plain(title.split(",")[0]).replace(" ", "") in names.plain(name)
    assert about.endswith(".") and ".." not in about


def test_words_mean_what_the_glossary_of_the_docs_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    meant = {line.split("|")[1]: line for line in page.splitlines() if line.startswith("| **")}
    for word, meaning in WORDS.items():
        named = [line for head, line in meant.items() if word in head or (word == "pack" and "**row**" in head)]
        assert any(all(part in line for part in meaning.split(". ")) for line in named), word


def test_without_a_name_all_that_can_be_asked_for_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys)
    registry = load_plugins()
    assert all(f"  {field}: " in text for field in RunConfig.model_fields)
    assert all(name in text for kind in ("encoder", "optimizer", "dataset") for name in registry.specs(kind))
    assert [topic.title for topic in overview(registry)] == [
        "Fields of the run file", "Components", "Codes of errors", "Figures of a run", "Words",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tesnorboard", "did you mean tensorboard?"),
        ("train.stesp", "did you mean train.steps?"),
        ("data.sources.limmit", "kosmos explain lists what can be asked for"),
        ("data_wiat_s", "did you mean data_wait_s?"),
        ("quarantinefull", "did you mean quarantine-full?"),
        ("nothing.at.all", "kosmos explain lists what can be asked for"),
    ],
)
def test_a_name_that_nothing_has_leads_to_the_nearest(name: str, hint: str, registry: Registry) -> None:
    with pytest.raises(ConfigError) as caught:
        find(name, registry)
    assert str(caught.value) == f"{name}: nothing has this name; {hint}"


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("fps", "frame_rate_hz, an option of modality video\n"),
        ("nframes", "num_frames, an option of modality video\n"),
        ("use_audio_in_video", "use_audio_in_video\n  What other trainers call so is here: a row names a film for its"),
    ],
)
def test_what_others_say_of_the_frames_and_the_sound_of_films_is_told(
    capsys: pytest.CaptureFixture[str], name: str, begin: str
) -> None:
    assert told(capsys, name).startswith(begin)
