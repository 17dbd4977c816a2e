"""The state of an optimizer that a stage goes on with: other data, other learning rates, the same parameters."""

from __future__ import annotations

from kosmos.checkpoint import tensors as stored
from kosmos.errors import ConfigError
from kosmos.model.lora import updates_in
from kosmos.train.initial import Initial
from kosmos.train.initial_parts import part_of
from kosmos.train.loop import Trainer
from kosmos.train.optim.parameterwise import Parameterwise
from kosmos.train.optim.states import check_made_with


def take_optimizer(trainer: Trainer, initial: Initial) -> str:
    """Give a trainer that has taken no step the optimizer's state of a checkpoint, and tell of how many parameters.

    A parameter that was frozen there, or has another shape or other tokens in its rows, begins without one, as do
    low-rank updates that are drawn anew and parts whose weights are left there.

    Args:
        initial: what ``open_initial`` gave.

    Raises:
        ConfigError: the optimizer is another, there is no state of any of the trainer's parameters, or parameters had
            another type which the optimizer cannot go on from.
    """
    folder, train = initial.loaded.folder, trainer.config.train
    if initial.optimizer != train.optimizer.name:
        raise ConfigError(
            f"init.optimizer: {folder} was trained with {initial.optimizer}, whose state is none of "
            f"{train.optimizer.name}; set train.optimizer={initial.optimizer}, or leave init.optimizer out"
        )
    check_made_with(trainer.optimizer, initial.loaded, "leave it as it was, or leave init.optimizer out")
    found = stored.shapes(initial.loaded.tensors)
    there = {stored.parameter_of(n.removeprefix(stored.OPTIMIZER)) for n in found if n.startswith(stored.OPTIMIZER)}
    anew = updates_in(trainer.model) - initial.kept
    shapes = {trainer.names[id(parameter)]: tuple(parameter.shape) for parameter in trainer.parameters}
    of_parts = {n for n in there - anew - initial.token_rows if part_of(n) not in initial.left}
    names = {n for n in of_parts if found.get(stored.MODEL + n) == shapes.get(n, ())}
    if not names:
        raise ConfigError(
            f"init.optimizer: {folder} has the optimizer's state of no parameter that this run trains; leave it out"
        )
    _check_types(trainer, initial, names)
    stored.load_optimizer(
        trainer.optimizer, trainer.names, initial.loaded.tensors, initial.loaded.state["optimizer"],
        alone=trainer.parallel.world_size == 1, only=names,
    )  # fmt: skip
    trainer.group_values.load(initial.loaded.state.get("optimizer_groups", []), only=names)  # older ones hold none
    return f"takes the optimizer's state of {len(names)} of the {len(shapes)} tensors that are trained"


def _check_types(trainer: Trainer, initial: Initial, names: set[str]) -> None:
    """Raises ConfigError: parameters had another type, in which optimizers but ours want their state."""
    if isinstance(trainer.optimizer, Parameterwise):
        return
    there = stored.dtypes(initial.loaded.tensors)
    for parameter in trainer.parameters:
        name = trainer.names[id(parameter)]
        if name in names and (before := there[stored.MODEL + name]) != parameter.dtype:
            types = " and ".join(str(dtype).removeprefix("torch.") for dtype in (before, parameter.dtype))
            raise ConfigError(
                f"init.optimizer: {name} is in {types} there and here, and the state of "
                f"{trainer.config.train.optimizer.name} has the type of its parameter; set train.weights as it was, or "
                "leave init.optimizer out"
            )
