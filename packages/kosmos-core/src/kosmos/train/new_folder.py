"""The folder of a new run: what is in it before the first step."""

from __future__ import annotations

from kosmos.compose import Composition
from kosmos.data.turns import save_tokenizer
from kosmos.errors import KosmosError, TrainingError
from kosmos.lock import keep_lock
from kosmos.plugins import Registry
from kosmos.train.output import RunFolder


def new_folder(composition: Composition, registry: Registry) -> RunFolder:
    """Make it. It holds a run once its run file stands there.

    Raises:
        ConfigError: its name is taken.
        TrainingError: it cannot be written; nothing of it is left.
    """
    folder = RunFolder.create(composition.config)
    try:
        save_tokenizer(composition.tokenizer, composition.planner.turns, folder.tokenizer)
        keep_lock(folder.path, registry)
        folder.write_model(composition.without_files())
        folder.write_config(composition.config.model_copy(update={"output": folder.path.resolve()}))
    except OSError as error:  # such as a full disk
        folder.discard()
        raise TrainingError(f"{folder.path}: cannot write ({error.strerror}); nothing was trained") from error
    except (KosmosError, KeyboardInterrupt):
        folder.discard()
        raise
    return folder
