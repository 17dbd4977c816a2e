"""Pictures as codes of a VQ model of transformers. No torch before the first picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media
from kosmos_vision.codecs.squares import MAX_BYTES, MAX_PIXELS, Fit, Squares, as_png, check_codes
from kosmos_vision.codecs.vq_folder import EMU3, JANUS, Kind, find_vq

if TYPE_CHECKING:
    from kosmos_vision.codecs.vq_model import VqModel

MOST_SIDE = 1024


class VqCodec:
    """A picture as codes of a trained VQ model, row by row. Its weights are read at the first picture, and work in fp32
    on the CPU.

    Pixels go in and come out as ``preprocessor_config.json`` beside the weights states (``image_mean``, ``image_std``),
    else from -1 to 1.
    """

    kind: ClassVar[Kind]

    def __init__(
        self,
        *,
        weights: str,
        side: int | None = None,
        fit: Fit = "crop",
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """
        Args:
            weights: a local folder with ``config.json`` and safetensors, as ``save_pretrained`` writes it, of the VQ
                model alone or of a language model that holds it, of which nothing else is read. Nothing is downloaded.
            side: pixels that each side of a picture is brought to: those of two codes or more, 1,024 at most. None is
                what Janus's ``config.json`` states, and 32 codes of Emu3.
            fit: how a picture that is no square becomes one: ``crop`` cuts what stands out around the centre,
                ``stretch`` changes its shape, ``pad`` adds white margins.
            max_pixels: pictures with more are refused before they are decoded.
            max_bytes: files with more are refused before they are read.

        Raises:
            ConfigError: no such folder, another model, or a number out of range.
        """
        self._folder = find_vq(weights, self.kind)
        patch = self._folder.patch_px
        self.side = self._folder.rows * patch if side is None else side
        if not 2 * patch <= self.side <= MOST_SIDE or self.side % patch:
            raise ConfigError(f"side {self.side}: need a multiple of {patch} from {2 * patch} to {MOST_SIDE:,}")
        self.size: int = self._folder.size
        self.length = (self.side // patch) ** 2
        self.identity = f"{self._folder.digest()} {self.side} {fit}"
        self._squares = Squares(self.side, fit, max_pixels, max_bytes)
        self._model: VqModel | None = None

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
            SampleError: another number of codes than a picture has, or others.
            ConfigError: as of ``encode``.
        """
        import torch

        check_codes(codes, self.side, self.length, self.size)
        return as_png(self._read().decode(torch.from_numpy(np.array(codes, np.int64))).numpy())

    def _read(self) -> VqModel:
        if self._model is None:
            from kosmos_vision.codecs.vq_model import VqModel

            self._model = VqModel(self._folder, self.side)
        return self._model


class JanusCodec(VqCodec):
    """The VQ model of Janus (``JanusVQVAE`` of transformers): 16,384 codes, each for 16 x 16 pixels; a picture of 384 x
    384 is 576 of them."""

    kind = JANUS


class Emu3Codec(VqCodec):
    """The VQ model of Emu3 (``Emu3VQVAE`` of transformers): 32,768 codes, each for 8 x 8 pixels; a picture of 256 x 256
    is 1,024 of them."""

    kind = EMU3
