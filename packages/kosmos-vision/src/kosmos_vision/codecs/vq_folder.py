"""Folders of transformers that hold a VQ model: what they state, where its tensors lie, what tells them from others.

No torch here: a codec's size and identity are asked for where nothing is encoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from kosmos import ConfigError, TensorPlace, read_tensor_places

CODEBOOK = "quantize.embedding.weight"
"""Of each of them: [codes, width]."""
_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
ROWS = 32
"""Where ``config.json`` states no ``num_patches``: Janus's default, and 256 pixels of Emu3's."""
_MOST_ROWS = 4096
_MOST_HALVINGS = 9
"""More would make a code stand for over 512 x 512 pixels."""
_BLOCK = 1 << 20
OF_FILES = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""Fields that say nothing of what the model computes, beside others whose names end in ``version``."""


class Kind(NamedTuple):
    """A VQ model that encodes and decodes, as transformers has it."""

    model_type: str
    whole: str
    """Model type of the language models that hold one, under ``vq_config``."""
    name: str
    """Of its class."""
    size: tuple[str, int]
    """Field of its configuration with the number of codes, and what it is by default."""
    halvings: int
    """Of the sides of a picture, by default: one less than it has multipliers of channels."""


EMU3 = Kind("emu3_vqgan", "emu3", "Emu3VQVAE", ("codebook_size", 32_768), 3)
JANUS = Kind("janus_vqgan", "janus", "JanusVQVAE", ("num_embeddings", 16_384), 4)


@dataclass(frozen=True)
class VqFolder:
    """A VQ model in a folder."""

    folder: Path
    kind: Kind
    config: Mapping[str, Any]
    rows: int
    """Codes of each side of a picture, of the size that it is meant for."""
    prefix: str
    """Of its tensors' names."""
    places: Mapping[str, TensorPlace]
    """By its own names."""

    @property
    def size(self) -> int:
        """Codes of its codebook."""
        return self.places[CODEBOOK].shape[0]

    @property
    def patch_px(self) -> int:
        """Pixels of each side of what a code stands for."""
        multipliers = self.config.get("channel_multiplier")
        return int(2 ** (self.kind.halvings if multipliers is None else len(multipliers) - 1))

    def digest(self) -> str:
        """Another where its tensors, what its configuration says of them, or its colours are.

        All bytes of the tensors are read, once in a process: a GB takes about a second.

        Raises:
            ConfigError: it cannot be read.
        """
        stated = {
            name: value
            for name, value in self.config.items()
            if name not in OF_FILES and not name.endswith(("version", "_name_or_path"))
        }
        colours = [
            read_object(self.folder / "preprocessor_config.json").get(f"image_{name}") for name in ("mean", "std")
        ]
        try:
            made = blake2b(json.dumps([stated, colours], sort_keys=True).encode(), digest_size=16)
            files = sorted({place.file for place in self.places.values()})
            states = tuple((str(file), state.st_mtime_ns, state.st_size) for file in files for state in [file.stat()])
            made.update(_digest_of(states, tuple(sorted(self.places.items()))))
        except (OSError, RecursionError) as error:
            raise ConfigError(f"weights {self.folder}: cannot be read: {error}") from error
        return made.hexdigest()


@lru_cache(maxsize=64)
def _digest_of(states: tuple[tuple[str, int, int], ...], places: tuple[tuple[str, TensorPlace], ...]) -> bytes:
    """Of the tensors in files as they are: path, time of the last change, size."""
    digest = blake2b(digest_size=16)
    for name, place in places:
        digest.update(f"{name} {place.dtype} {place.shape} ".encode("utf-8", "surrogatepass"))
        with place.file.open("rb") as opened:
            opened.seek(place.begin)
            for start in range(place.begin, place.end, _BLOCK):
                digest.update(opened.read(min(_BLOCK, place.end - start)))
    return digest.digest()


