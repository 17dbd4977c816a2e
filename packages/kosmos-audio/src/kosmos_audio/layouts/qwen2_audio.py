"""The layout of transformers' ``Qwen2AudioForConditionalGeneration``: Whisper's encoder, whose cells are averaged in
pairs in front of its last norm, a linear map, a language model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from kosmos import (
    ConfigError,
    LazyTensors,
    ModelFolder,
    ModelParts,
    ReadModel,
    WrittenModel,
    backbone_of,
    is_tied,
    language_name,
    language_tensors,
)
from kosmos_audio.pairs import PairedConnector
from kosmos_audio.waveform import BEGIN, END, AudioProcessor
from kosmos_audio.whisper import CONFIG_FIELDS, POSITIONS, WhisperEncoder

SLOT = "<|AUDIO|>"
"""What stands in each slot of a sound."""
THEIR_MARKS = "<|audio_bos|>", "<|audio_eos|>"
"""What stands around a sound in the prompts of published models."""
SOUNDS = "preprocessor_config.json"
_DEFAULTS = {"width": 1280, "layers": 32, "heads": 20, "feed_forward": 5120, "mels": 128}
"""Sizes of an encoder that its configuration does not state."""
_FIXED = {"activation_function": "gelu", "scale_embedding": False, "max_source_positions": POSITIONS}
_ENCODER, _CONNECTOR, _BACKBONE = "streams.audio.encoder.encoder.", "streams.audio.connector.", "backbone.model."
_TOWER = re.compile(r"(?:model\.)?audio_tower\.(.+)")
_MAP = re.compile(r"(?:model\.)?multi_modal_projector\.(linear\.(?:weight|bias))")
_COMPUTED = re.compile(r"(.*\.)?rotary_emb\.inv_freq")
"""Buffers that older files have, and that follow from the configuration."""


class Qwen2AudioLayout:
    """See the module."""

    def matches(self, config: Mapping[str, Any]) -> bool:
        """Whether it is of a Qwen2-Audio, of whatever parts."""
        return config.get("model_type") == "qwen2_audio"

    def read(self, folder: ModelFolder) -> ReadModel:
        """The model of a folder, as a run with an encoder ``whisper``, a connector ``paired`` and a backbone ``hf``.

        Raises:
            ConfigError: a part of it computes what these do not.
        """
        config, where = folder.config, str(folder.path / "config.json")
        sizes = _sizes(_object(config, "audio_config", where), where)
        _check_sounds(folder, sizes["mels"])
        text = {"model_type": "qwen2", **_object(config, "text_config", where)}
        names = _own_names(folder)
        _check_tower(names, folder, sizes)
        language = {own.removeprefix(_BACKBONE): there for own, there in names.items() if own.startswith(_BACKBONE)}
        tied = is_tied(folder, language, config, text)
        if tied and language.pop("lm_head.weight", ""):
            del names[_BACKBONE + "lm_head.weight"]
        shapes = {own: folder.places[there].shape for own, there in language.items()}
        marks = _marks(folder)
        settings = {
            "modalities": {"audio": {"processor": {"marks": marks is not None}}},
            "streams": {
                "audio": {
                    "encoder": {"name": "whisper", "context": "masked", "norm": False, **sizes},
                    "connector": {"name": "paired"},
                }
            },
            "backbone": backbone_of(text, tied=tied, shapes=shapes),
        }
        tensors = LazyTensors({name: partial(folder.tensor, there) for name, there in names.items()})
        return ReadModel(settings, tensors, tuple(_hints(marks)), marks or {}, medium_slots=POSITIONS // 2)

    def write(self, parts: ModelParts) -> WrittenModel:
        """A run with sounds as a folder of a Qwen2-Audio.

        Raises:
            ConfigError: a part of it is none that Qwen2-Audio has; it says which field to set.
        """
        composition = parts.composition
        model: Any = composition.model
        _refuse_others(parts)
        encoder, connector = (getattr(model.streams["audio"], part) for part in ("encoder", "connector"))
        processor: Any = composition.processors["audio"]
        _check_parts(parts, processor, encoder, connector)
        token = parts.token(SLOT)  # first: the language model may get a row for it, which its configuration tells
        stated = parts.language_model.config
        tied = bool(stated.tie_word_embeddings)
        text = {"model_type": stated.model_type, **stated.to_diff_dict(), "tie_word_embeddings": tied}
        sizes = {field: getattr(encoder.encoder.config, field) for field in CONFIG_FIELDS.values()}
        config = {
            "architectures": ["Qwen2AudioForConditionalGeneration"], "model_type": "qwen2_audio",
            "dtype": text.get("dtype", "float32"), "tie_word_embeddings": tied, "audio_token_index": token,
            "audio_config": {"model_type": "qwen2_audio_encoder", **sizes, **_FIXED}, "text_config": text,
        }  # fmt: skip
        marks = (parts.spelled(BEGIN), parts.spelled(END)) if processor.marks else THEIR_MARKS
        files = {
            SOUNDS: _written_sounds(encoder.input.num_mels),
            "processor_config.json": {
                "processor_class": "Qwen2AudioProcessor", "audio_token": SLOT,
                "audio_bos_token": marks[0], "audio_eos_token": marks[1],
            },
        }  # fmt: skip
        place = f"{marks[0]}{SLOT}{marks[1]}" if processor.marks else SLOT
        language = language_tensors(parts.language_model)
        if "lm_head.weight" not in language:  # which transformers reads here where the two are one, too
            language["lm_head.weight"] = language["model.embed_tokens.weight"].clone()
        tensors = {
            **{f"audio_tower.{name}": tensor for name, tensor in encoder.encoder.state_dict().items()},
            **{f"audio_tower.layer_norm.{kind}": tensor for kind, tensor in connector.norm.state_dict().items()},
            **{f"multi_modal_projector.linear.{k}": tensor for k, tensor in connector.linear.state_dict().items()},
            **{f"language_model.{name}": tensor for name, tensor in language.items()},
        }
        return WrittenModel(config, tensors, files, {"audio": place}, "Qwen2AudioForConditionalGeneration")


def _object(config: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    if not isinstance(found := config.get(name), dict):
        raise ConfigError(f"{where}: {name}: expected an object, got {found!r:.40}")
    return found


def _sizes(stated: Mapping[str, Any], where: str) -> dict[str, int]:
    """Of the encoder, as its options. Raises ConfigError where it is another one."""
    fixed = {"model_type": "qwen2_audio_encoder", **_FIXED}
    for name, expected in fixed.items():
        if (found := stated.get(name, expected)) != expected:
            raise ConfigError(
                f"{where}: audio_config.{name}: expected {expected}, got {found!r:.40}; no encoder here computes that"
            )
    sizes = {own: stated.get(field, _DEFAULTS[own]) for own, field in CONFIG_FIELDS.items()}
    for own, size in sizes.items():
        if type(size) is not int or not 1 <= size <= 2**20:
            raise ConfigError(f"{where}: audio_config.{CONFIG_FIELDS[own]}: expected a size, got {size!r:.40}")
    return sizes


def _check_tower(names: Mapping[str, str], folder: ModelFolder, sizes: Mapping[str, int]) -> None:
    """Raises ConfigError where sizes are stated that its tensors do not have, before anything is built of them."""
    width, layer = sizes["width"], "layers.{}.fc1.weight"
    expected = {
        "conv1.weight": (width, sizes["mels"], 3), "embed_positions.weight": (POSITIONS, width),
        layer.format(sizes["layers"] - 1): (sizes["feed_forward"], width),
    }  # fmt: skip
    for name, shape in expected.items():
        there = names.get(_ENCODER + name)
        if there is None:
            raise ConfigError(f"{folder.path}: lacks the tensor audio_tower.{name}, which its audio_config tells of")
        if (found := folder.places[there].shape) != shape:
            raise ConfigError(f"{folder.path}: {there} is {found}, and its audio_config tells {shape}")
    if (above := _ENCODER + layer.format(sizes["layers"])) in names:
        raise ConfigError(f"{folder.path}: holds {names[above]}, which its audio_config has no place for")


def _check_sounds(folder: ModelFolder, mels: int) -> None:
    """Raises ConfigError where sounds are prepared as none are here, or nothing tells how."""
    stated, where = folder.preparation("feature_extractor")
    for name, expected in _written_sounds(mels).items():
        if name != "processor_class" and (found := stated.get(name, expected)) != expected:
            raise ConfigError(f"{where}: {name}: expected {expected}, got {found!r:.40}; sounds here are so prepared")


def _written_sounds(mels: int) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor", "processor_class": "Qwen2AudioProcessor",
        "feature_size": mels, "sampling_rate": 16_000, "hop_length": 160, "n_fft": 400, "chunk_length": 30,
        "n_samples": 480_000, "nb_max_frames": 3000, "dither": 0.0, "padding_value": 0.0, "padding_side": "right",
        "return_attention_mask": True,
    }  # fmt: skip


def _own_names(folder: ModelFolder) -> dict[str, str]:
    """Names in a run to those in the folder. Raises ConfigError where a tensor is of no part."""
    names: dict[str, str] = {}
    for there in folder.places:
        if _COMPUTED.fullmatch(there):
            continue
        if found := _MAP.fullmatch(there):
            own = _CONNECTOR + found[1]
        elif found := _TOWER.fullmatch(there):
            is_norm = found[1].startswith("layer_norm.")
            own = _CONNECTOR + found[1].removeprefix("layer_") if is_norm else _ENCODER + found[1]
        elif language := language_name(there):
            own = _BACKBONE + language
        else:
            raise ConfigError(f"{folder.path}: holds the tensor {there}, which is of no part of a Qwen2-Audio")
        if own in names:
            raise ConfigError(f"{folder.path}: {names[own]} and {there} are the same part of a Qwen2-Audio")
        names[own] = there
    return names


def _marks(folder: ModelFolder) -> dict[str, str] | None:
    """What the marks around a sound are among the tokens of the folder; None where it has none.

    Raises:
        ConfigError: they are no texts.
    """
    stated = folder.json("processor_config.json")
    found = [stated.get(f"audio_{end}_token", own) for end, own in zip(("bos", "eos"), THEIR_MARKS, strict=True)]
    if strange := [one for one in found if not isinstance(one, str)]:
        where = folder.path / "processor_config.json"
        raise ConfigError(f"{where}: audio_bos_token, audio_eos_token: expected texts, got {strange[0]!r:.40}")
    return dict(zip((BEGIN, END), found, strict=True)) if folder.added_tokens.keys() >= {*found} else None


def _hints(marks: Mapping[str, str] | None) -> Iterator[str]:
    if marks is None:
        yield (
            f"its tokenizer has no {' and '.join(THEIR_MARKS)}, between which published models have learned sounds: "
            "there are no marks around a sound (modalities.audio.processor.marks is false)"
        )
    elif marks[BEGIN] != BEGIN:
        yield (
            "its chats have 'Audio 1: ' in front of a sound, by its number, and a line end behind it: write them into "
            "rows and prompts that are to be as it has learned them"
        )


def _refuse_others(parts: ModelParts) -> None:
    config = parts.composition.config
    if [*config.modalities] != ["audio"]:
        others = ", ".join(name for name in config.modalities if name != "audio")
        what = f"modalities: {others}" if others else "modalities: the run has no sounds"
        raise parts.refuse(what, "Qwen2-Audio has sounds alone; begin a run of audio (init)")
    if (stream := config.stream_of("audio")) != "audio":
        raise parts.refuse(f"modalities.audio.stream: {stream}", "Qwen2-Audio has one stream, of sounds; leave it out")


def _check_parts(parts: ModelParts, processor: Any, encoder: Any, connector: Any) -> None:
    where, names = "streams.audio", parts.composition.parts
    if type(processor) is not AudioProcessor:
        raise parts.refuse(
            f"modalities.audio: its processor is a {type(processor).__name__}", "Qwen2-Audio has sounds alone"
        )
    if not isinstance(encoder, WhisperEncoder):
        found = names[f"{where}.encoder"][1].name
        raise parts.refuse(f"{where}.encoder: {found}", "Qwen2-Audio has Whisper's; set whisper, context masked")
    if encoder.context != "masked":
        raise parts.refuse(f"{where}.encoder.context: {encoder.context}", "Qwen2-Audio masks; set masked")
    if not isinstance(encoder.encoder.layer_norm, torch.nn.Identity):
        raise parts.refuse(f"{where}.encoder.norm: true", "Qwen2-Audio averages cells before it; set norm: false")
    if type(connector) is not PairedConnector:
        found = names[f"{where}.connector"][1].name
        raise parts.refuse(f"{where}.connector: {found}", "Qwen2-Audio averages pairs of cells; set paired")
    if processor.max_cells != POSITIONS:
        said = f"modalities.audio.processor.span_s: spans of {processor.max_cells / 50:g} s"
        raise parts.refuse(said, "Qwen2-Audio splits no sound below 30 s; leave it out")
