"""The vision towers of LLaVA, CLIP and SigLIP, as encoders ``timm``: settings and names of tensors, there and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kosmos import ConfigError
from kosmos_vision.timm_encoder import TimmEncoder
from kosmos_vision.transformers_names import as_clip

_OF_BLOCK = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
_ACTS = {"quick_gelu": "quickgelu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
CLOSE = 1e-3
"""Most that features may differ from those of transformers' own tower, relative to the largest: rounding in fp32 came
to 1e-6, another activation to 1e-2."""


class Family(NamedTuple):
    """One of the two, as transformers and timm have it."""

    model_type: str
    has_class: bool
    """Whether a class token stands before the patches, which then are projected without a bias, and a norm follows."""
    eps: float
    strategy: str
    """``vision_feature_select_strategy`` by which the features are those of the patches."""
    acts: Mapping[str, str]
    """Activation to a timm model that has it. Its sizes are stated beside it."""
    fields: Mapping[str, Any]
    """Further fields of its configuration."""


CLIP = Family(
    "clip_vision_model", True, 1e-5, "default",
    {"quick_gelu": "vit_base_patch16_clip_quickgelu_224", "gelu": "vit_base_patch16_clip_224"}, {"projection_dim": 512},
)  # fmt: skip
SIGLIP = Family(
    "siglip_vision_model", False, 1e-6, "full",
    {"gelu_pytorch_tanh": "vit_base_patch16_siglip_224", "gelu": "vit_base_patch16_siglip_224"},
    {"vision_use_head": False},
)  # fmt: skip
FAMILIES = {family.model_type: family for family in (CLIP, SIGLIP)}


@dataclass(frozen=True)
class Tower:
    """What a tower is, in numbers."""

    family: Family
    width: int
    inner: int
    heads: int
    layers: int
    """That are computed: features are the output of the last of them."""
    patch: int
    size: int
    """Side of a picture, in pixels."""
    act: str

    def names(self) -> Iterator[str]:
        """Of timm's tensors."""
        yield from ("pos_embed", "patch_embed.proj.weight")
        if self.family.has_class:
            yield from ("cls_token", "norm_pre.weight", "norm_pre.bias")
        else:
            yield "patch_embed.proj.bias"
        for block in range(self.layers):
            yield from (f"blocks.{block}.{part}.{kind}" for part in _OF_BLOCK for kind in ("weight", "bias"))

    def options(self, colours: Mapping[str, Any], above: int) -> dict[str, Any]:
        """Of an encoder ``timm``.

        Args:
            colours: ``mean`` and ``std`` of pictures.
            above: layers that the published tower has above those that are computed.
        """
        sizes: dict[str, Any] = {"embed_dim": self.width, "depth": self.layers + above, "num_heads": self.heads}
        sizes |= {"patch_size": self.patch, "mlp_ratio": self.inner / self.width}
        act = {"act_layer": "gelu_tanh"} if self.act == "gelu_pytorch_tanh" else {}
        return {
            "name": "timm", "model": self.family.acts[self.act], "image_size": self.size, "layer": -1 - above,
            "model_options": {**sizes, **act, "pretrained_cfg_overlay": dict(colours)},
        }  # fmt: skip

    def config(self, spare: int) -> dict[str, Any]:
        """A ``vision_config`` of as many layers, and ``spare`` ones above them."""
        return {
            "model_type": self.family.model_type, "hidden_size": self.width, "intermediate_size": self.inner,
            "num_attention_heads": self.heads, "num_hidden_layers": self.layers + spare, "patch_size": self.patch,
            "image_size": self.size, "hidden_act": self.act, "layer_norm_eps": self.family.eps, "num_channels": 3,
            **self.family.fields,
        }  # fmt: skip


def read_tower(config: Any, feature_layer: Any, where: str) -> tuple[Tower, int]:
    """A tower by its ``vision_config``, and how many layers it has above those whose output is taken.

    Raises:
        ConfigError: it is another, or computes what the encoder does not.
    """
    from transformers import CONFIG_MAPPING

    if not isinstance(config, dict) or config.get("model_type") not in [*FAMILIES]:
        found = config.get("model_type") if isinstance(config, dict) else config
        raise ConfigError(f"{where}: vision_config: model_type: expected {' or '.join(FAMILIES)}, got {found!r:.60}")
    family = FAMILIES[config["model_type"]]
    stated = {name: value for name, value in config.items() if name != "model_type" and name[:1] != "_"}
    try:
        full = CONFIG_MAPPING[family.model_type](**stated)
    except Exception as error:  # of wrong values it raises whatever comes of them
        raise ConfigError(f"{where}: vision_config: {' '.join(str(error).split())[:200]}") from error
    sizes = {}
    for name in (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "patch_size",
        "image_size",
    ):
        sizes[name] = value = getattr(full, name)
        if type(value) is not int or not 1 <= value <= 1 << 16:
            raise ConfigError(
                f"{where}: vision_config.{name}: expected a whole number from 1 to 65,536, got {value!r:.40}"
            )
    _check_computed(full, family, where)
    width, inner, heads, count, patch, size = sizes.values()
    if size % patch:
        raise ConfigError(
            f"{where}: vision_config: pictures of {size} px are no whole number of patches of {patch} px, and pixels "
            "at the edge would be left out; there is no encoder for that"
        )
    if int(width * (inner / width)) != inner or width % heads:
        raise ConfigError(
            f"{where}: vision_config: {inner} inside of {width}, in {heads} heads: no timm model has these"
        )
    if type(feature_layer) is not int or not 1 <= (kept := feature_layer + (count + 1) * (feature_layer < 0)) <= count:
        raise ConfigError(
            f"{where}: vision_feature_layer: expected one layer of {count}, from 1 or from -1 backwards, "
            f"got {feature_layer!r:.40}"
        )
    return Tower(family, width, inner, heads, kept, patch, size, full.hidden_act), count - kept


