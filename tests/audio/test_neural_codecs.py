"""The codec neural-audio: Mimi, EnCodec and DAC of transformers, from a folder."""

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
import soundfile
import torch
import transformers
from safetensors.torch import load_file, save_file

from kosmos import ConfigError, Media, SampleError
from kosmos_audio.codecs import model_folder
from kosmos_audio.codecs.neural import CLASSES, NeuralAudioCodec
from support.neural_codecs import CODEBOOK_SIZE, HOPS, LOST, RATE_HZ, SIZES, save_codec
from support.sounds import encoded, tone

KINDS = list(SIZES)
ALL = {"mimi": 10, "encodec": 4, "dac": 3}
"""Codebooks of the small models."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    for kind, folder in made.items():
        save_codec(kind, folder)
    return made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sound(samples: int) -> Media:
    return Media(
        "audio", np.random.default_rng(samples).standard_normal(samples).astype(np.float32) / 4, rate_hz=RATE_HZ
    )


def codec_of(folder: Path, **options: Any) -> NeuralAudioCodec:
    return NeuralAudioCodec(weights=str(folder), **options)


def expected_codes(kind: str, folder: Path, samples: np.ndarray) -> np.ndarray:
    """[codebooks, T] as the library's own model gives them of what its own preparation makes of a sound."""
    model = getattr(transformers, CLASSES[kind]).from_pretrained(folder).eval()
    if kind == "dac":
        prepare: Any = transformers.DacFeatureExtractor(sampling_rate=RATE_HZ, hop_length=HOPS[kind])
    else:
        prepare = transformers.EncodecFeatureExtractor(sampling_rate=RATE_HZ)
    values = prepare(samples, sampling_rate=RATE_HZ, return_tensors="pt")["input_values"]
    how = {"bandwidth": 1.6} if kind == "encodec" else {}
    with torch.no_grad():
        codes = model.encode(values, **how).audio_codes
    return (codes[0] if kind == "encodec" else codes)[0].numpy()


@pytest.mark.parametrize("samples", [160, 163])
def test_codes_are_those_of_the_model_frame_by_frame(kind: str, samples: int, folders: dict[str, Path]) -> None:
    media = sound(samples)
    codes = codec_of(folders[kind], codebooks=ALL[kind]).encode(media)
    expected = expected_codes(kind, folders[kind], np.asarray(media.source))
    assert np.array_equal(codes.reshape(-1, ALL[kind]).T, expected + CODEBOOK_SIZE * np.arange(ALL[kind])[:, None])
    assert len(np.unique(expected)) > 4  # a model whose codes are all one would pass


def test_fewer_codebooks_are_the_first_of_all(kind: str, folders: dict[str, Path]) -> None:
    every = codec_of(folders[kind], codebooks=ALL[kind]).encode(sound(100)).reshape(-1, ALL[kind])
    for books in (1, 3):
        codec = codec_of(folders[kind], codebooks=books)
        assert (codec.books, codec.size) == (books, books * CODEBOOK_SIZE)
        assert np.array_equal(codec.encode(sound(100)).reshape(-1, books), every[:, :books])


@pytest.mark.parametrize(("kind", "books"), [("mimi", 8), ("encodec", 4), ("dac", 3)])
def test_the_first_eight_are_taken_or_all_of_fewer(kind: str, books: int, folders: dict[str, Path]) -> None:
    codec = codec_of(folders[kind])
    assert (codec.books, codec.size) == (books, books * CODEBOOK_SIZE)


