"""``kosmos export``: the weights of a checkpoint as one file, its language model for transformers or PEFT, or all of it
in the layout of another library."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kosmos import collector
from kosmos.commands.arguments import Step, as_step, check_free, check_free_folder, refuse_empty, refuse_ranks
from kosmos.errors import ConfigError, unwritable
from kosmos.names import did_you_mean, listed
from kosmos.own_output import aside
from kosmos.visible import say

if TYPE_CHECKING:
    from torch import Tensor

READERS = "transformers", "peft"
"""What reads a language model alone; others are layouts of whole models."""
OTHERS = (".gguf", ".onnx", ".bin", ".pt", ".pth", ".ckpt")
"""Suffixes of other formats: what reads a file by its name would fail on safetensors, much later."""


def export(
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder of a run.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File to write, such as model.safetensors; with --for a folder.")
    ],
    step: Step = None,
    part: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE",
            help="Write this part alone, such as streams.NAME.encoder, by the names that it has in itself.",
        ),
    ] = None,
    reader: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="READER",
            help="Write a folder that this reads: transformers, the language model alone with its tokenizer; peft, "
            "only its low-rank updates, an adapter; or an installed layout, such as llava, the whole model.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Id or folder of the model that an adapter (--for peft) belongs to; by default backbone.model.",
        ),
    ] = None,
) -> None:
    """Write a run's model as one file of safetensors, however many processes have trained it.

    Low-rank updates (lora) are put into the weights that they stand beside, but for an adapter (--for peft).
    """
    refuse_ranks("kosmos export")
    refuse_empty("--part", part)
    refuse_empty("--base", base)
    if base is not None and reader != "peft":
        raise ConfigError("--base: an adapter alone belongs to another model; add --for peft, or leave it out")
    if reader is not None:
        if part is not None:
            what = "the language model" if reader in READERS else "a whole model"
            raise ConfigError(f"--part: --for {reader} writes {what}; leave one of them out")
        if reader not in READERS:
            from kosmos.commands.whole_model import export_whole

            export_whole(Path(output), Path(file.rstrip(os.sep) or file), as_step(step), reader)
            return
        check_free_folder("FOLDER", file.rstrip(os.sep) or file)
        if reader == "peft":
            _write_adapter(Path(output), Path(file), step, base)
        else:
            _write_language_model(Path(output), Path(file), step)
        return
    check_free("FILE", file)
    _refuse_other_format(Path(file))
    _write_weights(Path(output), Path(file), step, part)


def _refuse_other_format(file: Path) -> None:
    if (suffix := file.suffix.lower()) in OTHERS:
        raise ConfigError(
            f"{file}: a file of safetensors is written, and {suffix} is another format; name it "
            f"{file.with_suffix('.safetensors')}, or write the language model with --for transformers and convert that"
        )


def _write_weights(output: Path, file: Path, step: str | None, part: str | None) -> None:
    """No plugin is loaded: nothing is built."""
    from kosmos.checkpoint.tensors import MODEL, read_whole
    from kosmos.model.lora import merge_tensors
    from kosmos.run_updates import update_scales
    from kosmos.train.saved import config_of, open_checkpoint

    collector.imported()
    collector.go_on()
    folder, loaded = open_checkpoint(output, as_step(step))
    for name in loaded.skipped:
        say(f"warning: passed over a damaged checkpoint: {name}", file=sys.stderr)
    found: int = loaded.state["step"]
    tensors = read_whole(loaded.tensors, MODEL)
    merge_tensors(tensors, update_scales(config_of(folder)))
    tensors = tensors if part is None else _of_part(tensors, part)
    _write(tensors, file, {"format": "pt", "step": str(found)})
    size = file.stat().st_size / 2**20
    say(f"{file}: {sum(t.numel() for t in tensors.values()):,} values of step {found:,}, {size:,.1f} MiB")


def _of_part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """By the names that they have within it. Raises ConfigError, which lists the parts, where there is no such one."""
    begin = f"{part.rstrip('.')}."
    found = {name.removeprefix(begin): tensor for name, tensor in tensors.items() if name.startswith(begin)}
    if not found:
        steps = [name.split(".") for name in tensors]
        modules = dict.fromkeys(".".join(path[:n]) for path in steps for n in range(1, len(path)))
        parts = dict.fromkeys(".".join(path[: 3 if path[0] == "streams" else 1]) for path in steps)
        near = did_you_mean(part, [*modules])
        raise ConfigError(
            f"--part {part}: the model has no such part; {f'{near} ' if near else ''}(parts: {listed(parts)})"
        )
    return found


def _write_language_model(output: Path, folder: Path, step: str | None) -> None:
    from kosmos.commands.language_model import read_otherwise, write_language_model
    from kosmos.train.saved import opened_run

    run = opened_run(output, step=as_step(step), device="cpu", merge=True)
    for line in run.warnings():
        say(f"warning: {line}", file=sys.stderr)
    with aside():
        model = write_language_model(run, folder)
        warning = read_otherwise(folder)
    kind, values = type(model).__name__, model.num_parameters()
    say(f"{folder}: {kind}, {values:,} values of step {run.step:,}; for AutoModelForCausalLM and AutoTokenizer")
    if warning:
        say(f"warning: {warning}", file=sys.stderr)
    if streams := run.composition.streams:
        say(f"hint: what reads {listed(streams)} is not in it; kosmos export OUTPUT FILE writes all", file=sys.stderr)


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
        _sort_header(partial)
        partial.chmod(mode)
        sync(partial)
        partial.rename(file)
    except (OSError, SafetensorError) as error:
        raise unwritable(file, error, "nothing is left there; name another file") from error
    finally:
        with suppress(OSError):  # where nothing could be written nothing is left, and the reason above counts
            partial.unlink(missing_ok=True)


def _write_adapter(output: Path, folder: Path, step: str | None, base: str | None) -> None:
    from kosmos.commands.adapter import left_out, write_adapter
    from kosmos.train.saved import opened_run

    run = opened_run(output, step=as_step(step), device="cpu")
    for line in run.warnings():
        say(f"warning: {line}", file=sys.stderr)
    with aside():
        adapter = write_adapter(run, folder, base)
    whole = f" and {listed(adapter.saved)} whole" if adapter.saved else ""
    say(
        f"{folder}: updates of {adapter.layers:,} layers{whole}, {adapter.values:,} values of step {run.step:,}; for "
        f"PeftModel.from_pretrained, beside {adapter.base}"
    )
    if adapter.rows is not None:
        say(
            f"warning: {folder}: the run has {adapter.rows:,} rows of tokens, and {adapter.base} another number; call "
            f"resize_token_embeddings({adapter.rows}) of that model before PeftModel.from_pretrained",
            file=sys.stderr,
        )
    if others := left_out(run.composition.config):
        say(f"warning: {others}", file=sys.stderr)


def _sort_header(file: Path) -> None:
    """Its library writes what a file says of itself in another order each time: one model is one sequence of bytes."""
    with file.open("r+b") as written:
        size = int.from_bytes(written.read(8), "little")
        header = json.loads(written.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        assert len(text) <= size
        written.seek(8)
        written.write(text.ljust(size))
