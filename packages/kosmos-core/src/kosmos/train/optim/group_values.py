"""What an optimizer keeps in its parameter groups: counts and estimates of its own, which go through checkpoints.

Schedule-free optimizers count their steps there, Prodigy and D-Adaptation keep their estimate of the distance. What the
factory puts there belongs to its options, which a run may change as it goes on: only what has changed since is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from kosmos.errors import CheckpointError, PluginError, cause
from kosmos.names import listed

OF_RUN = frozenset({"params", "names", "matrices", "name", "lr"})
"""Of a group, what the run puts there, the rate before every step."""
MOST_VALUES = 4096
"""Of a tensor in a group, which is written as plain numbers; what is larger belongs to the state of a parameter."""
TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
}

Group = dict[str, Any]
Saved = list[dict[str, Any]]
"""Of each group the ``names`` of its parameters and the ``values`` that have changed."""


class GroupValues:
    """The values in the groups of one optimizer, beside those of the run."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, names: Mapping[int, str], report: Callable[[str], None] = lambda _: None
    ) -> None:
        """
        Args:
            optimizer: one that has taken no step.
            names: of its parameters, by ``id(parameter)``.
            report: shows a line to the user.

        Raises:
            PluginError: its ``state_dict`` has something that checkpoints do not keep.
        """
        check_state_dict(optimizer)
        self._optimizer, self._names, self._report = optimizer, names, report
        self._built = [{key: _as_built(value) for key, value in _own(group)} for group in optimizer.param_groups]
        self._told = False

    def state(self, gather: Callable[[str], list[str]] = lambda own: [own]) -> Saved:
        """What has changed since the optimizer was made, as JSON holds it; empty where nothing has.

        Args:
            gather: gives what it is given on all ranks. All of them call this.
        """
        saved, unkept = [], set[str]()
        for group, built in zip(self._optimizer.param_groups, self._built, strict=True):
            changed = {key: value for key, value in _own(group) if not _same(value, built.get(key, _ABSENT))}
            unkept |= {key for key, value in changed.items() if not is_kept(value)}
            values = {key: _plain(value) for key, value in changed.items() if is_kept(value)}
            saved.append({"names": [self._names[id(p)] for p in group["params"]], "values": values})
        found = saved if any(group["values"] for group in saved) else []
        several = len({*gather(json.dumps([group["values"] for group in found]))}) > 1
        if (unkept or several) and not self._told:
            self._told = True
            self._report(self._warning(unkept))
        return found

    def _warning(self, unkept: set[str]) -> str:
        kind = type(self._optimizer).__name__
        if unkept:
            return (
                f"warning: train.optimizer: {kind} keeps {listed(sorted(unkept))} in its groups, no plain value or "
                "small tensor: checkpoints do not hold it, and a run that goes on begins without it"
            )
        return (
            f"warning: train.optimizer: groups of {kind} hold other values on other ranks; checkpoints keep those of "
            "rank 0, with which all go on"
        )

    def load(self, saved: Saved, *, only: Container[str] | None = None) -> None:
        """Put back what ``state`` gave, by the names of parameters: groups may be others now, in another order.

        Args:
            saved: empty where a checkpoint holds none, as older ones: all is as the optimizer was made.
            only: names of the parameters whose groups count; None takes all.

        Raises:
            CheckpointError: a group now holds parameters of several, whose values differ, or one is no value.
        """
        group_of = {name: number for number, group in enumerate(saved) for name in group["names"]}
        for group, built in zip(self._optimizer.param_groups, self._built, strict=True):
            for key, value in _own(group):  # a list: some of them go
                if is_kept(value) and not _same(value, built.get(key, _ABSENT)):
                    del group[key]
            gone = {key: value for key, value in built.items() if key not in group}
            group |= {key: v.value if isinstance(v, _Unkept) else _copied(v) for key, v in gone.items()}
            names = [self._names[id(parameter)] for parameter in group["params"]]
            taken = [name for name in names if name in group_of and (only is None or name in only)]
            sources = {group_of[name]: name for name in reversed(taken)}
            for key in {key for number in sources for key in saved[number]["values"]} - OF_RUN:
                try:
                    group[key] = _value(self._one(key, sources, saved), group["params"][0].device)
                except (KeyError, TypeError, RuntimeError, ValueError) as error:
                    what = f"train.optimizer: {key} of a group cannot be read ({cause(error)})"
                    raise CheckpointError(f"{what}; the checkpoint is damaged, begin from another") from error

    def _one(self, key: str, sources: Mapping[int, str], saved: Saved) -> Any:
        """The value that all groups have which the parameters of one come from."""
        found = {json.dumps(saved[number]["values"].get(key)): name for number, name in sources.items()}
        if len(found) > 1:
            values = " and ".join(f"{value} ({name})" for value, name in sorted(found.items())[:2])
            kind = type(self._optimizer).__name__
            raise CheckpointError(
                f"train.optimizer: a group of {kind} holds parameters of several before, whose "
                f"{key} were {values}; leave the learning rates of parts as they were, or start a new run"
            )
        return saved[next(iter(sources))]["values"].get(key)


