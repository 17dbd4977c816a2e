"""Models of Qwen2-Audio: begun with by ``kosmos import``, and written by ``kosmos export --for qwen2-audio``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, Qwen2AudioForConditionalGeneration, WhisperFeatureExtractor

from kosmos import (
    ConfigError,
    Document,
    Generated,
    Grid,
    Media,
    Text,
    chat_prompt,
    generate_text,
    load_plugins,
    load_run,
    make_run,
)
from kosmos.cli import main
from kosmos.compose import compose
from kosmos.testing import Conditions, promises_of
from kosmos.train.importing import import_folder
from kosmos.train.layout import ModelParts
from kosmos.train.run import train_model
from kosmos_audio.inputs import AudioInput
from kosmos_audio.layouts.qwen2_audio import SLOT, Qwen2AudioLayout
from kosmos_audio.pairs import PairedConnector
from kosmos_audio.resample import resample
from kosmos_audio.spectrogram import log_mel
from support.llavas import tensors_of
from support.qwen2_audios import save_qwen2_audio

HEARD = 320 * 37 + 300, 320 * 64 + 1
"""Samples of the two sounds: 38 cells, the last all but full, and 65, the last of which is in no pair."""
ENCODER: dict[str, Any] = {
    "name": "whisper", "context": "masked", "norm": False,
    "width": 24, "layers": 2, "heads": 2, "feed_forward": 40, "mels": 16,
}  # fmt: skip
OWN: dict[str, Any] = {
    "modalities": {"audio": {}},
    "streams": {"audio": {"encoder": ENCODER, "connector": {"name": "paired"}}},
    "backbone": {"name": "decoder", "width": 32, "layers": 2, "heads": 2, "ffn_width": 48},
    "data": {"tokens_per_pack": 128, "workers": 0},
}
FEW = {
    "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def sounds(shared_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two parts of one that is spoken, of which the end of each is loud."""
    samples, rate = soundfile.read(shared_data("audio/speech/jfk.flac"), dtype="float32")
    samples, rate = resample(samples.mean(1) if samples.ndim > 1 else samples, rate, 16_000), 16_000
    files = [tmp_path_factory.mktemp("sounds") / f"{count}.wav" for count in HEARD]
    for file, count in zip(files, HEARD, strict=True):
        soundfile.write(file, samples[16_000 : 16_000 + count], rate, subtype="FLOAT")
    return files


