"""Pictures as codes of a VQGAN of transformers. No torch before the first picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media, SampleError
from kosmos_vision.codecs.squares import MAX_BYTES, MAX_PIXELS, Resize, Squares, as_png
from kosmos_vision.codecs.vqgan_folder import find_vqgan

if TYPE_CHECKING:
    from kosmos_vision.codecs.vqgan_model import VqganModel

MOST_SIDE = 1024


class VqganCodec:
    """A picture as codes of a trained VQGAN, row by row, as transformers saves it, alone or within a model of Emu3 or
    Janus: Emu3's has 32,768 codes, each for 8 x 8 pixels, Janus's 16,384, each for 16 x 16.

    Weights are read at the first picture, and work in fp32 on the CPU. Pixels go in and come out as
    ``preprocessor_config.json`` beside the weights states (``image_mean``, ``image_std``), else from -1 to 1.
    """

    def __init__(
        self,
        *,
        weights: str,
        side: int = 256,
        resize: Resize = "crop",
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """
        Args:
            weights: a local folder with ``config.json`` and safetensors, as ``save_pretrained`` writes it, of
                ``Emu3VQVAE``, ``JanusVQVAE``, or a model of Emu3 or Janus, of which the VQGAN alone is read. Nothing is
                downloaded.
            side: pixels that each side of a picture is brought to, a multiple of a code's.
            resize: how a picture that is no square becomes one: ``crop`` cuts what stands out around the centre,
                ``squash`` changes its shape, ``pad`` adds white margins.
            max_pixels: pictures with more are refused before they are decoded.
            max_bytes: files with more are refused before they are read.

        Raises:
            ConfigError: no such folder, a model that cannot decode, or a number out of range.
        """
        self._folder = find_vqgan(weights)
        patch = self._folder.patch_px
        if not patch <= side <= MOST_SIDE or side % patch:
            raise ConfigError(f"side {side}: need a multiple of {patch}, {MOST_SIDE:,} at most")
        self.side = side
        self.size: int = self._folder.size
        self.tokens = (side // patch) ** 2
        self.identity = self._folder.digest()
        self._squares = Squares(side, resize, max_pixels, max_bytes)
        self._model: VqganModel | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}  # another process reads the weights for itself

    def encode(self, media: Media) -> NDArray[np.integer[Any]]:
        """Codes row by row, [(side / a code's pixels) ** 2].

        Raises:
            SampleError: broken, cut short, or over a limit.
            ConfigError: the weights are not those of the configuration.
        """
        import torch

        planes = self._squares.read(media)
        codes: NDArray[np.int64] = self._read().encode(torch.from_numpy(planes)).numpy()
        return codes

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """A PNG of ``side`` x ``side`` pixels.

        Raises:
            SampleError: another number of codes than a picture has.
            ConfigError: as of ``encode``.
        """
        import torch

        if len(codes) != self.tokens:
            raise SampleError(f"{len(codes)} codes, a picture of {self.side} x {self.side} pixels has {self.tokens}")
        return as_png(self._read().decode(torch.from_numpy(np.array(codes, np.int64))).numpy())

    def _read(self) -> VqganModel:
        if self._model is None:
            from kosmos_vision.codecs.vqgan_model import VqganModel

            self._model = VqganModel(self._folder, self.side)
        return self._model