@pytest.mark.parametrize("samples", [1, 2, 7, 8, 9, 16, 17, 100])
def test_a_sound_of_any_length_has_its_frames_and_comes_back_as_long(
    kind: str, samples: int, folders: dict[str, Path]
) -> None:
    codec, frames = codec_of(folders[kind]), -(-samples // HOPS[kind])
    codes = codec.encode(sound(samples))
    assert len(codes) == frames * codec.books
    assert np.array_equal(codes // CODEBOOK_SIZE, np.tile(np.arange(codec.books), frames))
    made = codec.decode(codes)
    heard, rate_hz = soundfile.read(io.BytesIO(made.content))
    assert (made.suffix, rate_hz, len(heard)) == (".wav", RATE_HZ, frames * HOPS[kind] - LOST[kind])
    assert len(codec.encode(Media("audio", made.content))) == len(codes)


def test_what_is_decoded_is_what_the_model_makes_of_the_codes(folders: dict[str, Path]) -> None:
    codec = codec_of(folders["mimi"])
    codes = codec.encode(sound(160))
    frames = torch.from_numpy(codes.reshape(-1, 8).T - CODEBOOK_SIZE * np.arange(8)[:, None])[None]
    with torch.no_grad():
        expected = transformers.MimiModel.from_pretrained(folders["mimi"]).eval().decode(frames).audio_values
    heard, _ = soundfile.read(io.BytesIO(codec.decode(codes).content))
    assert (
        np.abs(heard - expected.flatten().numpy().clip(-1, 1)).max() < 1.01 / 32768
    )  # half a step, and a whole one at 1
    assert heard.any()


def test_nothing_of_what_was_encoded_before_is_left(kind: str, folders: dict[str, Path]) -> None:
    codec = codec_of(folders[kind])
    first = codec.encode(sound(50))
    codec.encode(sound(203))
    codec.decode(codec.encode(sound(31)))
    assert np.array_equal(codec.encode(sound(50)), first)
    assert np.array_equal(codec_of(folders[kind]).encode(sound(50)), first)


def test_torch_is_left_as_it_was(kind: str, folders: dict[str, Path]) -> None:
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    codec = codec_of(folders[kind])
    plain = codec.encode(sound(80))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
        again = codec_of(folders[kind]).encode(sound(80))
        codec.decode(again)
    assert np.array_equal(again, plain)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_the_model_stays_behind_when_it_is_pickled(kind: str, folders: dict[str, Path]) -> None:
    codec = codec_of(folders[kind])
    light = pickle.dumps(codec)
    codes = codec.encode(sound(80))
    assert len(pickle.dumps(codec)) == len(light) < 10_000
    assert np.array_equal(pickle.loads(pickle.dumps(codec)).encode(sound(80)), codes)


def test_its_size_is_known_without_torch(folders: dict[str, Path]) -> None:
    code = (
        "import sys; from kosmos_audio.codecs.neural import NeuralAudioCodec\n"
        f"codec = NeuralAudioCodec(weights={str(folders['mimi'])!r})\n"
        "print(codec.size, codec.books, {'torch', 'transformers'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "128 8 set()"


def test_its_identity_is_that_of_the_weights_wherever_they_lie(kind: str, tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        save_codec(kind, tmp_path / name, seed=seed)
    one, same, other = (codec_of(tmp_path / name) for name in ("one", "same", "other"))
    assert one.identity == same.identity != other.identity
    state = json.loads((tmp_path / "same" / "config.json").read_text())
    (tmp_path / "same" / "config.json").write_text(json.dumps({**state, "transformers_version": "9"}))
    assert codec_of(tmp_path / "same").identity == one.identity


def test_its_identity_is_not_that_of_the_files_in_which_the_tensors_lie(kind: str, tmp_path: Path) -> None:
    model = save_codec(kind, tmp_path / "one")
    one = codec_of(tmp_path / "one")
    model.save_pretrained(tmp_path / "parts", max_shard_size="10KB")
    assert codec_of(tmp_path / "parts").identity == one.identity
    tensors = {name: tensor.clone() for name, tensor in load_file(tmp_path / "one" / "model.safetensors").items()}
    save_file(tensors, tmp_path / "one" / "model.safetensors", metadata={"format": "pt", "of": "somebody"})
    assert codec_of(tmp_path / "one").identity == one.identity
    name = next(name for name, tensor in tensors.items() if tensor.ndim > 1)
    save_file({**tensors, name: tensors[name] + 1}, tmp_path / "one" / "model.safetensors", metadata={"format": "pt"})
    assert codec_of(tmp_path / "one").identity != one.identity


def test_weights_in_several_files_are_read(tmp_path: Path) -> None:
    model = save_codec("dac", tmp_path / "one")
    model.save_pretrained(tmp_path / "parts", max_shard_size="10KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1
    one, parts = codec_of(tmp_path / "one"), codec_of(tmp_path / "parts")
    assert np.array_equal(one.encode(sound(80)), parts.encode(sound(80)))
    part = sorted((tmp_path / "parts").glob("*.safetensors"))[0]
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")
    assert codec_of(tmp_path / "parts").identity != parts.identity


def test_older_names_of_a_weight_by_its_norm_are_known(folders: dict[str, Path], tmp_path: Path) -> None:
    state = load_file(folders["encodec"] / "model.safetensors")
    old = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    for new, before in old.items():
        state = {name.replace(new, before): tensor for name, tensor in state.items()}
    assert any(name.endswith("weight_g") for name in state)
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((folders["encodec"] / "config.json").read_text())
    assert np.array_equal(codec_of(tmp_path).encode(sound(80)), codec_of(folders["encodec"]).encode(sound(80)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_configuration_does_not_state_is_as_transformers_has_it(kind: str, tmp_path: Path) -> None:
    made = getattr(transformers, CLASSES[kind]).config_class()
    for field, value in model_folder.DEFAULTS[kind].items():
        stated = getattr(made, field)
        assert (tuple(stated) if isinstance(value, tuple) else stated) == value, field
    shape = model_folder.shape_of(tmp_path, {"model_type": kind})
    assert shape.codebooks == getattr(made, "num_quantizers", None) or getattr(made, "n_codebooks", None)
    assert shape.rate_hz == made.sampling_rate


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("encodec", {"normalize": True}, "states normalize: each stretch has a scale or overlaps the next"),
        ("encodec", {"chunk_length_s": 1.0, "overlap": 0.01}, "states chunk_length_s: each stretch has a scale"),
        ("encodec", {"audio_channels": 2}, "expected a model of one channel, got 2"),
        ("encodec", {"target_bandwidths": []}, "target_bandwidths: expected a list of numbers above 0"),
        ("encodec", {"target_bandwidths": [-1.0]}, "target_bandwidths: expected a list of numbers above 0"),
        ("mimi", {"frame_rate": -12.5}, "frame_rate: expected a number above 0"),
        ("mimi", {"frame_rate": 1e9}, "frame_rate: expected a number above 0, and no more than 800 Hz"),
        ("mimi", {"model_type": []}, "model_type: expected mimi, encodec, dac"),
        ("dac", {"downsampling_ratios": ["a"]}, "downsampling_ratios: expected a list of whole numbers from 1 on"),
        ("dac", {"downsampling_ratios": [-2, -4]}, "downsampling_ratios: expected a list of whole numbers"),
        ("dac", {"codebook_size": 10**4000}, "codebook_size: expected a whole number from 1 to 16,777,216"),
        ("mimi", {"audio_channels": 2}, "expected a model of one channel, got 2"),
        ("mimi", {"codebook_size": "many"}, "codebook_size: expected a whole number from 1 to 16,777,216, got 'many'"),
        ("mimi", {"decoder_config": None}, "decoder_config: its decoder was left away"),
        ("mimi", {"quantization_config": {"quant_method": "x"}}, "its weights are in few bits"),
        ("dac", {"model_type": "whisper"}, "model_type: expected mimi, encodec, dac, got 'whisper'"),
        ("dac", {"n_codebooks": 0}, "n_codebooks: expected a whole number from 1 to"),
    ],
)
def test_a_model_whose_codes_do_not_tell_all_is_refused(
    kind: str, fields: dict[str, Any], says: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    stated = json.loads((folders[kind] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**stated, **fields}))
    with pytest.raises(ConfigError, match=f"weights {tmp_path}.*{says}"):
        codec_of(tmp_path)


@pytest.mark.parametrize("offsets", [[0, 1 << 60], [0.0, 4.0], [0, -9000], [-4, 4], [4, 0], [True, 4]])
def test_offsets_outside_of_a_file_are_refused(offsets: list[Any], folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folders["dac"] / "config.json").read_text())
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": offsets}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ConfigError, match=r"cannot be read as safetensors: .*the tensors have 8 bytes"):
        codec_of(tmp_path)


def test_tensors_that_overlap_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folders["dac"] / "config.json").read_text())
    entry = {"dtype": "F32", "shape": [500], "data_offsets": [0, 2000]}
    header = json.dumps({"a": entry, "b": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2000))
    with pytest.raises(ConfigError, match="its tensors overlap"):
        codec_of(tmp_path)


def test_what_is_decoded_is_no_longer_than_what_is_encoded_again(kind: str, folders: dict[str, Path]) -> None:
    codec = codec_of(folders[kind], max_duration_s=83.5 / RATE_HZ)  # within a frame, and within a sample
    codes = codec.encode(sound(83))
    made = codec.decode(codes)
    frames = -(-83 // HOPS[kind])
    assert soundfile.info(io.BytesIO(made.content)).frames == min(83, frames * HOPS[kind] - LOST[kind])
    assert len(codec.encode(Media("audio", made.content))) == len(codes)


def test_a_folder_without_what_is_wanted_is_told(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kyutai/mimi: no such folder \(nothing is downloaded\)"):
        NeuralAudioCodec(weights="kyutai/mimi")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        codec_of(tmp_path)
    (tmp_path / "config.json").write_text((folders["mimi"] / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ConfigError, match=r"no model\.safetensors there.*save_pretrained"):
        codec_of(tmp_path)


@pytest.mark.parametrize("books", [0, 4, -1])
def test_codebooks_that_it_has_not_are_refused(books: int, folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=f"codebooks: expected 1 to 3, which .* has, got {books}"):
        codec_of(folders["dac"], codebooks=books)


def test_weights_that_are_damaged_or_lack_tensors_stop_a_run_and_blame_no_sample(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    config = (folders["dac"] / "config.json").read_text()
    content = (folders["dac"] / "model.safetensors").read_bytes()
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(ConfigError, match="cannot be read as safetensors"):
        codec_of(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(config), "n_codebooks": 4}))
    with pytest.raises(ConfigError, match=r"tensors are missing, such as quantizer\.quantizers\.3"):
        codec_of(tmp_path).encode(sound(80))
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(config), "codebook_dim": 5}))
    with pytest.raises(ConfigError, match=r"weights .*model\.safetensors: "):
        codec_of(tmp_path).encode(sound(80))


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ([], "expected 3 codes for each frame, and at least one frame, got 0"),
        ([0, 16], "expected 3 codes for each frame"),
        ([16, 0, 32], "a code is none of its codebook, which has 16"),
        ([0, 16, 48], "a code is none of its codebook"),
    ],
)
def test_codes_that_stand_for_no_sound_are_told(codes: list[int], says: str, folders: dict[str, Path]) -> None:
    with pytest.raises(SampleError, match=says):
        codec_of(folders["dac"]).decode(np.array(codes, np.int64))


