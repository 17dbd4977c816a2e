"""Parts of a model whose weights are taken from another run: the backbone, and of each stream encoder and connector."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from kosmos.config_weights import InitConfig
from kosmos.errors import ConfigError
from kosmos.names import did_you_mean, listed

Shapes = dict[str, tuple[int, ...]]
LEAVE = "init.leave"


def part_of(name: str) -> str:
    """The part that owns a tensor, by its name."""
    steps = name.split(".")
    return ".".join(steps[:3] if steps[0] == "streams" else steps[:1])


def by_part(found: Mapping[str, tuple[int, ...]], without: Collection[str]) -> dict[str, Shapes]:
    """Shapes of tensors by the part that owns them."""
    parts: dict[str, Shapes] = {}
    for name, shape in found.items():
        if name not in without:
            parts.setdefault(part_of(name), {})[name] = shape
    return parts


def left_parts(settings: InitConfig, ours: Iterable[str], theirs: Iterable[str], folder: Path) -> frozenset[str]:
    """Parts that both runs have, and that are not to be taken.

    Args:
        ours: parts of the run that begins.
        theirs: of the one that it begins with, whose folder is ``folder``.

    Raises:
        ConfigError: neither has such a part, or none is taken.
    """
    both = [part for part in ours if part in {*theirs}]
    known = list(dict.fromkeys([*ours, *theirs]))
    wholes = list(dict.fromkeys(begin for part in known for begin in _begins(part)))
    for name in settings.leave:
        if name not in wholes:
            meant = did_you_mean(name, wholes) or next(
                (f"did you mean {w}?" for w in known if w.endswith(f".{name}")), ""
            )
            raise ConfigError(
                f"{LEAVE}: {name}: neither this run nor {folder} has such a part; "
                f"{f'{meant} ' if meant else ''}parts: {listed(known)}"
            )
    left = frozenset(part for part in both if settings.leaves(part))
    if len(left) == len(both):
        raise ConfigError(f"{LEAVE}: nothing is taken of {folder} then; begin without init, or leave less there")
    return left


def _begins(part: str) -> Iterator[str]:
    """``streams.NAME.encoder`` and what it is in: of a stream both parts."""
    return reversed(list(accumulate(part.split("."), lambda one, other: f"{one}.{other}")))


def instead(part: str, parts: Collection[str]) -> str:
    """What else to do about a part that does not fit, of those that would be taken."""
    return "begin without init" if {*parts} == {part} else f"leave it there ({LEAVE}: [{part}])"


def check_same(part: str, ours: Shapes, theirs: Shapes, folder: Path, others: Sequence[str], or_else: str) -> None:
    """Raises ConfigError where the tensors of a part, here and there, do not have the same names and shapes.

    Args:
        others: fields of options that differ.
        or_else: as ``instead``.
    """
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            there, here = (f"has {list(of[name])}" if name in of else "lacks it" for of in (theirs, ours))
            which = f" ({listed(others)})" if others else ""
            raise ConfigError(
                f"init: {part} of {folder} is another: {name}: it {there}, this run {here}; give both the same "
                f"options{which}, or {or_else}"
            )
