"""What a layout has to say: how another library lays out a whole model, encoders and language model, in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from kosmos.compose import Composition
from kosmos.errors import ConfigError
from kosmos.model.model_folder import ModelFolder


class ReadModel(NamedTuple):
    """What a folder holds, in the words of a run."""

    settings: Mapping[str, Any]
    """Of a run file, without data: ``modalities``, ``streams``, ``backbone``. None names a file of the folder. Where
    ``tokenizer.turns`` is not among them, it is what the special tokens of the folder's tokenizer tell."""
    tensors: Mapping[str, Tensor]
    """By their names in the model of a run, such as ``backbone.model.lm_head.weight``. Each is asked for once, so that
    it may be read then (``LazyTensors``). Of those with a row for each token, rows that the tokenizer here has beyond
    them begin as the mean of the others."""
    hints: tuple[str, ...] = ()
    """What somebody should know who goes on with it, a line each."""
    marks: Mapping[str, str] = {}
    """Marks of modalities to special tokens of the folder's tokenizer, which stand for them: the run's have their ids,
    and so what the model has learned of them."""
    medium_slots: int = 0
    """Slots that one medium takes at most: rows of the run hold two of them."""


class WrittenModel(NamedTuple):
    """What a folder is to hold, beside the tokenizer, the template of chats and ``generation_config.json``, which the
    core writes."""

    config: Mapping[str, Any]
    """``config.json``."""
    tensors: Mapping[str, Tensor]
    """By their names there, none of them in the memory of another."""
    files: Mapping[str, Mapping[str, Any]] = {}
    """Further files of JSON, by their names."""
    places: Mapping[str, str] = {}
    """Modality to what a medium is in the text of a prompt: special tokens, such as ``<image>``."""
    reader: str = ""
    """Class that reads the folder, to be told."""
    hints: tuple[str, ...] = ()
    """What who reads it does otherwise than the run, a line each, to be told."""


@dataclass
class ModelParts:
    """A run that is to be written, its low-rank updates merged."""

    composition: Composition
    language_model: Any
    """The backbone as a model of transformers, with the tokens of the run's ends in its configuration."""
    added: dict[str, int] = field(default_factory=dict)
    """Special tokens that the run's tokenizer lacks, by ``token``."""

    def token(self, name: str) -> int:
        """Id of a special token, which the tokenizer of the folder gets where the run's has none; the row that the
        language model gets for it is the mean of the others, so that it never writes it."""
        tokenizer = self.composition.tokenizer
        known = {**tokenizer.special_ids, **self.added}
        if name not in known:
            from kosmos.model.huggingface_loading import grow_vocabulary  # it brings transformers

            known[name] = self.added[name] = tokenizer.vocab_size + len(self.added)
            grow_vocabulary(self.language_model, known[name] + 1)
        return known[name]

    def spelled(self, mark: str) -> str:
        """The special token that a mark is in the run's tokenizer: its own name, or what ``ReadModel.marks`` told."""
        names: Mapping[str, str] = getattr(self.composition.tokenizer, "names", {})
        return names.get(mark, mark)

    def refuse(self, what: str, remedy: str) -> ConfigError:
        """The error that such a run has no such layout: what is other than there, and what to set."""
        return ConfigError(f"{what}; {remedy}, or write the weights as one file (kosmos export OUTPUT FILE)")


class Layout(Protocol):
    """Reads and writes the folders of one kind of model. What it could not give back exactly it refuses: a model that
    computes otherwise than it did is worse than none."""

    def matches(self, config: Mapping[str, Any]) -> bool:
        """Whether a ``config.json`` is of such a model. It may say anything."""
        ...

    def read(self, folder: ModelFolder) -> ReadModel:
        """The model of a folder. No tensor is read before it is asked for.

        Raises:
            ConfigError: something in it has no like in a run.
        """
        ...

    def write(self, parts: ModelParts) -> WrittenModel:
        """What is to be written of a run. Tensors are the run's own, or are made as they are asked for.

        Raises:
            ConfigError: a part of the run has no like in such a folder; it says which field to set.
        """
        ...
