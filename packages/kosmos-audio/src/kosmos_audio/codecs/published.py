"""Codecs that were trained: Mimi, EnCodec and DAC of transformers, from a local folder.

They are residual quantizers: each stretch of a sound has a code of each of several codebooks, of which every further
one says what the ones before it left over. A stretch's codes follow one another, and each codebook has numbers of its
own.
"""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media
from kosmos_audio.codecs.sound import SoundReader, as_wav

if TYPE_CHECKING:
    import torch

FEW = 8
"""Codebooks that are taken where nothing is said: as many as Moshi has of Mimi, and EnCodec at 6 kbit/s."""
TENSORS = "model.safetensors"


class PublishedCodec:
    """A codec of transformers, on the CPU. Its weights are read at the first sound, and are left behind when pickled.

    Args:
        weights: local folder with ``config.json`` and ``model.safetensors``, as ``save_pretrained`` writes it.
        codebooks: how many of its codebooks are written, the first ones; None is 8, or all where it has fewer. Each
            takes a token a stretch, and sounds better.
        max_seconds: longest sound.

    Raises:
        ConfigError: there is no such folder, it holds another model, or an option is out of range.
    """

    model_type: ClassVar[str]
    same_for_weights: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *, weights: str, codebooks: int | None = None, max_seconds: float = 30.0) -> None:
        self.folder = Path(weights)
        self._config = self._read_config()
        self.rate_hz = int(self._config.sampling_rate)
        there = self._codebooks()
        least = self._least()
        self.books = min(FEW, there) if codebooks is None else codebooks
        if not least <= self.books <= there:
            raise ConfigError(f"codebooks: expected {least} to {there}, which {self.folder} has, got {self.books}")
        self._each = int(self._config.codebook_size)
        self.size = self.books * self._each
        self.identity = _digest_of(self.folder)
        self._sounds = SoundReader(self.rate_hz, self._hop(), max_seconds)

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

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_model"}

    def _read_config(self) -> Any:
        file = self.folder / "config.json"
        try:
            stated = json.loads(file.read_text(encoding="utf-8"))
            found = stated.get("model_type") if isinstance(stated, dict) else None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"weights {self.folder}: expected a folder with the config.json of a {self.model_type} model ({error})"
            ) from error
        if found != self.model_type:
            raise ConfigError(
                f"weights {self.folder}: expected a {self.model_type} model, its config.json says {found}"
            )
        if not (self.folder / TENSORS).is_file():
            raise ConfigError(f"weights {self.folder}: no {TENSORS} there")
        from transformers import AutoConfig

        config: Any = AutoConfig.from_pretrained(self.folder, local_files_only=True, trust_remote_code=False)
        self._check(config)
        return config

    @cached_property
    def _model(self) -> Any:
        """Read without a draw of PyTorch's generator, of which a run has its own use.

        Raises:
            ConfigError: the file lacks some of the weights, which would be drawn at random.
        """
        import torch
        from transformers import AutoModel
        from transformers.utils import logging

        logging.disable_progress_bar()
        with torch.random.fork_rng(devices=[]):
            model: Any
            model, found = AutoModel.from_pretrained(
                self.folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32,
                output_loading_info=True,
            )  # fmt: skip
        if missing := sorted(found["missing_keys"]):
            raise ConfigError(f"weights {self.folder}: {TENSORS} lacks {missing[0]} and {len(missing) - 1} more")
        return model.eval()

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
            raise ConfigError(
                f"weights {self.folder}: expected an EnCodec model of one channel that neither scales nor cuts sounds, "
                "such as that of 24 kHz: the loudness of each piece is no code"
            )

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


def _digest_of(folder: Path) -> str:
    """What tells the weights from others: what their files hold."""
    parts = []
    for name in ("config.json", TENSORS):
        state = (folder / name).stat()
        parts.append(_digest(str(folder / name), state.st_mtime_ns, state.st_size))
    return " ".join(parts)


@lru_cache(maxsize=16)
def _digest(name: str, mtime_ns: int, size: int) -> str:
    """Of a file as it is: 0.4 s for 400 MB."""
    with open(name, "rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
