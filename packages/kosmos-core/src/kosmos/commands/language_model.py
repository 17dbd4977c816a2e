"""The language model of a run as a folder that transformers reads, and what stands on it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import GenerationConfig
from transformers.utils import logging

from kosmos.data.bytes_tokenizer import FILE, ByteTokenizer
from kosmos.data.hf_tokenizer import of_bytes
from kosmos.data.marks import BOS, EOS, PAD
from kosmos.data.turns import save_tokenizer
from kosmos.errors import ConfigError
from kosmos.train.saved import SavedRun


def write_language_model(run: SavedRun, folder: Path) -> Any:
    """Configuration, weights and tokenizer, without encoders and connectors; ``folder`` is whole or not there.

    Args:
        run: loaded with its low-rank updates merged.

    Returns:
        The model of transformers.

    Raises:
        ConfigError: its backbone is none that transformers has, or the folder cannot be written.
    """
    composition = run.composition
    planner, tokenizer = composition.planner, composition.tokenizer
    model = _model(run)
    begin, end, fill = map(tokenizer.mark_id, (BOS, EOS, PAD))
    model.config.bos_token_id, model.config.eos_token_id, model.config.pad_token_id = begin, end, fill
    model.generation_config = GenerationConfig(
        bos_token_id=begin, eos_token_id=sorted(planner.stops), pad_token_id=fill
    )
    readable = of_bytes(tokenizer) if isinstance(tokenizer, ByteTokenizer) else tokenizer
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    with _aside(folder) as partial:
        save_tokenizer(readable, planner.turns, partial)
        mode = (partial / FILE).stat().st_mode  # as the umask has it; safetensors lets its owner alone read a file
        model.save_pretrained(partial)
        for file in partial.iterdir():
            file.chmod(mode)
    return model


def _model(run: SavedRun) -> Any:
    backbone = run.composition.model.backbone
    if not callable(make := getattr(backbone, "to_transformers", None)):
        name = run.composition.config.backbone.name
        raise ConfigError(
            f"backbone {name}: it does not say which model of transformers it is (to_transformers); write its weights "
            "as one file (kosmos export OUTPUT FILE)"
        )
    return make(run.composition.planner.max_tokens)


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    partial = folder.with_name(f".partial-{folder.name}")
    try:
        partial.mkdir()
        yield partial
        partial.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot write ({error}); name another folder") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
