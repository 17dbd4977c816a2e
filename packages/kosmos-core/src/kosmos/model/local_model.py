"""A model of transformers in a local folder, for codecs: known by its configuration, loaded when it is first used."""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from hashlib import blake2b, file_digest
from importlib import import_module
from pathlib import Path
from typing import Any

from kosmos.errors import ConfigError

TENSORS = "model.safetensors"


class LocalModel:
    """A frozen model on the CPU. Picklable: its weights are read at the first use, and are left behind.

    Nothing is fetched, no code of the folder is run, and weights are safetensors.

    Args:
        folder: with ``config.json`` and ``model.safetensors``, as ``save_pretrained`` writes it.
        model_type: what its ``config.json`` has to say.
        target: ``"module:class"`` of the model, where ``transformers.AutoModel`` does not know it.

    Raises:
        ConfigError: there is no such folder, or it holds another model.
    """

    def __init__(self, folder: str, model_type: str, *, target: str = "transformers:AutoModel") -> None:
        self.folder, self._target = Path(folder), target
        self._check(model_type)
        from transformers import AutoConfig

        self.config: Any = AutoConfig.from_pretrained(self.folder, local_files_only=True, trust_remote_code=False)
        """As transformers has it."""

    @property
    def identity(self) -> str:
        """What tells the model from others: a digest of its files (0.4 s for 400 MB, once a process)."""
        states = [(self.folder / name, (self.folder / name).stat()) for name in ("config.json", TENSORS)]
        return " ".join(_digest(str(file), state.st_mtime_ns, state.st_size) for file, state in states)

    @cached_property
    def module(self) -> Any:
        """The model, in evaluation mode and fp32. PyTorch's generator stays as it was.

        Raises:
            ConfigError: the file lacks some of its weights, which would be drawn at random.
        """
        import torch
        from transformers.utils import logging

        logging.disable_progress_bar()
        where, _, name = self._target.partition(":")
        kind: Any = getattr(import_module(where), name)
        with torch.random.fork_rng(devices=[]):
            module: Any
            module, found = kind.from_pretrained(
                self.folder, local_files_only=True, use_safetensors=True, dtype=torch.float32,
                output_loading_info=True,
            )  # fmt: skip
        if missing := sorted(found["missing_keys"]):
            raise ConfigError(f"weights {self.folder}: {TENSORS} lacks {missing[0]} and {len(missing) - 1} more")
        return module.eval()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "module"}

    def _check(self, model_type: str) -> None:
        try:
            stated = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            what = f"expected a folder with the config.json of a {model_type} model"
            raise ConfigError(f"weights {self.folder}: {what} ({error})") from error
        if (found := stated.get("model_type") if isinstance(stated, dict) else None) != model_type:
            raise ConfigError(
                f"weights {self.folder}: expected a {model_type} model, its config.json says {found or 'none'}"
            )
        if not (self.folder / TENSORS).is_file():
            raise ConfigError(f"weights {self.folder}: no {TENSORS} there")


@lru_cache(maxsize=16)
def _digest(name: str, mtime_ns: int, size: int) -> str:
    """Of a file as it is."""
    with open(name, "rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
