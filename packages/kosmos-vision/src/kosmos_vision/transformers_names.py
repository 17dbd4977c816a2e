"""Weights of vision transformers as the library transformers names them (SigLIP, CLIP, ViT, DeiT, DINOv2), by timm's
names: the tensors are the same, but for queries, keys and values, which timm holds as one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kosmos import ConfigError

_PATCHES = re.compile(r"(.*?)embeddings\.patch_embeddings?\.(?:projection\.)?weight")
"""The projection of patches, which each of them has: behind it, what its names begin with."""
_BLOCK = re.compile(r"encoder\.layers?\.(\d+)\.(.+)")
_THREE = re.compile(r"(?:self_attn\.([qkv])_proj|attention\.attention\.(query|key|value))\.(weight|bias)")
_OF_BLOCK = {
    "layer_norm1": "norm1", "layernorm_before": "norm1", "norm1": "norm1",
    "layer_norm2": "norm2", "layernorm_after": "norm2", "norm2": "norm2",
    "self_attn.out_proj": "attn.proj", "attention.output.dense": "attn.proj",
    "mlp.fc1": "mlp.fc1", "intermediate.dense": "mlp.fc1", "mlp.fc2": "mlp.fc2", "output.dense": "mlp.fc2",
    "layer_scale1.lambda1": "ls1.gamma", "layer_scale2.lambda1": "ls2.gamma",
}  # fmt: skip
_AROUND = {
    "embeddings.patch_embedding": "patch_embed.proj", "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "embeddings.cls_token": "cls_token", "embeddings.class_embedding": "cls_token",
    "embeddings.distillation_token": "dist_token", "embeddings.register_tokens": "reg_token",
    "embeddings.position_embedding": "pos_embed", "embeddings.position_embeddings": "pos_embed",
    "pre_layrnorm": "norm_pre", "post_layernorm": "norm", "layernorm": "norm",
    "head.probe": "attn_pool.latent", "head.attention.out_proj": "attn_pool.proj", "head.layernorm": "attn_pool.norm",
    "head.mlp.fc1": "attn_pool.mlp.fc1", "head.mlp.fc2": "attn_pool.mlp.fc2",
}  # fmt: skip
_BACK_OF_BLOCK = {name: theirs for theirs, name in reversed(_OF_BLOCK.items())}
_BACK_AROUND = {
    "patch_embed.proj": "embeddings.patch_embedding", "cls_token": "embeddings.class_embedding",
    "pos_embed": "embeddings.position_embedding.weight", "norm_pre": "pre_layrnorm", "norm": "post_layernorm",
}  # fmt: skip
_LEFT = ("embeddings.mask_token", "embeddings.position_ids", "pooler.")
"""What features have no use for."""
_POOL = "attn_pool."


def as_timm(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Tensors by timm's names, where they have those of transformers; others as they are.

    Args:
        state: of a vision model, or of one that holds it, whose other tensors are left aside.
        model: that is to take them. What it has to pool features, which is not used here, may be missing.
    """
    matches = filter(None, map(_PATCHES.fullmatch, state))
    begins = [match[1] for match in matches if _has_blocks(state, match[1])]
    if not begins:
        return dict(state)
    own = {key.removeprefix(begins[0]): tensor for key, tensor in state.items() if key.startswith(begins[0])}
    found: dict[str, Tensor] = {}
    three: dict[str, dict[str, Tensor]] = {}
    for key, tensor in own.items():
        block = _BLOCK.fullmatch(key)
        if block and (part := _THREE.fullmatch(block[2])):
            three.setdefault(f"blocks.{block[1]}.attn.qkv.{part[3]}", {})[(part[1] or part[2])[0]] = tensor
        elif block:
            found[f"blocks.{block[1]}.{_renamed(block[2], _OF_BLOCK)}"] = tensor
        elif key.startswith("head.attention.in_proj_"):
            kind = key.removeprefix("head.attention.in_proj_")
            width = len(tensor) // 3
            found |= {f"{_POOL}q.{kind}": tensor[:width], f"{_POOL}kv.{kind}": tensor[width:]}
        elif not key.startswith(_LEFT):
            found[_renamed(key, _AROUND)] = tensor
    found |= {name: torch.cat([parts[which] for which in "qkv" if which in parts]) for name, parts in three.items()}
    for name in ("pos_embed", "cls_token"):
        if name in found:
            found[name] = found[name].reshape(1, -1, found[name].shape[-1])
    if "reg_token" in found and len(positions := found["pos_embed"][0]) > 1:  # timm adds none to tokens before patches
        found["cls_token"] = found["cls_token"] + positions[:1]
        found["pos_embed"] = positions[None, 1:]
    return {name: tensor for name, tensor in model.state_dict().items() if name.startswith(_POOL)} | found


