"""The language model of a run as a folder that transformers reads, and what stands on it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from tokenizers import Tokenizer
from tokenizers.processors import Sequence, TemplateProcessing
from transformers import AutoTokenizer, GenerationConfig
from transformers.utils import logging

from kosmos.checkpoint.folder import sync
from kosmos.data.bytes_tokenizer import ByteTokenizer
from kosmos.data.chat_template import save_tokenizer
from kosmos.data.foreign import first_line
from kosmos.data.hf_tokenizer import of_bytes
from kosmos.data.marks import BOS, EOS, PAD
from kosmos.errors import ConfigError, unwritable
from kosmos.model.weights import round_weights
from kosmos.train.saved import SavedRun

_ADVICE = "nothing is left there; name another folder"
_SAMPLES = ("The cat sat", "two  spaces ", "in 2024: 3.14 + 12345", "lines\n\n end\r\n\tso", "Zoë’s naïve café")
"""Texts that tokenizers of models take apart in different ways."""


def write_language_model(run: SavedRun, folder: Path) -> Any:
    """Configuration, weights and tokenizer, without encoders and connectors; ``folder`` is whole or not there.

    Args:
        run: loaded with its low-rank updates merged.

    Returns:
        The model of transformers.

    Raises:
        ConfigError: its backbone is none that transformers has, or no folder can be written there.
        TrainingError: the disk is full.
    """
    model = language_model(run)
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    with written_aside(folder) as partial:
        write_tokenizer(run, partial)
        model.save_pretrained(partial)
    return model


def language_model(run: SavedRun) -> Any:
    """The backbone of a run as a model of transformers, which has its tensors and knows where its texts end.

    Raises:
        ConfigError: it is none that transformers has.
    """
    composition = run.composition
    planner, tokenizer = composition.planner, composition.tokenizer
    if composition.config.train.weights == "bf16":  # a run is loaded in fp32
        round_weights(composition.model)
    model = _model(run)
    begin, end, fill = map(tokenizer.mark_id, (BOS, EOS, PAD))
    model.config.bos_token_id, model.config.eos_token_id, model.config.pad_token_id = begin, end, fill
    model.generation_config = GenerationConfig(
        bos_token_id=begin, eos_token_id=sorted(planner.stops), pad_token_id=fill
    )
    return model


def write_tokenizer(run: SavedRun, folder: Path, places: Mapping[str, str] | None = None) -> None:
    """The tokenizer of a run as transformers reads it, with how chats are laid out and how a document begins.

    Args:
        places: modality to what stands for a medium in a chat, where the model has media.
    """
    composition = run.composition
    tokenizer = composition.tokenizer
    readable = of_bytes(tokenizer) if isinstance(tokenizer, ByteTokenizer) else tokenizer
    save_tokenizer(readable, composition.planner.turns, folder, places)
    _begin_documents(folder / "tokenizer.json", tokenizer.mark_id(BOS))


def read_otherwise(folder: Path) -> str | None:
    """What a user should know of AutoTokenizer before relying on it; None where it reads the tokenizer as it is.

    Of some types of models it takes a class that makes rules of its own, whatever ``tokenizer.json`` and
    ``tokenizer_config.json`` say.
    """
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    marks = "".join(f"{token.content}a " for token in ours.get_added_tokens_decoder().values())
    try:
        theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        texts = [text for text in (*_SAMPLES, marks) if theirs(text)["input_ids"] != ours.encode(text).ids]
        if not texts:
            return None
        found = (
            f"makes a {type(theirs).__name__} of the tokenizer, with other tokens than the run's for {texts[0]!r:.40}"
        )
    except Exception as error:  # its classes refuse files in as many ways as there are classes
        found = f"cannot read the tokenizer ({first_line(error)})"
    return f"{folder}: AutoTokenizer {found}; load it by PreTrainedTokenizerFast.from_pretrained({str(folder)!r})"


def _begin_documents(file: Path, begin: int) -> None:
    """Whoever tokenizes a text with special tokens, as transformers does by default, begins it as training did."""
    tokenizer = Tokenizer.from_file(str(file))
    if tokenizer.encode("a").ids[:1] == [begin]:
        return
    token = tokenizer.id_to_token(begin)
    opening = TemplateProcessing(single=[token, "$A"], pair=[token, "$A", "$B:1"], special_tokens=[(token, begin)])
    before = tokenizer.post_processor
    tokenizer.post_processor = opening if before is None else Sequence([before, opening])
    tokenizer.save(str(file))


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
def written_aside(folder: Path) -> Iterator[Path]:
    """A folder to write to, which becomes ``folder`` once it is whole.

    It is one of its own, so that of two who write to one place one wins and the other is told.

    Raises:
        ConfigError: no folder can be written there.
        TrainingError: the disk is full.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".partial-{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise unwritable(folder, error, _ADVICE) from error
    try:
        yield partial
        for file in filter(Path.is_file, partial.iterdir()):
            file.chmod(0o666 & ~_umask())  # safetensors lets its owner alone read a file
            sync(file)
        partial.chmod(0o777 & ~_umask())
        partial.rename(folder)
    except (OSError, SafetensorError) as error:
        raise unwritable(folder, error, _ADVICE) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
