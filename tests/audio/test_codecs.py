"""Sounds become codes, and codes sounds again; what a model learned to say is heard."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
from kosmos_audio.codecs.mu_law import MuLawCodec
from kosmos_audio.codecs.published import DacCodec, EncodecCodec, MimiCodec, PublishedCodec

RATE_HZ = 8000
KINDS: dict[str, type[PublishedCodec]] = {"encodec": EncodecCodec, "mimi": MimiCodec, "dac": DacCodec}
BOOKS = {"encodec": 12, "mimi": 4, "dac": 3}
HOPS = {"encodec": 20, "mimi": 40, "dac": 8}


def _save(name: str, folder: Path) -> None:
    """A model of a kind, as small as it may be, with random weights."""
    from transformers import DacConfig, DacModel, EncodecConfig, EncodecModel, MimiConfig, MimiModel

    if name == "encodec":
        made: Any = EncodecModel(
            EncodecConfig(
                num_filters=4, hidden_size=16, upsampling_ratios=[5, 4], num_lstm_layers=1, codebook_size=32,
                codebook_dim=16, target_bandwidths=[4.0, 24.0], sampling_rate=RATE_HZ,
            )
        )  # fmt: skip
        for layer in made.quantizer.layers:
            layer.codebook.embed.normal_()
    elif name == "mimi":
        made = MimiModel(
            MimiConfig(
                sampling_rate=RATE_HZ, hidden_size=16, num_filters=4, upsampling_ratios=[5, 4], codebook_size=32,
                codebook_dim=16, vector_quantization_hidden_dimension=16, num_quantizers=4, num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=2, head_dim=8, intermediate_size=16, frame_rate=200,
                upsample_groups=16,
            )
        )  # fmt: skip
        for module in made.modules():
            if hasattr(module, "embed_sum"):
                module.embed_sum.normal_()
    else:
        made = DacModel(
            DacConfig(
                encoder_hidden_size=4, downsampling_ratios=[2, 4], decoder_hidden_size=16, n_codebooks=3,
                codebook_size=32, codebook_dim=4, sampling_rate=RATE_HZ,
            )
        )  # fmt: skip
    made.save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = {name: tmp_path_factory.mktemp("codecs") / name for name in KINDS}
        for name, folder in made.items():
            _save(name, folder)
    return made


def wave(samples: int, hz: float = 200.0, rate_hz: int = RATE_HZ) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(samples) / rate_hz)).astype(np.float32)


def sound(samples: int, hz: float = 200.0) -> Media:
    return Media("audio", wave(samples, hz), rate_hz=RATE_HZ)


@settings(max_examples=30, deadline=None)
@given(codes=st.lists(st.integers(0, 255), min_size=1, max_size=200), rate_hz=st.sampled_from([400, 8000, 16_000]))
def test_mu_law_reads_what_it_has_written(codes: list[int], rate_hz: int) -> None:
    codec = MuLawCodec(rate_hz=rate_hz)
    made = codec.decode(np.array(codes))
    assert made.suffix == ".wav"
    assert codec.encode(Media("audio", made.content)).tolist() == codes


def test_mu_law_keeps_what_is_heard() -> None:
    codec = MuLawCodec(rate_hz=RATE_HZ)
    codes = codec.encode(sound(800))
    assert len(codes) == 800
    samples, rate_hz = soundfile.read(io.BytesIO(codec.decode(codes).content), dtype="float32")
    assert rate_hz == RATE_HZ
    assert np.abs(samples - wave(800)).max() < 0.01


def test_a_stretch_of_a_sound_is_resampled(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack([wave(3200, rate_hz=16_000)] * 2, 1), 16_000)
    codes = MuLawCodec(rate_hz=4000).encode(Media("audio", tmp_path / "a.wav", clip=(0.05, 0.15)))
    assert len(codes) == 400


@pytest.mark.parametrize("name", KINDS)
def test_published_codecs_come_and_go(name: str, folders: dict[str, Path]) -> None:
    codec = KINDS[name](weights=str(folders[name]))
    state = torch.random.get_rng_state()
    codes = codec.encode(sound(801))
    assert torch.equal(torch.random.get_rng_state(), state)
    stretches = -(-801 // HOPS[name])
    assert codec.books == min(8, BOOKS[name]) and len(codes) == stretches * codec.books
    assert (codes // (codec.size // codec.books) == np.arange(len(codes)) % codec.books).all()
    assert len(set(codes.tolist())) > codec.books  # it does hear something
    samples, rate_hz = soundfile.read(io.BytesIO(codec.decode(codes).content), dtype="float32")
    assert rate_hz == RATE_HZ and abs(len(samples) - stretches * HOPS[name]) <= HOPS[name]
    for other in (pickle.loads(pickle.dumps(codec)), KINDS[name](weights=str(folders[name]))):
        assert other.encode(sound(801)).tolist() == codes.tolist()
    assert len(pickle.dumps(codec)) < 20_000  # without its weights


@pytest.mark.parametrize("name", KINDS)
def test_fewer_codebooks_are_the_first_ones(name: str, folders: dict[str, Path]) -> None:
    codecs = {books: KINDS[name](weights=str(folders[name]), codebooks=books) for books in (2, 3)}
    codes = {books: codec.encode(sound(400)).reshape(-1, books) for books, codec in codecs.items()}
    assert codes[2].tolist() == codes[3][:, :2].tolist()


@pytest.mark.parametrize("name", KINDS)
def test_other_weights_are_another_codec(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    codec = KINDS[name](weights=str(folders[name]))
    shutil.copytree(folders[name], tmp_path / "moved")
    assert KINDS[name](weights=str(tmp_path / "moved")).identity == codec.identity
    content = bytearray((tmp_path / "moved" / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "moved" / "model.safetensors").write_bytes(content)
    os.utime(tmp_path / "moved" / "model.safetensors", (1, 1))
    assert KINDS[name](weights=str(tmp_path / "moved")).identity != codec.identity


def test_weights_that_are_missing_are_not_drawn(folders: dict[str, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folders["dac"], tmp_path / "some")
    tensors = load_file(tmp_path / "some" / "model.safetensors")
    del tensors["decoder.conv1.bias"]
    save_file(tensors, tmp_path / "some" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"model\.safetensors lacks decoder\.conv1\.bias"):
        DacCodec(weights=str(tmp_path / "some")).encode(sound(100))


def test_what_is_no_such_folder_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a folder with the config\.json of a mimi model"):
        MimiCodec(weights=str(tmp_path))
    with pytest.raises(ConfigError, match=r"expected a mimi model, its config\.json says dac"):
        MimiCodec(weights=str(folders["dac"]))
    with pytest.raises(ConfigError, match=r"codebooks: expected 1 to 3, which .* has, got 4"):
        DacCodec(weights=str(folders["dac"]), codebooks=4)
    (tmp_path / "config.json").write_text((folders["dac"] / "config.json").read_text())
    with pytest.raises(ConfigError, match=r"no model\.safetensors there"):
        DacCodec(weights=str(tmp_path))


def test_an_encodec_that_scales_sounds_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["encodec"], tmp_path / "scales")
    config = (tmp_path / "scales" / "config.json").read_text()
    (tmp_path / "scales" / "config.json").write_text(config.replace('"normalize": false', '"normalize": true'))
    with pytest.raises(ConfigError, match="the loudness of each piece is no code"):
        EncodecCodec(weights=str(tmp_path / "scales"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate_hz": 50}, "rate_hz: expected 100 to 48000"),
        ({"max_seconds": 0}, "max_seconds: expected a number above 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        MuLawCodec(**options)


def test_a_sound_that_is_too_long_is_a_bad_sample() -> None:
    with pytest.raises(SampleError, match=r"audio is 1\.0 s, over max_seconds 0\.5 of its codec; cut it by a clip"):
        MuLawCodec(rate_hz=RATE_HZ, max_seconds=0.5).encode(sound(RATE_HZ))


def test_broken_sounds_are_bad_samples(shared_data: Callable[[str], Path]) -> None:
    files = sorted(file for file in (shared_data("corner") / "audio").iterdir() if file.is_file())
    codec, refused = MuLawCodec(rate_hz=400, max_seconds=3600), 0
    for file in files:
        try:
            assert len(codec.encode(Media("audio", file)))
        except SampleError:
            refused += 1
    assert files and refused


def test_a_model_learns_to_say_two_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOSMOS_CACHE", str(tmp_path / "cache"))
    words = {"low": 50.0, "high": 150.0}
    documents = [
        Document(f"{word} {n}", (Text(f"{word}: "), Media("audio", wave(40, hz, 400) * 0.9, rate_hz=400, train=True)))
        for n in range(4)
        for word, hz in words.items()
    ]
    config = make_run(
        {
            "output": str(tmp_path / "run"),
            "modalities": {"audio": {"codec": {"name": "mu-law", "rate_hz": 400}}},
            "streams": {"audio": {"encoder": {"width": 16, "layers": 1, "heads": 2}}},
            "data": {"tokens_per_pack": 256, "lanes": 1, "workers": 0},
            "backbone": {"name": "decoder", "width": 48, "layers": 2, "heads": 2, "ffn_width": 96},
            "train": {
                "steps": 90, "warmup_steps": 2, "precision": "fp32", "optimizer": "adamw", "learning_rate": 1e-2,
            },
            "trackers": [],
        }
    )  # fmt: skip
    registry = Registry.from_modules({"audio": "kosmos_audio.plugin"})
    train_model(config, registry=registry, sources=[Documents("words", documents)])
    saved = load_run(tmp_path / "run", registry=registry)
    for word, hz in words.items():
        answers: list[Generated] = []
        prompt = Document("prompt", (Text(f"{word}: "),))
        generate_text(saved.composition, prompt, max_new_tokens=60, dtype=saved.dtype, on_end=answers.append)
        (medium,) = written_media(saved.composition, answers[0])
        assert medium.fault == ""
        samples, rate_hz = soundfile.read(io.BytesIO(medium.content), dtype="float32")
        assert rate_hz == 400 and np.abs(samples - 0.9 * wave(40, hz, 400)).max() < 0.02
