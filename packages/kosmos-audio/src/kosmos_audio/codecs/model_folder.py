"""What a folder of transformers says of the codec that lies in it, known without its weights. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from math import log2, prod
from pathlib import Path
from typing import Any

from kosmos import ConfigError, read_tensor_places

FIRST = 8
"""Codebooks where none are stated: as many as Moshi writes of Mimi, and 6 kbit/s of EnCodec at 24 kHz."""
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DEFAULTS: dict[str, dict[str, Any]] = {
    "mimi": {
        "sampling_rate": 24_000,
        "audio_channels": 1,
        "codebook_size": 2048,
        "num_quantizers": 32,
        "num_semantic_quantizers": 1,
        "upsampling_ratios": (8, 6, 5, 4),
    },
    "encodec": {
        "sampling_rate": 24_000,
        "audio_channels": 1,
        "codebook_size": 1024,
        "upsampling_ratios": (8, 5, 4, 2),
        "target_bandwidths": (1.5, 3.0, 6.0, 12.0, 24.0),
        "normalize": False,
        "chunk_length_s": None,
    },
    "dac": {"sampling_rate": 16_000, "codebook_size": 1024, "n_codebooks": 9, "downsampling_ratios": (2, 4, 8, 8)},
}
"""Fields that are read of ``config.json``, by ``model_type``, and what transformers takes where they are not stated."""
OF_FILES = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""Fields that say nothing of what the model computes."""
BLOCK = 1 << 20
MOST = 1 << 24
"""Of any number of codes, codebooks, hertz or samples of a frame: those of real models are far below."""


@dataclass(frozen=True)
class Shape:
    """Of a codec's codes."""

    model_type: str
    rate_hz: int
    codebooks: int
    """That it has."""
    fewest: int
    """Codebooks that a sound takes at least."""
    codebook_size: int
    frame: int
    """Samples that one code of each codebook stands for."""
    multiple: int = 1
    """Samples of which a sound is made a whole number by silence behind it."""
    bandwidths: tuple[tuple[float, int], ...] = ()
    """EnCodec: by what it is asked for so many codebooks, fewest first."""


def read_config(folder: Path) -> dict[str, Any]:
    """What ``config.json`` holds. Raises ConfigError where there is none of a codec that is known."""
    if not folder.is_dir():
        raise ConfigError(f"weights {folder}: no such folder (nothing is downloaded)")
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"weights {folder}: config.json cannot be read: {error}") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(kind, str) or kind not in DEFAULTS:
        raise ConfigError(
            f"weights {folder}: config.json: model_type: expected {', '.join(DEFAULTS)}, got {kind!r:.60}"
        )
    for name, why in (
        ("quantization_config", "its weights are in few bits; give the model as it was before"),
        ("encoder_config", "its encoder was left away; give the whole model"),
        ("decoder_config", "its decoder was left away; give the whole model"),
    ):
        if name in config and (name == "quantization_config") == bool(config[name]):
            raise ConfigError(f"weights {folder}: config.json: {name}: {why}")
    return config