@pytest.fixture(scope="module", params=[False, True], ids=["apart", "tied"])
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A published model, and the run that was made of it."""
    place = tmp_path_factory.mktemp("qwen2-audio")
    save_qwen2_audio(place / "published", tied=request.param)
    import_folder(place / "published", place / "run", load_plugins())
    return place / "published", place / "run"


def compared(run: Path, folder: Path, sounds: list[Path]) -> float:
    """Largest difference of logits of a run and of what transformers reads, of two sounds in one prompt."""
    composition = load_run(run, device="cpu").composition
    document = Document("two", (Media("audio", sounds[0]), Text("What is"), Media("audio", sounds[1]), Text("here?")))
    batch = composition.pack([document])
    ids = batch.token_ids.clone()
    processor = AutoProcessor.from_pretrained(folder)
    ids[batch.media["audio"].slots] = processor.audio_token_id
    given = heard(processor, sounds)
    assert given["feature_attention_mask"].sum(-1).tolist() == [-(-count // 160) for count in HEARD]
    model, info = Qwen2AudioForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    with torch.no_grad():
        ours = composition.model.hidden(batch) @ composition.model.backbone.output_weight().T
        theirs = model.eval()(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None], **given).logits[0]
    rows = min(theirs.shape[1], ours.shape[1])
    assert (ids == processor.audio_token_id).sum() == 38 // 2 + 65 // 2
    return (theirs[:, :rows] - ours[:, :rows]).abs().max().item()


def heard(processor: Any, sounds: list[Path]) -> dict[str, torch.Tensor]:
    samples = [soundfile.read(file, dtype="float32")[0] for file in sounds]
    given = processor(text=SLOT * len(sounds), audio=samples, sampling_rate=16_000, return_tensors="pt")
    return {name: given[name] for name in ("input_features", "feature_attention_mask")}


def test_a_model_that_was_imported_has_the_logits_of_transformers(
    imported: tuple[Path, Path], sounds: list[Path]
) -> None:
    published, run = imported
    assert compared(run, published, sounds) < 1e-4  # rounding in fp32


def test_marks_around_a_sound_are_those_that_the_published_model_has_learned(
    imported: tuple[Path, Path], sounds: list[Path]
) -> None:
    published, run = imported
    processor = AutoProcessor.from_pretrained(published)
    samples = soundfile.read(sounds[0], dtype="float32")[0]
    said = "<|audio_bos|><|AUDIO|><|audio_eos|>What?"
    given = processor(text=said, audio=samples, sampling_rate=16_000, add_special_tokens=False, return_tensors="pt")
    planner = load_run(run, device="cpu").composition.planner
    plan = planner.prompt(Document("one", (Media("audio", sounds[0]), Text("What?"))))
    ours = torch.tensor(plan.token_ids.astype("int64"))
    ours[torch.tensor(plan.slots["audio"].astype("int64"))] = processor.audio_token_id
    assert ours[1:].tolist() == given["input_ids"][0].tolist()  # behind the token that begins a document


def test_what_was_imported_is_written_and_read_again_bit_for_bit(imported: tuple[Path, Path], tmp_path: Path) -> None:
    published, run = imported
    assert main(["export", str(run), str(tmp_path / "written"), "--for", "qwen2-audio"]) == 0
    assert main(["import", str(tmp_path / "written"), str(tmp_path / "again")]) == 0
    first, again = tensors_of(run), tensors_of(tmp_path / "again")
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    stored = load_file(published / "model.safetensors")
    written = load_file(tmp_path / "written" / "model.safetensors")
    assert stored.keys() == written.keys()
    assert all(torch.equal(tensor, written[name][: len(tensor)]) for name, tensor in stored.items())


def test_a_run_that_was_exported_answers_as_here(sounds: list[Path], tmp_path: Path) -> None:
    settings = {**OWN, "output": tmp_path / "run", "train": {"steps": 2, "precision": "fp32"}}
    train_model(make_run({**settings, "evaluate": {"max_documents": 2}}))
    folder = tmp_path / "written"
    assert main(["export", str(tmp_path / "run"), str(folder), "--for", "qwen2-audio"]) == 0
    assert compared(tmp_path / "run", folder, sounds) < 1e-4
    composition = load_run(tmp_path / "run", device="cpu").composition
    document = chat_prompt([Media("audio", sounds[0]), Text("What?")])
    processor = AutoProcessor.from_pretrained(folder)
    samples = soundfile.read(sounds[0], dtype="float32")[0]
    said = [{"role": "user", "content": [{"type": "audio"}, {"type": "text", "text": "What?"}]}]
    text = processor.apply_chat_template(said, add_generation_prompt=True)
    given = processor(text=text, audio=samples, sampling_rate=16_000, add_special_tokens=False, return_tensors="pt")
    plan = composition.planner.prompt(document)
    ours = torch.tensor(plan.token_ids.astype("int64"))
    ours[torch.tensor(plan.slots["audio"].astype("int64"))] = processor.audio_token_id
    assert given["input_ids"][0].tolist() == ours.tolist()
    model = Qwen2AudioForConditionalGeneration.from_pretrained(folder)
    answer = model.generate(**given, max_new_tokens=6, do_sample=False)[0, len(ours) :]
    made: list[Generated] = []
    generate_text(composition, document, max_new_tokens=6, dtype=torch.float32, on_end=made.append)
    assert answer.tolist() == [*made[0].token_ids]
    again = import_folder(folder, tmp_path / "again", load_plugins())
    assert again.composition.planner.routes["audio"].processor.marks  # type: ignore[attr-defined]
    assert not again.hints


def stream(connector: str, **encoder: Any) -> dict[str, Any]:
    return {"streams": {"audio": {"encoder": {**ENCODER, **encoder}, "connector": connector}}}


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (stream("paired", context="item"), "encoder.context: item"),
        ({"modalities": {"audio": {"processor": {"span_s": 10}}}}, "span_s: spans of 10 s"),
        (stream("paired", norm=True), "encoder.norm: true"),
        (stream("linear"), "connector: linear; .* set paired"),
        ({"streams": {"audio": {"encoder": {"name": "logmel"}}}}, "encoder: logmel; .* set whisper"),
        ({"modalities": {}, "streams": {}}, "the run has no sounds"),
        ({"modalities": {"image": {}, "audio": {}}}, "modalities: image"),
    ],
)
def test_a_run_that_is_no_qwen2_audio_is_refused_with_what_to_set(over: dict[str, Any], said: str) -> None:
    composition = compose(make_run({**OWN, **over}), load_plugins())
    language: Any = composition.model.backbone
    with pytest.raises(ConfigError, match=said) as refused:
        Qwen2AudioLayout().write(ModelParts(composition, language.to_transformers(128)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "part", "change", "said"),
    [
        ("config.json", "audio_config", {"activation_function": "relu"}, "audio_config.activation_function"),
        ("config.json", "audio_config", {"model_type": "whisper"}, "audio_config.model_type"),
        ("config.json", "audio_config", {"encoder_layers": 1}, "holds .*layers.1.fc1.weight"),
        ("config.json", "audio_config", {"d_model": 2**19}, "conv1.weight is"),
        ("config.json", None, {"text_config": 3}, "text_config: expected an object"),
        ("processor_config.json", "feature_extractor", {"hop_length": 80}, "hop_length: expected 160, got 80"),
        ("processor_config.json", None, {"audio_eos_token": ["x"]}, r"audio_eos_token: expected texts, got \['x'\]"),
        ("tokenizer.json", None, {"added_tokens": [{"content": {}}]}, "added_tokens: expected objects with content"),
    ],
)
def test_a_folder_that_computes_otherwise_is_refused(
    file: str, part: str | None, change: dict[str, Any], said: str, imported: tuple[Path, Path], tmp_path: Path
) -> None:
    shutil.copytree(imported[0], tmp_path / "other")
    content = json.loads((tmp_path / "other" / file).read_text())
    (content if part is None else content[part]).update(change)
    (tmp_path / "other" / file).write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=said) as refused:
        import_folder(tmp_path / "other", tmp_path / "run", load_plugins())
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


def test_a_tensor_of_no_part_is_refused(imported: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(imported[0], tmp_path / "other")
    tensors = load_file(tmp_path / "other" / "model.safetensors")
    save_file({**tensors, "talker.weight": torch.zeros(2)}, tmp_path / "other" / "model.safetensors")
    with pytest.raises(ConfigError, match=r"talker\.weight, which is of no part"):
        import_folder(tmp_path / "other", tmp_path / "run", load_plugins())


def test_a_sound_of_30_s_fills_every_position_and_is_heard_as_there(sounds: list[Path]) -> None:
    samples = np.resize(soundfile.read(sounds[1], dtype="float32")[0], 480_000)
    given = AudioInput(samples_per_cell=320, max_cells=1500, normalization="whisper", num_mels=16, frame_behind=True)
    cells = log_mel(samples, 1500, given)
    extractor = WhisperFeatureExtractor(feature_size=16)
    theirs = extractor(samples, sampling_rate=16_000, return_tensors="np").input_features[0].T
    assert np.abs(cells[:, :2].reshape(3000, 16) - theirs).max() < 1e-4
    assert np.array_equal(cells[:-1, 2], cells[1:, 0]) and not cells[-1, 2].any()


def test_the_layout_keeps_its_promises() -> None:
    conditions = Conditions(runs={"qwen2-audio": {**OWN, "backbone": {"name": "hf", "config": FEW}}})
    wanted = promises_of(load_plugins(), plugins=["audio"], conditions=conditions, fast=True)
    found = [promise.verdict() for promise in wanted if promise.component in ("layout qwen2-audio", "connector paired")]
    assert [verdict.message for verdict in found if verdict.outcome != "passed"] == []
    assert {"leaves-others", "refuses-others", "gives-back"} <= {verdict.id for verdict in found}


def test_pairs_are_of_one_item_and_an_odd_cell_is_dropped() -> None:
    connector = PairedConnector(3, 5)
    grids = torch.tensor([[1, 1, 1], [5, 1, 1], [2, 1, 1]])
    cells = torch.tensor(np.random.default_rng(0).normal(size=(8, 3)), dtype=torch.float32)
    found = connector(cells, grids)
    rows = torch.stack([cells[0], cells[1:3].mean(0), cells[3:5].mean(0), cells[6:].mean(0)])
    assert torch.allclose(found, connector.linear(connector.norm(rows)), atol=1e-6)
    assert [connector.slots(Grid(*grid)) for grid in grids.tolist()] == [1, 2, 1]
    assert connector(cells[:0], grids[:0]).shape == (0, 5)