def as_clip(name: str) -> tuple[str, ...]:
    """What a tensor of timm's is called in CLIP and SigLIP of transformers: three names of queries, keys and values.

    Raises:
        KeyError: it is none that these have.
    """
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)\.(weight|bias)", name)
    if block is None:
        begin, _, end = name.rpartition(".")
        return (_BACK_AROUND[name] if name in _BACK_AROUND else f"{_BACK_AROUND[begin]}.{end}",)
    layer = f"encoder.layers.{block[1]}"
    if block[2] == "attn.qkv":
        return tuple(f"{layer}.self_attn.{which}_proj.{block[3]}" for which in "qkv")
    return (f"{layer}.{_BACK_OF_BLOCK[block[2]]}.{block[3]}",)


def _has_blocks(state: Mapping[str, Tensor], begin: str) -> bool:
    return any(key.startswith((f"{begin}encoder.layer.", f"{begin}encoder.layers.")) for key in state)


def _renamed(key: str, names: Mapping[str, str]) -> str:
    """``key`` as it is where nothing is known of it, so that it is told of as left over."""
    if key in names:
        return names[key]
    begin, _, end = key.rpartition(".")
    if begin in names:
        return names[begin] if names[begin] == "pos_embed" else f"{names[begin]}.{end}"
    return key


def refuse_another(weights: Path, model: nn.Module, name: str) -> None:
    """Refuse a model whose tensors have the shapes of the weights, and that counts otherwise: each feature would be a
    little wrong.

    Raises:
        ConfigError: the ``config.json`` of transformers beside the weights states another number of heads, or one of
            QuickGELU, as OpenAI's CLIP has it, and another activation, where the model has the other.
    """
    kind, vision = _stated(weights)
    heads = vision.get("num_attention_heads")
    own = {found for module in model.modules() if isinstance(found := getattr(module, "num_heads", None), int)}
    if isinstance(heads, int) and own and own != {heads}:
        raise ConfigError(
            f"weights {weights}: their config.json says num_attention_heads {heads}, and timm model {name} has "
            f"{max(own)}; take one that fits, or model_options: {{num_heads: {heads}}}"
        )
    stated = vision.get("hidden_act", "quick_gelu" if kind.startswith("clip") else None)
    is_quick = any(type(module).__name__.lower() == "quickgelu" for module in model.modules())
    if stated is not None and (stated == "quick_gelu") != is_quick:
        plain = name.split(".")[0].replace("_quickgelu", "")
        near = plain if is_quick else plain.replace("_clip_", "_clip_quickgelu_")
        raise ConfigError(
            f"weights {weights}: their config.json says hidden_act {stated}, and timm model {name} has another; take "
            f"one {'without' if is_quick else 'with'} quickgelu in its name, such as {near}"
        )


def stated_options(weights: str | None, model: str) -> dict[str, Any]:
    """Options of a timm model that weights of transformers want beside its name: SigLIP's GELU, by its tangent."""
    if weights is None or "siglip" not in model:
        return {}
    kind, vision = _stated(Path(weights))
    is_tanh = kind.startswith("siglip") and vision.get("hidden_act", "gelu_pytorch_tanh") == "gelu_pytorch_tanh"
    return {"act_layer": "gelu_tanh"} if is_tanh else {}


def refuse_other_size(weights: str, size: tuple[int, int], model: str) -> None:
    """Raises ConfigError where the ``config.json`` of transformers beside the weights states another size of pictures
    than the model has by its name, and nobody has said which is meant: its positions would be stretched."""
    stated = _stated(Path(weights))[1].get("image_size")
    if isinstance(stated, int) and (stated, stated) != tuple(size):
        raise ConfigError(
            f"weights {weights}: their config.json says image_size {stated}, and timm model {model} is for {size[0]} x "
            f"{size[1]} pixels; set image_size: {stated}, or the size that is meant"
        )


def told_of(weights: Path) -> str:
    """What the ``config.json`` of transformers says that weights are; empty where there is none."""
    kind, _ = _stated(weights)
    return f" (their config.json says model_type {kind})" if kind else ""


def _stated(weights: Path) -> tuple[str, dict[str, Any]]:
    """The kind of model that transformers has written beside local weights, and the configuration of its part for
    pictures; empty where the file is of something else."""
    config = _beside(weights, "config.json") if weights.exists() else {}
    if "architectures" not in config or "model_type" not in config:
        return "", {}
    within = config.get("vision_config")
    return str(config["model_type"]), within if isinstance(within, dict) else config


def stated_colours(weights: Path) -> dict[str, Any]:
    """Mean and std of the ``preprocessor_config.json`` beside weights, by timm's names; nothing where there is none."""
    config = _beside(weights, "preprocessor_config.json")
    stated = {"mean": config.get("image_mean"), "std": config.get("image_std")}
    return stated if all(value is not None for value in stated.values()) else {}


def _beside(weights: Path, name: str) -> dict[str, Any]:
    file = (weights if weights.is_dir() else weights.parent) / name
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"weights {weights}: {file} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}
