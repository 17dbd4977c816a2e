"""What is easily mistaken in Python: refused in a line, not taken for something else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from kosmos import (
    ConfigError,
    ConsoleReporter,
    Document,
    Mark,
    Media,
    Text,
    generate_answers,
    generate_text,
    generate_texts,
    load_run,
    open_choices,
    open_held_out,
    open_sources,
    read_run_file,
    resume_run,
    score,
    score_answers,
    score_choices,
    train_model,
)
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


@pytest.mark.parametrize(
    "opened",
    [
        lambda config: open_sources(config, ticks_registry(), "train"),
        lambda config: open_held_out(config, ticks_registry()),
        lambda config: open_choices(config, ticks_registry(), ["a.jsonl"], encode=list),
    ],
)
def test_sources_are_opened_of_a_run_not_of_its_mapping(opened):
    with pytest.raises(ConfigError, match=r"^config: expected a RunConfig, got dict; make_run makes one of a mapping$"):
        opened({"modalities": ["ticks"]})


@pytest.mark.parametrize(
    ("entries", "got"),
    [("a.jsonl", "'a.jsonl'"), (["a.jsonl"], "'a.jsonl'"), ([{"path": "a.jsonl"}], "{'path': 'a.jsonl'}"), (3, "3")],
)
def test_what_stands_in_the_place_of_sources_is_what_a_run_has_there(entries, got):
    says = rf"^entries: expected a list of SourceConfig, got {got}; make_run\({{'data': .*}}\).data.sources is one$"
    with pytest.raises(ConfigError, match=says):
        open_sources(small_run(), ticks_registry(), "train", entries=entries)


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
            "max_new_tokens: expected a whole number from 1 on, got -3",
        ),
        (
            {"document": Document("d", (Text("a"),)), "max_new_tokens": 2.5},
            "max_new_tokens: expected a whole number from 1 on, got 2.5",
        ),
        ({"document": Document("d", (Text("a"),)), "seed": "a"}, "seed: expected a whole number from 0 to .*, got 'a'"),
    ],
)
def test_what_cannot_be_continued_is_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        continued(**given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"documents": "Once upon"}, r"documents\[0\]: expected a Document, such as .*, got 'O'"),
        ({"documents": Document("d", (Text("a"),))}, "documents: expected a list of Document, got Document"),
        ({"documents": 5}, "documents: expected a list of Document, got 5"),
        ({"documents": [], "max_new_tokens": 0}, "max_new_tokens: expected a whole number from 1 on, got 0"),
        ({"documents": [], "seed": range(2)}, r"seed: expected a single one, or one for each document \(0\), got 2$"),
        (
            {"documents": [Document("d", (Text("a"),))] * 2, "seed": [3, -1]},
            r"seed\[1\]: expected a whole number from 0 to \d+, got -1$",
        ),
        (
            {"documents": [Document("d", (Text("a"),))], "seed": [[1]]},
            r"seed\[0\]: expected a whole number from 0 to \d+, got \[1\]$",
        ),
        ({"documents": [], "seed": "12"}, r"seed: expected a whole number from 0 to \d+, got '12'$"),
        ({"documents": [], "seed": {1, 2}}, r"seed: expected a whole number from 0 to \d+, got \{1, 2\}$"),
        ({"documents": [], "top_p": 0.5}, "top_k, top_p: say what is sampled from"),
    ],
)
def test_what_cannot_be_continued_together_is_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        generate_texts(compose(small_run(), ticks_registry()), **given)


def test_what_cannot_be_answered_is_refused_before_anything_is_asked():
    parts = compose(small_run(), ticks_registry())
    held_out = open_sources(small_run(), ticks_registry(), "held_out")
    one = r"^source: expected one Source \(name, __len__ and document\(index\)\), such as open_sources gives a list of"
    with pytest.raises(ConfigError, match=rf"{one}, got 'rows.jsonl'$"):
        generate_answers(parts, "rows.jsonl")
    with pytest.raises(ConfigError, match=rf"{one}, each of them alone, got \["):
        generate_answers(parts, held_out)
    with pytest.raises(ConfigError, match="max_documents: expected a whole number from 1 on, got 0"):
        generate_answers(parts, held_out[0], max_documents=0)
    with pytest.raises(ConfigError, match="temperature: expected a number from 0 on, got -1"):
        generate_answers(parts, held_out[0], temperature=-1)
    with pytest.raises(ConfigError, match="seed: expected a whole number"):
        generate_answers(parts, held_out[0], temperature=1.0, seed="a")
    with pytest.raises(ConfigError, match=r"sources: expected a list of what open_choices gives, got \['a.jsonl'\]"):
        score_choices(parts, ["a.jsonl"])
    with pytest.raises(ConfigError, match="on_text: expected a function that takes a text, got 'x'"):
        continued(Document("d", (Text("a"),)), on_text="x")


@pytest.mark.parametrize("given", ["rows.jsonl", [Document("d", (Text("a"),))], [[Document("d", (Text("a"),))]]])
def test_what_is_no_source_is_not_scored(given):
    with pytest.raises(ConfigError, match=r"sources: expected a list of Sources \(name, .*, got "):
        score(compose(small_run(), ticks_registry()), given, device="cpu")


def test_devices_may_be_named(run):
    saved = load_run(run, device="cpu", registry=ticks_registry())
    held_out = open_sources(saved.composition.config, saved.composition.registry, "held_out")
    named, given = (
        score(saved.composition, held_out, device=device, dtype=torch.bfloat16, max_documents=4)
        for device in ("auto", saved.device)
    )
    assert named == given
    document = Document("d", (Text("a"),))
    assert continued(document, device="auto", dtype=torch.bfloat16, max_new_tokens=2) is not None


def test_no_documents_are_not_scored(run):
    saved = load_run(run, device="cpu", registry=ticks_registry())
    with pytest.raises(ConfigError, match="max_documents: expected a whole number from 1 on, got 0"):
        score(saved.composition, [], device="cpu", max_documents=0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"workers": -1}, "workers: expected a whole number from 0 on, got -1"),
        ({"workers": None}, "workers: expected a whole number from 0 on, got None"),
        ({"max_documents": 2.5}, "max_documents: expected a whole number from 1 on, got 2.5"),
        ({"device": "gpu"}, "device: expected 'auto', 'cpu', 'cuda' or another of PyTorch's, got 'gpu'"),
        ({"device": 1.5}, "device: expected 'auto'"),
    ],
)
def test_scores_want_whole_numbers_and_a_device(given, says):
    with pytest.raises(ConfigError, match=says):
        score(compose(small_run(), ticks_registry()), [], **{"device": "cpu", **given})


def test_the_gpu_is_not_taken_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    says = "^device: cuda is wanted and torch finds none; use cpu or auto$"
    with pytest.raises(ConfigError, match=says):
        continued(Document("d", (Text("a"),)), device="cuda")
    with pytest.raises(ConfigError, match=says):
        score(compose(small_run(), ticks_registry()), [], device="cuda")


@pytest.mark.parametrize("wrong", [5, None, ["run"]])
def test_what_is_no_path_is_no_run(wrong):
    for act in (load_run, resume_run):
        with pytest.raises(ConfigError, match="output: expected the path of a run's folder, such as 'runs/mine', got "):
            act(wrong)
    with pytest.raises(ConfigError, match=r"path: expected the path of a run file, such as 'run\.yaml', got "):
        read_run_file(wrong)


def test_a_saved_run_is_no_composition(run):
    saved = load_run(run, device="cpu", registry=ticks_registry())
    says = "composition: expected a Composition, got SavedRun; give its .composition"
    with pytest.raises(ConfigError, match=says):
        generate_text(saved, Document("d", (Text("a"),)))
    with pytest.raises(ConfigError, match=says):
        score(saved, [], device="cpu")


def test_the_name_of_a_type_is_none():
    with pytest.raises(ConfigError, match=r"dtype: expected one of PyTorch's, such as torch.bfloat16, got 'bf16'"):
        continued(Document("d", (Text("a"),)), dtype="bf16")
    with pytest.raises(ConfigError, match="dtype: expected one of PyTorch's"):
        score(compose(small_run(), ticks_registry()), [], device="cpu", dtype=float)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"reporter": ConsoleReporter}, r"reporter: expected a Reporter, such as ConsoleReporter\(\), got <class"),
        ({"reporter": print}, "reporter: expected a Reporter"),
        ({"registry": {}}, r"registry: expected a Registry, such as load_plugins\(\) gives, got {}"),
        ({"registry": []}, "registry: expected a Registry"),
    ],
)
def test_what_is_neither_reporter_nor_registry_leaves_no_folder_behind(given, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        train_model(small_run(tmp_path / "run"), **{"registry": ticks_registry(), **given})
    assert not (tmp_path / "run").exists()
    if "registry" in given:
        with pytest.raises(ConfigError, match=says):
            load_run(tmp_path / "run", **given)


@pytest.mark.parametrize("source", [None, [[1, 2]], torch.zeros(2, 2), 3, Image.new("RGB", (2, 2))])
def test_media_are_bytes_arrays_or_files(source):
    with pytest.raises(
        ConfigError, match=r"^Media: the source is a \w+; expected a Path, the bytes of an encoded file or an array "
    ):
        Media("ticks", source)


@pytest.mark.parametrize("rate_hz", ["16000", True, [16000], np.array([16000]), np.str_("16000"), 1j])
def test_a_rate_is_a_number(rate_hz):
    with pytest.raises(ConfigError, match=r"^Media: rate_hz is .*; expected a number of samples or frames a second$"):
        Media("ticks", np.zeros(4), rate_hz=rate_hz)


def test_the_name_of_a_file_is_no_path():
    with pytest.raises(ConfigError, match=r"^Media: the source is a string; write a file as Path\('a.png'\)$"):
        Media("ticks", "a.png")
    with pytest.raises(TypeError):  # which it was, and is
        Media("ticks", "a.png")


class OfNames:
    """A source one of whose documents is made of the name of a file."""

    name = "names"

    def __len__(self):
        return 2

    def document(self, index):
        part = Media("ticks", "a.png") if index else Text("b", train=True)
        return Document(f"names {index}", (Text("a"), part))


def test_a_document_of_what_is_no_part_of_one_costs_itself_alone():
    found = score(compose(small_run(), ticks_registry()), [OfNames()], device="cpu", workers=0)
    assert (found.overall.documents, [i.origin for i in found.incidents]) == (1, ["names: row 1"])
    assert "OfNames.document raised NoSuchPart: Media: the source is a string" in found.incidents[0].cause


@pytest.mark.parametrize("segments", [Text("a"), "a", Media("ticks", b"")])
def test_one_segment_is_no_tuple_of_segments(segments):
    with pytest.raises(ConfigError, match=r"the segments of a Document are one .*; write \(segment,\)"):
        Document("d", segments)


@pytest.mark.parametrize(
    ("segment", "says"), [("a dog", r"'a dog'; write Text\('a dog'\)"), (3, "3; write Text, Mark, Media or Codes")]
)
def test_what_is_no_segment_is_none(segment, says):
    with pytest.raises(ConfigError, match=f"the segments of a Document hold {says}"):
        Document("d", (Text("a"), segment))


def test_settings_of_a_run_are_not_set():
    run = small_run()
    with pytest.raises(ConfigError, match=r"^steps: settings of a run stay as they are; .* make_run\(run, \{"):
        run.train.steps = 50


@pytest.mark.parametrize("train", ["false", 1, None, [], torch.tensor(True), Text])
@pytest.mark.parametrize("kind", [Text, Mark])
def test_whether_a_text_is_learned_is_true_or_false(kind, train):
    with pytest.raises(ConfigError, match=rf"^{kind.__name__}: train is .*; expected True or False$"):
        Document("d", (Text("a"), kind("<|end|>", train=train)))


def test_whether_a_text_is_learned_may_be_a_bool_of_numpy():
    planner = compose(small_run(), ticks_registry()).planner
    learned = [
        planner.plan(Document("d", (Text("ab"), Text("c", train=kind(True)), Text("d", train=kind(False)))))[0].train
        for kind in (bool, np.bool_)
    ]
    assert learned[0].sum() == 1
    assert np.array_equal(*learned)


@pytest.mark.parametrize("paths", ["/bench/copa.jsonl", Path("/bench/copa.jsonl"), None, 3, {"a": 1}, [3], b"/bench"])
def test_a_path_is_no_list_of_paths(paths):
    with pytest.raises(ConfigError, match=r"^paths: expected a list of paths, got .{1,40}$"):
        open_choices(small_run(), ticks_registry(), paths, encode=list)


def test_questions_may_be_named_by_paths(tmp_path):
    (tmp_path / "asked.jsonl").write_text('{"query": "It is", "choices": ["a", "b"], "gold": 0}\n')
    (source,) = open_choices(small_run(), ticks_registry(), (tmp_path / "asked.jsonl",), encode=list)
    assert (source.name, len(source)) == ("asked", 2)


@pytest.mark.parametrize(
    ("answers", "metrics", "says"),
    [
        ([], ["bleu"], r"metrics: expected a mapping of names to functions, such as {\"bleu\": .*, got \['bleu'\]"),
        ([], "bleu", "metrics: expected a mapping of names to functions, such as .*, got 'bleu'"),
        ([], {"bleu": "bleu"}, "metrics: expected a mapping of names to functions"),
        (["a"], {}, r"answers: expected a list of Generated, as list\(generate_answers.*, got \['a'\]"),
        ("a", {}, "answers: expected a list of Generated"),
        (iter([]), {}, "answers: expected a list of Generated"),
        (None, {}, "answers: expected a list of Generated"),
    ],
)
def test_answers_and_metrics_are_what_they_are_said_to_be(answers, metrics, says):
    with pytest.raises(ConfigError, match=says):
        score_answers(answers, metrics)


@pytest.mark.parametrize("step", ["bst", "1", 1.0, True, -1, [1]])
def test_what_is_no_step_is_not_said_to_have_no_checkpoint(run, step):
    with pytest.raises(ConfigError, match=r"^step: expected the number of a step, or 'best', got "):
        load_run(run, step=step, registry=ticks_registry())


def test_steps_may_be_numbers_of_numpy_and_torch(run):
    for step in (1, np.int64(1), torch.tensor(1)):
        found = load_run(run, step=step, device="cpu", registry=ticks_registry()).step
        assert (found, type(found)) == (1, int)
