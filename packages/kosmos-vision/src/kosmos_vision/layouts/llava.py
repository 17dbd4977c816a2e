"""The layout of transformers' ``LlavaForConditionalGeneration``: a vision tower, two linear maps, a language model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

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
from kosmos_vision.images import BEGIN, END, ImageProcessor
from kosmos_vision.layouts.picture_files import FILE, read_pictures, written_pictures
from kosmos_vision.layouts.tower import Tower, as_theirs, as_timms, check_features, read_tower, tower_of
from kosmos_vision.transformers_names import as_clip

IMAGE = "<image>"
"""What stands for a picture in the prompts of published models; here it is the mark before one, too."""
SLOT = "<|image_slot|>"
"""What stands in each slot of a picture where the marks stand around it."""
SPARE = 1
"""Layers of a written tower above those that are computed, as published ones have it: all their readers know these."""
_ENCODER, _CONNECTOR = "streams.image.encoder.model.", "streams.image.connector.layers."
_MAPS = {"linear_1": "0", "linear_2": "2"}
_TOWERS = "vision_tower.vision_model.", "vision_tower.", "model.vision_tower.vision_model.", "model.vision_tower."
_BEHIND = re.compile(r"<image>( *)(?:\n|\\n)")
"""In a template of chats, where a line end stands as itself or as Jinja spells it, and a space as what was written here
has it."""
_LONGEST = 100_000
_VICUNA = re.compile(
    r"\bfor (\w+) in messages\b.*?\b\1(?:\.role|\[.role.\])\s*(?:\.upper\(\)|==\s*.user\b.*?USER: )", re.DOTALL
)
"""In a template: who speaks is written in capitals, turn by turn."""
_MAP = re.compile(r"(?:model\.)?multi_modal_projector\.(linear_[12]\.(?:weight|bias))")
_COMPUTED = re.compile(r"(.*\.)?(position_ids|rotary_emb\.inv_freq)")
"""Buffers that older files have, and that follow from the configuration."""


class LlavaLayout:
    """See the module."""

    def matches(self, config: Mapping[str, Any]) -> bool:
        """Whether it is of a LLaVA, of whatever parts."""
        return config.get("model_type") == "llava"

    def read(self, folder: ModelFolder) -> ReadModel:
        """The model of a folder, as a run with an encoder ``timm``, a connector ``mlp`` and a backbone ``hf``.

        Raises:
            ConfigError: a part of it computes what these do not.
        """
        config, where = folder.config, str(folder.path / "config.json")
        tower, above = read_tower(config.get("vision_config"), config.get("vision_feature_layer", -2), where)
        _check_joint(config, tower, where)
        places = _Places(folder)
        text = config.get("text_config")
        if not isinstance(text, dict):
            raise ConfigError(f"{where}: text_config: expected an object, got {text!r:.40}")
        tied = is_tied(folder, places.language, config, text)
        resize, colours = read_pictures(folder, tower.size)
        marks = _marks(folder, config)
        settings: dict[str, Any] = {
            "modalities": {
                "image": {
                    "processor": {
                        "resize": resize,
                        "exact": True,
                        "marks": marks,
                    }
                }
            },
            "streams": {
                "image": {"encoder": tower.options(colours, above), "connector": {"name": "mlp", "norm": False}}
            },
            "backbone": backbone_of({"model_type": "llama", **text}, tied=tied, shapes=places.language_shapes()),
        }
        turns = _vicuna(folder)
        if turns is not None:
            settings["tokenizer"] = {"turns": turns}
        return ReadModel(
            settings,
            places.tensors(tower, tied=tied),
            tuple(_hints(folder, known=marks is not False or "image" in folder.written_places)),
            medium_slots=(tower.size // tower.patch) ** 2,
        )

    def write(self, parts: ModelParts) -> WrittenModel:
        """A run with pictures as a folder of a LLaVA.

        Raises:
            ConfigError: a part of it is none that LLaVA has; it says which field to set.
        """
        composition = parts.composition
        model: Any = composition.model
        _refuse_others(parts)
        encoder, connector = (getattr(model.streams["image"], part) for part in ("encoder", "connector"))
        if isinstance(tower := tower_of(encoder), str):
            raise parts.refuse(f"streams.image.encoder: it {tower}", "begin a run with such an encoder")
        processor: Any = composition.processors["image"]
        _check_pictures(parts, processor)
        _check_connector(parts, connector)
        slot = SLOT if processor.marks is True else IMAGE
        image = parts.token(slot)
        seen = {
            theirs: tensor
            for name in tower.names()
            for theirs, tensor in as_theirs(name, model.streams["image"].encoder.model.state_dict()[name]).items()
        }
        check_features(encoder, tower, seen)
        text = {"model_type": parts.language_model.config.model_type, **parts.language_model.config.to_diff_dict()}
        tied = bool(text.get("tie_word_embeddings", parts.language_model.config.tie_word_embeddings))
        config = {
            "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
            "dtype": text.get("dtype", "float32"),
            "image_token_index": image, "image_seq_length": (tower.size // tower.patch) ** 2,
            "multimodal_projector_bias": True, "projector_hidden_act": "gelu", "tie_word_embeddings": tied,
            "vision_feature_layer": -1 - SPARE, "vision_feature_select_strategy": tower.family.strategy,
            "vision_config": tower.config(SPARE), "text_config": {**text, "tie_word_embeddings": tied},
        }  # fmt: skip
        files = {
            FILE: written_pictures(processor.resize, tower.size, encoder.input.mean, encoder.input.std),
            "processor_config.json": {
                "processor_class": "LlavaProcessor", "image_token": slot, "patch_size": tower.patch,
                "num_additional_image_tokens": int(tower.family.has_class),
                "vision_feature_select_strategy": tower.family.strategy,
            },
        }  # fmt: skip
        before, behind = processor.around
        place = f"{before}{slot}{behind}"
        spare = _spare(tower, seen["embeddings.position_embedding.weight"].dtype)
        language = language_tensors(parts.language_model)
        made = {
            **{f"vision_tower.vision_model.{name}": tensor for name, tensor in {**seen, **spare}.items()},
            **{f"multi_modal_projector.{name}": tensor for name, tensor in _maps(connector).items()},
            **{f"language_model.{name}": tensor for name, tensor in language.items()},
        }
        hints = _apart(processor)
        return WrittenModel(config, made, files, {"image": place}, "LlavaForConditionalGeneration", hints)


class _Places:
    """What the tensors of a folder are, by their names there."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.tower: dict[str, str] = {}
        self.maps: dict[str, str] = {}
        self.language: dict[str, str] = {}
        for name in folder.places:
            if found := _MAP.fullmatch(name):
                self.maps[found[1]] = name
            elif begin := next((begin for begin in _TOWERS if name.startswith(begin)), None):
                self.tower[name.removeprefix(begin)] = name
            elif own := language_name(name):
                self.language[own] = name
            elif not _COMPUTED.fullmatch(name):
                raise ConfigError(f"{folder.path}: holds the tensor {name}, which is of no part of a LLaVA")

    def language_shapes(self) -> dict[str, tuple[int, ...]]:
        return {own: self.folder.places[name].shape for own, name in self.language.items()}

    def tensors(self, tower: Tower, *, tied: bool) -> LazyTensors:
        """By the names of a run. Raises ConfigError where one is missing, or none of the model."""
        made: dict[str, Any] = {}
        used = set[str]()
        for name in tower.names():
            theirs = as_clip(name)
            used |= {*theirs}
            if lacking := [one for one in theirs if one not in self.tower]:
                raise ConfigError(f"{self.folder.path}: lacks the tensor {lacking[0]} of its vision tower")
            made[_ENCODER + name] = partial(self._of_tower, name, theirs)
        unused = ("post_layernorm.", "head.")
        for name in self.tower.keys() - used:
            layer = re.match(r"encoder\.layers\.(\d+)\.", name)
            if not (name.startswith(unused) or (layer and int(layer[1]) >= tower.layers) or _COMPUTED.fullmatch(name)):
                raise ConfigError(
                    f"{self.folder.path}: holds {self.tower[name]}, which its vision_config has no place for"
                )
        for part, place in _MAPS.items():
            for kind in ("weight", "bias"):
                there = self.maps.get(f"{part}.{kind}", f"multi_modal_projector.{part}.{kind}")
                made[f"{_CONNECTOR}{place}.{kind}"] = partial(self.folder.tensor, there)
        for own, name in self.language.items():
            if not _COMPUTED.fullmatch(own) and not (tied and own == "lm_head.weight"):
                made[f"backbone.model.{own}"] = partial(self.folder.tensor, name)
        return LazyTensors(made)

    def _of_tower(self, name: str, theirs: tuple[str, ...]) -> Tensor:
        return as_timms(name, [self.folder.tensor(self.tower[one]) for one in theirs])


