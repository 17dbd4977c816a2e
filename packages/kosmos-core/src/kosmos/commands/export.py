"""``kosmos export``: the weights of a checkpoint as one file of safetensors. No plugin is loaded: nothing is built."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos.commands.arguments import Step, as_step, check_free, refuse_ranks
from kosmos.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


def export(
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder of a run.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write, such as model.safetensors.")],
    step: Step = None,
) -> None:
    """Write a run's model as one file of safetensors, however many processes have trained it.

    Low-rank updates (lora) are put into the weights that they stand beside.
    """
    from kosmos.checkpoint.tensors import MODEL, read_whole
    from kosmos.compose import update_scales
    from kosmos.model.lora import merge_tensors
    from kosmos.train.saved import config_of, open_checkpoint

    refuse_ranks("kosmos export")
    check_free("FILE", file)
    folder, loaded = open_checkpoint(Path(output), as_step(step))
    for name in loaded.skipped:
        print(f"warning: passed over a damaged checkpoint: {name}", file=sys.stderr)
    found: int = loaded.state["step"]
    tensors = read_whole(loaded.tensors, MODEL)
    merge_tensors(tensors, update_scales(config_of(folder)))
    _write(tensors, Path(file), {"format": "pt", "step": str(found)})
    size = Path(file).stat().st_size / 2**20
    print(f"{file}: {sum(t.numel() for t in tensors.values()):,} values of step {found:,}, {size:,.1f} MiB")


def _write(tensors: Mapping[str, Tensor], file: Path, about: Mapping[str, str]) -> None:
    """Aside first, so that ``file`` is whole or not there."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from kosmos.checkpoint.folder import sync

    partial = file.with_name(f".partial-{file.name}")
    try:
        partial.touch()
        mode = partial.stat().st_mode  # as the umask has it; save_file lets nobody but the owner read its file
        save_file(dict(tensors), partial, dict(about))
        partial.chmod(mode)
        sync(partial)
        partial.rename(file)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file}: cannot write ({error}); name another file") from error
    finally:
        with suppress(OSError):  # where nothing could be written nothing is left, and the reason above counts
            partial.unlink(missing_ok=True)
