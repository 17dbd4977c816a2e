"""Weights of somebody's making as a run of their own: to score, to export, to begin a stage with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor
from torch.distributed.tensor import DTensor

from kosmos.checkpoint.averaging import write_weights
from kosmos.checkpoint.folder import load_step
from kosmos.checkpoint.tensors import MODEL, dtypes, model_tensors, shapes
from kosmos.compose import Composition, compose
from kosmos.data.chat_template import save_tokenizer
from kosmos.errors import ConfigError
from kosmos.given import check_is, path_of, whole
from kosmos.lock import keep_lock
from kosmos.names import listed
from kosmos.run_file import with_absolute_sources
from kosmos.train.branch import new_run, run_folder
from kosmos.train.forecast.parts import counted
from kosmos.train.order import CODECS, settings_of
from kosmos.train.output import RunFolder
from kosmos.train.saved import SavedRun


def save_run(run: SavedRun | Composition, output: str | Path, *, step: int | None = None) -> Path:
    """Save a model, with the weights that it has now, as a run that ``load_run`` and ``init`` take.

    It has no optimizer's state, so that it is not gone on with: ``init`` begins a run with it.

    Args:
        run: as ``load_run`` gave it, whose settings, step and data it then has, and the types of its weights; or what
            ``compose_run`` made, with weights in the types that they have.
        output: folder to make, with one checkpoint.
        step: how many steps a loop of your own has taken, for what ``compose_run`` made; None is 0.

    Returns:
        The folder.

    Raises:
        ConfigError: there is something at ``output``, or the model has other tensors than the run, as where updates
            were merged into weights, or is sharded over ranks.
        CheckpointError: the checkpoint that was loaded is gone.
        TrainingError: the disk is full or not writable; nothing is left at ``output``.
    """
    new = path_of("output", output, "a folder to make")
    if isinstance(run, Composition):
        return _save_composed(run, new, whole("step", 0 if step is None else step, least=0))
    check_is("run", run, SavedRun, "load_run gives one; a Composition, as of compose_run, is taken too")
    if step is not None:
        raise ConfigError("step: of a run that was loaded it is that of its checkpoint; leave it out")
    folder = RunFolder.open(run.folder)
    loaded = load_step(folder.checkpoints, run.step)
    types = dtypes(loaded.tensors)
    weights = {
        name: tensor.detach().to("cpu", types.get(MODEL + name))
        for name, tensor in model_tensors(run.composition.model).items()
    }
    there = {name.removeprefix(MODEL): s for name, s in shapes(loaded.tensors).items() if name.startswith(MODEL)}
    _check_same(weights, there)
    with new_run(folder, new) as made:
        write_weights(weights, loaded.state, made.checkpoints, of=())
    return new


def _save_composed(made: Composition, output: Path, step: int) -> Path:
    config = with_absolute_sources(made.config, made.registry.specs("dataset"))
    weights = {name: tensor.detach().cpu() for name, tensor in model_tensors(made.model).items()}
    with run_folder(config, output) as new:
        save_tokenizer(made.tokenizer, made.planner.turns, new.tokenizer)
        built = compose(made.config, made.registry, tokenizer_folder=new.tokenizer, draw=False).model
        _check_same(weights, {name: tuple(tensor.shape) for name, tensor in model_tensors(built).items()})
        keep_lock(new.path, made.registry)
        new.write_model(made.without_files())
        new.write_parameters(counted(made))
        # No sources: what a loop of one's own has learned from nobody knows.
        order = settings_of(config)
        order = {**order, "data": {**order["data"], "sources": []}}
        order |= {CODECS: codecs} if (codecs := made.planner.codecs) else {}
        write_weights(weights, {"step": step, "order": order}, new.checkpoints, of=())
    return output


def _check_same(weights: Mapping[str, Tensor], there: Mapping[str, tuple[int, ...]]) -> None:
    """Raises ConfigError where a model has other tensors than its run says, or shards of them."""
    if sharded := next((name for name, tensor in weights.items() if isinstance(tensor, DTensor)), None):
        raise ConfigError(f"save_run: {sharded} is sharded over ranks; save a model whose tensors are whole")
    now = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if other := sorted({name for name, _ in now.items() ^ there.items()}):
        raise ConfigError(
            f"save_run: the model has other tensors than its run ({listed(other, at_most=3)}); save one of the same "
            "parts, loaded without merge"
        )
