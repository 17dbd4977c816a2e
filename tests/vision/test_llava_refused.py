"""Folders that are no LLaVA, or not whole: ``kosmos import`` refuses each in a line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kosmos import ConfigError, load_plugins
from kosmos.train.importing import import_folder
from support.llavas import save_llava, tensors_of


def edited(name: str, **fields: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / name
        found = json.loads(file.read_text())
        for path, value in fields.items():
            at = found
            *places, last = path.split("__")
            for place in places:
                at = at[place]
            at[last] = value
        file.write_text(json.dumps(found))

    return edit


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def written(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def in_shards(folder: Path, *, lacking: bool = False, names: str = "model-{}.safetensors") -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = {names.format(n): dict(list(tensors.items())[n::2]) for n in (0, 1)}
    for file, half in halves.items():
        save_file(half, folder / Path(file).name)
    index = {"weight_map": {name: file for file, half in halves.items() for name in half}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if lacking:
        (folder / names.format(1)).unlink()


def cut(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}" * 50)


def changed(change: Callable[[dict[str, Tensor]], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return edit


LINEAR = "multi_modal_projector.linear_1.weight"
CONFIG, PICTURES = "config.json", "processor_config.json"
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "pickle": (pickled, "its weights are in pytorch_model.bin, and only safetensors are read"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors there"),
    "missing shard": (partial(in_shards, lacking=True), "model-1.safetensors of its files are not there"),
    "shard elsewhere": (partial(in_shards, names="../model-{}.safetensors"), "in its own folder"),
    "cut short": (cut, "cannot be read as safetensors: data_offsets"),
    "huge header": (huge_header, "its header would have 4,611,686,018,427,387,904 bytes"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json there"),
    "config of a list": (written(CONFIG, "[]"), "expected an object, got list"),
    "config cut": (written(CONFIG, '{"model'), "cannot be read as JSON"),
    "another model": (edited(CONFIG, model_type="blip-2"), "no installed layout reads it .*'blip-2'"),
    "another tower": (edited(CONFIG, vision_config__model_type="pixtral"), "expected clip_vision_model or siglip"),
    "a tower in a list": (edited(CONFIG, vision_config__model_type=[]), "expected clip_vision_model or siglip"),
    "endless layers": (edited(CONFIG, text_config__num_hidden_layers=10**9), "num_hidden_layers: expected a whole"),
    "endless width": (edited(CONFIG, text_config__hidden_size=10**12), "hidden_size: expected a whole number from 1"),
    "endless experts": (
        edited(CONFIG, text_config__model_type="mixtral", text_config__num_local_experts=10**9),
        "num_local_experts: expected at most 1,024",
    ),
    "wide experts": (
        edited(CONFIG, text_config__model_type="qwen3_moe", text_config__moe_intermediate_size=10**6),
        "tells of a model of .* values, and its tensors are of",
    ),
    "endless tower": (edited(CONFIG, vision_config__num_hidden_layers=60_000), "lacks the tensor"),
    "another text": (edited(CONFIG, text_config__model_type="lama"), "no such language model"),
    "an encoder": (edited(CONFIG, text_config__model_type="clip_text_model"), "no causal language model"),
    "code": (edited(CONFIG, text_config__auto_map={"AutoModel": "x.Y"}), "auto_map"),
    "in few bits": (edited(CONFIG, quantization_config={"bits": 4}), "quantization_config"),
    "several layers": (edited(CONFIG, vision_feature_layer=[-2, -1]), "vision_feature_layer: expected one layer"),
    "class token kept": (edited(CONFIG, vision_feature_select_strategy="full"), "vision_feature_select_strategy"),
    "another activation": (edited(CONFIG, projector_hidden_act="relu"), "projector_hidden_act: expected gelu"),
    "another norm": (edited(CONFIG, vision_config__layer_norm_eps=1e-3), "layer_norm_eps: expected 1e-05"),
    "patches that do not fit": (edited(CONFIG, vision_config__image_size=60), "no whole number of patches"),
    "another size": (edited(PICTURES, image_processor__crop_size={"height": 28}), "crop_size"),
    "another filter": (
        edited(PICTURES, image_processor__resample=2),
        "processor_config.json: image_processor: resample: expected 3, got 2",
    ),
    "no preprocessor": (
        lambda folder: (folder / PICTURES).unlink(),
        "no preprocessor_config.json there, nor image_processor in",
    ),
    "a tensor too few": (changed(lambda t: t.pop(LINEAR)), f"no tensor {LINEAR} there"),
    "a tensor too many": (changed(lambda t: t.update({"lm.more": torch.zeros(1)})), "lm.more, which is of no part"),
    "another shape": (changed(lambda t: t.update({LINEAR: torch.zeros(3, 3)})), r"is \(3, 3\), and the model"),
    "whole numbers": (changed(lambda t: t.update({LINEAR: torch.zeros(32, 32).char()})), "is of torch.int8"),
}  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "llava"
    save_llava(folder, "clip")
    return folder


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_or_foreign_folder_is_refused_in_a_line_and_leaves_nothing(
    case: str, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(published, tmp_path / "model")
    damage, said = BROKEN[case]
    damage(tmp_path / "model")
    with pytest.raises(ConfigError, match=said) as refused:
        import_folder(tmp_path / "model", tmp_path / "run", load_plugins())
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("layout", [None, "llava"])
def test_a_layout_of_a_plugin_that_is_not_loaded_is_told_of(
    layout: str | None, published: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"installed and not loaded: .*vision"):
        import_folder(published, tmp_path / "run", load_plugins(["audio"]), layout)


def test_whole_shards_are_read(published: Path, tmp_path: Path) -> None:
    shutil.copytree(published, tmp_path / "model")
    in_shards(tmp_path / "model")
    for name in ("model", "whole"):
        import_folder(published if name == "whole" else tmp_path / "model", tmp_path / f"run-{name}", load_plugins())
    one, other = tensors_of(tmp_path / "run-model"), tensors_of(tmp_path / "run-whole")
    assert all(torch.equal(one[name], other[name]) for name in other)