def find_vq(weights: str, kind: Kind) -> VqFolder:
    """The VQ model of a folder, by its ``config.json`` and the headers of its files of safetensors.

    Raises:
        ConfigError: no such folder, or it holds another model.
    """
    folder = Path(weights)
    if not folder.is_dir():
        raise ConfigError(
            f"weights {weights}: no such folder (nothing is downloaded); name one as save_pretrained writes it"
        )
    config = read_object(folder / "config.json")
    if not config:
        raise ConfigError(f"weights {folder}: no config.json there; name a folder as save_pretrained writes it")
    model_type = config.get("model_type")
    if model_type not in (kind.model_type, kind.whole):
        raise ConfigError(
            f"weights {folder}: config.json: model_type {model_type!r:.60}: expected {kind.name} of transformers "
            f"({kind.model_type}), or a model that holds one ({kind.whole})"
        )
    if model_type == kind.whole:
        inner = config.get("vq_config")
        if not isinstance(inner, dict):
            raise ConfigError(f"weights {folder}: config.json: vq_config: expected an object")
        config = inner
    prefix, places = _places(folder)
    rows = config.get("num_patches", ROWS)
    if type(rows) is not int or not 1 <= rows <= _MOST_ROWS:
        raise ConfigError(
            f"weights {folder}: config.json: num_patches: expected a whole number from 1 to {_MOST_ROWS:,}, "
            f"got {rows!r:.40}"
        )
    _check_multipliers(folder, config.get("channel_multiplier"))
    if (codebook := places.get(CODEBOOK)) is None:
        raise ConfigError(f"weights {folder}: no {CODEBOOK} in the files that {_INDEX} names")
    if len(codebook.shape) != 2 or not 1 <= codebook.shape[0] * codebook.shape[1] <= codebook.end - codebook.begin:
        raise ConfigError(f"weights {folder}: {CODEBOOK}: expected [codes, width], got {codebook.shape!s:.60}")
    found = VqFolder(folder, kind, config, rows, prefix, places)
    field, default = kind.size
    if (stated := config.get(field, default)) != found.size:
        raise ConfigError(f"weights {folder}: config.json states {field} {stated!r:.40}, the weights have {found.size}")
    return found


def _check_multipliers(folder: Path, given: Any) -> None:
    if given is None:
        return
    if not isinstance(given, list) or not all(type(one) is int and one >= 1 for one in given):
        raise ConfigError(
            f"weights {folder}: config.json: channel_multiplier: expected a list of whole numbers, got {given!r:.40}"
        )
    if not 1 <= len(given) <= _MOST_HALVINGS + 1:
        raise ConfigError(
            f"weights {folder}: config.json: channel_multiplier: expected 1 to {_MOST_HALVINGS + 1} numbers, "
            f"got {len(given):,}"
        )


def read_object(file: Path) -> dict[str, Any]:
    """What a file of JSON holds; empty where it is not there, or no object. Raises ConfigError where it is damaged."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"weights {file.parent}: {file.name} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _places(folder: Path) -> tuple[str, dict[str, TensorPlace]]:
    """What its tensors' names begin with in the files of a folder, and where each lies."""
    index = read_object(folder / _INDEX).get("weight_map")
    if (folder / _FILE).is_file() or not isinstance(index, dict):
        headers = [read_tensor_places(folder / _FILE)]
        prefix = _prefix(folder, headers[0])
    else:
        prefix = _prefix(folder, index)
        names = {Path(str(file)).name for name, file in index.items() if name.startswith(prefix)}
        headers = [read_tensor_places(folder / name) for name in sorted(names)]  # never out of the folder
    every = {name: place for header in headers for name, place in header.items()}
    return prefix, {name.removeprefix(prefix): place for name, place in every.items() if name.startswith(prefix)}


def _prefix(folder: Path, names: Mapping[str, Any]) -> str:
    found = [name.removesuffix(CODEBOOK) for name in names if name == CODEBOOK or name.endswith(f".{CODEBOOK}")]
    if len(found) != 1:
        raise ConfigError(f"weights {folder}: {len(found)} tensors are a {CODEBOOK}, expected one")
    return found[0]
