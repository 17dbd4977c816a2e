from __future__ import annotations

import re
import shlex

import pytest
import yaml

from kosmos.config import RunConfig
from kosmos.elsewhere import ELSEWHERE
from kosmos.errors import ConfigError
from kosmos.run_file import (
    dump_run,
    lay_over,
    make_run,
    merge,
    parse_overrides,
    read_run_file,
    with_absolute_sources,
)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"trian": {}}, r"run: trian: unknown field; did you mean train\?"),
        ({"train": {"stpes": 3}}, r"run: train.stpes: unknown field; did you mean steps\?"),
        ({"streams": {"image": {"encodr": "timm"}}}, r"streams.image.encodr: unknown field; did you mean encoder\?"),
        ({"data": {"sources": [{"pth": "x"}]}}, r"data.sources.0.*pth: unknown field; did you mean path\?"),
        ({"learning_rate": 1}, r"learning_rate: unknown field; did you mean train.learning_rate or backbone.learn"),
        ({"train": {"lanes": 2}}, r"train.lanes: unknown field; did you mean data.lanes\?"),
        ({"max_seq_length": 2}, r"max_seq_length: unknown field; did you mean data.tokens_per_pack\?"),
        ({"streams": {"image": {"lr": 1}}}, r"streams.image.lr: unknown field; did you mean learning_rate\?"),
        ({"batch_size": 2}, r"batch_size: unknown field; a step takes data.lanes rows of data.tokens_per_pack tokens$"),
        ({"train.steps": 2}, r"train.steps: unknown field; fields are nested here: train: {steps: ...}$"),
        ({"streams.a.freeze": True}, r"unknown field; fields are nested here: streams: {a: {freeze: ...}}$"),
        ({"freeze_llm": True}, r"freeze_llm: unknown field; did you mean backbone.freeze\?"),
        ({"zzz": 2}, r"zzz: unknown field; fields here: modalities, data, "),
        ({"train": {"steps": "many"}}, r"train.steps: .*valid integer.*got 'many'"),
        ({"train": {"steps": 0}}, r"train.steps: .*greater than or equal to 1, got 0"),
        ({"train": {"precision": "fp8"}}, r"train.precision: .*'auto', 'fp32' or 'bf16', got 'fp8'"),
        ({"data": {"sources": [{}]}}, r"data.sources.0.path: field required"),
        (
            {"data": {"sources": [{"path": "x", "weight": 0}]}},
            r"data.sources.0.weight: expected above 0: what is not .* left out, or scored by evaluate.sources, got 0",
        ),
        ({"train": {"steps": True}}, r"train.steps: .*valid integer, got True"),
        ({"data": {"workers": True}}, r"data.workers: .*valid integer, got True"),
        ({"data": {"cells_per_pack": {"image": True}}}, r"data.cells_per_pack: .*valid integer, got {'image': True}"),
        ({"train": {"clip_norm": True}}, r"train.clip_norm: .*valid number, got True"),
        ({"backbone": {"learning_rate": True}}, r"backbone.learning_rate: .*valid number, got True"),
        ({"train": {"learning_rate": float("inf")}}, r"train.learning_rate: .*finite number, got inf"),
        ({"train": {"weight_decay": float("nan")}}, r"train.weight_decay: .*finite number, got nan"),
        ({"backbone": {"learning_rate": float("inf")}}, r"backbone.learning_rate: .*finite number, got inf"),
    ],
)
def test_a_wrong_field_is_one_line_with_path_and_remedy(values, line):
    with pytest.raises(ConfigError, match=line) as error:
        make_run(values)
    assert "\n" not in error.value.line()
    assert error.value.exit_status == 2


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"train": {"gradient_checkpointing": "selectiv"}},
            r"train.gradient_checkpointing: .* or .*'selective', got 'sel",
        ),
        ({"train": {"compile": "Yess"}}, r"train.compile: input should be a valid boolean.* or .*'auto', got 'Yess'$"),
        ({"data": 3}, r"data: expected fields, such as sources, tokens_per_pack, .*, got 3$"),
        (
            {"data": "photos"},
            r"^run: data: expected fields; name what to train on as data: \{sources: \[photos\]\}, got 'photos'$",
        ),
        ({"data": ["my photos", "*.txt"]}, r"as data: \{sources: \[my photos, '\*\.txt'\]\}, got \["),
        ({"data": [{"path": "photos"}]}, r"as data: \{sources: \[PATH\]\}, got \["),
        (
            {"checkpoint": 100},
            r"checkpoint: expected fields, such as every_steps, keep_last, keep_every, keep_best, got 100$",
        ),
        ({"data": {"cells_per_pack": {"image": "x"}}}, r"data.cells_per_pack.image: .*, got 'x'$"),
        (
            {"modalities": {"image": {"encoder": "timm"}}},
            r"modalities.image.encoder: .*; did you mean streams.NAME.encoder\?",
        ),
    ],
)
def test_a_wrong_type_is_told_in_the_words_of_the_run_file(values, line):
    with pytest.raises(ConfigError, match=line):
        make_run(values)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("wandb", ["wandb"]),
        ("none", []),
        (["none"], []),
        (None, []),
        ({"name": "wandb", "project": "x"}, ["wandb"]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_one_of_a_list_may_stand_alone(given, names):
    assert [tracker.name for tracker in make_run({"trackers": given}).trackers] == names
    sources = make_run({"data": {"sources": "photos"}}).data.sources
    assert [source.path for source in sources] == ["photos"]


def test_paths_may_begin_at_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    run = make_run(
        {"output": "~/run", "init": "~/first", "data": {"sources": ["~/a", {"path": "~/b"}]}, "tokenizer": "~/t"}
    )
    begun = str(run.init.path)
    assert (str(run.output), begun, run.tokenizer.name) == ("/home/me/run", "/home/me/first", "/home/me/t")
    assert [source.path for source in run.data.sources] == ["/home/me/a", "/home/me/b"]


def test_a_run_file_says_nothing_only_where_it_means_to(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("{}\n")
    assert read_run_file(file) == {}
    for empty in ("", "# nothing yet\n", "---\n", "\ufeff"):
        file.write_text(empty, encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"{file}: says nothing; write fields in it, .* or leave the file out$"):
            read_run_file(file)


def test_what_was_read_of_a_run_file_is_the_reader_s_own(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("data: {sources: [a]}\n")
    first = read_run_file(file)
    first["data"]["sources"].append("b")
    assert read_run_file(file) == {"data": {"sources": ["a"]}}


def test_a_run_file_that_is_not_there_leads_to_the_one_beside_it(tmp_path):
    (tmp_path / "run.yaml").write_text("modalities: []\n")
    with pytest.raises(ConfigError, match=rf"No such file or directory\); did you mean {tmp_path}/run.yaml\?$"):
        read_run_file(tmp_path / "run.yml")


def test_data_in_the_place_of_a_run_file_are_a_folder(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    with pytest.raises(ConfigError, match=rf"{photos}: cannot read the run file .*; name data with --data {photos}"):
        read_run_file(photos)


def test_the_folder_of_a_run_is_no_run_file(tmp_path):
    (tmp_path / "run.yaml").write_text("train: {steps: 3}\n")
    with pytest.raises(ConfigError, match=rf"name {tmp_path}/run.yaml in it$"):
        read_run_file(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("rows.jsonl", '{"text": "a"}\n{"text": "b"}\n'), ("rows.json", '[{"text": "a"}]'), ("rows.csv", "text\na\n")],
)
def test_data_that_stand_in_the_place_of_a_run_file_are_told_apart(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=rf"; name data with --data {tmp_path / name}$"):
        read_run_file(tmp_path / name)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ConfigError) as error:
        make_run({"data": {"sources": [{"pth": "x"}], "lanez": 2}, "train": {"steps": 0, "precision": "fp8"}, "lr": 1})
    said = str(error.value).removeprefix("run: ").split("; ")
    assert [part.split(":")[0] for part in said if ": " in part] == [
        "data.sources.0.pth", "data.lanez", "lr", "train.steps",
    ]  # fmt: skip
    assert said[-1].endswith("(and 1 more)")


@pytest.mark.parametrize("name", ["epochs", "repeat", "passes"])
def test_how_often_a_source_comes_beside_others_leads_to_names_and_weights(name):
    line = (
        f"data.sources.0.{name}: unknown field; for N passes over a source .* name it N times .* weigh each source by"
    )
    with pytest.raises(ConfigError, match=line):
        make_run({"data": {"sources": [{"path": "x", name: 3}]}})


def test_what_others_call_a_field_leads_to_one_that_is_there():
    adamw = {"name": "adamw", "betas": [0.9, 0.95], "eps": 1e-8}
    run = make_run({"backbone": {"lora": 1}, "train": {"optimizer": adamw}, "evaluate": {"generate": 1}}).model_dump()
    for said in ELSEWHERE:
        for path in re.findall(r"(?:[a-z_]+\.)+[a-z_0-9]+", said):
            if path == "metrics.jsonl":
                continue
            value = run
            for part in path.split("."):
                assert part in value, path
                value = value[part]


@pytest.mark.parametrize("given", ["tensorboard,wandb", "tensorboard, wandb", ["tensorboard", "wandb"]])
def test_components_may_be_named_with_commas_as_modalities_are(given):
    assert [tracker.name for tracker in make_run({"trackers": given}).trackers] == ["tensorboard", "wandb"]


def test_fields_that_do_not_go_together_are_said_in_our_words():
    with pytest.raises(
        ConfigError, match=r"^run: evaluate: patience counts scorings during training: set evaluate\.every_steps too$"
    ):
        make_run({"evaluate": {"patience": 2}})


def test_overrides_reach_any_field_and_read_their_values_as_yaml():
    values = parse_overrides(["train.learning_rate=3e-4", "streams.image.encoder.model=vit", "data.sources=[a, b]"])
    run = make_run(merge({"streams": {"image": {"encoder": "timm"}}}, values))
    assert run.train.learning_rate == 3e-4
    assert run.streams["image"].encoder.options == {"model": "vit"}
    assert [s.path for s in run.data.sources] == ["a", "b"]


def test_an_empty_mapping_on_the_command_line_empties_what_was_there():
    base = {
        "modalities": {"image": {"processor": {"flip": 0.5, "crop": 0.5}}, "audio": {"stream": "a"}},
        "data": {"cells_per_pack": {"image": 64}},
    }
    run = make_run(base, parse_overrides(["modalities.image.processor={}", "data.cells_per_pack={}"]))
    assert run.modalities["image"].processor == {} and run.modalities["audio"].stream == "a"
    assert run.data.cells_per_pack == {}
    one = parse_overrides(["modalities.image.processor.flip=0.1", "modalities.image.processor={}"])
    assert make_run(base, one).modalities["image"].processor == {"flip": 0.1}
    assert make_run(base, {"data": {}}).data.cells_per_pack == {"image": 64}  # a layer that says nothing of it


def test_an_item_of_a_list_is_set_by_its_number():
    base = {"data": {"sources": ["a", {"path": "b", "weight": 1.0, "name": "x"}]}, "trackers": ["tensorboard"]}
    over = parse_overrides(["data.sources.0.weight=3", "data.sources.1.weight=2", "trackers.0.flush_s=9"])
    run = make_run(base, over)
    assert [(s.path, s.weight, s.name) for s in run.data.sources] == [("a", 3.0, None), ("b", 2.0, "x")]
    assert run.trackers[0].name == "tensorboard" and run.trackers[0].options == {"flush_s": 9}
    assert make_run(base, {"data": {"sources": {"1": "c"}}}).data.sources[1].path == "c"
    for pairs in (["data.sources=[a, b]", "data.sources.0.name=x"], ["data.sources.0.name=x", "data.sources=[a, b]"]):
        assert [s.name for s in make_run(parse_overrides(pairs)).data.sources] == ["x", None]
    with pytest.raises(
        ConfigError, match=r"data\.sources\.0: there are none; to add one, give data\.sources as a whole list"
    ):
        make_run(parse_overrides(["data.sources.0.path=d"]))
    with pytest.raises(
        ConfigError,
        match=r"data\.sources\.2: the last of 2 is data\.sources\.1; to add one, give data\.sources as a whole list",
    ):
        make_run(base, parse_overrides(["data.sources.2.weight=1"]))


def test_true_and_false_stay_where_a_field_takes_them():
    run = make_run({"backbone": {"freeze": True}, "train": {"compile": False, "gradient_checkpointing": "selective"}})
    assert (run.backbone.freeze, run.train.compile, run.train.gradient_checkpointing) == (True, False, "selective")


def test_an_override_without_a_value_is_one_line():
    with pytest.raises(ConfigError, match=r"override 'train.steps': expected FIELD=VALUE"):
        parse_overrides(["train.steps"])


def test_another_component_does_not_inherit_the_options_of_the_one_it_replaces():
    base = {"train": {"optimizer": {"name": "lion", "betas": [0.95, 0.98]}}}
    assert make_run(base, {"train": {"optimizer": {"name": "adamw"}}}).train.optimizer.options == {}
    assert make_run(base, {"train": {"optimizer": {"weight": 1}}}).train.optimizer.options["betas"] == [0.95, 0.98]


def test_modalities_listed_on_a_command_line_are_all_and_what_is_set_of_them_stays():
    base = {"modalities": {"image": {"processor": {"max_cells": 4}}, "audio": {}}}
    over = parse_overrides(["modalities=[image]", "modalities.image.processor.resize=pad"])
    run = make_run(base, over)
    assert {n: m.processor for n, m in run.modalities.items()} == {"image": {"max_cells": 4, "resize": "pad"}}
    assert list(make_run(base, parse_overrides(["modalities.image.stream=s"])).modalities) == ["image", "audio"]


def test_an_error_names_the_file_or_what_was_laid_over_it():
    typo, number = {"train": {"stesp": 1}}, {"train": {"steps": "x"}}
    for layers, blamed in (
        (({}, typo), "command line"),
        ((typo, {}), "run.yaml"),
        ((typo, {"seed": 1}), "run.yaml and command line"),
        ((number, {"train": {"steps": 5, "lr": 1}}), "run.yaml and command line"),
    ):
        with pytest.raises(ConfigError, match=rf"^{blamed}: "):
            lay_over(layers[:1], layers[1:], where="run.yaml", over="command line")


def test_modalities_are_a_list_a_string_or_a_mapping_and_text_adds_nothing():
    for given in (["image", "text", "audio"], "image,text, audio", {"image": None, "audio": {}, "text": {}}):
        assert list(make_run({"modalities": given}).modalities) == ["image", "audio"]


def test_a_dumped_run_makes_the_same_run_again():
    run = make_run({"modalities": ["a"], "backbone": {"preset": "small", "freeze": True}, "trackers": ["wandb"]})
    assert RunConfig.model_validate(yaml.safe_load(dump_run(run))) == run


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a: [1", r"run.yaml:\d+: not YAML"),
        ("- 1", r"expected fields, such as 'modalities: \[image\]', got a list"),
        ("train:\n\tsteps: 3", ":2: not YAML \\(a tab; indent by spaces\\)"),
        (
            "train:\n  steps: 3\n# far below\ntrain: {learning_rate: 1e-4}\n",
            "run.yaml:4: train: stands here and in line 1; write it once, with all that belongs to it",
        ),
        ("train: {steps: 3, 'steps': 4}\n", "run.yaml:1: steps: stands here and in line 1"),
        (None, "cannot read the run file"),
        ("a:\n  - &b [x, *b]", r"run.yaml:2: an alias \(\*NAME\) stands within what it stands for"),
        ("a: " + "[" * 5000, "run.yaml:1: lists and mappings within each other, over 64 deep"),
        ("a:\n  b: " + "9" * 5000, r"run.yaml:2: '9{40}...' looks like a YAML int and is none; text needs quotes"),
        ("a: 0x" + "f" * 5000, "run.yaml:1: a number of over 4096 bits"),
        ("a: 2024-13-45", "run.yaml:1: '2024-13-45' looks like a YAML timestamp and is none"),
    ],
    ids=lambda value: (value or "")[:30],
)
def test_an_unusable_run_file_is_one_line(tmp_path, content, line):
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=line):
        read_run_file(path)


