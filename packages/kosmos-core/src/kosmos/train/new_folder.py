"""The folder of a new run: what is in it before the first step."""

from __future__ import annotations

from kosmos.compose import Composition
from kosmos.data.chat_template import save_tokenizer
from kosmos.errors import KosmosError, TrainingError
from kosmos.lock import keep_lock
from kosmos.plugins import Registry
from kosmos.runtime.parallel import Parallel
from kosmos.train.forecast.parts import counted
from kosmos.train.output import RunFolder
from kosmos.train.used_options import used_options


def new_folder(composition: Composition, registry: Registry, parallel: Parallel) -> RunFolder:
    """Make it. It holds a run once its run file stands there. All ranks call it; the first holds the folder.

    Raises:
        ConfigError: its name is taken.
        TrainingError: it cannot be written; nothing of it is left.
    """
    made: list[RunFolder] = []  # the first rank's own: others do not hold it

    def make() -> RunFolder:
        made.append(_made(composition, registry))
        return made[0]

    path = parallel.main_only(lambda: make().path)
    return made[0] if made else RunFolder(path)


def _made(composition: Composition, registry: Registry) -> RunFolder:
    folder = RunFolder.create(composition.config)
    try:
        save_tokenizer(composition.tokenizer, composition.planner.turns, folder.tokenizer)
        keep_lock(folder.path, registry)
        folder.write_model(composition.without_files())
        folder.write_parameters({**counted(composition), "options": used_options(composition)})
        folder.write_config(composition.config.model_copy(update={"output": folder.path.resolve()}))
    except OSError as error:  # such as a full disk
        folder.discard()
        raise TrainingError(f"{folder.path}: cannot write ({error.strerror}); nothing was trained") from error
    except (KosmosError, KeyboardInterrupt):
        folder.discard()
        raise
    return folder