def _check_computed(full: Any, family: Family, where: str) -> None:
    for name, expected in (("layer_norm_eps", [family.eps]), ("num_channels", [3]), ("hidden_act", [*family.acts])):
        if getattr(full, name) not in expected:
            said = " or ".join(map(str, expected))
            raise ConfigError(f"{where}: vision_config.{name}: expected {said}, got {getattr(full, name)!r:.40}")


def tower_of(encoder: Any) -> Tower | str:
    """The tower that an encoder is, or in words what of it no tower of LLaVA has."""
    if not isinstance(encoder, TimmEncoder):
        return f"is a {type(encoder).__name__}; set name: timm"
    model: Any = encoder.model
    if type(model).__name__ != "VisionTransformer":
        return (
            f"is timm's {type(model).__name__}; set model: one of CLIP or SigLIP, such as vit_base_patch16_siglip_224"
        )
    if not isinstance(model.norm, nn.Identity):
        return "ends with the last norm, which LLaVA leaves out; set layer: -2, or -1"
    if (size := encoder.input.size_px) is None or size[0] != size[1]:
        return "takes pictures of several sizes; set image_size: one side, and variable: false"
    family = CLIP if model.cls_token is not None else SIGLIP
    act = next((theirs for theirs in family.acts if _is_act(model.blocks[0].mlp.act, theirs)), None)
    if act is None:
        return f"has an activation that LLaVA's has not ({type(model.blocks[0].mlp.act).__name__})"
    block, patch = model.blocks[0], encoder.input.patch_px
    tower = Tower(
        family,
        encoder.width,
        block.mlp.fc1.out_features,
        block.attn.num_heads,
        len(model.blocks),
        patch[0],
        size[0],
        act,
    )
    if patch[0] != patch[1] or {*tower.names()} != {*model.state_dict()}:
        others = sorted({*tower.names()} ^ {*model.state_dict()})
        return f"has other tensors than CLIP and SigLIP ({', '.join(others[:2])})"
    return tower


def _is_act(module: nn.Module, theirs: str) -> bool:
    """Whether an activation computes as one of transformers does."""
    x = torch.linspace(-4, 4, 33)
    gelu = nn.functional.gelu
    meant = {
        "quick_gelu": x * torch.sigmoid(1.702 * x),
        "gelu": gelu(x),
        "gelu_pytorch_tanh": gelu(x, approximate="tanh"),
    }
    return torch.allclose(module(x), meant[theirs], atol=1e-5)


def as_timms(name: str, parts: list[Tensor]) -> Tensor:
    """A tensor of timm's, of those that ``as_clip`` names."""
    whole = torch.cat(parts) if len(parts) > 1 else parts[0]
    return whole.reshape(1, -1, whole.shape[-1]) if name in ("pos_embed", "cls_token") else whole


def as_theirs(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """The way back: tensors of the tower by its names."""
    names = as_clip(name)
    if name in ("pos_embed", "cls_token"):
        tensor = tensor[0, 0] if name == "cls_token" else tensor[0]
    if len(names) == 1:
        return {names[0]: tensor}
    return {theirs: part.clone() for theirs, part in zip(names, tensor.chunk(len(names)), strict=True)}


def check_features(encoder: TimmEncoder, tower: Tower, tensors: Mapping[str, Tensor]) -> None:
    """Compare the features of one picture with those of transformers' own tower, of which no name tells everything.

    Args:
        tensors: by the names of the tower.

    Raises:
        ConfigError: they differ.
    """
    from transformers import CONFIG_MAPPING, AutoModel

    config = CONFIG_MAPPING[tower.family.model_type](
        **{name: value for name, value in tower.config(0).items() if name != "model_type"}
    )
    config._attn_implementation = "eager"
    with torch.device("meta"):
        theirs: Any = AutoModel.from_config(config)
    unused = {name: torch.ones(tower.width) for name in ("post_layernorm.weight", "post_layernorm.bias")}
    begin = "vision_model." if any(name.startswith("vision_model.") for name in theirs.state_dict()) else ""
    own = {f"{begin}{name}": tensor.float() for name, tensor in {**tensors, **unused}.items()}
    if next(encoder.parameters()).dtype != torch.float32:  # in bf16 rounding alone would be as much as an activation
        encoder = deepcopy(encoder).float()
    theirs.load_state_dict(own, assign=True, strict=True)
    for module in theirs.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:  # numbers of positions, which is all that they have
                setattr(module, name, torch.arange(buffer.shape[-1]).expand(buffer.shape))
    pixels = torch.randint(0, 256, (1, 3, tower.size, tower.size), generator=torch.Generator().manual_seed(0)).byte()
    side = tower.size // tower.patch
    cells = (
        pixels.view(3, side, tower.patch, side, tower.patch)
        .permute(1, 3, 0, 2, 4)
        .reshape(side * side, 3, tower.patch, -1)
    )
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (encoder.input.mean, encoder.input.std))
    with torch.no_grad():
        ours = encoder(cells, torch.tensor([[1, side, side]]))
        found = theirs.eval()((pixels / 255 - mean) / std, output_hidden_states=True).hidden_states[-1][0]
    found = found[1:] if tower.family.has_class else found
    worst, most = (ours - found).abs().max().item(), found.abs().max().item()
    if not worst <= CLOSE * max(most, 1e-6):
        raise ConfigError(
            f"streams.image.encoder: its features differ by {worst:.2g} of {most:.2g} from those of transformers' "
            f"{tower.family.model_type}; the timm model computes otherwise"
        )