def shape_of(folder: Path, config: Mapping[str, Any]) -> Shape:
    """That of the codes of ``read_config``. Raises ConfigError: it says nothing sensible, or scales would be lost."""
    kind = str(config["model_type"])
    stated = {**DEFAULTS[kind], **{name: config[name] for name in DEFAULTS[kind] if name in config}}
    try:
        _refuse_what_codes_do_not_tell(folder, stated)
        size, rate_hz = _counted(stated, "codebook_size"), _counted(stated, "sampling_rate")
        if kind == "mimi":
            semantic = _counted(stated, "num_semantic_quantizers")
            rate = config.get("frame_rate") or config.get("_frame_rate")  # else it follows from the strides
            frame = _frame_of(rate, rate_hz) if rate else 2 * _product(stated, "upsampling_ratios")
            return Shape(kind, rate_hz, _counted(stated, "num_quantizers"), semantic, size, frame)
        if kind == "dac":
            frame = _product(stated, "downsampling_ratios")
            return Shape(kind, rate_hz, _counted(stated, "n_codebooks"), 1, size, frame, frame)
        frame = _product(stated, "upsampling_ratios")
        bits = log2(size) * -(-rate_hz // frame)
        books = [(float(one), max(1, int(1000 * one // bits))) for one in _bandwidths(stated)]
        return Shape(kind, rate_hz, books[-1][1], 1, size, frame, bandwidths=tuple(books))
    except (TypeError, ValueError, ArithmeticError, IndexError) as error:
        raise ConfigError(f"weights {folder}: config.json: {error or type(error).__name__}") from error


def _counted(stated: Mapping[str, Any], name: str) -> int:
    if type(stated[name]) is not int or not 1 <= stated[name] <= MOST:
        raise ValueError(f"{name}: expected a whole number from 1 to {MOST:,}, got {stated[name]!r:.60}")
    return int(stated[name])


def _frame_of(rate: Any, rate_hz: int) -> int:
    """Samples of a frame, of which there are ``rate`` a second."""
    if type(rate) not in (int, float) or not rate_hz / MOST <= rate <= rate_hz:
        raise ValueError(f"frame_rate: expected a number above 0, and no more than {rate_hz} Hz, got {rate!r:.60}")
    frame: int = round(rate_hz / rate)
    return frame


def _product(stated: Mapping[str, Any], name: str) -> int:
    ratios = stated[name]
    is_right = isinstance(ratios, list | tuple) and all(type(one) is int and 1 <= one <= MOST for one in ratios)
    if not is_right or not 1 <= len(ratios) <= MOST.bit_length() or prod(ratios) > MOST:
        raise ValueError(
            f"{name}: expected a list of whole numbers from 1 on, of a product up to {MOST:,}, got {ratios!r:.60}"
        )
    return prod(ratios)


def _bandwidths(stated: Mapping[str, Any]) -> list[float]:
    given = stated["target_bandwidths"]
    is_right = isinstance(given, list | tuple) and all(type(one) in (int, float) and 0 < one < MOST for one in given)
    if not is_right or not given:
        raise ValueError(f"target_bandwidths: expected a list of numbers above 0, got {given!r:.60}")
    return sorted(given)


def _refuse_what_codes_do_not_tell(folder: Path, stated: Mapping[str, Any]) -> None:
    if stated.get("normalize") or stated.get("chunk_length_s") is not None:
        field = "normalize" if stated.get("normalize") else "chunk_length_s"
        raise ConfigError(
            f"weights {folder}: config.json states {field}: each stretch has a scale or overlaps the next, which no "
            "codes tell; take a model without, such as EnCodec of 24 kHz"
        )
    if (channels := stated.get("audio_channels", 1)) != 1:
        raise ConfigError(f"weights {folder}: expected a model of one channel, got {channels!r:.60} (audio_channels)")


def weights_of(folder: Path) -> tuple[Path, tuple[Path, ...]]:
    """What is to be read of a folder, and the files that hold the tensors. Raises ConfigError where none are there."""
    if (folder / WEIGHTS).is_file():
        return folder / WEIGHTS, (folder / WEIGHTS,)
    index = folder / INDEX
    if not index.is_file():
        raise ConfigError(
            f"weights {folder}: no {WEIGHTS} there, and no other kind of file is read; load the model in transformers "
            "and write it again (save_pretrained)"
        )
    try:
        names = {Path(str(name)).name for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"weights {folder}: {INDEX} cannot be read: {error!r:.200}") from error
    return index, tuple(folder / name for name in sorted(names))


def identity_of(config: Mapping[str, Any], files: tuple[Path, ...]) -> str:
    """A digest of a configuration and of all tensors by their names, in whatever files and in whatever order they lie.

    Of Mimi's 385 MB it takes 0.4 s, once in a process. Raises ConfigError where one cannot be read.
    """
    told = {name: value for name, value in config.items() if name not in OF_FILES}
    try:
        digest = blake2b(json.dumps(told, sort_keys=True).encode("utf-8", "surrogatepass"), digest_size=16)
        states = tuple((str(file), state.st_mtime_ns, state.st_size) for file in files for state in [file.stat()])
        digest.update(_digest_of(states))
    except (OSError, ValueError, RecursionError) as error:  # ValueError: of a name that no file can have
        raise ConfigError(f"weights {files[0].parent}: {error}") from error
    return digest.hexdigest()


@lru_cache(maxsize=256)
def _digest_of(states: tuple[tuple[str, int, int], ...]) -> bytes:
    """Of files as they are. Copies that are saved again may have their tensors in another order, or in more files."""
    digest = blake2b(digest_size=16)
    tensors = {name: place for file, *_ in states for name, place in _tensors_of(Path(file)).items()}
    for name, (file, kind, begin, end) in sorted(tensors.items()):
        digest.update(f"{name} {kind} ".encode("utf-8", "surrogatepass"))
        with file.open("rb") as opened:
            opened.seek(begin)
            for start in range(begin, end, BLOCK):
                digest.update(opened.read(min(BLOCK, end - start)))
    return digest.digest()


def _tensors_of(file: Path) -> dict[str, tuple[Path, str, int, int]]:
    """Tensors of a file of safetensors: where they lie, type and shape, begin and end. Raises ConfigError."""
    places = read_tensor_places(file)
    return {
        name: (file, f"{place.dtype} {list(place.shape)}", place.begin, place.end) for name, place in places.items()
    }