def _check_joint(config: Mapping[str, Any], tower: Tower, where: str) -> None:
    for name, default, expected in (
        ("projector_hidden_act", "gelu", "gelu"),
        ("multimodal_projector_bias", True, True),
        ("vision_feature_select_strategy", "default", tower.family.strategy),
    ):
        if (found := config.get(name, default)) != expected:
            raise ConfigError(
                f"{where}: {name}: expected {expected}, got {found!r:.40}; no connector here computes that"
            )


def _marks(folder: ModelFolder, config: Mapping[str, Any]) -> bool | list[str]:
    """The option of the processor: what stands around a picture. True where another token stands in its slots, as in
    what was exported here with marks; else what an export tells, or the template of chats of the line end behind it.
    False where nothing is known."""
    number = config.get("image_token_index", config.get("image_token_id"))
    names = folder.added_tokens
    if names.get(SLOT) == number and {BEGIN, END} <= names.keys() and number is not None:
        return True
    if IMAGE in (place := folder.written_places.get("image", "")):
        before, _, behind = place.partition(IMAGE)
        return [before, behind] if before or behind else False
    found = _BEHIND.search(folder.chat_template)
    return ["", found[1] + _line_end(folder)] if found else False


def _line_end(folder: ModelFolder) -> str:
    """A line end behind a picture, as its tokenizer has it there."""
    return " \n" if folder.puts_space(IMAGE) else "\n"


