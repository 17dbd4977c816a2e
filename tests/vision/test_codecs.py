"""Pictures become codes, and codes pictures again; what a model learned to draw is seen."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kosmos import (
    ConfigError,
    Document,
    Documents,
    Media,
    Registry,
    SampleError,
    Text,
    generate_text,
    load_run,
    make_run,
    train_model,
    written_media,
)
from kosmos.evaluate.answer import Generated
from kosmos_vision.codecs.published import Emu3Codec, JanusCodec, PublishedCodec
from kosmos_vision.codecs.small import PixelsCodec

KINDS: dict[str, type[PublishedCodec]] = {"janus": JanusCodec, "emu3": Emu3Codec}
SIDE = 8


def _save(name: str, folder: Path) -> None:
    """A model of a kind, as small as it may be, with random weights; a code stands for 2 x 2 pixels."""
    sizes = {"embed_dim": 4, "base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1}
    if name == "janus":
        from transformers import JanusVQVAEConfig
        from transformers.models.janus.modeling_janus import JanusVQVAE

        made: Any = JanusVQVAE(JanusVQVAEConfig(num_embeddings=64, latent_channels=8, num_patches=SIDE // 2, **sizes))
    else:
        from transformers import Emu3VQVAEConfig
        from transformers.models.emu3.modeling_emu3 import Emu3VQVAE

        made = Emu3VQVAE(
            Emu3VQVAEConfig(
                codebook_size=64, latent_channels=4, hidden_size=32, num_attention_heads=1, attn_resolutions=[], **sizes
            )
        )
    made.save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = {name: tmp_path_factory.mktemp("codecs") / name for name in KINDS}
        for name, folder in made.items():
            _save(name, folder)
    return made


def noise(height: int = SIDE, width: int = SIDE) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def pixels_of(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), side=st.integers(1, 6), levels=st.integers(2, 16), colours=st.booleans())
def test_pixels_reads_what_it_has_drawn(data: st.DataObject, side: int, levels: int, colours: bool) -> None:
    codec = PixelsCodec(side=side, levels=levels, colours=colours)
    codes = data.draw(st.lists(st.integers(0, codec.size - 1), min_size=side * side, max_size=side * side))
    made = codec.decode(np.array(codes))
    assert made.suffix == ".png"
    assert codec.encode(Media("image", made.content)).tolist() == codes


@pytest.mark.parametrize(("fit", "middle"), [("crop", 200), ("stretch", 100)])
def test_what_is_not_square_is_cut_or_stretched(fit: Any, middle: int) -> None:
    wide = np.full((8, 32, 3), 0, np.uint8)
    wide[:, 12:20] = 255  # the middle quarter
    codec = PixelsCodec(side=8, levels=256, fit=fit)
    assert (codec.encode(Media("image", wide)).mean() > middle) == (fit == "crop")


@pytest.mark.parametrize("name", KINDS)
def test_published_codecs_come_and_go(name: str, folders: dict[str, Path]) -> None:
    codec = KINDS[name](weights=str(folders[name]), side=SIDE)
    state = torch.random.get_rng_state()
    codes = codec.encode(Media("image", noise(20, 30)))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert codec.size == 64 and len(codes) == 16 and 0 <= codes.min() < codes.max() < 64
    assert pixels_of(codec.decode(codes).content).shape == (SIDE, SIDE, 3)
    for other in (pickle.loads(pickle.dumps(codec)), KINDS[name](weights=str(folders[name]), side=SIDE)):
        assert other.encode(Media("image", noise(20, 30))).tolist() == codes.tolist()
        assert other.identity == codec.identity
    assert len(pickle.dumps(codec)) < 20_000  # without its weights


@pytest.mark.parametrize("name", KINDS)
def test_another_number_of_codes_is_no_picture(name: str, folders: dict[str, Path]) -> None:
    for codec in (KINDS[name](weights=str(folders[name]), side=SIDE), PixelsCodec(side=4)):
        with pytest.raises(SampleError, match="no picture: 15 codes, expected 4 rows of 4"):
            codec.decode(np.zeros(15, np.int64))


def test_colours_are_scaled_as_the_folder_states(folders: dict[str, Path], tmp_path: Path) -> None:
    _save("emu3", tmp_path)
    stated = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.3, 0.2, 0.1]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    codec = Emu3Codec(weights=str(tmp_path), side=SIDE)
    pixels = codec.decode(codec.encode(Media("image", noise())))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1], "image_std": [1, 1, 0]}))
    with pytest.raises(ConfigError, match="image_mean: expected three numbers"):
        Emu3Codec(weights=str(tmp_path))
    (tmp_path / "preprocessor_config.json").unlink()
    other = Emu3Codec(weights=str(tmp_path), side=SIDE)
    assert pixels.content != other.decode(other.encode(Media("image", noise()))).content


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda folders: JanusCodec(weights=str(folders["janus"]), side=10), "side: expected 8, the only one"),
        (lambda folders: Emu3Codec(weights=str(folders["emu3"]), side=7), "side: expected a multiple of 2 pixels"),
        (lambda folders: JanusCodec(weights=str(folders["emu3"])), "expected a janus_vqgan model"),
        (lambda folders: PixelsCodec(levels=1), "levels: expected 2 to 256, got 1"),
        (lambda folders: PixelsCodec(levels=17, colours=True), "levels: expected 2 to 16, got 17"),
        (lambda folders: PixelsCodec(side=0), "side: expected 1 to 2048 pixels, got 0"),
    ],
)
def test_wrong_options_are_refused(make: Callable[[Any], Any], says: str, folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=says):
        make(folders)


def test_broken_pictures_are_bad_samples(shared_data: Callable[[str], Path]) -> None:
    files = sorted(file for file in (shared_data("corner") / "image").iterdir() if file.is_file())
    codec, refused = PixelsCodec(), 0
    for file in files:
        try:
            assert len(codec.encode(Media("image", file))) == 256
        except SampleError:
            refused += 1
    assert files and refused


SHAPES = {
    "a line": np.array([[0, 255, 0], [0, 255, 0], [0, 255, 0]], np.uint8),
    "a cross": np.array([[255, 0, 255], [0, 255, 0], [255, 0, 255]], np.uint8),
}


def test_a_model_learns_to_draw_two_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    documents = [
        Document(f"{shape} {n}", (Text(f"{shape}: "), Media("image", pixels, train=True)))
        for n in range(4)
        for shape, pixels in SHAPES.items()
    ]
    config = make_run(
        {
            "output": str(tmp_path / "run"),
            "modalities": {"image": {"codec": {"name": "pixels", "side": 3, "levels": 2}}},
            "streams": {"image": {"encoder": {"model": "test_vit", "image_size": 32}}},
            "data": {"tokens_per_pack": 128, "lanes": 1, "workers": 0},
            "backbone": {"name": "decoder", "width": 32, "layers": 1, "heads": 2, "ffn_width": 48},
            "train": {
                "steps": 120, "warmup_steps": 2, "precision": "fp32", "optimizer": "adamw", "learning_rate": 1e-2,
            },
            "trackers": [],
        }
    )  # fmt: skip
    registry = Registry.from_modules({"vision": "kosmos_vision.plugin"})
    train_model(config, registry=registry, sources=[Documents("shapes", documents)])
    saved = load_run(tmp_path / "run", registry=registry)
    for shape, pixels in SHAPES.items():
        answers: list[Generated] = []
        prompt = Document("prompt", (Text(f"{shape}: "),))
        generate_text(saved.composition, prompt, max_new_tokens=20, dtype=saved.dtype, on_end=answers.append)
        (medium,) = written_media(saved.composition, answers[0])
        assert medium.fault == ""
        assert pixels_of(medium.content)[..., 0].tolist() == pixels.tolist()
