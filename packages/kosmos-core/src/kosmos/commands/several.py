"""Commands whose work several processes share: ``--nproc N`` starts them, or torchrun does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kosmos.errors import KosmosError, TrainingError
from kosmos.own_output import aside
from kosmos.runtime.launch import OTHERS_WAIT_S, check_nproc, launch
from kosmos.selection import plugins_option

if TYPE_CHECKING:
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.saved import SavedRun

Nproc = Annotated[int | None, typer.Option(help="Processes on this machine that share the documents, one a GPU.")]


def as_given(context: typer.Context) -> list[str]:
    """The arguments of this command for one of its processes: all but ``--nproc``."""
    positional: list[str] = []
    options: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name == "nproc" or value is None or value is False or value == parameter.default:
            continue
        name = parameter.opts[0]
        if parameter.param_type_name == "argument":
            positional.append(str(value))
        elif value is True:
            options.append(name)
        else:
            each = value if isinstance(value, list | tuple) else [value]
            options += [f"{name}={one}" for one in each]
    return [*positional, *options, *context.args, *plugins_option()]


def in_several(command: str, context: typer.Context, nproc: int) -> int:
    """The status of a command in so many processes. Raises ConfigError where that is no number of processes."""
    check_nproc(nproc)
    return launch(nproc, [command, *as_given(context)])


@contextmanager
def shared() -> Iterator[Parallel]:
    """The processes that share the work of this command, or this one alone. Only the first of several is heard.

    Raises:
        TrainingError: another of them is gone, and its launcher has not ended this one.
    """
    from kosmos.runtime.parallel import joined, tells_of_end

    with joined("cpu") as parallel:  # what is told are plain values
        try:
            with _heard(parallel):
                yield parallel
        except KosmosError:
            if not parallel.is_main:  # if the first has come to it too, its launcher ends this one
                time.sleep(OTHERS_WAIT_S)
            raise
        except RuntimeError as error:
            if parallel.world_size == 1 or not tells_of_end(error):
                raise
            time.sleep(OTHERS_WAIT_S)  # who is gone has said why, and its launcher ends this one
            raise TrainingError("another process is gone without a word, such as for want of memory") from error


@contextmanager
def _heard(parallel: Parallel) -> Iterator[None]:
    with ExitStack() as stack:
        if not parallel.is_main:
            stack.enter_context(aside())  # descriptor 1 is the command's also where Python prints nowhere
            nowhere: Any = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def loaded_by_all(parallel: Parallel, output: str, step: int | Literal["best"] | None, fields: Any) -> SavedRun:
    """The run as ``load_run`` gives it, in every process. One line says why it cannot be loaded."""
    from kosmos.train.saved import opened_run

    found: list[SavedRun] = []  # each rank's own, which it tells nobody
    parallel.agreed(lambda: found.append(opened_run(output, step=step, overrides=fields)))
    return found[0]
