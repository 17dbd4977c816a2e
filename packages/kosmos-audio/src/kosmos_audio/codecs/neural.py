"""Codecs that are networks, as transformers has them: Mimi, EnCodec and DAC, whose residual quantizers give codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos import ConfigError, Encoded, Media, SampleError
from kosmos_audio.codecs.model_folder import FIRST, Shape, identity_of, read_config, shape_of, weights_of
from kosmos_audio.codecs.sound_files import SoundReader, wav_of

CLASSES = {"mimi": "MimiModel", "encodec": "EncodecModel", "dac": "DacModel"}
"""Of transformers, by ``model_type``."""

# T = frames of a sound, B = codebooks that are taken, K = codes of one of them


class NeuralAudioCodec:
    """Sound as the codes of a neural audio codec: of frame after frame those of its codebooks, in their order.

    A code is that of its codebook, plus K for each codebook before it: B * K codes in all, T * B of them for a sound.
    Sounds are encoded one at a time, so that none sees what fills up another, on the CPU and in fp32. A sound that was
    decoded is as long as its frames, up to a frame longer than what was encoded (of DAC some samples less than that),
    but no longer than ``max_duration_s``.

    Args:
        weights: local folder with ``config.json`` and safetensors of a MimiModel, an EncodecModel or a DacModel of
            transformers, of one channel. Nothing is downloaded.
        codebooks: how many of its codebooks are taken, from the first on; each adds what those before it leave. None:
            the first 8, or all of fewer.
        max_duration_s: longest sound (after ``Media.clip``) that is learned or written, in seconds.

    Raises:
        ConfigError: the folder holds no such model, or one whose codes do not tell all; it has not so many codebooks.
    """

    def __init__(self, *, weights: str, codebooks: int | None = None, max_duration_s: float = 60.0) -> None:
        folder = Path(weights)
        self._config = read_config(folder)
        self.shape: Shape = shape_of(folder, self._config)
        self.weights, files = weights_of(folder)
        if codebooks is None:
            codebooks = max(min(FIRST, self.shape.codebooks), self.shape.fewest)
        if not self.shape.fewest <= codebooks <= self.shape.codebooks:
            raise ConfigError(
                f"codebooks: expected {self.shape.fewest} to {self.shape.codebooks}, which {folder} has, "
                f"got {codebooks}"
            )
        self.books = codebooks
        self.identity = f"{identity_of(self._config, files)} {codebooks}"
        self.size = codebooks * self.shape.codebook_size
        self.reader = SoundReader(self.shape.rate_hz, max_duration_s)
        self._model: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}

    def encode(self, media: Media) -> NDArray[np.integer[Any]]:
        """Codes of a sound: int64 [T * B].

        Raises:
            SampleError: it is broken or over a limit.
            ConfigError: the weights cannot be read.
        """
        samples = self.reader.read(media)
        silence = -len(samples) % self.shape.multiple
        values = np.pad(samples, (0, silence)) if silence else samples
        with _apart():
            codes = _ENCODERS[self.shape.model_type](self._loaded(), values, self)[:, : self.books]  # [1, B, T]
        return self._flat(codes[0].numpy())

    def decode(self, codes: NDArray[np.int64]) -> Encoded:
        """A WAV of 16 bits of codes [T * B].

        Raises:
            SampleError: they do not come in turn of the codebooks, stand for no sound, or for one over
                ``max_duration_s``.
            ConfigError: the weights cannot be read.
        """
        import torch

        frames = torch.from_numpy(self._framed(codes))[None]  # [1, B, T]
        self.reader.check_written((frames.shape[2] - 1) * self.shape.frame + 1)  # one that fits may end within the last
        with _apart():
            samples = _DECODERS[self.shape.model_type](self._loaded(), frames).flatten().numpy()
        if not np.isfinite(samples).all():
            raise SampleError("its codes decode to samples that are not finite")
        return wav_of(self.reader.within(samples), self.shape.rate_hz)

    def _flat(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """[B, T], each from 0 on, to [T * B]."""
        return np.asarray(codes + self._begins[:, None], np.int64).T.flatten()

    def _framed(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """What ``_flat`` came from."""
        if not len(codes) or len(codes) % self.books:
            raise SampleError(f"expected {self.books} codes for each frame, and at least one frame, got {len(codes)}")
        frames = np.asarray(codes, np.int64).reshape(-1, self.books) - self._begins
        if not 0 <= frames.min() <= frames.max() < self.shape.codebook_size:
            raise SampleError(f"a code is none of its codebook, which has {self.shape.codebook_size}")
        return np.ascontiguousarray(frames.T)

    @property
    def _begins(self) -> NDArray[np.int64]:
        return np.arange(self.books, dtype=np.int64) * self.shape.codebook_size

    def _loaded(self) -> Any:
        """The model, which is read at the first sound."""
        if self._model is None:
            self._model = _load(self.shape.model_type, self._config, self.weights)
        return self._model


@contextmanager
def _apart() -> Iterator[None]:
    """On the CPU and in fp32 whatever stands around, with no gradients and torch's random state left as it was."""
    import torch

    with (
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(),
        torch.device("cpu"),
        torch.autocast("cpu", enabled=False),
    ):
        yield


