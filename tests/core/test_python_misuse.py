"""What is easily mistaken in Python: refused in a line, not taken for something else."""

from __future__ import annotations

import pytest
import torch

from kosmos import ConfigError, Document, Text, generate_text, load_run, open_sources, resume_run, score, train_model
from kosmos.compose import compose
from support.runs import small_run, ticks_registry


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = small_run(tmp_path_factory.mktemp("misuse") / "run", train={"steps": 1, "warmup_steps": 0})
    return train_model(config, registry=ticks_registry()).output


def continued(document, **given):
    return generate_text(compose(small_run(), ticks_registry()), document, **given)


def test_a_split_that_is_called_otherwise_is_not_the_one_that_is_trained_on():
    with pytest.raises(ConfigError, match="split: expected 'train' or 'held_out', got 'validation'"):
        open_sources(small_run(), ticks_registry(), "validation")


def test_a_mapping_is_no_run_before_make_run_made_one_of_it():
    with pytest.raises(ConfigError, match="config: expected a RunConfig, got dict; make_run makes one of a mapping"):
        train_model({"modalities": ["ticks"]})


def test_overrides_of_the_command_line_are_none_of_python(run):
    with pytest.raises(ConfigError, match=r"overrides: expected a mapping, such as .*, got 'train.steps=3'"):
        resume_run(run, "train.steps=3", registry=ticks_registry())


def test_a_device_of_another_name_is_not_the_one_that_is_there(run):
    with pytest.raises(ConfigError, match="device: expected 'auto', 'cpu' or 'cuda', got 'cuda:1'"):
        load_run(run, device="cuda:1", registry=ticks_registry())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"document": "Once upon"}, r"document: expected a Document, such as .*, got 'Once upon'"),
        (
            {"document": Document("d", (Text("a"),)), "max_new_tokens": -3},
            "max_new_tokens: expected a number from 1 on, got -3",
        ),
    ],
)
def test_what_cannot_be_continued_is_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        continued(**given)


@pytest.mark.parametrize("given", ["rows.jsonl", [Document("d", (Text("a"),))], [[Document("d", (Text("a"),))]]])
def test_what_is_no_source_is_not_scored(given):
    with pytest.raises(ConfigError, match=r"sources: expected a list of Sources \(name, .*, got "):
        score(compose(small_run(), ticks_registry()), given, device="cpu")


def test_devices_may_be_named(run):
    saved = load_run(run, device="cpu", registry=ticks_registry())
    held_out = open_sources(saved.composition.config, saved.composition.registry, "held_out")
    named, given = (
        score(saved.composition, held_out, device=device, dtype=torch.bfloat16, max_documents=4)
        for device in ("cpu", saved.device)
    )
    assert named == given
    document = Document("d", (Text("a"),))
    assert continued(document, device="cpu", dtype=torch.bfloat16, max_new_tokens=2) is not None


def test_no_documents_are_not_scored(run):
    saved = load_run(run, device="cpu", registry=ticks_registry())
    with pytest.raises(ConfigError, match="max_documents: expected a number from 1 on, got 0"):
        score(saved.composition, [], device="cpu", max_documents=0)
