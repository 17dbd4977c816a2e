"""Values that a program has at hand: taken for what a run file would hold, or refused where they are given."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pandas
import pytest
import torch

from kosmos import ConfigError, Documents, make_run
from kosmos.run_file import dump_run, read_run_file


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"backbone": {"width": np.int64(64)}}, {"backbone": {"width": 64}}),
        ({"backbone": {"rope_base": np.float32(0.5)}}, {"backbone": {"rope_base": 0.5}}),
        ({"train": {"learning_rate": torch.tensor(0.25)}}, {"train": {"learning_rate": 0.25}}),
        ({"modalities": ("image", "audio")}, {"modalities": ["image", "audio"]}),
        ({"data": {"sources": (Path("a.jsonl"),)}}, {"data": {"sources": ["a.jsonl"]}}),
        ({"data": {"sources": [{"path": Path("a.jsonl")}]}}, {"data": {"sources": ["a.jsonl"]}}),
        ({"tokenizer": {"name": Path("own")}}, {"tokenizer": {"name": "own"}}),
        (
            {"modalities": ["x"], "streams": {"x": {"encoder": {"weights": Path("w"), "size": (np.int32(8), 8)}}}},
            {"modalities": ["x"], "streams": {"x": {"encoder": {"weights": "w", "size": [8, 8]}}}},
        ),
    ],
)
def test_values_of_python_are_those_that_a_run_file_holds(given, written, tmp_path):
    run = make_run(given)
    assert run == make_run(written)
    (tmp_path / "run.yaml").write_text(dump_run(run), encoding="utf-8")
    assert make_run(read_run_file(tmp_path / "run.yaml")) == run


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"backbone": {"width": np.zeros(3)}}, "run: backbone: width: expected text, numbers, true"),
        ({"backbone": {"of": {"a": [1, object()]}}}, "run: backbone: of.a.1: expected text, numbers, true"),
        ({"train": {"optimizer": {"name": "lion", "betas": {0.9}}}}, "run: train.optimizer: betas: expected text"),
        ({"backbone": {"rope_base": float("inf")}}, "run: backbone: rope_base: expected a finite number, got inf"),
        (
            {"backbone": {"of": {"a": [1, np.float64("nan")]}}},
            "run: backbone: of.a.1: expected a finite number, got nan",
        ),
        ({"backbone": {"of": {np.int64(1): 2}}}, "run: backbone: of.1: expected text, numbers, true"),
        ({"backbone": {"width": torch.tensor(1, device="meta")}}, "run: backbone: width: expected text, numbers, true"),
        (
            {"modalities": {"x": {"processor": {"size": np.zeros(2)}}}},
            "run: modalities.x.processor: size: expected text, numbers, true",
        ),
        (
            {"data": {"sources": [{"path": "x", "options": {"a": {0.9}}}]}},
            "run: data.sources.0.options: a: expected text",
        ),
        ({"train": {"steps": np.True_}}, "run: train.steps: input should be a valid integer, got True"),
        ({"train": {"device": torch.device("cpu")}}, "run: train.device: input should be 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_what_a_run_file_cannot_hold_is_refused_by_its_place(given, says):
    with pytest.raises(ConfigError, match=says):
        make_run(given)


@pytest.mark.parametrize("part", ["data", "evaluate"])
@pytest.mark.parametrize("shape", [lambda rows: rows, lambda rows: [rows], lambda rows: [{"path": rows}]])
def test_rows_in_memory_are_no_sources_and_what_to_do_is_said(part, shape):
    tables = [
        (datasets.Dataset.from_dict({"text": ["a"]}), "save_to_disk"),
        (pandas.DataFrame({"t": [1]}), "to_parquet"),
    ]
    tables.append((datasets.DatasetDict(train=tables[0][0]), "save_to_disk"))
    for rows, way in tables:
        says = rf"^run: {part}.sources: expected paths or names .* in memory \(\w+\); save them with {way} and name"
        with pytest.raises(ConfigError, match=says) as caught:
            make_run({part: {"sources": shape(rows)}})
        assert "\n" not in str(caught.value)


class Saved:
    """As tokenizers and models of transformers."""

    def save_pretrained(self, folder): ...


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tokenizer": Saved()}, r"run: tokenizer: expected fields, .*; a run names files: save it \(save_pretrained"),
        ({"tokenizer": {"name": Saved()}}, r"run: tokenizer\.name: .*; a run names files: save it \(save_pretrained"),
        (
            {"backbone": {"name": "hf", "model": Saved()}},
            r"run: backbone: model: expected text, .*; a run names files: save it \(save_pretrained",
        ),
        (
            {"train": {"optimizer": torch.optim.AdamW}},
            r"run: train\.optimizer: .*; a run names its parts: register it b",
        ),
        ({"backbone": torch.nn.Linear(2, 2)}, r"run: backbone: .*; a run names its parts: register it by a plugin, "),
        (
            {"evaluate": {"metrics": [len]}},
            r"run: evaluate\.metrics\.0: .* script or notebook can be itself \(load_plu",
        ),
        (
            {"data": {"sources": [Documents("a", [])]}},
            r"run: data\.sources\.0: .*; give it to train_model\(config, sour",
        ),
    ],
)
def test_an_object_in_place_of_a_name_is_told_how_it_gets_one(given, says):
    with pytest.raises(ConfigError, match=says):
        make_run(given)


LAYERS = [
    {"modalities": ["image"], "train": {"steps": 30}},
    {"tokenizer": "bytes", "data": {"sources": ["a.jsonl", {"path": "b.csv", "held_out": {"fold": 4}}]}},
    {
        "modalities": {"x": {"stream": "y"}},
        "streams": {"y": {"encoder": "own", "connector": {"name": "mlp", "depth": 2}}},
    },
    {"train": {"epochs": 2.5, "optimizer": {"name": "lion", "betas": (0.9, 0.95)}}, "output": Path("runs/mine")},
    {
        "evaluate": {"generate": {"documents": 8}, "metrics": "bleu"},
        "init": "runs/first",
        "backbone": {"lora": {}},
    },
]


@pytest.mark.parametrize("layer", [*LAYERS, {}])
def test_a_run_is_a_layer_of_what_it_states(layer):
    run = make_run(layer)
    assert make_run(run) == run
    assert make_run(run).model_dump(exclude_unset=True) == run.model_dump(exclude_unset=True)
    for over in LAYERS:
        assert make_run(run, over) == make_run(layer, over)
        assert make_run(over, run) == make_run({**over, "modalities": {}} if "modalities" in layer else over, layer)


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("examples/*.yaml")), ids=lambda path: path.stem)
def test_the_run_of_a_file_is_a_layer_as_the_file_is(path):
    run = make_run(read_run_file(path))
    assert make_run(run, {"train": {"epochs": 1}}) == make_run(read_run_file(path), {"train": {"epochs": 1}})
    full = make_run(run.model_dump(mode="json"))  # as a folder keeps it
    assert make_run(full, {"train": {"epochs": 1}}) == make_run(full.model_dump(mode="json"), {"train": {"epochs": 1}})
