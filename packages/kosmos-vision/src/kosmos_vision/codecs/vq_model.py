"""The VQ models of transformers, which encode and decode: Emu3's and Janus's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from kosmos import ConfigError
from kosmos_vision.codecs.vq_folder import JANUS, VqFolder, read_object

_HALF = (0.5, 0.5, 0.5)


class VqModel:
    """One in memory, for pictures of one size, in fp32 on the CPU.

    Args:
        folder: that holds it.
        side_px: of the pictures.

    Raises:
        ConfigError: its configuration or tensors are no such model's.
    """

    def __init__(self, folder: VqFolder, side_px: int) -> None:
        self.rows = side_px // folder.patch_px
        self.is_janus = folder.kind == JANUS
        try:
            self.model = _built(folder, self.rows, self.is_janus)
        except Exception as error:  # transformers checks configurations by errors of its own
            said = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ConfigError(f"weights {folder.folder}: config.json makes no {folder.kind.name}: {said}") from error
        _fill(self.model, folder)
        self.mean, self.std = (_colours(folder.folder, name) for name in ("mean", "std"))

    @torch.inference_mode()
    def encode(self, planes: Tensor) -> Tensor:
        """Codes row by row, int64 [(side / patch) ** 2], of a picture uint8 [3, side, side]."""
        pixels = ((planes.float() / 255 - self.mean) / self.std)[None]
        if self.is_janus:
            # It decodes with codes of length 1, so the nearest of them is the one of the smallest angle, as in the
            # program of its authors (``l2_norm``). Transformers looks for the nearest of the codes as they are stored.
            hidden = self.model.quant_conv(self.model.encoder(pixels))
            codebook = normalize(self.model.quantize.embedding.weight, dim=-1)
            nearest: Tensor = torch.einsum("dhw,nd->hwn", hidden[0], codebook).argmax(-1)
            return nearest.flatten()
        sizes = torch.tensor([pixels.shape[-2:]])
        tokens: Tensor = self.model.encode(pixels, image_sizes=sizes).image_tokens[0]
        return tokens.flatten()

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> Tensor:
        """A picture uint8 [side, side, 3]."""
        shape = (1, len(codes)) if self.is_janus else (1, self.rows, self.rows)
        made: Tensor = self.model.decode(codes.reshape(shape))[0].float() * self.std + self.mean
        return (made.nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)


def _built(folder: VqFolder, rows: int, is_janus: bool) -> Any:
    """The model without its weights: on the meta device, which draws no random numbers."""
    config: Any
    with torch.device("meta"):
        if is_janus:
            from transformers.models.janus.modeling_janus import JanusVQVAE, JanusVQVAEConfig

            config = JanusVQVAEConfig.from_dict({**folder.config, "num_patches": rows})
            return JanusVQVAE(config).eval()
        from transformers.models.emu3.modeling_emu3 import Emu3VQVAE, Emu3VQVAEConfig

        config = Emu3VQVAEConfig.from_dict(dict(folder.config))
        return Emu3VQVAE(config).eval()


def _fill(model: Any, folder: VqFolder) -> None:
    """Give it its tensors, in fp32, and nothing else of the files."""
    from safetensors import safe_open

    state: dict[str, Tensor] = {}
    try:
        for file in sorted({place.file for place in folder.places.values()}):
            with safe_open(file, "pt") as opened:
                for name, place in folder.places.items():
                    if place.file == file:
                        tensor = opened.get_tensor(folder.prefix + name)
                        state[name] = tensor.float() if tensor.is_floating_point() else tensor
        model.load_state_dict(state, assign=True)
    except Exception as error:  # damaged files, missing tensors, other shapes: each has errors of its own
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(f"weights {folder.folder}: they are not those of its config.json: {said}") from error
    model.requires_grad_(False)


def _colours(folder: Path, name: str) -> Tensor:
    """Mean or std of its pixels, [3, 1, 1]: those of ``preprocessor_config.json``; by default they are from -1 to 1."""
    stated = read_object(folder / "preprocessor_config.json").get(f"image_{name}", _HALF)
    try:
        colours = torch.tensor(stated, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        colours = torch.empty(0)
    if colours.shape != (3,) or not colours.isfinite().all() or (name == "std" and colours.min() <= 0):
        what = "three numbers above 0" if name == "std" else "three numbers"
        raise ConfigError(
            f"weights {folder}: preprocessor_config.json: image_{name}: expected {what}, got {stated!r:.60}"
        )
    return colours.reshape(3, 1, 1)