def _hints(folder: ModelFolder, *, known: bool) -> Iterator[str]:
    if not known:
        yield (
            "the model has learned with no marks around a picture, and has none here (modalities.image.processor.marks "
            f"is false); where its prompts have a line end behind one, set it to {['', _line_end(folder)]} in the run "
            "file, before it is trained"
        )
    if _vicuna(folder) is not None and not folder.written_places:
        yield (
            "its answers stand a space behind ASSISTANT:, which a prompt ends with: begin the answers of rows with one "
            "where they are to be as it has learned them"
        )
    if folder.puts_space(IMAGE):
        yield (
            "its tokenizer puts a space in front of a prompt, and of what stands behind a picture, which is not done "
            "here: in texts without turns begin with one where its tokens are to be the same"
        )


def _vicuna(folder: ModelFolder) -> dict[str, Any] | None:
    """Turns of Vicuna, which have no special tokens of their own, by the template of chats; None of any other."""
    template = folder.chat_template
    if len(template) > _LONGEST or "<|" in template or not ("ASSISTANT:" in template and _VICUNA.search(template)):
        return None
    end = folder.json("tokenizer_config.json").get("eos_token", "</s>")
    end = end.get("content") if isinstance(end, dict) else end
    if folder.puts_space(IMAGE):  # in front of the first turn, too
        return {"begin": "<s>", "system": " {}", "user": " USER: {}", "assistant": f" ASSISTANT:{{}}{end}"}
    return {"begin": "<s>", "system": "{} ", "user": "USER: {} ", "assistant": f"ASSISTANT:{{}}{end}"}