def _load(kind: str, config: dict[str, Any], weights: Path) -> Any:
    """The model of tensors that are read here: transformers gets no name of a file or of a hub."""
    import torch
    import transformers
    from transformers.utils import logging

    from kosmos import read_weights

    model: Any = {"mimi": transformers.MimiModel, "encodec": transformers.EncodecModel, "dac": transformers.DacModel}[
        kind
    ]
    tensors = read_weights(weights)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        made = model.config_class.from_dict(config)
        made._attn_implementation = "eager"  # a name could be that of code of the hub
        built, info = model.from_pretrained(
            None, config=made, state_dict=tensors, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # of a configuration that fits no model, or tensors that fit no configuration
        raise ConfigError(f"weights {weights}: {type(error).__name__}: {' '.join(str(error).split())[:300]}") from error
    finally:
        if shown:
            logging.enable_progress_bar()
    if absent := sorted(map(str, info["missing_keys"])):
        raise ConfigError(f"weights {weights}: {len(absent)} tensors are missing, such as {absent[0]}")
    return built.eval()


def _encode_mimi(model: Any, samples: NDArray[np.float32], codec: NeuralAudioCodec) -> Any:
    return model.encode(_batch(samples), num_quantizers=codec.books).audio_codes


def _encode_encodec(model: Any, samples: NDArray[np.float32], codec: NeuralAudioCodec) -> Any:
    bandwidth = next(asked for asked, books in codec.shape.bandwidths if books >= codec.books)
    return model.encode(_batch(samples), bandwidth=bandwidth).audio_codes[0]


def _encode_dac(model: Any, samples: NDArray[np.float32], codec: NeuralAudioCodec) -> Any:
    return model.encode(_batch(samples), n_quantizers=codec.books).audio_codes


def _batch(samples: NDArray[np.float32]) -> Any:
    """[S] -> [1, 1, S]."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(samples))[None, None]


_ENCODERS: dict[str, Callable[[Any, NDArray[np.float32], NeuralAudioCodec], Any]] = {
    "mimi": _encode_mimi,
    "encodec": _encode_encodec,
    "dac": _encode_dac,
}
"""By ``model_type``: samples [S] -> codes [1, codebooks, T], each from 0 on, of those that are taken or more."""
_DECODERS: dict[str, Callable[[Any, Any], Any]] = {
    "mimi": lambda model, frames: model.decode(frames).audio_values,
    "encodec": lambda model, frames: model.decode(frames[None], [None]).audio_values,
    "dac": lambda model, frames: model.decode(audio_codes=frames).audio_values,
}
"""By ``model_type``: codes [1, B, T] -> samples, in one sound."""
