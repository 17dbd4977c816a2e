"""``kosmos checkpoint``: what a run has saved, whether it is whole, and what can go. Imports no torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from kosmos.errors import CheckpointError, ConfigError
from kosmos.names import listed
from kosmos.train.measure import ALL, Measure, measured
from kosmos.visible import say

Output = Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder of a run.")]

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False,
    help="List, verify, prune and average the checkpoints of a run, or branch off from one.",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """A committed checkpoint."""

    name: str
    step: int
    bytes: int
    committed: str
    """When, in ISO 8601 with the offset from UTC; empty where it cannot be told."""
    held_out_loss: float | None
    """What the run scored at its step; None where it did not, or scored other documents than last."""
    measured: float | None
    """Likewise what ``evaluate.best`` names: the same loss where it names nothing."""
    best: bool
    """Whether of the whole ones this is the best by it, which ``--step best`` takes."""
    problem: str | None
    """What is damaged; None where it is whole."""


@app.command("ls")
def list_all(
    output: Output, as_json: Annotated[bool, typer.Option("--json", help="A JSON list on standard output.")] = False
) -> None:
    """Step, size, time, held-out score by evaluate.best, and whether every file is as it was written. Newest last."""
    from kosmos.train.best import measure_of
    from kosmos.train.output import RunFolder

    measure = measure_of(RunFolder.open(Path(output)))
    found = _look_at_all(output, list(reversed(_committed(output))), measure)
    if as_json:
        from kosmos.train.json_lines import rounded

        print(json.dumps(rounded([asdict(one) for one in found])))
        return
    scored = [_scored(one, measure) for one in found]
    width = max((16, *map(len, scored))) if any(one.best for one in found) else 0
    for one, words in zip(found, scored, strict=True):
        when = one.committed.replace("T", " ")[:19] or "-"
        told = f"  {words:<{width}}" if width else ""
        say(f"step {one.step:>10,}  {one.bytes / 2**20:>12,.1f} MiB  {when:<19}{told}  {one.problem or 'whole'}")
    if not found:
        say("no checkpoints yet")


@app.command()
def verify(output: Output) -> None:
    """Hash every file. Exit status 0 where all are whole; else 3, and a line for each that is damaged."""
    found = _look_at_all(output, _committed(output))
    if not found:
        raise CheckpointError(f"{output}: no checkpoint was saved yet")
    damaged = [one for one in found if one.problem]
    for one in damaged:
        say(f"error[{CheckpointError.code}]: {output}: {one.name}: {one.problem}", file=sys.stderr)
    if damaged:
        raise typer.Exit(CheckpointError.exit_status)
    many = "1 checkpoint, whole" if len(found) == 1 else f"{len(found)} checkpoints, all whole"
    say(f"{many}; the newest is of step {found[0].step}")


@app.command()
def prune(
    output: Output,
    keep_last: Annotated[
        int | None, typer.Option(min=1, help="How many whole checkpoints to keep; by default as the run file says.")
    ] = None,
    keep_every: Annotated[
        int | None, typer.Option(min=1, help="Also keep those of every so many steps; by default as the run file says.")
    ] = None,
    keep_best: Annotated[
        bool | None,
        typer.Option(help="Also keep the one that scored best; by default as the run file says."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
) -> None:
    """Delete old checkpoints, once the newest to keep are verified. Damaged ones among them are named and left."""
    from kosmos.checkpoint.folder import delete, superseded

    checkpoints = _committed(output)
    last, every, best = _to_keep(output, keep_last, keep_every, keep_best)
    newest, kept = _newest_whole(output, checkpoints, last)
    old = superseded(newest.parent, kept, newest, keep_every=every, best=best)
    for checkpoint in old:
        if not dry_run:
            try:
                delete(checkpoint)
            except OSError as error:
                raise CheckpointError(f"{checkpoint}: cannot delete it ({error.strerror})") from error
        say(f"{'would delete' if dry_run else 'deleted'} {checkpoint}")
    many = "1 checkpoint" if len(checkpoints) == 1 else f"{len(checkpoints)} checkpoints"
    say(f"{len(checkpoints) - len(old)} of {many} {'would be ' if dry_run else ''}kept")


@app.command()
def average(
    output: Output,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Folder to make, which is a run's with one checkpoint.")],
    last: Annotated[int | None, typer.Option(min=2, help="How many of the newest; by default all.")] = None,
    steps: Annotated[str | None, typer.Option(help="Those of these steps, such as 1000,2000,3000.")] = None,
) -> None:
    """Average the weights of checkpoints: what they come to is scored, exported and begun with as a run.

    No optimizer's state is averaged, so that nothing goes on from it: init begins a run with it.
    """
    from kosmos.train.averaging import average_run

    if last is not None and steps is not None:
        raise ConfigError("--last: --steps names the checkpoints; leave one of them out")
    taken = average_run(Path(output), Path(new), last=last, steps=_numbers(steps))
    say(f"{new}: the mean of steps {listed(f'{step:,}' for step in taken)}; kosmos eval {new} scores it")


def _numbers(steps: str | None) -> list[int]:
    try:
        return [int(step) for step in steps.split(",")] if steps is not None else []
    except ValueError:
        raise ConfigError(f"--steps: expected numbers of steps, such as 1000,2000, got {steps!r}") from None


@app.command("branch")
def branch_off(
    output: Output,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Folder of the new run, which must not be there yet.")],
    step: Annotated[int, typer.Option(help="Step of the checkpoint that it goes on from.")],
) -> None:
    """Make a run of its own that goes on from a checkpoint of this one, which stays as it is."""
    from kosmos.train.branch import branch
    from kosmos.train.going_on import what_resumes
    from kosmos.train.output import RunFolder

    later = branch(RunFolder.open(Path(output)), step, Path(new))
    say(f"{new}: has the steps of {output} up to {step:,}; go on with: {what_resumes(Path(new))}")
    if later:
        say(f"hint: it has the settings of today, with what was changed since: {'; '.join(later)}", file=sys.stderr)


def _newest_whole(output: str, checkpoints: list[Path], wanted: int) -> tuple[Path, int]:
    """The newest whole checkpoint, and how many from it on hold so many whole ones as are wanted.

    Raises:
        CheckpointError: none is whole.
    """
    from kosmos.checkpoint.folder import MANIFEST, verify

    damaged: list[str] = []
    whole: list[Path] = []
    for checkpoint in checkpoints:
        problem = verify(checkpoint)
        if problem is None:
            whole.append(checkpoint)
        else:
            damaged.append(f"{checkpoint.name} is damaged ({problem})")
        if len(whole) == wanted:
            break
    if not whole:
        why = "; ".join(damaged) or "no checkpoint was saved yet"
        raise CheckpointError(f"{output}: nothing is deleted, since no checkpoint is whole: {why}")
    for line in damaged:
        say(f"warning: {line}; left there: {whole[0].name} is the newest whole one", file=sys.stderr)
    from_newest = [c for c in checkpoints[checkpoints.index(whole[0]) :] if (c / MANIFEST).is_file()]
    return whole[0], from_newest.index(whole[-1]) + 1 if len(whole) == wanted else len(from_newest)


def _to_keep(
    output: str, keep_last: int | None, keep_every: int | None, keep_best: bool | None
) -> tuple[int, int | None, int | None]:
    """What the command states, or the run file: how many, of every so many steps, and the best one's step."""
    from kosmos.checkpoint.folder import committed, step_of, verify
    from kosmos.run_file import make_run
    from kosmos.train.best import ranked
    from kosmos.train.output import RunFolder

    run = RunFolder.open(Path(output))
    config = make_run(run.read_config(), where=str(run.run_file))
    settings, measure = config.checkpoint, Measure.of(config.evaluate.best, measured(run.scores()))
    wants_best = settings.keep_best if keep_best is None else keep_best
    there = {step_of(checkpoint): checkpoint for checkpoint in committed(run.checkpoints)} if wants_best else {}
    best = next((step for step in ranked(run.scores(), there, measure) if verify(there[step]) is None), None)
    return keep_last or settings.keep_last, keep_every or settings.keep_every, best


