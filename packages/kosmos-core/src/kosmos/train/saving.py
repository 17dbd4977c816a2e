"""Weights of somebody's making as a run of their own: to score, to export, to begin a stage with."""

from __future__ import annotations

from pathlib import Path

from kosmos.checkpoint.averaging import write_weights
from kosmos.checkpoint.folder import load_step
from kosmos.checkpoint.tensors import MODEL, dtypes, model_tensors, shapes
from kosmos.errors import ConfigError
from kosmos.given import check_is, path_of
from kosmos.names import listed
from kosmos.train.branch import new_run
from kosmos.train.output import RunFolder
from kosmos.train.saved import SavedRun


def save_run(run: SavedRun, output: str | Path) -> Path:
    """Save a model that was loaded, with the weights that it has now, as a run that ``load_run`` and ``init`` take.

    What the run trained on and its settings are those of the run that was loaded. It has no optimizer's state, so that
    it is not gone on with: ``init`` begins a run with it.

    Args:
        run: as ``load_run`` gave it. Its weights are saved in the types that the run has.
        output: folder to make, with one checkpoint.

    Returns:
        The folder.

    Raises:
        ConfigError: there is something at ``output``, or the model has other tensors than the run, as where updates
            were merged into weights.
        CheckpointError: the checkpoint that was loaded is gone.
        TrainingError: the disk is full or not writable; nothing is left at ``output``.
    """
    check_is("run", run, SavedRun, "load_run gives one")
    folder, new = RunFolder.open(run.folder), path_of("output", output, "a folder to make")
    loaded = load_step(folder.checkpoints, run.step)
    types = dtypes(loaded.tensors)
    weights = {
        name: tensor.detach().to("cpu", types.get(MODEL + name))
        for name, tensor in model_tensors(run.composition.model).items()
    }
    before = {MODEL + name: tuple(tensor.shape) for name, tensor in weights.items()}
    now = {name: shape for name, shape in shapes(loaded.tensors).items() if name.startswith(MODEL)}
    if other := sorted({name.removeprefix(MODEL) for name, _ in now.items() ^ before.items()}):
        raise ConfigError(
            f"save_run: the model has other tensors than its run ({listed(other, at_most=3)}); save one of the same "
            "parts, loaded without merge"
        )
    with new_run(folder, new) as made:
        write_weights(weights, loaded, made.checkpoints, of=())
    return new
