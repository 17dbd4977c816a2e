"""Media that a model wrote, as files of a folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.errors import ConfigError, unwritable
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.compose import Composition
    from kosmos.evaluate.answer import Generated

Written = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder for the media that the model writes, of modalities with a codec; each becomes a file there.",
    ),
]


class WrittenFiles:
    """The media of answers, each a file that is named by its answer and its number in it.

    Args:
        folder: made with the first file. None writes none, and says once that there is something to write.
        over: whether files that are there already are written anew, as an interrupted call has left them.

    Raises:
        ConfigError: the run has no codec, or the folder is in use.
    """

    def __init__(self, composition: Composition, folder: str | None, *, over: bool = False) -> None:
        self.composition, self.over = composition, over
        self.folder = None if folder is None else Path(folder)
        self._said = False
        why = [route.no_codec for route in composition.planner.routes.values() if route.no_codec]
        if folder is not None and why:
            raise ConfigError(f"--written: the run's codec cannot be used ({why[0]})")
        if folder is not None and not composition.planner.codecs:
            raise ConfigError(
                "--written: the run has no codec, so the model writes text alone; leave it out, or train one with "
                "modalities.NAME.codec"
            )
        if self.folder is not None and not over and self._is_used(self.folder):
            raise ConfigError(f"--written {folder}: is there and not empty; name a new folder")

    @staticmethod
    def _is_used(folder: Path) -> bool:
        try:
            return any(folder.iterdir())
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"--written {folder}: {error.strerror}; name a new folder") from error

    def column(self, answer: Generated, stem: str) -> Mapping[str, Any]:
        """What a line tells of the media in an answer: the file of each, or what is wrong with it. Empty where the run
        writes none, or nothing was asked for.

        Args:
            stem: what their files' names begin with.

        Raises:
            ConfigError: a file is there already, or the folder cannot be written.
            TrainingError: the disk is full.
        """
        from kosmos.evaluate.written import written_media

        if not self.composition.planner.codecs:
            return {}
        if self.folder is None:
            self._hint(answer)
            return {}
        told: list[dict[str, str]] = []
        for number, medium in enumerate(written_media(self.composition, answer), 1):
            if medium.fault:
                told.append({"modality": medium.modality, "fault": medium.fault})
                continue
            file = self.folder / f"{stem}-{number}{medium.suffix}"
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                with file.open("wb" if self.over else "xb") as written:
                    written.write(medium.content)
            except FileExistsError as error:
                raise ConfigError(f"--written {self.folder}: {file.name} is there already; name another") from error
            except OSError as error:
                raise unwritable(f"--written {file}", error, "name another folder") from error
            told.append({"modality": medium.modality, "file": str(file)})
        return {"written": told}

    def say(self, column: Mapping[str, Any], *, alone: bool = False) -> None:
        """Tell a person what ``column`` tells.

        Args:
            alone: it is the only answer, so that one without media leaves no file at all, which is told.
        """
        if alone and column.get("written") == []:
            codecs = " or ".join(self.composition.planner.codecs)
            say(f"--written {self.folder}: the answer holds no {codecs}", file=sys.stderr)
        for medium in column.get("written", ()):
            what = f"written to {medium['file']}" if "file" in medium else f"is none: {medium['fault']}"
            say(f"{medium['modality']}: {what}", file=sys.stderr)

    def _hint(self, answer: Generated) -> None:
        writers = (route.writer for route in self.composition.planner.routes.values())
        begins = {writer.begin: writer.modality for writer in writers if writer is not None}
        if not self._said and (there := [begins[token] for token in answer.token_ids if token in begins]):
            self._said = True
            say(f"hint: the answer holds {there[0]}; --written FOLDER makes files of it", file=sys.stderr)