def _committed(output: str) -> list[Path]:
    """Newest first. Raises CheckpointError where their folder is gone, though the run has taken steps."""
    from kosmos.checkpoint.folder import committed
    from kosmos.train.gone import check_checkpoints
    from kosmos.train.output import RunFolder

    folder = RunFolder.open(Path(output))
    check_checkpoints(folder)
    return committed(folder.checkpoints)


def _scored(one: Found, measure: Measure) -> str:
    """Such as ``loss 0.1234 best`` or ``captions exact match 91.20 %``."""
    if one.measured is None:
        return ""
    of = "" if measure.source is None else f"{measure.source} "
    figure = f"{of}{measure.name.replace('_', ' ')} {measure.shown(one.measured)}"
    return f"{figure} best" if one.best else figure


def _look_at_all(output: str, checkpoints: list[Path], measure: Measure = ALL) -> list[Found]:
    """In their order."""
    from kosmos.train.best import ranked, values
    from kosmos.train.output import RunFolder

    rows = RunFolder.open(Path(output)).scores()
    losses, measured = values(rows), values(rows, measure)
    found = [_look(checkpoint, losses, measured) for checkpoint in checkpoints]
    best = next(iter(ranked(rows, {one.step for one in found if not one.problem}, measure)), None)
    return [replace(one, best=one.step == best) for one in found]


def _look(checkpoint: Path, losses: Mapping[int, float], measured: Mapping[int, float]) -> Found:
    from kosmos.checkpoint.folder import MANIFEST, size_bytes, step_of, verify

    manifest = checkpoint / MANIFEST
    when = datetime.fromtimestamp(manifest.stat().st_mtime, UTC).astimezone() if manifest.is_file() else None
    stated = when.isoformat(timespec="seconds") if when else ""
    step = step_of(checkpoint)
    scored = losses.get(step), measured.get(step)
    return Found(checkpoint.name, step, size_bytes(checkpoint), stated, *scored, False, verify(checkpoint))