def _refuse_others(parts: ModelParts) -> None:
    config = parts.composition.config
    if [*config.modalities] != ["image"]:
        others = [name for name in config.modalities if name != "image"]
        what = f"modalities: {', '.join(others)}" if others else "modalities: the run has no pictures"
        raise parts.refuse(what, "LLaVA has pictures alone; begin a run of image (init)")
    if (stream := config.stream_of("image")) != "image":
        raise parts.refuse(f"modalities.image.stream: {stream}", "LLaVA has one stream, of its pictures; leave it out")


def _check_pictures(parts: ModelParts, processor: Any) -> None:
    where = "modalities.image.processor"
    if type(processor) is not ImageProcessor:
        raise parts.refuse(
            f"modalities.image: its processor is a {type(processor).__name__}", "LLaVA has pictures alone"
        )
    if processor.max_tiles > 1:
        raise parts.refuse(f"{where}.max_tiles: {processor.max_tiles}", "LLaVA splits no picture; begin a run with 1")
    if processor.size_px is None or processor.size_px[0] != processor.size_px[1]:
        raise parts.refuse(f"{where}.size_px: pictures are of several sizes", "LLaVA brings all to one square; set it")


def _apart(processor: ImageProcessor) -> tuple[str, ...]:
    """That the processor of the folder makes other pixels than the run has learned with, where it does."""
    if processor.exact or processor.resize == "squash":
        return ()
    how = "cuts" if processor.resize == "crop" else "adds margins"
    return (
        f"modalities.image.processor: resize {processor.resize} without exact, which transformers' processors have: it "
        f"{how} at whole pixels, so that edges lie up to one pixel elsewhere in its pictures than in this run's; "
        "a run that is to be exported is best begun with exact: true",
    )


def _check_connector(parts: ModelParts, connector: Any) -> None:
    where = "streams.image.connector"
    name = parts.composition.parts[where][1].name
    if name != "mlp":
        raise parts.refuse(f"{where}: {name}", "LLaVA has two linear maps; set name: mlp with norm: false")
    if not isinstance(connector.norm, nn.Identity):
        raise parts.refuse(f"{where}.norm: true", "LLaVA has no norm in front of its linear maps; set norm: false")
    if connector.pool is not None:
        raise parts.refuse(f"{where}.pool", "LLaVA takes every cell as it is; leave it out")
    first, last = connector.layers[0], connector.layers[2]
    if first.out_features != last.out_features:
        raise parts.refuse(
            f"{where}.hidden: {first.out_features}",
            f"LLaVA has the width of its language model there; set {last.out_features}",
        )


def _maps(connector: Any) -> dict[str, Tensor]:
    found = connector.layers.state_dict()
    return {f"{theirs}.{kind}": found[f"{own}.{kind}"] for theirs, own in _MAPS.items() for kind in ("weight", "bias")}


def _spare(tower: Tower, dtype: torch.dtype) -> dict[str, Tensor]:
    """Layers above those that are computed, which change nothing, and the norm of what nobody takes."""
    shapes = {
        "norm1": (tower.width,), "attn.qkv": (3 * tower.width, tower.width), "attn.proj": (tower.width, tower.width),
        "norm2": (tower.width,), "mlp.fc1": (tower.inner, tower.width), "mlp.fc2": (tower.width, tower.inner),
    }  # fmt: skip
    one, none = torch.ones(tower.width, dtype=dtype), torch.zeros(tower.width, dtype=dtype)
    found = {"post_layernorm.weight": one, "post_layernorm.bias": none}
    for layer in range(tower.layers, tower.layers + SPARE):
        for part, shape in shapes.items():
            for kind in ("weight", "bias"):
                zeros = torch.zeros(shape if kind == "weight" else shape[:1], dtype=dtype)
                found |= {name: one.clone() for name, one in as_theirs(f"blocks.{layer}.{part}.{kind}", zeros).items()}
    return found