@pytest.mark.parametrize("again", ["[{}]", "{{<<: [{}]}}"])
def test_few_aliases_that_stand_for_very_much_are_refused_wherever_yaml_is_read(tmp_path, again):
    lines = ["{b0: &b0 {k: 1}"] + [f"b{n}: &b{n} " + again.format(",".join([f"*b{n - 1}"] * 9)) for n in range(1, 10)]
    text = ", ".join(lines) + "}"
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"run.yaml: its aliases \(\*NAME\) stand for over 100,000 values"):
        read_run_file(tmp_path / "run.yaml")
    with pytest.raises(ConfigError, match=r"override data.sources: its aliases"):
        parse_overrides([f"data.sources={text}"])


def test_what_is_merged_is_not_said_twice(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("a: &a {steps: 1, seed: 1}\nb: {c: &c {<<: *a, steps: 2}}\nd: {<<: *c, steps: 3}\ne: *c\n")
    read = read_run_file(path)
    assert read["d"] == {"steps": 3, "seed": 1}
    assert read["b"]["c"] == read["e"] == {"steps": 2, "seed": 1}


@pytest.mark.parametrize("text", ["[image] → {text}", "[image:photo] it's: → {text}", "{question}: {answer}"])
def test_an_override_that_needs_quotes_shows_them(text):
    with pytest.raises(ConfigError, match=r"is not YAML; as text it needs quotes beside the shell's: ") as caught:
        parse_overrides([f"data.sources.0.template={text}"])
    (typed,) = shlex.split(str(caught.value).partition("the shell's: ")[2])
    assert parse_overrides([typed]) == {"data": {"sources": {"0": {"template": text}}}}


def test_an_override_that_says_a_key_twice_is_one_line():
    with pytest.raises(ConfigError, match=r"override train: steps stands twice in '\{steps: 1, steps: 2\}'"):
        parse_overrides(["train={steps: 1, steps: 2}"])


def test_every_field_says_what_it_means():
    def undocumented(model, path=""):
        for name, field in model.model_fields.items():
            if not field.description and not hasattr(field.annotation, "model_fields"):
                yield path + name
            if hasattr(field.annotation, "model_fields"):
                yield from undocumented(field.annotation, f"{path}{name}.")

    assert list(undocumented(RunConfig)) == []


def test_data_keep_their_links_and_registered_names_as_their_paths_become_absolute(tmp_path, monkeypatch):
    (tmp_path / "blob").write_text("")
    (tmp_path / "train.jsonl").symlink_to("blob")
    (tmp_path / "shapes").mkdir()
    monkeypatch.chdir(tmp_path)
    sources = ["train.jsonl", "shapes", "nowhere", {"path": "./shapes"}]
    found = with_absolute_sources(make_run({"modalities": ["text"], "data": {"sources": sources}}), {"shapes": None})
    absolute = [str(tmp_path / "train.jsonl"), "shapes", "nowhere", str(tmp_path / "shapes")]
    assert [entry.path for entry in found.data.sources] == absolute


def test_weights_and_media_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("media", "model", "vit.safetensors"):
        (tmp_path / name).mkdir()
    settings = {
        "modalities": ["image"],
        "data": {"sources": [{"path": "rows.jsonl", "root": "media"}]},
        "backbone": {"name": "hf", "model": "model", "dtype": "bfloat16"},
        "streams": {"image": {"encoder": {"name": "timm", "weights": "vit.safetensors"}, "connector": "mlp"}},
    }
    found = with_absolute_sources(make_run(settings), {})
    assert found.data.sources[0].root == tmp_path / "media"
    assert found.backbone.options == {"model": str(tmp_path / "model"), "dtype": "bfloat16"}
    assert found.streams["image"].encoder.options == {"weights": str(tmp_path / "vit.safetensors")}
    settings["backbone"]["model"] = "org/of-the-hub"
    assert with_absolute_sources(make_run(settings), {}).backbone.options["model"] == "org/of-the-hub"


@pytest.mark.parametrize(("path", "value"), [("data.held_out", 1.0), ("train.clip_norm", 0), ("train.clip_norm", -1.0)])
def test_limits_of_numbers_hold(path, value):
    part, name = path.split(".")
    with pytest.raises(ConfigError, match=path):
        make_run({part: {name: value}})


def test_a_run_file_may_be_named_by_a_str_and_is_not_taken_for_its_fields(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("modalities: [image]")
    assert read_run_file(str(file)) == read_run_file(file)
    with pytest.raises(
        ConfigError, match=r"run: expected a mapping of fields, got 'a.yaml'; read_run_file reads a file"
    ):
        make_run("a.yaml")


@pytest.mark.parametrize(
    ("given", "plugins"),
    [
        ("vision", ["vision"]),
        ("vision, audio", ["vision", "audio"]),
        (["vision"], ["vision"]),
        ("none", []),
        (None, None),
    ],
)
def test_plugins_may_be_written_as_other_lists_are(given: object, plugins: list[str] | None) -> None:
    assert make_run({"plugins": given}).plugins == plugins


def test_an_item_may_be_set_of_a_list_that_a_name_alone_stands_for() -> None:
    given = parse_overrides(["evaluate.sources=a,b.jsonl", "evaluate.sources.0.name=val", "data.sources=c"])
    run = make_run(
        given, parse_overrides(["data.sources.0.weight=2", "trackers=tensorboard,wandb", "trackers.1.project=x"])
    )
    assert [(s.path, s.name) for s in run.evaluate.sources] == [("a,b.jsonl", "val")]
    assert [(s.path, s.weight) for s in run.data.sources] == [("c", 2)]
    assert [tracker.options for tracker in run.trackers] == [{}, {"project": "x"}]