def test_what_is_written_over_the_limit_is_none_before_the_model_is_read(kind: str, folders: dict[str, Path]) -> None:
    codec = codec_of(folders[kind], max_duration_s=0.1)
    longest = codec.encode(sound(80))
    assert codec.decode(longest)
    codec = pickle.loads(pickle.dumps(codec))
    with pytest.raises(SampleError, match=r"its codes stand for 0\.10 s, over max_duration_s 0\.1"):
        codec.decode(np.concatenate([longest, longest[: codec.books]]))
    assert codec._model is None


def test_a_sound_over_the_limit_is_refused_before_the_model_is_read(folders: dict[str, Path]) -> None:
    codec = codec_of(folders["mimi"], max_duration_s=1)
    with pytest.raises(SampleError, match=r"audio is 2\.0 s, over max_duration_s 1"):
        codec.encode(Media("audio", encoded(tone(2.0, 8000), 8000)))
    assert codec._model is None
    assert len(codec.encode(Media("audio", encoded(tone(2.0, 8000), 8000), clip=(1.0, 2.0)))) == 50 * 8


def test_a_file_that_is_no_sound_is_a_bad_sample(folders: dict[str, Path], shared_data: Callable[[str], Path]) -> None:
    for name in ("not_media.wav", "zero_samples.wav", "empty_file.mp3"):
        with pytest.raises(SampleError):
            codec_of(folders["mimi"]).encode(Media("audio", shared_data("corner") / "audio" / name))


@pytest.mark.parametrize("name", ["speech/LJ001-0002.mp3", "speech/jfk.flac", "esc10/rooster/1-26806-A.ogg"])
def test_real_sounds_are_encoded_and_decoded(kind: str, name: str, clips: Path, folders: dict[str, Path]) -> None:
    codec = codec_of(folders[kind])
    codes = codec.encode(Media("audio", clips / name, clip=(0.0, 0.5)))
    assert len(codes) == 400 // HOPS[kind] * codec.books and len(np.unique(codes)) > codec.books
    assert soundfile.info(io.BytesIO(codec.decode(codes).content)).frames == 400 - LOST[kind]
