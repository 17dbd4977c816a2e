"""Tokens of a run and of the run that it begins with: the same but for added ones, whose rows are moved, or made anew.

A stage that adds a modality adds its marks to the tokens, and one for a field of its own may add words of that. How
text is spelled has to be the same besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kosmos.checkpoint.tensors import model_tensors
from kosmos.errors import ConfigError
from kosmos.model.protocols import Backbone
from kosmos.names import listed
from kosmos.train.saved_tokens import difference, read_tokens, same_files


class MovedTokens(NamedTuple):
    """Which tokens of two runs are the same, where not all are."""

    here: Tensor
    """int64 [n]: ids of those that both have."""
    there: Tensor
    """int64 [n]: theirs in the run that weights are taken from."""
    new: Mapping[str, int]
    """Those that only the run here has: name to id."""
    left: tuple[str, ...]
    """Names of those that only the other has."""

    def lines(self) -> Iterator[str]:
        """What is to be told."""
        whats = ("begin as the mean of the others", self.new), ("left there", self.left)
        for what, names in whats:
            if names:
                yield f"{what}: the rows of {listed(names)} among the tokens"

    def taken(self, drawn: Tensor, stored: Tensor) -> Tensor:
        """The tensor of the run here, whole: the rows there of the tokens that both have, and their mean for others,
        which in a model that is frozen would stay as they were drawn."""
        whole = drawn.full_tensor() if isinstance(drawn, DTensor) else drawn.clone()
        rows = stored[self.there.to(stored.device)].to(whole.device, whole.dtype)
        whole[self.here.to(whole.device)] = rows
        if self.new:
            whole[list(self.new.values())] = rows.float().mean(0).to(whole.dtype)
        return whole


def moved_tokens(there: Path, here: Path, init: Path) -> MovedTokens | None:
    """What became of the tokens of the folder ``there`` in ``here``; None where all are as they were.

    Args:
        init: the run that the first is of.

    Raises:
        ConfigError: text is spelled otherwise, or one of them is not there or damaged.
    """
    if same_files(there, here):
        return None
    try:
        before, after = read_tokens(there), read_tokens(here)
    except ConfigError as error:
        raise ConfigError(f"init: {error}") from error
    if (what := difference(before, after)) is not None:
        raise ConfigError(
            f"init: the tokens of {init} are others: {what}; give this run the same tokenizer (tokenizer: {there})"
        )
    old, new = before.ids, after.ids
    if old == new:
        return None
    both = [name for name in new if name in old]
    return MovedTokens(
        torch.tensor([new[name] for name in both]), torch.tensor([old[name] for name in both]),
        {name: number for name, number in new.items() if name not in old},
        tuple(name for name in old if name not in new),
    )  # fmt: skip


def token_rows(
    model: nn.Module, ours: Mapping[str, tuple[int, ...]], theirs: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """Names of the tensors of a backbone that have a row for each token, here and there.

    Args:
        ours: shapes of its tensors by name.
        theirs: likewise, of the run that weights are taken from.

    Raises:
        ConfigError: which ones they are cannot be told.
    """
    backbone, own = cast(Backbone, cast(Any, model).backbone), model_tensors(model)
    head = backbone.output_weight()
    name = next((name for name, tensor in own.items() if tensor is head), None)
    if name is None or name not in theirs:
        return []
    rows, before = ours[name][0], theirs[name][0]
    if rows == before:  # by their shapes, others might be taken for them
        tokens = {id(head), id(_table(backbone, rows))}
        return [name for name in ours if name in theirs and id(own[name]) in tokens]
    each = ((rows,), (before,)), ((rows, backbone.width), (before, backbone.width))
    return [name for name, shape in ours.items() if (shape, theirs.get(name)) in each]


def _table(backbone: Backbone, rows: int) -> Tensor | None:
    """The table that tokens are looked up in; None where a backbone has none of that length.

    Raises:
        ConfigError: it has several, such as one of positions.
    """
    if (known := getattr(backbone, "token_table", None)) is not None:
        return cast(Tensor, known())
    found = [part.weight for part in cast(nn.Module, backbone).modules() if isinstance(part, nn.Embedding)]
    found = [table for table in found if len(table) == rows]
    if len(found) > 1:
        raise ConfigError(
            f"init: the marks among the tokens are others, and of the backbone's {len(found)} tables of {rows:,} rows "
            "none is known to be that of the tokens; name the modalities of the run that it begins with"
        )
    return next(iter(found), None)