def check_state_dict(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer that would lose something at every resume.

    Raises:
        PluginError: names what its ``state_dict`` has beside ``state`` and ``param_groups``, or in groups alone.
    """
    if type(optimizer).state_dict is torch.optim.Optimizer.state_dict:
        return
    try:
        told = optimizer.state_dict()
    except Exception as error:  # a seam: code of plugins
        raise PluginError(f"its state_dict() failed: {cause(error)}") from error
    more = {*told} - {"state", "param_groups"}
    for packed, group in zip(told.get("param_groups", ()), optimizer.param_groups, strict=False):
        more |= {*packed} - {*group}
    if more:
        raise PluginError(
            f"its state_dict() has {listed(sorted(map(str, more)))}, which checkpoints would lose: they hold the state "
            "of each parameter and plain values of groups, and call no state_dict() and load_state_dict(); keep it in "
            "param_groups"
        )


def is_kept(value: object) -> bool:
    """Whether checkpoints keep it as a value of a group: plain, in lists and tuples too, or a small tensor."""
    if isinstance(value, Tensor):
        return not isinstance(value, DTensor) and value.dtype in TYPES.values() and value.numel() <= MOST_VALUES
    if type(value) in (list, tuple):
        return all(map(is_kept, cast(Sequence[object], value)))
    return value is None or isinstance(value, bool | int | float | str)


_ABSENT = object()


def _own(group: Group) -> Sequence[tuple[str, Any]]:
    return [(key, value) for key, value in group.items() if key not in OF_RUN]


class _Unkept(NamedTuple):
    """What checkpoints do not keep, with what tells that it was changed in place."""

    value: object
    mark: object


def _as_built(value: Any) -> Any:
    return _copied(value) if is_kept(value) else _Unkept(value, _mark(value))


def _mark(value: object) -> object:
    if isinstance(value, Tensor):
        return value._version
    return repr(value) if isinstance(value, dict | list | tuple | set) else None


def _same(value: object, built: object) -> bool:
    if isinstance(built, _Unkept):
        return value is built.value and _mark(value) == built.mark
    if not is_kept(value) or built is _ABSENT:
        return False
    return json.dumps(_plain(value)) == json.dumps(_plain(built))


def _copied(value: Any) -> Any:
    """Apart from what a step may change in place."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return type(value)(map(_copied, value)) if type(value) in (list, tuple) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return {"tensor": value.detach().flatten().tolist(), "shape": [*value.shape], "dtype": kind}
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return {"tuple": items} if isinstance(value, tuple) else items
    return value


def _value(plain: Any, device: torch.device) -> Any:
    """What ``_plain`` was made of. Raises KeyError, TypeError, RuntimeError or ValueError where it is none of its."""
    if isinstance(plain, list):
        return [_value(item, device) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "tuple" in plain:
        return tuple(_value(item, device) for item in plain["tuple"])
    return torch.tensor(plain["tensor"], dtype=TYPES[plain["dtype"]], device=device).reshape(plain["shape"])
