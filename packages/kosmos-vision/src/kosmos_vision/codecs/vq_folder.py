"""Folders of transformers that hold a VQ model: what they state, where its tensors lie, what tells them from others.

No torch here: a codec's size and identity are asked for where nothing is encoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from kosmos import ConfigError

CODEBOOK = "quantize.embedding.weight"
"""Of each of them: [codes, width]."""
_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_MOST_HEADER = 100_000_000
"""Bytes that the reader of safetensors allows."""
ROWS = 32
"""Where ``config.json`` states no ``num_patches``: Janus's default, and 256 pixels of Emu3's."""
_PIECE = 4096
"""Bytes at the begin and at the end of each tensor by which it is told from others: any training changes some."""


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


class Place(NamedTuple):
    """Where a tensor lies."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    """Bytes of the file."""


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
    places: Mapping[str, Place]
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
        """Another where its tensors, its configuration or its colours are: of names, types, shapes, and the begin and
        the end of each tensor.

        Raises:
            ConfigError: it cannot be read.
        """
        stated = {name: value for name, value in self.config.items() if not name.endswith(("version", "_name_or_path"))}
        colours = [
            read_object(self.folder / "preprocessor_config.json").get(f"image_{name}") for name in ("mean", "std")
        ]
        made = blake2b(json.dumps([stated, colours], sort_keys=True).encode(), digest_size=16)
        for name, place in sorted(self.places.items()):
            made.update(f"{name} {place.dtype} {place.shape}".encode())
            try:
                with place.file.open("rb") as file:
                    for at in (place.begin, max(place.begin, place.end - _PIECE)):
                        file.seek(at)
                        made.update(file.read(min(_PIECE, place.end - at)))
            except OSError as error:
                raise ConfigError(f"weights {self.folder}: {place.file.name} cannot be read: {error}") from error
        return made.hexdigest()


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
    if type(rows) is not int or rows < 1:
        raise ConfigError(f"weights {folder}: config.json: num_patches: expected a whole number, got {rows!r:.40}")
    found = VqFolder(folder, kind, config, rows, prefix, places)
    field, default = kind.size
    if (stated := config.get(field, default)) != found.size:
        raise ConfigError(f"weights {folder}: config.json states {field} {stated!r:.40}, the weights have {found.size}")
    return found


def read_object(file: Path) -> dict[str, Any]:
    """What a file of JSON holds; empty where it is not there, or no object. Raises ConfigError where it is damaged."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"weights {file.parent}: {file.name} cannot be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _places(folder: Path) -> tuple[str, dict[str, Place]]:
    """What its tensors' names begin with in the files of a folder, and where each lies."""
    index = read_object(folder / _INDEX).get("weight_map")
    if (folder / _FILE).is_file() or not isinstance(index, dict):
        headers = [_header(folder / _FILE)]
        prefix = _prefix(folder, headers[0])
    else:
        prefix = _prefix(folder, index)
        names = {Path(str(file)).name for name, file in index.items() if name.startswith(prefix)}
        headers = [_header(folder / name) for name in sorted(names)]  # never out of the folder
    every = {name: place for header in headers for name, place in header.items()}
    return prefix, {name.removeprefix(prefix): place for name, place in every.items() if name.startswith(prefix)}


def _prefix(folder: Path, names: Mapping[str, Any]) -> str:
    found = [name.removesuffix(CODEBOOK) for name in names if name == CODEBOOK or name.endswith(f".{CODEBOOK}")]
    if len(found) != 1:
        raise ConfigError(f"weights {folder}: {len(found)} tensors are a {CODEBOOK}, expected one")
    return found[0]


def _header(file: Path) -> dict[str, Place]:
    """Where the tensors of a file of safetensors lie, by their names."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > _MOST_HEADER:
                raise ValueError("no safetensors")
            header = json.loads(opened.read(length))
        places = {}
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = (8 + length + int(at) for at in entry["data_offsets"])
                places[name] = Place(file, str(entry["dtype"]), tuple(map(int, entry["shape"])), begin, end)
    except FileNotFoundError as error:
        raise ConfigError(
            f"weights {file.parent}: no {file.name} there; save it with save_pretrained, as safetensors"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"weights {file}: cannot be read as safetensors: {error}") from error
    return places
