"""The folder of a run: ``run.yaml``, ``metrics.jsonl``, ``quarantine.jsonl``, ``tokenizer/``, ``checkpoints/``."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kosmos.config import RunConfig, dump_run, read_run_file
from kosmos.errors import ConfigError, TrainingError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors that may pass by themselves: no space, a quota, a limit on the size of files."""


class RunFolder:
    """Reads and writes what a run leaves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_file = path / "run.yaml"
        self.metrics = path / "metrics.jsonl"
        self.quarantine = path / "quarantine.jsonl"
        self.held_out = path / "held_out.jsonl"
        self.guards = path / "guards.jsonl"
        self.goodput = path / "goodput.jsonl"
        self.checkpoints = path / "checkpoints"
        self.tokenizer = path / "tokenizer"
        self.report: Callable[[str], None] = lambda line: None
        """Shows a line to the user."""
        self._known_bad: set[tuple[str, str]] | None = None
        self._waiting: dict[Path, str] = {}
        self._is_full = False

    @staticmethod
    def create(config: RunConfig) -> RunFolder:
        """A new folder, which is a run's only when ``write_config`` has been called.

        Raises:
            ConfigError: the folder holds a run already, or cannot be made.
        """
        path = config.output or _free_name(config)
        folder = RunFolder(path)
        if folder.run_file.exists():
            raise ConfigError(
                f"{path}: holds a run already; go on with 'kosmos train --resume {path}' or name another --output"
            )
        try:
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: cannot make the output folder ({error.strerror})") from error
        folder.metrics.touch()
        folder.quarantine.touch()
        return folder

    def write_config(self, config: RunConfig) -> None:
        """Make the folder that of a run, or replace its run file; it is never half written.

        Raises:
            TrainingError: the disk is full or not writable.
        """
        self._replace(self.run_file, dump_run(config))

    @staticmethod
    def open(path: Path) -> RunFolder:
        """An existing run.

        Raises:
            ConfigError: there is none.
        """
        folder = RunFolder(path)
        if not folder.run_file.is_file():
            raise ConfigError(f"{path}: no run is here (no run.yaml); give the output folder of 'kosmos train'")
        return folder

    def read_config(self) -> dict[str, Any]:
        return read_run_file(self.run_file)

    def append(self, file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows to one of the ledgers. Those for which the disk has no room wait for the next call.

        Raises:
            TrainingError: the file cannot be written.
        """
        text = self._waiting.pop(file, "") + "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        if not text:
            return
        before = file.stat().st_size if file.exists() else 0
        try:
            with file.open("a", encoding="utf-8") as ledger:
                ledger.write(text)
            self._is_full = False
        except OSError as error:
            if error.errno not in FULL:
                raise TrainingError(f"{file}: cannot write ({error.strerror}); checkpoints are intact") from error
            os.truncate(file, before)  # what was written of them may be half a row
            self._waiting[file] = text
            if not self._is_full:
                free = shutil.disk_usage(self.path).free
                self.report(
                    f"warning: {file}: cannot write ({error.strerror}); {len(text):,} bytes are needed and {free:,} "
                    "bytes are free; its rows wait for room and the run goes on"
                )
            self._is_full = True

    def finish(self) -> None:
        """Write what waits.

        Raises:
            TrainingError: there is still no room.
        """
        for file in list(self._waiting):
            self.append(file, ())
        if self._waiting:
            raise TrainingError(f"{next(iter(self._waiting))}: its last rows are lost (no space left)")

    def note_bad(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows to the quarantine ledger, those of a sample once however often it is drawn. Raises as ``append``."""
        known = self._known_bad = self._bad_samples()
        new = {key: row for row in rows if (key := (row["origin"], row["cause"])) not in known}
        known |= set(new)
        self.append(self.quarantine, new.values())

    def count_bad(self) -> int:
        """Bad samples that the run has met."""
        return len({origin for origin, _ in self._bad_samples()})

    def _bad_samples(self) -> set[tuple[str, str]]:
        """(origin, cause) of what is in the ledger."""
        if self._known_bad is not None:
            return self._known_bad
        lines = self.quarantine.read_text(encoding="utf-8").splitlines() if self.quarantine.exists() else []
        return {(row["origin"], row["cause"]) for line in lines if (row := _row(line)) is not None}

    def truncate(self, step: int) -> None:
        """Forget the rows of steps after ``step``: they will be made again."""
        self._known_bad = None
        for file in (self.metrics, self.quarantine, self.held_out):
            if file.exists():
                lines = file.read_text(encoding="utf-8").splitlines()
                lines += self._waiting.pop(file, "").splitlines()
                kept = [line for line in lines if (row := _row(line)) is not None and row["step"] <= step]
                self._replace(file, "".join(line + "\n" for line in kept))

    @staticmethod
    def _replace(file: Path, text: str) -> None:
        aside = file.with_name(f".{file.name}.partial")
        try:
            aside.write_text(text, encoding="utf-8")
            aside.replace(file)
        except OSError as error:
            raise TrainingError(f"{file}: cannot write ({error.strerror})") from error


def _row(line: str) -> dict[str, Any] | None:
    try:
        row: dict[str, Any] = json.loads(line)
        return row if "step" in row else None
    except ValueError:  # a line that a crash cut short
        return None


def _free_name(config: RunConfig) -> Path:
    stem = "-".join(config.modalities) or "text"
    return next(p for i in range(1, 100_000) if not (p := Path("runs") / f"{stem}-{i:03d}").exists())
