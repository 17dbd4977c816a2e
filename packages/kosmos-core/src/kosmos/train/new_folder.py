"""The folder of a new run: what is in it before the first step."""

from __future__ import annotations

from pathlib import Path

from kosmos.compose import Composition
from kosmos.data.turns import TEMPLATE, template
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
        _write_tokenizer(composition, folder.tokenizer)
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


def _write_tokenizer(composition: Composition, folder: Path) -> None:
    """With how chats are laid out, where transformers reads it."""
    composition.tokenizer.save(folder)
    if (folder / "tokenizer.json").exists():
        found = template(composition.planner.turns, composition.tokenizer)
        (folder / TEMPLATE).write_text(found, encoding="utf-8")
