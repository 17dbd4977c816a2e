"""The command "draw", and the sketch in what a model wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from kosmos import Composition, ConfigError, Document, Generated, Text, generate_text, load_run
from kosmos_sketch.codes import END, MARKS, picture_of
from kosmos_sketch.pgm import as_pgm

MOST_TOKENS = 300
"""Marks of the largest sketch, 16 x 16 patches in 16 rows, and some."""


def sketch_in(answer: Generated, composition: Composition) -> NDArray[np.uint8]:
    """The first sketch that a model wrote, uint8 [height, width].

    Raises:
        SampleError: it wrote none, or one that is not whole.
    """
    names = {composition.tokenizer.mark_id(name): name for name in MARKS}
    written = [names[token] for token in answer.token_ids if token in names]
    end = written.index(END) + 1 if END in written else len(written)
    return picture_of(written[:end])


def draw(
    run: Annotated[Path, typer.Argument(help="A run that was trained on sketches.")],
    text: Annotated[str, typer.Argument(help='What to draw, such as "a large circle, middle".')],
    file: Annotated[Path, typer.Option(help="Where the sketch is written.")] = Path("sketch.pgm"),
) -> None:
    """Draw what a text describes, as a PGM file."""
    if file.exists():
        raise ConfigError(f"{file} is there already; name another (--file)")
    saved = load_run(run)
    answers: list[Generated] = []
    generate_text(
        saved.composition, Document(text, (Text(text),)),
        max_new_tokens=MOST_TOKENS, dtype=saved.dtype, on_end=answers.append,
    )  # fmt: skip
    picture = sketch_in(answers[0], saved.composition)
    file.write_bytes(as_pgm(picture))
    typer.echo(as_letters(picture))
    typer.echo(f"written to {file}")


def as_letters(picture: NDArray[np.uint8]) -> str:
    """The picture for a terminal, two letters for two by two pixels."""
    return "\n".join("".join("  " if gray > 127 else "##" for gray in row) for row in picture[::2, ::2].tolist())
