"""What weights a run begins with, and which updates of them it trains: a part of ``kosmos.config``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from kosmos.adapter_files import open_adapter
from kosmos.errors import ConfigError
from kosmos.strict import Strict, at_home, names_are_a_list


class InitConfig(Strict):
    """Another run to begin with. A bare string is the path."""

    path: Path
    """Folder of a run, of which the newest checkpoint is taken, or of one of its checkpoints."""
    optimizer: bool = False
    """Take the state of its optimizer too, of the parameters that both train: for a stage that goes on with other data,
    such as a cooldown. It has to be the same optimizer."""
    keep_updates: bool = False
    """Go on with its low-rank updates beside the weights that it kept, by the same ``lora``, instead of putting them
    into the weights and beginning others."""
    leave: list[str] = Field(default_factory=list)
    """Parts of it that are not taken: ``backbone``, ``streams.NAME.encoder``, ``streams.NAME.connector``, or
    ``streams.NAME`` for both of these. They begin as in a new run, and may be others here."""

    _home = field_validator("path", mode="before")(at_home)
    _lists = field_validator("leave", mode="before")(names_are_a_list)

    def leaves(self, part: str) -> bool:
        """Whether a part of the model is not taken, such as ``backbone``."""
        return any(part == name or part.startswith(f"{name}.") for name in self.leave)

    @staticmethod
    def gives(init: InitConfig | None, part: str) -> bool:
        """Whether a run begins with the weights of another for a part of its model, if that has it."""
        return init is not None and not init.leaves(part)

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": os.fspath(value)} if isinstance(value, str | os.PathLike) else value


OF_ADAPTER = {"rank", "alpha", "dropout", "layers", "whole"}
"""Fields that are an adapter's where they are not stated."""


class LoRAConfig(Strict):
    """Low-rank updates beside linear layers, which stay as they are (arXiv 2106.09685). A number alone is ``rank``,
    ``true`` all defaults."""

    rank: int = Field(default=16, ge=1)
    """Rank of an update: beside a layer of ``in`` and ``out`` features it has ``rank * (in + out)`` parameters."""
    alpha: float = Field(default=32, gt=0)
    """An update counts ``alpha / rank`` times."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of what an update reads that is left out in training, drawn anew each time; the rest counts more."""
    layers: list[str] = Field(default_factory=list)
    """Linear layers that get one, by their names or the last parts of these, such as ``q_proj``; none named takes all
    but a backbone's projection to the vocabulary."""
    whole: list[str] = Field(default_factory=list)
    """Modules that are trained whole beside them, named likewise, such as ``embed_tokens`` for the marks of media."""
    quantize: Literal["nf4"] | None = None
    """Keep what is frozen of the linear layers in 4 bits and a scale for 64 values (QLoRA, arXiv 2305.14314): 4.25 bits
    a weight. For weights that are read, such as those of ``hf``."""
    adapter: Path | None = None
    """Folder of an adapter that PEFT has written, of which the updates have their first values, and from which what is
    not stated of the fields above is taken. Of ``backbone.lora`` alone."""

    _home = field_validator("adapter", mode="before")(at_home)
    _lists = field_validator("layers", "whole", mode="before")(names_are_a_list)

    @model_validator(mode="before")
    @classmethod
    def _from_rank(cls, value: Any) -> Any:
        if isinstance(value, bool):
            if value:
                return {}
            raise ValueError("leave it out, or give null, for none")
        value = {"rank": value} if isinstance(value, int) else value
        if not isinstance(value, Mapping) or not isinstance(adapter := value.get("adapter"), str | os.PathLike):
            return value
        if value.keys() >= OF_ADAPTER:  # a run that goes on states all, wherever the adapter is now
            return value
        try:
            return {**open_adapter(Path(at_home(adapter))).settings(), **value}
        except ConfigError as error:
            raise ValueError(f"adapter: {error}") from error
