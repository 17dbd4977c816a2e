"""``OUTPUT/answers``: what the model wrote at each scoring, a file of JSON lines for each. Imports no torch.

A file of its own for each scoring is what ``kosmos score`` reads and compares with another, and steps that are taken
again replace theirs as a whole.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kosmos.errors import FULL, TrainingError
from kosmos.files import replacing
from kosmos.train.json_lines import printed_json

ANSWERS = "answers"
_NAME = re.compile(r"step-([0-9]{8,})\.jsonl")


class KeptAnswers:
    """See the module.

    Args:
        folder: made with the first file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, rows: Sequence[Mapping[str, Any]], report: Callable[[str], None]) -> None:
        """Keep the answers of a scoring, in the place of those of its step that are there; of none nothing is kept.

        Where the disk is full they are lost with a warning: training is worth more than they are.

        Args:
            rows: each with the ``step`` of the scoring.
            report: shows a line to the user.

        Raises:
            TrainingError: the file cannot be written.
        """
        if not rows:
            return
        file = self.folder / f"step-{rows[0]['step']:08d}.jsonl"
        text = "".join(printed_json(row) + "\n" for row in rows)
        try:
            self.folder.mkdir(exist_ok=True)
            with replacing(file) as written:  # names of files that are not UTF-8 become escapes, as in ledgers
                written.write(text.encode("utf-8", errors="backslashreplace"))
        except OSError as error:
            if error.errno not in FULL:
                raise TrainingError(f"{file}: cannot write ({error.strerror}); checkpoints are intact") from error
            report(f"warning: {file}: cannot write ({error.strerror}); these answers are not kept and the run goes on")

    def files(self) -> dict[int, Path]:
        """By step, in their order."""
        there = self.folder.iterdir() if self.folder.is_dir() else ()
        return dict(sorted((int(name[1]), file) for file in there if (name := _NAME.fullmatch(file.name))))

    def forget(self, step: int) -> None:
        """Take away those of steps after ``step``, which come again. Raises as ``write``."""
        for taken, file in self.files().items():
            if taken > step:
                try:
                    file.unlink()
                except OSError as error:
                    raise TrainingError(f"{file}: cannot be removed ({error.strerror})") from error

    def copy_to(self, other: KeptAnswers) -> None:
        """All of them, for a run that has the same steps. Raises OSError."""
        for file in self.files().values():
            other.folder.mkdir(exist_ok=True)
            with replacing(other.folder / file.name) as written, file.open("rb") as read:
                shutil.copyfileobj(read, written)
