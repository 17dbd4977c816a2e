"""Pictures as codes of VQ models in folders of transformers, whose weights are random here."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from kosmos import ConfigError, Media, SampleError
from kosmos_vision.codecs.vq import Emu3Codec, JanusCodec, VqCodec

KINDS: dict[str, type[VqCodec]] = {"emu3": Emu3Codec, "janus": JanusCodec}
SIDE, SIZE = 8, 64
SMALL: dict[str, Any] = {"embed_dim": 4, "base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1}


def model_of(name: str) -> Any:
    """As small as it may be: a code stands for 2 x 2 pixels."""
    from transformers.models.emu3 import modeling_emu3 as emu3
    from transformers.models.janus import modeling_janus as janus

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name == "emu3":
            sizes = {"latent_channels": 4, "hidden_size": 32, "attn_resolutions": [1], "codebook_size": SIZE}
            return emu3.Emu3VQVAE(emu3.Emu3VQVAEConfig(temporal_downsample_factor=2, **sizes, **SMALL))
        config = janus.JanusVQVAEConfig(num_embeddings=SIZE, latent_channels=8, num_patches=SIDE // 2, **SMALL)
        return janus.JanusVQVAE(config)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp("vq") / name for name in KINDS}
    for name, folder in made.items():
        model_of(name).save_pretrained(folder)
    return made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def noise() -> Media:
    return Media("image", np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8))


def copied(folder: Path, to: Path, **changed: Any) -> tuple[Path, dict[str, torch.Tensor]]:
    """A copy of a folder without its weights, and these."""
    config = json.loads((folder / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, **changed}))
    return to, load_file(folder / "model.safetensors")


def test_pictures_become_codes_and_codes_pictures(kind: str, folders: dict[str, Path]) -> None:
    codec = KINDS[kind](weights=str(folders[kind]), side=SIDE)
    state = torch.random.get_rng_state()
    codes = codec.encode(noise())
    made = codec.decode(codes)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert codec.size == SIZE and codes.shape == (codec.length,) == (16,)
    assert 0 <= codes.min() < codes.max() < SIZE
    with Image.open(io.BytesIO(made.content)) as picture:
        assert (picture.format, picture.size, made.suffix) == ("PNG", (SIDE, SIDE), ".png")
    assert codec.encode(noise()).tolist() == codes.tolist() and codec.decode(codes) == made
    assert codec.decode(codes[::-1]) != made


def test_what_is_pickled_has_no_weights(kind: str, folders: dict[str, Path]) -> None:
    codec = KINDS[kind](weights=str(folders[kind]), side=SIDE)
    codes = codec.encode(noise())
    content = pickle.dumps(codec)
    assert len(content) < 30_000 < (folders[kind] / "model.safetensors").stat().st_size
    assert pickle.loads(content).encode(noise()).tolist() == codes.tolist()


def test_pictures_have_the_side_that_is_asked_for(kind: str, folders: dict[str, Path]) -> None:
    for side in (4, 14):
        codec = KINDS[kind](weights=str(folders[kind]), side=side)
        codes = codec.encode(noise())
        with Image.open(io.BytesIO(codec.decode(codes).content)) as picture:
            assert (len(codes), picture.size) == ((side // 2) ** 2, (side, side))
        with pytest.raises(SampleError, match=rf"{len(codes) + 1} codes, a picture of {side} x {side} pixels has "):
            codec.decode(np.append(codes, 0))
        with pytest.raises(SampleError, match="there are 0 to 63"):
            codec.decode(np.full(len(codes), SIZE))
    assert KINDS[kind](weights=str(folders[kind])).side == {"emu3": 64, "janus": SIDE}[kind]


def test_emu3_makes_of_codes_what_transformers_does(folders: dict[str, Path]) -> None:
    codec, model = Emu3Codec(weights=str(folders["emu3"]), side=SIDE), model_of("emu3").eval()
    codes = np.arange(16)
    with torch.inference_mode():
        pixels = model.decode(torch.from_numpy(codes).reshape(1, 4, 4))[0]
    expected = ((pixels * 0.5 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
    with Image.open(io.BytesIO(codec.decode(codes).content)) as picture:
        assert np.array_equal(np.asarray(picture), expected.numpy())


def test_a_code_of_janus_is_the_one_whose_direction_is_next(folders: dict[str, Path], tmp_path: Path) -> None:
    """Its decoder takes their directions alone: how long they are stored changes no code and no picture."""
    codec = JanusCodec(weights=str(folders["janus"]), side=SIDE)
    folder, state = copied(folders["janus"], tmp_path)
    state["quantize.embedding.weight"] *= torch.linspace(0.5, 2, SIZE)[:, None]
    save_file(state, folder / "model.safetensors")
    other = JanusCodec(weights=str(folder), side=SIDE)
    codes = codec.encode(noise())
    assert other.encode(noise()).tolist() == codes.tolist()
    with (
        Image.open(io.BytesIO(other.decode(codes).content)) as a,
        Image.open(io.BytesIO(codec.decode(codes).content)) as b,
    ):
        assert np.abs(np.asarray(a, int) - np.asarray(b, int)).max() <= 1


def test_weights_lie_within_a_whole_model_in_several_files(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    own = json.loads((folders[kind] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "vq_config": own}))
    state = {f"model.vqmodel.{name}": tensor for name, tensor in load_file(folders[kind] / "model.safetensors").items()}
    names = sorted(state)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, its in parts.items():
        save_file({name: state[name] for name in its}, tmp_path / file)
    index = {name: file for file, its in parts.items() for name in its} | {"lm_head.weight": "c.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    alone = KINDS[kind](weights=str(folders[kind]), side=SIDE)
    assert KINDS[kind](weights=str(tmp_path), side=SIDE).encode(noise()).tolist() == alone.encode(noise()).tolist()


def test_its_identity_is_that_of_what_the_folder_holds(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    own = KINDS[kind](weights=str(folders[kind]), side=SIDE).identity
    for options in ({"side": SIDE + 2}, {"side": SIDE, "fit": "pad"}):  # its codes are of other pictures
        assert KINDS[kind](weights=str(folders[kind]), **options).identity != own
    of_files = {"transformers_version": "9", "dtype": "bfloat16", "torch_dtype": "float16", "architectures": ["A"]}
    folder, state = copied(folders[kind], tmp_path, _name_or_path="b", **of_files)
    save_file(state, folder / "model.safetensors")
    assert KINDS[kind](weights=str(folder), side=SIDE).identity == own
    largest = max(state.values(), key=torch.Tensor.numel).view(-1)
    assert largest.numel() * 4 > 3 * 8192
    largest[largest.numel() // 2] += 1  # far from its begin and its end
    save_file(state, folder / "model.safetensors")
    changed = KINDS[kind](weights=str(folder), side=SIDE).identity
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3]}))
    assert len({own, changed, KINDS[kind](weights=str(folder), side=SIDE).identity}) == 3


def test_colours_are_those_that_the_folder_states(folders: dict[str, Path], tmp_path: Path) -> None:
    folder, state = copied(folders["emu3"], tmp_path)
    save_file(state, folder / "model.safetensors")
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0, 0, 0], "image_std": [0, 0, 0]}))
    with pytest.raises(ConfigError, match="image_std: expected three numbers above 0, got"):
        Emu3Codec(weights=str(folder), side=SIDE).encode(noise())
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0, 0, 0], "image_std": [1e-9] * 3}))
    codec = Emu3Codec(weights=str(folder), side=SIDE)
    with Image.open(io.BytesIO(codec.decode(np.zeros(16, np.int64)).content)) as picture:
        assert not np.asarray(picture).any()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"model_type": "chameleon_vqgan"}, "model_type 'chameleon_vqgan': expected Emu3VQVAE of transformers"),
        ({"codebook_size": 65}, "states codebook_size 65, the weights have 64"),
        ({"model_type": "emu3"}, "vq_config: expected an object"),
        ({"num_patches": "x"}, "num_patches: expected a whole number"),
        ({"num_patches": 10**4000}, "num_patches: expected a whole number from 1 to 4,096"),
        ({"channel_multiplier": 5}, "channel_multiplier: expected a list of whole numbers, got 5"),
        ({"channel_multiplier": [1] * 6000}, "channel_multiplier: expected 1 to 10 numbers, got 6,000"),
    ],
)
def test_another_model_is_refused(changed: dict[str, Any], says: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder, state = copied(folders["emu3"], tmp_path, **changed)
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ConfigError, match=says):
        Emu3Codec(weights=str(folder))


def test_weights_that_are_not_there_or_damaged_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such folder \(nothing is downloaded\)"):
        Emu3Codec(weights="BAAI/Emu3")
    with pytest.raises(ConfigError, match=r"no config\.json there"):
        Emu3Codec(weights=str(tmp_path))
    folder, state = copied(folders["emu3"], tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ConfigError, match=r"no model\.safetensors there"):
        Emu3Codec(weights=str(folder))
    (folder / "model.safetensors").write_bytes(b"\x10" + bytes(7) + b"no header at all")
    with pytest.raises(ConfigError, match="cannot be read as safetensors"):
        Emu3Codec(weights=str(folder))
    del state["decoder.conv_out.bias"]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ConfigError, match=r"are not those of its config\.json: .*decoder\.conv_out\.bias"):
        Emu3Codec(weights=str(folder), side=SIDE).encode(noise())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"shape": []}, r"quantize\.embedding\.weight: expected \[codes, width\], got \(\)"),
        ({"shape": [1 << 60, 4]}, r"expected \[codes, width\], got \(1152921504606846976, 4\)"),
        ({"shape": [64.0, 4]}, r"shape \[64\.0, 4\]: expected whole numbers"),
        ({"data_offsets": [0, -9000]}, r"data_offsets \[0, -9000\]: the tensors have 1,024 bytes"),
        ({"data_offsets": [0, 1 << 60]}, "the tensors have 1,024 bytes"),
        ({"data_offsets": [0.0, 4.0]}, "the tensors have 1,024 bytes"),
        ({"data_offsets": 3}, "cannot be read as safetensors"),
    ],
)
def test_headers_that_make_no_sense_are_refused(
    changed: dict[str, Any], says: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder, _ = copied(folders["emu3"], tmp_path)
    entry = {"dtype": "F32", "shape": [SIZE, 4], "data_offsets": [0, 1024], **changed}
    header = json.dumps({"quantize.embedding.weight": entry}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(1024)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match=says) as told:
        Emu3Codec(weights=str(folder))
    assert len(str(told.value).removeprefix(f"weights {folder}")) < 250


def test_tensors_that_overlap_or_are_absent_and_nested_json(folders: dict[str, Path], tmp_path: Path) -> None:
    folder, _ = copied(folders["emu3"], tmp_path)
    entry = {"dtype": "F32", "shape": [SIZE, 4], "data_offsets": [0, 1024]}
    header = json.dumps(dict.fromkeys(("quantize.embedding.weight", *map(str, range(9))), entry)).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1024))
    with pytest.raises(ConfigError, match="its tensors overlap"):
        Emu3Codec(weights=str(folder))
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    names = {"weight_map": {"model.vqmodel.quantize.embedding.weight": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(names))
    save_file({"other": torch.zeros(1)}, folder / "a.safetensors")
    with pytest.raises(ConfigError, match=r"no quantize\.embedding\.weight in the files"):
        Emu3Codec(weights=str(folder))
    (folder / "config.json").write_text('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        Emu3Codec(weights=str(folder))


@pytest.mark.parametrize("side", [2, 7, 1026])
def test_a_side_that_is_no_number_of_codes_is_refused(side: int, kind: str, folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=rf"side {side}: need a multiple of 2 from 4 to 1,024"):
        KINDS[kind](weights=str(folders[kind]), side=side)


def test_size_and_identity_are_told_without_torch(folders: dict[str, Path]) -> None:
    code = (
        "import sys; from kosmos_vision.codecs.vq import Emu3Codec; "
        f"codec = Emu3Codec(weights={str(folders['emu3'])!r}, side=8); "
        "print(codec.size, bool(codec.identity), {'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("64 True set()\n", 0), done.stderr


def test_broken_pictures_are_bad_samples(folders: dict[str, Path], shared_data: Callable[[str], Path]) -> None:
    codec = JanusCodec(weights=str(folders["janus"]), side=SIDE)
    with pytest.raises(SampleError, match="not a picture that can be read"):
        codec.encode(Media("image", b"no picture"))
    with pytest.raises(SampleError, match="broken picture"):
        codec.encode(Media("image", shared_data("corner") / "image" / "truncated_jpeg.jpg"))
    assert codec._model is None  # no weights were read for them
