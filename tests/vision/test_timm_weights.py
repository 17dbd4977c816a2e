"""What timm writes beside weights counts: the colours that they were trained with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub.errors import EntryNotFoundError
from timm.models import save_for_hf
from torch import nn

from kosmos import ConfigError, RunConfig, make_run, train_model
from kosmos.compose import compose
from kosmos.config_weights import InitConfig
from kosmos.plugins import load_plugins
from kosmos.train.initial import open_initial
from kosmos_vision.timm_encoder import TimmEncoder
from support.rebuilt import rebuilt
from support.runs import SMALL as SMALL_RUN

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

SMALL = {
    **SMALL_RUN,
    "data": {"tokens_per_pack": 512, "lanes": 1, "workers": 0},
    "train": {"steps": 1},
    "evaluate": {"max_documents": 1},
}


def saved(folder: Path, **colours: Any) -> nn.Module:
    """A model as ``timm`` saves it, trained with other colours than its name says."""
    model = timm.create_model("test_vit", pretrained_cfg_overlay=colours).eval()
    save_for_hf(model, folder, safe_serialization=True)
    return model


@pytest.mark.parametrize("named", [".", "model.safetensors"])
def test_pictures_get_the_mean_and_std_that_stand_beside_the_weights(named: str, tmp_path: Path) -> None:
    source = saved(tmp_path, **IMAGENET)
    encoder = TimmEncoder(model="test_vit", weights=str(tmp_path / named)).eval()
    assert encoder.input.mean == (0.485, 0.456, 0.406)
    rows, columns = encoder._start_cells
    cells = torch.randint(0, 256, (rows * columns, 3, *encoder.input.patch_px), dtype=torch.uint8)
    picture = (
        cells.view(rows, columns, 3, *encoder.input.patch_px).permute(2, 0, 3, 1, 4).flatten(3).flatten(1, 2) / 255
    )
    mean, std = (torch.tensor(IMAGENET[name])[:, None, None] for name in ("mean", "std"))
    expected = source.forward_features(((picture - mean) / std)[None])[0, 1:]  # type: ignore[operator]
    got = encoder(cells, torch.tensor([[1, rows, columns]]))
    assert torch.allclose(got, expected, atol=1e-5)  # measured: 2e-6


def test_a_run_knows_them_where_the_weights_are_gone(tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    options: dict[str, Any] = {"model": "test_vit", "weights": str(tmp_path)}
    encoder = TimmEncoder(**options)
    for file in tmp_path.iterdir():
        file.unlink()
    assert rebuilt(encoder, **options).input == encoder.input


def test_on_the_meta_device_they_are_the_same(tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    with torch.device("meta"):
        encoder = TimmEncoder(model="test_vit", weights=str(tmp_path))
    assert encoder.input.std == (0.229, 0.224, 0.225)


def test_options_of_the_run_go_before_them(tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    own = {"pretrained_cfg_overlay": {"mean": (0.4, 0.4, 0.4)}}
    encoder = TimmEncoder(model="test_vit", weights=str(tmp_path), model_options=own)
    assert (encoder.input.mean, encoder.input.std) == ((0.4, 0.4, 0.4), (0.229, 0.224, 0.225))


@pytest.mark.parametrize(
    "content",
    [
        {"model_type": "vit", "image_size": 224},
        {"model_type": "vit", "mean": [0.1, 0.1, 0.1], "std": [0.2, 0.2, 0.2]},
        {"architecture": "test_vit2", "pretrained_cfg": IMAGENET},
        {"architecture": None, **IMAGENET},
        [],
    ],
)
def test_the_configuration_of_something_else_says_nothing(content: Any, tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert TimmEncoder(model="test_vit", weights=str(tmp_path)).input == TimmEncoder(model="test_vit").input


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("model", ["test_vit", "test_vit.r160_in1k"])
def test_that_of_the_model_speaks_for_all_its_tags(model: str, older: bool, tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    if older:
        (tmp_path / "config.json").write_text(json.dumps({"architecture": "test_vit", **IMAGENET}))
    assert TimmEncoder(model=model, weights=str(tmp_path)).input.mean == (0.485, 0.456, 0.406)


HUB = "hf-hub:someone/theirs"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options by which an encoder finds a model that was fetched before the network went."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--someone--theirs"
    (repository / "snapshots" / "abc").mkdir(parents=True)
    saved(repository / "snapshots" / "abc", **IMAGENET)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    return {"model": "test_vit", "weights": HUB, "model_options": {"cache_dir": str(tmp_path)}}


def config_of(cache: Path) -> Path:
    return cache / "models--someone--theirs" / "snapshots" / "abc" / "config.json"


def test_the_file_of_the_hub_is_asked_too(cached: dict[str, Any]) -> None:
    for weights in (HUB, f"{HUB}@main"):
        assert TimmEncoder(**{**cached, "weights": weights}).input.mean == (0.485, 0.456, 0.406)


def test_a_model_that_is_named_by_its_place_on_the_hub_has_local_weights(
    cached: dict[str, Any], tmp_path: Path
) -> None:
    saved(tmp_path / "own", mean=[0.1, 0.2, 0.3], std=[0.4, 0.5, 0.6])
    encoder = TimmEncoder(**{**cached, "model": HUB, "weights": str(tmp_path / "own")})
    assert encoder.input.mean == (0.1, 0.2, 0.3)


def test_a_file_of_the_hub_that_cannot_be_had_is_told_and_not_done_without(
    cached: dict[str, Any], tmp_path: Path
) -> None:
    config_of(tmp_path).unlink()
    said = (
        r"^weights hf-hub:someone/theirs: their config\.json, which states the colours they were trained with, cannot "
        r"be read \(Cannot reach .*offline mode is enabled.*\); download it once with a network, or state both in "
        r"model_options\.pretrained_cfg_overlay: \{mean: .*\}$"
    )
    with pytest.raises(ConfigError, match=said):
        TimmEncoder(**cached)
    own = {**cached["model_options"], "pretrained_cfg_overlay": IMAGENET}
    assert TimmEncoder(**{**cached, "model_options": own}).input.mean == (0.485, 0.456, 0.406)


def test_a_repository_that_is_known_to_have_no_such_file_says_nothing(cached: dict[str, Any], tmp_path: Path) -> None:
    config_of(tmp_path).unlink()
    note = tmp_path / "models--someone--theirs" / ".no_exist" / "abc" / "config.json"
    note.parent.mkdir(parents=True)
    note.touch()
    assert TimmEncoder(**cached).input == TimmEncoder(model="test_vit").input


def test_a_repository_without_such_a_file_says_nothing(cached: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any, **__: Any) -> str:
        raise EntryNotFoundError("404 Client Error")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", absent)
    assert TimmEncoder(**cached).input == TimmEncoder(model="test_vit").input


def test_the_configuration_of_another_library_on_the_hub_says_nothing(cached: dict[str, Any], tmp_path: Path) -> None:
    config_of(tmp_path).write_text('{"model_type": "vit"}')
    assert TimmEncoder(**cached).input == TimmEncoder(model="test_vit").input


DAMAGED = {"architecture": "test_vit", "pretrained_cfg": {"mean": [0.5], "std": [0.5, 0.5, 0.5]}}


@pytest.mark.parametrize("content", ["{", json.dumps(DAMAGED)])
def test_a_damaged_configuration_is_named(content: str, tmp_path: Path) -> None:
    saved(tmp_path, **IMAGENET)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"config\.json.*(cannot be read|mean: expected three numbers, got \[0\.5\])"):
        TimmEncoder(model="test_vit", weights=str(tmp_path))


@pytest.mark.parametrize(
    ("over", "lines"),
    [
        (
            {},
            [
                f"warning: streams.image.encoder.model_options.pretrained_cfg_overlay.{field}: "
                f"{IMAGENET[field]} in FIRST, [0.5, 0.5, 0.5] here; unless that is meant, "
                "name weights: WEIGHTS again, which stated it"
                for field in ("mean", "std")
            ],
        ),
        ({"weights": "WEIGHTS", "image_size": 160}, []),
        ({"model_options": {"pretrained_cfg_overlay": IMAGENET}}, []),
        (
            {"model_options": {"drop_path_rate": 0.1, "pretrained_cfg_overlay": IMAGENET}},
            ["warning: streams.image.encoder.model_options.drop_path_rate: null in "],
        ),
    ],
)
def test_a_second_run_that_names_no_weights_is_told_of_the_colours_of_the_first(
    first: Path, over: dict[str, Any], lines: list[str]
) -> None:
    def placed(value: Any) -> Any:
        return json.loads(json.dumps(value).replace("WEIGHTS", str(first / "w")).replace("FIRST", str(first / "run")))

    composition = compose(run(first / "second", **placed(over)), load_plugins(["vision"]))
    init, tokenizer = InitConfig(path=first / "run"), first / "run" / "tokenizer"
    told = open_initial(init, tokenizer, composition.model, composition).others
    assert [line[: len(wanted)] for line, wanted in zip(told, placed(lines), strict=True)] == placed(lines)


def run(output: Path, **options: Any) -> RunConfig:
    return make_run(
        SMALL,
        {
            "modalities": ["image"],
            "output": str(output),
            "streams": {"image": {"encoder": {"model": "test_vit", **options}}},
        },
    )


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of weights ``w`` and of a run that began with them."""
    folder = tmp_path_factory.mktemp("first").resolve()
    saved(folder / "w", **IMAGENET)
    train_model(run(folder / "run", weights=str(folder / "w")), registry=load_plugins(["vision"]))
    return folder
