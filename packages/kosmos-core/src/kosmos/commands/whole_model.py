"""A whole run, encoders and language model, as a folder in the layout of another library."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor

from kosmos.commands.arguments import check_free_folder
from kosmos.commands.language_model import language_model, read_otherwise, write_tokenizer, written_aside
from kosmos.errors import ConfigError
from kosmos.model.model_folder import CONFIG, INDEX, TURNS, WEIGHTS
from kosmos.names import did_you_mean, listed
from kosmos.own_output import aside
from kosmos.plugins import Registry, load_plugins
from kosmos.train.layout import Layout, ModelParts, WrittenModel
from kosmos.train.saved import SavedRun, opened_run
from kosmos.visible import say

FILE_BYTES = 4 * 2**30
"""Another file is begun past these: what is larger some places of models do not take."""


def export_whole(output: Path, folder: Path, step: int | Literal["best"] | None, layout: str) -> None:
    """Write a run in a layout by its name, and tell of it. Raises ConfigError where none has it, or it refuses."""
    registry = load_plugins()
    _check_layout(registry, layout)
    check_free_folder("FOLDER", str(folder))
    run = opened_run(output, step=step, device="cpu", merge=True)
    for line in run.warnings():
        say(f"warning: {line}", file=sys.stderr)
    with aside():
        written, values = write_whole_model(run, folder, registry.build("layout", layout))
        warning = read_otherwise(folder)
    reader = f"; for {written.reader} and AutoProcessor" if written.reader else ""
    say(f"{folder}: {layout}, {values:,} values of step {run.step:,}{reader}")
    for line in (*written.hints, *([warning] if warning else [])):
        say(f"warning: {line}", file=sys.stderr)


def _check_layout(registry: Registry, layout: str) -> None:
    known = registry.specs("layout")
    if layout in known:
        return
    others = ["transformers", "peft", *known]
    said = did_you_mean(layout, others) or f"expected {listed(others)}"
    absent = registry.why_absent("layout", layout)
    raise ConfigError(f"--for {layout}: nothing that is installed writes for it; {said}{absent}")


def write_whole_model(run: SavedRun, folder: Path, layout: Layout) -> tuple[WrittenModel, int]:
    """Configuration, weights, tokenizer and what else the layout has; ``folder`` is whole or not there.

    Args:
        run: loaded with its low-rank updates merged.

    Returns:
        What was written, and how many values.

    Raises:
        ConfigError: the run has no such layout, or no folder can be written there.
        TrainingError: the disk is full.
    """
    model = language_model(run)
    parts = ModelParts(run.composition, model)
    written = layout.write(parts)
    with written_aside(folder) as partial:
        write_tokenizer(run, partial, written.places)
        _add_tokens(partial / "tokenizer.json", parts.added)
        turns = run.composition.config.tokenizer.turns
        files = {
            CONFIG: written.config,
            "generation_config.json": model.generation_config.to_diff_dict(),
            TURNS: {"turns": None if turns is None else turns.model_dump(), "places": dict(written.places)},
            **written.files,
        }
        for name, content in files.items():
            text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
            (partial / name).write_text(text + "\n", encoding="utf-8")
        values = _write_tensors(written.tensors, partial)
    return written, values


def _add_tokens(file: Path, added: Mapping[str, int]) -> None:
    tokenizer = Tokenizer.from_file(str(file))
    for name, number in added.items():
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False)])
        assert tokenizer.token_to_id(name) == number, (name, number)
    tokenizer.save(str(file))


def _write_tensors(tensors: Mapping[str, Tensor], folder: Path) -> int:
    """In files of bounded size, in their order, with an index where there are several. No more than one file's tensors
    are held at a time, beside those of the run."""
    parts: list[list[str]] = []
    sizes: dict[str, int] = {}
    values = 0
    held: dict[str, Tensor] = {}

    def write() -> None:
        parts.append([*held])
        save_file(held, folder / f".part-{len(parts)}", {"format": "pt"})
        held.clear()

    for name, tensor in tensors.items():
        if held and sum(sizes[of] for of in held) + tensor.nbytes > FILE_BYTES:
            write()
        held[name] = tensor.detach().contiguous()
        sizes[name], values = tensor.nbytes, values + tensor.numel()
    write()
    if len(parts) == 1:
        (folder / ".part-1").rename(folder / WEIGHTS)
        return values
    files = [f"model-{n:05d}-of-{len(parts):05d}.safetensors" for n in range(1, len(parts) + 1)]
    for number, file in enumerate(files, 1):
        (folder / f".part-{number}").rename(folder / file)
    index: dict[str, Any] = {
        "metadata": {"total_size": sum(sizes.values())},
        "weight_map": {name: file for file, names in zip(files, parts, strict=True) for name in names},
    }
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return values
