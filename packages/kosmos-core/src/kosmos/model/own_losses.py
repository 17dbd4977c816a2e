"""Losses that a part of the model hands on beside what it gives: of a codebook, of a head of its own, of experts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from kosmos.data.transfer import on_its_way
from kosmos.errors import PluginError
from kosmos.model.failures import named
from kosmos.model.loss import TokenLosses

NAME = re.compile(r"[a-z0-9_]+")
OnItsWay = tuple[Sequence[str], Callable[[], Tensor]]
"""Names, and what gives their values on the CPU."""


class WithLosses(NamedTuple):
    """What ``forward`` of an encoder, a connector or a backbone may return in place of its tensor.

    A step minimizes the sum of all these and of the losses of tokens, over the target tokens of the step (with
    ``train.objective`` over its units); one without any leaves them out, as where no gradients are taken. Its class
    says ``own_losses = True``.
    """

    output: Tensor
    """What it would return alone."""
    losses: Mapping[str, Tensor]
    """By name (a-z, 0-9, _) scalars of floats with a gradient: of each the sum over the items or tokens of the row,
    times the weight that it is to have. One that is no such sum depends on what shares the row."""

    # An explicit result, and nothing kept on the part: rows may be computed in several threads.


def output_of(given: Any) -> Any:
    """What a part gives, without losses of its own."""
    return given.output if isinstance(given, WithLosses) else given


def apart(given: Any, losses: dict[str, Tensor], path: str) -> Any:
    """What a part gives, without its losses, which ``losses`` get under ``path``."""
    if isinstance(given, WithLosses):
        losses |= {f"{path}.{name}": loss for name, loss in given.losses.items()}
    return output_of(given)


def losses_of(given: Any, title: str, part: nn.Module, *, filled: bool) -> dict[str, Tensor]:
    """Those that are minimized, of what a part has given: all that lead to something trained, and zeros.

    Args:
        title: what errors call the part.
        filled: whether the row holds something for it. What has nothing to say may say 0 without a gradient.

    Raises:
        PluginError: they are no losses, or, of a part that is trained, have no gradient.
    """
    if not isinstance(given, WithLosses) or not torch.is_grad_enabled():
        return {}
    if not isinstance(given.losses, Mapping):
        raise PluginError(f"{title}: forward gave {type(given.losses).__name__} as losses; expected names and scalars")
    _check(given.losses, title)
    trained = any(p.requires_grad for p in part.parameters())  # in evaluation mode, too: it learns all the same
    for name, loss in given.losses.items():
        if filled and trained and not loss.requires_grad and float(loss) != 0:
            raise PluginError(
                f"{title}: its loss {name} has no gradient; compute it, without detach or no_grad, of what is trained"
            )
    return {name: loss for name, loss in given.losses.items() if loss.requires_grad or trained}


def _check(losses: Mapping[Any, Any], title: str) -> None:
    for name, loss in losses.items():
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            raise PluginError(f"{title}: forward gave a loss called {name!r}; expected a name of a-z, 0-9 and _")
        if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
            kind = f"{named(loss.dtype)} {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise PluginError(f"{title}: forward gave {kind} as its loss {name}; expected a scalar of floats, its sum")


def says_losses(*parts: Any) -> bool:
    """Whether one of them says, by ``own_losses = True``, that it may hand on losses."""
    return any(bool(getattr(part, "own_losses", False)) for part in parts)


def refuse_padded(title: str) -> None:
    """Raises PluginError for losses of a part whose rows may be padded, in every row of it: whether this one is differs
    from rank to rank, and so would what they do then."""
    raise PluginError(
        f"{title}: forward gave losses of its own, and its encoder has takes_padding, which would be a part of them; "
        "write own_losses = True in the class of what gives them, then no row of it is padded"
    )


def refuse_shared(parts: Iterable[str]) -> None:
    """Raises PluginError where parts, by their places, hand on losses and ranks share rows: an item across a border is
    encoded on both sides, and its loss would count twice."""
    if (part := next(iter(parts), None)) is not None:
        raise PluginError(
            f"{part}: a part with a loss of its own does not go with parallel.sequence, whose ranks "
            "would count some items twice; set parallel.sequence=1"
        )


def with_own(found: TokenLosses, losses: Mapping[str, Tensor]) -> TokenLosses:
    """The losses of a row's tokens, with those of parts in their total.

    Args:
        losses: by the place of the part and the name.
    """
    if not losses:
        return found
    total, alike = found.total, {name: loss.to(found.total) for name, loss in losses.items()}
    for loss in alike.values():
        total = total + loss
    return found._replace(total=total, modules={name: loss.detach() for name, loss in alike.items()})


def on_their_way(losses: Mapping[str, Tensor]) -> OnItsWay:
    """Begin to copy losses of a row to the CPU."""
    return list(losses), on_its_way(torch.stack(list(losses.values())))


def sums_of(rows: Sequence[OnItsWay]) -> dict[str, float]:
    """Of the losses of rows, by name."""
    sums = Counter[str]()
    for names, arrived in rows:
        sums.update(dict(zip(names, arrived().tolist(), strict=True)))
    return dict(sums)
