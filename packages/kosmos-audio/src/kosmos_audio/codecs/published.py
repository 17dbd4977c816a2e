"""Codecs that were trained: Mimi, EnCodec and DAC of transformers, from a local folder.

They are residual quantizers: each stretch of a sound has a code of each of several codebooks, of which every further
one says what the ones before it left over. A stretch's codes follow one another, and each codebook has numbers of its
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, LocalModel, Media
from kosmos_audio.codecs.sound import SoundReader, as_wav

if TYPE_CHECKING:
    import torch

FEW = 8
"""Codebooks that are taken where nothing is said: as many as Moshi has of Mimi, and EnCodec at 6 kbit/s."""


class PublishedCodec:
    """A codec of transformers, on the CPU (``kosmos.LocalModel``).

    Args:
        weights: local folder with ``config.json`` and ``model.safetensors``, as ``save_pretrained`` writes it.
        codebooks: how many of its codebooks are written, the first ones; None is 8, or all where it has fewer. Each
            takes a token a stretch, and sounds better.
        max_seconds: longest sound.

    Raises:
        ConfigError: there is no such folder, it holds another model, or an option is out of range.
    """

    model_type: ClassVar[str]

    def __init__(self, *, weights: str, codebooks: int | None = None, max_seconds: float = 30.0) -> None:
        self._local = LocalModel(weights, self.model_type)
        self._config = self._local.config
        self._check(self._config)
        self.rate_hz = int(self._config.sampling_rate)
        least, there = self._least(), self._codebooks()
        self.books = min(FEW, there) if codebooks is None else codebooks
        if not least <= self.books <= there:
            raise ConfigError(f"codebooks: expected {least} to {there}, which {weights} has, got {self.books}")
        self._each = int(self._config.codebook_size)
        self.size = self.books * self._each
        self.identity = self._local.identity
        self._sounds = SoundReader(self.rate_hz, self._hop(), max_seconds)

    @property
    def _model(self) -> Any:
        return self._local.module

    def encode(self, media: Media) -> NDArray[np.int64]:
        """The codes of each stretch, one after the other: [stretches * codebooks]. Raises SampleError as
        ``SoundReader.samples``."""
        import torch

        samples = torch.from_numpy(self._sounds.samples(media))
        with torch.inference_mode():
            codes = self._encoded(samples[None, None])[0, : self.books]  # [codebooks, stretches]
        of_books = codes.numpy().astype(np.int64) + self._each * np.arange(self.books)[:, None]
        return of_books.T.reshape(-1)

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """The sound as a WAV file."""
        import torch

        of_books = codes.reshape(-1, self.books).T - self._each * np.arange(self.books)[:, None]
        with torch.inference_mode():
            samples = self._decoded(torch.from_numpy(np.ascontiguousarray(of_books))[None])
        return as_wav(samples.reshape(-1).float().numpy(), self.rate_hz)

    def _check(self, config: Any) -> None:
        """Raises ConfigError where codes alone do not say what a sound is."""

    def _codebooks(self) -> int:
        raise NotImplementedError

    def _least(self) -> int:
        return 1

    def _hop(self) -> int:
        """Samples of a stretch."""
        raise NotImplementedError

    def _encoded(self, samples: torch.Tensor) -> torch.Tensor:
        """[1, 1, n] to [1, codebooks or more, stretches]."""
        raise NotImplementedError

    def _decoded(self, codes: torch.Tensor) -> torch.Tensor:
        """[1, codebooks, stretches] to the samples."""
        raise NotImplementedError


class MimiCodec(PublishedCodec):
    """Mimi (Kyutai): 12.5 stretches a second. Options as of ``PublishedCodec``."""

    model_type = "mimi"

    def _codebooks(self) -> int:
        return int(self._config.num_quantizers)

    def _least(self) -> int:
        return int(self._config.num_semantic_quantizers)

    def _hop(self) -> int:
        return int(self._config.frame_size)

    def _encoded(self, samples: torch.Tensor) -> torch.Tensor:
        codes: torch.Tensor = self._model.encode(samples, num_quantizers=self.books).audio_codes
        return codes

    def _decoded(self, codes: torch.Tensor) -> torch.Tensor:
        samples: torch.Tensor = self._model.decode(codes).audio_values
        return samples


class EncodecCodec(PublishedCodec):
    """EnCodec (Meta) for mono sound, such as its 24 kHz model: 75 stretches a second. Options as of
    ``PublishedCodec``."""

    model_type = "encodec"

    def _check(self, config: Any) -> None:
        if config.audio_channels != 1 or config.normalize or config.chunk_length_s is not None:
            what = "expected an EnCodec model of one channel that neither scales nor cuts sounds"
            why = "such as that of 24 kHz: the loudness of each piece is no code"
            raise ConfigError(f"weights {self._local.folder}: {what}, {why}")

    def _codebooks(self) -> int:
        return int(self._config.num_quantizers)

    def _hop(self) -> int:
        return int(self._config.hop_length)

    def _encoded(self, samples: torch.Tensor) -> torch.Tensor:
        # The most that it can be asked for: fewer codebooks are the first ones of these.
        codes: torch.Tensor = self._model.encode(samples, bandwidth=max(self._config.target_bandwidths)).audio_codes
        return codes[0]

    def _decoded(self, codes: torch.Tensor) -> torch.Tensor:
        samples: torch.Tensor = self._model.decode(codes[None], [None]).audio_values
        return samples


class DacCodec(PublishedCodec):
    """DAC (Descript): 86 stretches a second at 44.1 kHz, 50 at 16 kHz. Options as of ``PublishedCodec``."""

    model_type = "dac"

    def _codebooks(self) -> int:
        return int(self._config.n_codebooks)

    def _hop(self) -> int:
        return int(self._config.hop_length)

    def _encoded(self, samples: torch.Tensor) -> torch.Tensor:
        codes: torch.Tensor = self._model.encode(samples, n_quantizers=self.books).audio_codes
        return codes

    def _decoded(self, codes: torch.Tensor) -> torch.Tensor:
        samples: torch.Tensor = self._model.decode(audio_codes=codes).audio_values
        return samples
