"""A folder in which another library has laid out a model: JSON, and tensors that are read one by one as they are asked
for. Nothing in it is run or unpickled, and nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from kosmos.data.tensor_files import TensorPlace, check_bytes, read_tensor_places
from kosmos.errors import ConfigError
from kosmos.names import listed

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PREPARATION, PROCESSOR = "preprocessor_config.json", "processor_config.json"
TURNS = "kosmos_turns.json"
"""Of a folder that was written here: ``tokenizer.turns`` of the run, and what stands for a medium in its prompts, which
its template of chats tells to no reader."""
_MOST_JSON = 64 * 2**20
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class LazyTensors(Mapping[str, Tensor]):
    """Tensors by name, each made when it is asked for, and not kept."""

    def __init__(self, made: Mapping[str, Callable[[], Tensor]]) -> None:
        """
        Args:
            made: name to what makes, or reads, the tensor.
        """
        self._made = dict(made)

    def __getitem__(self, name: str) -> Tensor:
        return self._made[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


class ModelFolder:
    """A folder that holds a model.

    Args:
        path: of the folder.

    Raises:
        ConfigError: there is no such folder, or no ``config.json`` with an object is in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise ConfigError(
                f"{path}: no such folder (nothing is downloaded); give the folder of a model, with {CONFIG}"
            )
        if not (path / CONFIG).is_file():
            raise ConfigError(f"{path}: no {CONFIG} there; give a folder as save_pretrained of transformers writes it")
        self.config = self.json(CONFIG)
        """What ``config.json`` says."""

    def json(self, name: str) -> dict[str, Any]:
        """An object that a file of the folder holds; empty where there is no such file. Raises ConfigError where it is
        damaged, or holds something else."""
        if not (text := self.text(name)):
            return {}
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path / name}: cannot be read as JSON: {error}") from error
        if not isinstance(content, dict):
            raise ConfigError(f"{self.path / name}: expected an object, got {type(content).__name__}")
        return content

    def text(self, name: str) -> str:
        """What a file of the folder says; empty where there is none. Raises ConfigError where it cannot be read."""
        file = self.path / name
        if not file.is_file():
            return ""
        try:
            if (size := file.stat().st_size) > _MOST_JSON:
                raise ValueError(f"{size:,} bytes, at most {_MOST_JSON:,} are read")
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: cannot be read: {error}") from error

    def preparation(self, part: str) -> tuple[dict[str, Any], str]:
        """How media are prepared, and the file that says so.

        Args:
            part: what ``processor_config.json`` has it under, where no ``preprocessor_config.json`` is there.

        Raises:
            ConfigError: as of ``json``, or nothing is said.
        """
        if stated := self.json(PREPARATION):
            return stated, str(self.path / PREPARATION)
        inner = self.json(PROCESSOR).get(part)
        if not inner or not isinstance(inner, dict):
            raise ConfigError(
                f"{self.path}: no {PREPARATION} there, nor {part} in {PROCESSOR}, so that nothing tells how media are "
                "prepared; bring the whole folder"
            )
        return inner, f"{self.path / PROCESSOR}: {part}"

    @cached_property
    def chat_template(self) -> str:
        """How chats are laid out, which is compared and never run; empty where nothing is said."""
        stated = [self.text("chat_template.jinja")]
        for file in ("chat_template.json", PROCESSOR, "tokenizer_config.json"):
            found = self.json(file).get("chat_template")
            stated.append(found if isinstance(found, str) else "")
        return next(filter(None, stated), "")

    @cached_property
    def written_places(self) -> dict[str, str]:
        """Modality to what a medium is in the text of a prompt, where the folder was written here (``WrittenModel``);
        empty of others."""
        places = self.json(TURNS).get("places")
        given = places if isinstance(places, dict) else {}
        return {name: place for name, place in given.items() if isinstance(place, str)}

    @cached_property
    def added_tokens(self) -> dict[str, int]:
        """Tokens beside the vocabulary of ``tokenizer.json``, such as special ones, with their numbers. Raises as
        ``json``, or where they are something else."""
        added = self.json("tokenizer.json").get("added_tokens") or []
        pairs = [(one.get("content"), one.get("id")) for one in added] if _are_objects(added) else [(None, None)]
        if not all(isinstance(text, str) and type(number) is int for text, number in pairs):
            raise ConfigError(
                f"{self.path / 'tokenizer.json'}: added_tokens: expected objects with content and id, got {added!r:.60}"
            )
        return dict(pairs)

    def puts_space(self, token: str) -> bool:
        """Whether its tokenizer puts a space in front of a text that stands behind a special token. Here none does
        (``kosmos.data.hf_tokenizer``), so that a run has to have it in its texts."""
        from kosmos.data.hf_tokenizer import puts_space  # it brings tokenizers

        return token in self.added_tokens and puts_space(self.text("tokenizer.json"), token)

    @cached_property
    def places(self) -> dict[str, TensorPlace]:
        """Where each tensor lies, by the headers of the files.

        Raises:
            ConfigError: there are none of safetensors, one is missing or damaged, or lacks what the index says.
        """
        if (self.path / WEIGHTS).is_file():
            found = read_tensor_places(self.path / WEIGHTS)
        elif (self.path / INDEX).is_file():
            found = self._of_index()
        else:
            pickled = sorted(file.name for pattern in _PICKLED for file in self.path.glob(pattern))
            what = (
                f"its weights are in {pickled[0]}, and only safetensors are read" if pickled else f"no {WEIGHTS} there"
            )
            raise ConfigError(f"{self.path}: {what}; load it in transformers and write it again (save_pretrained)")
        for name, place in found.items():
            check_bytes(name, place)
        return found

    def _of_index(self) -> dict[str, TensorPlace]:
        where = self.path / INDEX
        files = self.json(INDEX).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise ConfigError(f"{where}: weight_map: expected names of tensors to names of files, got {files!r:.40}")
        for file in files.values():
            if Path(file).name != file or "\\" in file or not file.endswith(".safetensors"):
                raise ConfigError(f"{where}: names the file {file!r:.60}; expected safetensors in its own folder")
        missing = [file for file in sorted(set(files.values())) if not (self.path / file).is_file()]
        if missing:
            raise ConfigError(
                f"{where}: {listed(missing, at_most=3)} of its files are not there; bring the whole folder"
            )
        found: dict[str, TensorPlace] = {}
        for file in sorted(set(files.values())):
            found |= read_tensor_places(self.path / file)
        if lacking := [name for name in files if name not in found]:
            raise ConfigError(f"{where}: {lacking[0]} is in none of its files ({len(lacking)} are not)")
        return found

    def tensor(self, name: str) -> Tensor:
        """One tensor, on the CPU, in the type that it is stored in.

        Raises:
            ConfigError: there is none of this name, or it cannot be read.
        """
        from safetensors import SafetensorError, safe_open

        if (place := self.places.get(name)) is None:
            raise ConfigError(f"{self.path}: no tensor {name} there; its weights are not those of its {CONFIG}")
        try:
            with safe_open(place.file, framework="pt") as opened:
                found: Tensor = opened.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"weights {place.file}: {name} cannot be read: {error}") from error
        return found


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)
