"""Codecs that were trained: the picture tokenizers of Janus and Emu3 in transformers, from a local folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, LocalModel, Media
from kosmos_vision.codecs.squares import Fit, SquareReader, as_png, check_count

if TYPE_CHECKING:
    import torch

COLOURS = (0.5, 0.5, 0.5)
"""Mean and deviation where the folder states none: pixels from -1 to 1."""


class PublishedCodec:
    """A picture tokenizer of transformers, on the CPU (``kosmos.LocalModel``): a code for each patch, row after row.

    Args:
        weights: local folder with ``config.json`` and ``model.safetensors`` of the tokenizer alone, as
            ``save_pretrained`` writes it; a ``preprocessor_config.json`` there states mean and deviation of colours.
        side: pixels along each side, to which pictures are made; None is the model's own.
        fit: ``"crop"`` cuts off what is longer, at both ends; ``"stretch"`` keeps all of it.

    Raises:
        ConfigError: there is no such folder, it holds another model, or ``side`` is none of its sizes.
    """

    model_type: ClassVar[str]
    target: ClassVar[str]
    """Of the model's class."""

    def __init__(self, *, weights: str, side: int | None = None, fit: Fit = "crop") -> None:
        self._local = LocalModel(weights, self.model_type, target=self.target)
        self._config = self._local.config
        self._patch: int = 2 ** (len(self._config.channel_multiplier) - 1)
        self.side = self._own_side() if side is None else side
        self._check_side()
        self._squares = SquareReader(self.side, fit)
        self._mean, self._deviation = _colours_of(self._local.folder)
        self.size, self.identity = self._codes(), self._local.identity
        self.length = (self.side // self._patch) ** 2

    def encode(self, media: Media) -> NDArray[np.int64]:
        """A code of each patch, row after row. Raises SampleError as ``SquareReader.pixels``."""
        import torch

        scaled = (self._squares.pixels(media).astype(np.float32) / 255 - self._mean) / self._deviation
        pixels = torch.from_numpy(scaled.astype(np.float32)).permute(2, 0, 1)[None]
        with torch.inference_mode():
            codes: NDArray[np.int64] = self._encoded(pixels).reshape(-1).numpy().astype(np.int64)
        return codes

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """The picture as a PNG file. Raises SampleError where the codes are not as many as it has patches."""
        import torch

        rows = self.side // self._patch
        check_count(codes, rows, rows)
        with torch.inference_mode():
            pixels = self._decoded(torch.from_numpy(codes).reshape(1, rows, rows)).reshape(3, self.side, self.side)
        values = pixels.permute(1, 2, 0).numpy() * self._deviation + self._mean
        return as_png(np.rint(values.clip(0, 1) * 255).astype(np.uint8))

    def _own_side(self) -> int:
        raise NotImplementedError

    def _check_side(self) -> None:
        if self.side < self._patch or self.side % self._patch:
            raise ConfigError(f"side: expected a multiple of {self._patch} pixels, got {self.side}")

    def _codes(self) -> int:
        raise NotImplementedError

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        """[1, 3, side, side] to as many codes as there are patches."""
        raise NotImplementedError

    def _decoded(self, codes: torch.Tensor) -> torch.Tensor:
        """[1, rows, columns] to the pixels of one picture."""
        raise NotImplementedError


class JanusCodec(PublishedCodec):
    """The VQ model of Janus (DeepSeek): 24 x 24 codes of 384 pixels. Options as of ``PublishedCodec``."""

    model_type = "janus_vqgan"
    target = "transformers.models.janus.modeling_janus:JanusVQVAE"

    def _own_side(self) -> int:
        return int(self._config.num_patches) * self._patch

    def _check_side(self) -> None:
        if self.side != self._own_side():  # its decoder knows one size
            raise ConfigError(f"side: expected {self._own_side()}, the only one of this model, got {self.side}")

    def _codes(self) -> int:
        return int(self._config.num_embeddings)

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        codes: torch.Tensor = self._local.module.encode(pixels).image_tokens
        return codes

    def _decoded(self, codes: torch.Tensor) -> torch.Tensor:
        pixels: torch.Tensor = self._local.module.decode(codes.reshape(1, -1))
        return pixels


class Emu3Codec(PublishedCodec):
    """The VQ model of Emu3 (BAAI): a code for each 8 x 8 pixels, of pictures of any side. Options as of
    ``PublishedCodec``."""

    model_type = "emu3_vqgan"
    target = "transformers.models.emu3.modeling_emu3:Emu3VQVAE"

    def _own_side(self) -> int:
        return 32 * self._patch

    def _codes(self) -> int:
        return int(self._config.codebook_size)

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        import torch

        sizes = torch.tensor([[self.side, self.side]])
        codes: torch.Tensor = self._local.module.encode(pixels, sizes).image_tokens[0]
        return codes

    def _decoded(self, codes: torch.Tensor) -> torch.Tensor:
        pixels: torch.Tensor = self._local.module.decode(codes)
        return pixels.reshape(-1, 3, self.side, self.side)[0]  # of the moments that it makes of a picture the first


def _colours_of(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and deviation of the colours. Raises ConfigError where what the folder states is none."""
    file = folder / "preprocessor_config.json"
    try:
        stated: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        stated = {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read ({error})") from error
    found = []
    for name in ("image_mean", "image_std"):
        values = stated.get(name, COLOURS) if isinstance(stated, dict) else None
        try:
            numbers = np.asarray(values, np.float32)
        except (TypeError, ValueError):
            numbers = np.zeros(0, np.float32)
        if numbers.shape != (3,) or not np.isfinite(numbers).all() or (name == "image_std" and not numbers.all()):
            raise ConfigError(f"{file}: {name}: expected three numbers, got {values!r:.60}")
        found.append(numbers)
    return found[0], found[1]
