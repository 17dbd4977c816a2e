"""The folder of a run: ``run.yaml``, ``metrics.jsonl``, ``quarantine.jsonl``, ``tokenizer/``, ``checkpoints/``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from kosmos.checkpoint.folder import CHECKPOINTS, PARTIAL, run_and_step
from kosmos.config import RunConfig
from kosmos.config_scored import with_spread
from kosmos.data.ledger_codes import MEDIUM, document_of
from kosmos.errors import FULL, ConfigError, PluginError, TrainingError, unwritable
from kosmos.files import open_own, replace_text
from kosmos.lock import LOCK_FILE
from kosmos.names import did_you_mean, listed
from kosmos.run_file import dump_run, lay_over, read_run_file
from kosmos.train.among_data import refuse_among_data
from kosmos.train.going_on import in_quotes, what_resumes
from kosmos.train.holding import BEGINS, IN_USE, Lock
from kosmos.train.json_lines import as_json, lines_of, missing_rows, step_row, written_lines
from kosmos.train.kept_answers import ANSWERS, KeptAnswers
from kosmos.train.kept_settings import check_kept, kept_init

WORD = ".seen-"
"""How the name of a file begins by which ranks find out whether they see one folder."""
MODEL_FILE = "model.yaml"


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
        self.changes = path / "changes.jsonl"
        self.parts = path / "parts.json"
        self.begun = path / "begun.json"
        ledgers = self.metrics, self.quarantine, self.held_out, self.guards, self.goodput, self.changes
        self._rows = *ledgers, self.parts, self.begun
        self.model = path / MODEL_FILE
        self.parameters = path / "parameters.json"
        self.checkpoints = path / CHECKPOINTS
        self.profiles = path / "profile"
        self.answers = KeptAnswers(path / ANSWERS)
        self.tokenizer = path / "tokenizer"
        self.report: Callable[[str], None] = lambda line: None  # shows a line to the user
        self._known_bad: set[tuple[str, str, Any]] | None = None
        self._waiting: dict[Path, str] = {}
        self._is_full = False
        self._lock = Lock(path)
        self._found: tuple[Path, ...] = ()
        """Folders that were there before the run."""

    @staticmethod
    def create(config: RunConfig) -> RunFolder:
        """A new folder, which is held, and is a run's only when ``write_config`` has been called.

        Raises:
            ConfigError: the folder holds a run already or data of the run, or cannot be made, or another process
                begins a run there, or its checkpoints could not be read, or it is not writable.
            NoRoom: the disk is full, or fails.
        """
        path = config.output or _free_name(config)
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"output: {path} is not UTF-8, and no checkpoint could be read there; name another --output"
            ) from error
        folder = RunFolder(path)
        folder._refuse_taken()
        refuse_among_data(path, config)
        with _making(path):
            folder._found = tuple(there for there in (folder.checkpoints, path) if there.is_dir())
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        folder._lock.take(folder.report)
        try:
            folder._refuse_taken()  # by a start that has ended since
        except ConfigError:
            folder.release()
            raise
        try:
            folder._remove_own()  # of a start that was killed
            folder._lock.sign(BEGINS)
            with _making(path):
                folder.metrics.touch()
                folder.quarantine.touch()
        except BaseException:
            folder.discard()
            raise
        return folder

    def _refuse_taken(self) -> None:
        """Raises ConfigError where a run is here already, or files that a new one would write to or take away."""
        with _making(self.path):
            if self.run_file.exists():
                again = in_quotes(what_resumes(self.path))
                raise ConfigError(f"{self.path}: holds a run already; go on with {again} or name another --output")
            folders = self.tokenizer, self.profiles, self.answers.folder
            own = *self._rows, self.model, self.parameters, self.path / LOCK_FILE, *folders
            there = [file.name for file in own if _is_taken(file)] if not self._lock.tells_of_a_start() else []
            there += (
                [CHECKPOINTS] if any(next(self.checkpoints.glob(f"{of}*"), None) for of in ("step-", PARTIAL)) else []
            )
        if there:
            raise ConfigError(
                f"{self.path}: holds {listed(there)} and no run.yaml: a new run would write over what it did not make; "
                "move that elsewhere, or name another --output"
            )

    def discard(self) -> None:
        """Remove what a run that has not begun has made. Other files of the folder stay, and it with them."""
        self._lock.sign(BEGINS)  # whoever is killed meanwhile has begun none
        self._remove_own()
        for name in ("tensorboard", "wandb") if self.path not in self._found else ():  # else of a run before
            shutil.rmtree(self.path / name, ignore_errors=True)
        with suppress(OSError):
            (self.path / IN_USE).unlink()
        for folder in (folder for folder in (self.checkpoints, self.path) if folder not in self._found):
            with suppress(OSError):
                folder.rmdir()
        self.release()

    def _remove_own(self) -> None:
        """What a start makes: nothing of it was there before, as ``_refuse_taken`` has seen."""
        own = self.run_file, *self._rows, self.model, self.parameters, self.path / LOCK_FILE
        for file in (*own, *self.path.glob(WORD + "[0-9a-f]" * 32)):
            with suppress(OSError):
                file.unlink()
        for folder in (self.tokenizer, self.answers.folder):
            shutil.rmtree(folder, ignore_errors=True)

    def hold(self) -> None:
        """Keep other processes from training here until ``release``, or until this one ends in whatever way.

        Raises:
            ConfigError: one trains here already, or the folder is not writable.
            NoRoom: the disk is full, or fails.
        """
        self._lock.take(self.report)
        self._lock.sign()

    def release(self) -> None:
        """End what ``hold`` began."""
        self._lock.release()

    def write_config(self, config: RunConfig) -> None:
        """Make the folder that of a run, or replace its run file; it is never half written.

        Raises:
            TrainingError: the disk is full or not writable.
        """
        self._replace(self.run_file, dump_run(config))

    def write_model(self, layer: Mapping[str, Any]) -> None:
        """Keep what builds the model without files that the run file names; see ``Composition.without_files``.

        Raises:
            TrainingError: as ``write_config``.
            PluginError: a part tells of options that no run file can hold.
        """
        try:
            text = yaml.safe_dump(dict(layer), sort_keys=False, allow_unicode=True)
        except yaml.YAMLError as error:
            raise PluginError(f"without_files of a part of the model: not plain values ({error})") from error
        if layer:
            self._replace(self.model, text)
        else:  # what a run that goes on without those files had before would be laid over what it has now
            self.model.unlink(missing_ok=True)

    def write_parameters(self, counted: Mapping[str, Any]) -> None:
        """Keep how many parameters the model has, as ``kosmos.train.forecast.parts.counted`` gives it, and what it is
        made with. Raises as ``write_config``."""
        self._replace(self.parameters, json.dumps(counted, indent=2) + "\n")

    def read_model(self) -> dict[str, Any]:
        """What ``write_model`` kept, to be laid over the run file."""
        return read_run_file(self.model) if self.model.exists() else {}

    @staticmethod
    def open(path: Path) -> RunFolder:
        """An existing run.

        Raises:
            ConfigError: there is none.
        """
        folder = RunFolder(path)
        run, step = run_and_step(path.parent if path.is_file() else path)
        if path.is_file():
            which = f"the run, {run if run.name else run.absolute()}"
            if not RunFolder(run).checkpoints.is_dir() or not RunFolder(run).run_file.is_file():
                which = "a run, the output of 'kosmos train': an exported model cannot stand in its place"
            raise ConfigError(f"{path}: is a file; give the folder of {which}")
        if step is not None and RunFolder(run).run_file.is_file():
            raise ConfigError(f"{path}: is a checkpoint; give the folder of its run, {run}")
        if not folder.run_file.is_file():
            said = "give the output folder of 'kosmos train'"
            raise ConfigError(f"{path}: no run is here (no run.yaml); {run_beside(path) or said}")
        return folder

    def read_config(self) -> dict[str, Any]:
        """The run file.

        Raises:
            ConfigError: it cannot be read.
        """
        return with_spread(read_run_file(self.run_file))

    def goes_on_with(self, overrides: Mapping[str, Any]) -> RunConfig:
        """The run file with ``overrides`` laid over it.

        Raises:
            ConfigError: one of them is wrong, or would have no effect.
        """
        stored = self.read_config()
        elsewhere = overrides.get("output")
        if elsewhere is not None and Path(elsewhere).resolve() != self.path.resolve():
            raise ConfigError(f"output: the run in {self.path} goes on there, not in {elsewhere}; leave it out")
        place = {"output": str(self.path)}
        where, over = str(self.run_file), f"changes to {self.run_file}"
        config, before = (lay_over([stored], [one, place], where=where, over=over) for one in (overrides, {}))
        check_kept(before, config, self.path)
        return config.model_copy(update={"init": kept_init(before, config)})

    def append(self, file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows to one of the ledgers. Those for which the disk has no room wait for the next call.

        Raises:
            TrainingError: the file cannot be written.
        """
        text = self._waiting.pop(file, "") + "".join(as_json(row) + "\n" for row in rows)
        if not text:
            return
        before = file.stat().st_size if file.exists() else 0
        try:
            # Names of files that are not UTF-8 become escapes, which JSON reads as what they were.
            with open_own(file, errors="backslashreplace") as ledger:
                ledger.write(text)
            self._is_full = False
        except OSError as error:
            if error.errno not in FULL:
                left = "checkpoints are intact" if self.checkpoints.is_dir() else "its checkpoints are gone, too"
                raise TrainingError(f"{file}: cannot write ({error.strerror}); {left}") from error
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

    def note_parts(self, number: int) -> None:
        """Say to the next start in how many parts to compute a row. Any rank may. Raises as ``write_config``."""
        self._replace(self.parts, json.dumps({"parts": number}))

    def noted_parts(self) -> int:
        """What ``note_parts`` said, or 1."""
        return int(json.loads(self.parts.read_text(encoding="utf-8"))["parts"]) if self.parts.exists() else 1

    def note_bad(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Add rows to the quarantine ledger, those of a sample once however often it is drawn. Raises as ``append``.

        Returns:
            How many were new.
        """
        known = self._known_bad = self._bad_samples()
        new = {key: row for row in rows if (key := (row["origin"], row["cause"], row.get("code"))) not in known}
        known |= set(new)
        self.append(self.quarantine, new.values())
        return len(new)

    def note_scoring(self, bad: Iterable[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> None:
        """What a scoring has met and written, before its row says that it was taken. Raises as ``append``."""
        self.note_bad(bad)
        self.answers.write(answers, self.report)

    def count_bad(self) -> int:
        """Bad samples that the run has met."""
        return len({document_of(origin) for origin, _, code in self._bad_samples() if code != MEDIUM})

    def _bad_samples(self) -> set[tuple[str, str, Any]]:
        """(origin, cause, code) of what is in the ledger."""
        if self._known_bad is not None:
            return self._known_bad
        lines = written_lines(self.quarantine)
        return {(row["origin"], row["cause"], row.get("code")) for line in lines if (row := step_row(line)) is not None}

    def scores(self) -> list[dict[str, Any]]:
        """The rows of ``held_out.jsonl``, of those that can be read."""
        return [row for line in written_lines(self.held_out) if (row := step_row(line)) is not None]

    def last_step(self) -> dict[str, Any] | None:
        """The last row of ``metrics.jsonl`` that can be read."""
        return next(
            (row for line in reversed(written_lines(self.metrics)) if (row := step_row(line)) is not None), None
        )

    def noted(self, *, but: int = 0) -> dict[str, int]:
        """Rows of the ledgers of documents, for ``truncate``, but for so many bad samples that were noted last."""
        rows = {file.name: self._count_lines(file) for file in (self.quarantine, self.guards)}
        return rows | {self.quarantine.name: rows[self.quarantine.name] - but}

    def _count_lines(self, file: Path) -> int:
        """As many as ``_lines`` gives, but for the memory that they would take: this is asked at every checkpoint."""
        count, last = 0, b"\n"
        if file.exists():
            with file.open("rb") as ledger:
                while piece := ledger.read(1 << 20):
                    count, last = count + piece.count(b"\n"), piece[-1:]
        return count + (last != b"\n") + len(lines_of(self._waiting.get(file, "")))

    def _lines(self, file: Path) -> list[str]:
        return written_lines(file) + lines_of(self._waiting.get(file, ""))

    def truncate(self, step: int, *, same_data: bool, noted: Mapping[str, int] | None = None) -> None:
        """Forget the rows of steps after ``step``, which will be made again. Rows that are missing before are reported.

        Args:
            same_data: whether from the same documents, so that bad samples and incidents will come again too.
            noted: what ``noted`` gave then. So many rows stay: after a roll-back theirs may be later steps.
        """
        there = set[int]()
        for file in (self.metrics, self.held_out, *((self.quarantine, self.guards) if same_data else ())):
            if file.exists():
                lines, stay = self._lines(file), (noted or {}).get(file.name, 0)
                self._waiting.pop(file, None)
                rows = ((number, number < stay, step_row(line)) for number, line in enumerate(lines))
                kept = {n: row["step"] for n, stays, row in rows if row is not None and (stays or row["step"] <= step)}
                there |= set(kept.values()) if file == self.metrics else set()
                self._replace(file, "".join(lines[number] + "\n" for number in kept))
        if same_data and (line := missing_rows(self.metrics.name, there, step)):
            self.report(f"warning: {line}")
        self.answers.forget(step)
        if self.changes.exists():  # the run file keeps them, so that steps are taken with them from here on
            changes = [row for line in self._lines(self.changes) if (row := step_row(line)) is not None]
            self._waiting.pop(self.changes, None)
            moved = (as_json({**row, "step": min(row["step"], max(0, step) + 1)}) for row in changes)
            self._replace(self.changes, "".join(line + "\n" for line in moved))
        self._known_bad = None

    @staticmethod
    def _replace(file: Path, text: str) -> None:
        try:
            replace_text(file, text)
        except OSError as error:
            raise TrainingError(f"{file}: cannot write ({error.strerror})") from error


def _is_taken(place: Path) -> bool:
    """Whether anything is there but an empty folder or file. Raises OSError where that cannot be seen."""
    if place.is_dir():
        return next(place.iterdir(), None) is not None
    is_empty = place.is_file() and not place.is_symlink() and not place.stat().st_size
    return os.path.lexists(place) and not is_empty


@contextmanager
def _making(path: Path) -> Iterator[None]:
    """Around what makes the output folder. Raises what ``unwritable`` gives, as for too long a name."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error, "name another --output", "cannot make the output folder") from error


def _free_name(config: RunConfig) -> Path:
    stem = "-".join(config.modalities) or "text"
    return next(p for i in range(1, 100_000) if not (p := Path("runs") / f"{stem}-{i:03d}").exists())


def run_beside(path: Path) -> str:
    """The run beside it that may have been meant; empty where none is."""
    with suppress(OSError):
        return did_you_mean(path.name, [run.parent.name for run in path.parent.glob("*/run.yaml")])
    return ""
