"""``kosmos report``: what a run has come to, from the files that it leaves. Imports no torch."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.bad_samples import bad_lines, bad_samples
from kosmos.commands.begun import UNTRAINED, ended_untrained, lineage_lines, lineage_of
from kosmos.commands.compared import beside, differences, opened, refuse, settings_of, used_in
from kosmos.commands.drawn import drawn_lines, drawn_of
from kosmos.commands.ledgers import figures_of, rows_of
from kosmos.commands.run_table import STANDARD_OUTPUT, best_first, write_csv
from kosmos.commands.written_report import written_lines, written_of
from kosmos.errors import ConfigError
from kosmos.train.measure import LOWER, Measure
from kosmos.visible import say, visible

if TYPE_CHECKING:
    from kosmos.train.output import RunFolder

RECENT_STEPS = 100
"""Throughput is the median of so many last steps: the first ones warm up, single ones wait for a save. Runs beside each
other are compared by their last steps in all that says how fast they are."""


def report(
    output: Annotated[list[str], typer.Argument(metavar="OUTPUT...", help="Folder of a run, or of several.")],
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a row for each run to this file; - is standard output.")
    ] = None,
    by_score: Annotated[
        bool, typer.Option("--best-first", help="Order the runs by their best held-out score.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Goodput by class, steps, epoch, tokens, throughput, last losses, bad samples and checkpoints of a run.

    Of several runs: the settings in which they differ, and what each came to, side by side, or as rows of a CSV file.
    """
    from kosmos.train.json_lines import printed_json

    if csv is not None and as_json:
        raise ConfigError("--csv and --json: each says what is written; leave one out")
    folders, wrong = opened(output)
    results = [collect(folder.path) for folder in folders]
    if by_score:
        order = best_first(results)
        folders, results = [folders[number] for number in order], [results[number] for number in order]
    shown = [file for folder in folders for file in (folder.metrics, folder.held_out) if file.exists()]
    if len(output) == 1 and csv is None:
        with figures_of(*shown):
            text = printed_json(results[0]) if as_json else visible("\n".join(table(results[0])))
        print(text)
        return
    every = [settings_of(folder) for folder in folders]
    used = [used_in(folder, one) for folder, one in zip(folders, every, strict=True)]
    settings, wanted = differences(every, used), [one.get("train", {}).get("steps") for one in every]
    if csv is not None:
        with figures_of(*shown):
            write_csv(csv, results, settings, wanted)
        if csv != STANDARD_OUTPUT:
            say(f"{csv}: {len(results)} run{'s' * (len(results) > 1)}")
        refuse(wrong)
        return
    both = {"differences": settings, "runs": results}
    with figures_of(*shown):
        text = printed_json(both) if as_json else visible("\n".join(beside(results, settings, wanted)))
    print(text)
    refuse(wrong)


def collect(folder: Path) -> dict[str, Any]:
    """All figures of the run in ``folder``; what it has no file for is None or empty."""
    from kosmos.train.changes import changes_of
    from kosmos.train.ended import how_ended
    from kosmos.train.output import RunFolder

    run = RunFolder(folder)
    checkpoints = [_checkpoint(path) for path in sorted(run.checkpoints.glob("step-*"))]
    with figures_of(run.metrics):
        steps = [row for row in rows_of(run.metrics) if "loss" in row]
        of_steps, last_losses = _steps(steps), _losses(steps[-1]) if steps else None
    with figures_of(run.held_out):
        scored = [row for row in rows_of(run.held_out) if "held_out" in row]
        held_out = {"step": scored[-1]["step"], **scored[-1]["held_out"]} if scored else None
        best = _best(scored, run)
    with figures_of(run.changes):
        changes = changes_of(run.changes)
    with figures_of(run.goodput):
        goodput, saves = _goodput(run.goodput), _saves(run.goodput, checkpoints)
    with figures_of(run.guards):
        guards = _guards(run.guards)
    with figures_of(run.quarantine):
        bad = bad_samples(run.quarantine)
    train = run.read_config().get("train")
    wanted = train.get("steps") if isinstance(train, Mapping) else None
    untrained = None if of_steps else ended_untrained(run)
    return {
        "output": str(folder),
        "lineage": lineage_of(run),
        "ended": untrained or how_ended(folder, run.goodput, of_steps["last"] if of_steps else 0, wanted),
        "parameters": _parameters(run.parameters),
        "steps": of_steps,
        "last_losses": last_losses,
        "held_out": held_out,
        "held_out_best": best,
        "answers": written_of(run),
        "changes": changes,
        "goodput": goodput,
        "guards": guards,
        "bad_samples": bad,
        "checkpoints": checkpoints,
        "saves": saves,
    }


def _parameters(file: Path) -> dict[str, Any] | None:
    """None of a run that an older version began."""
    if not file.exists():
        return None
    with figures_of(file):
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {name: int(found[name]) for name in ("parameters", "trained")} | {"parts": dict(found["parts"])}


def _steps(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not rows:
        return None
    sums = {name: sum(row.get(name, 0) for row in rows) for name in ("tokens", "text_tokens", "media_tokens")}
    spent = sum(row.get("step_s", 0.0) for row in rows)
    recent = [row["tokens_per_s"] for row in rows[-RECENT_STEPS:] if "tokens_per_s" in row]
    return {
        "last": rows[-1]["step"],
        "epoch": rows[-1].get("epoch"),
        "processes": list(dict.fromkeys(row["processes"] for row in rows if "processes" in row)),
        "documents": sum(row.get("documents", 0) for row in rows),
        **sums,
        **drawn_of(rows),
        "step_s": spent,
        "data_wait_s": sum(row.get("data_wait_s", 0.0) for row in rows),
        "tokens_per_s": sums["tokens"] / spent if spent else None,
        "tokens_per_s_recent": median(recent) if recent else None,
        "meters": _meters(rows),
        "recent": _recent(rows[-RECENT_STEPS:]),
    }


def _recent(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the last steps came to, of that by which runs are compared."""
    meters = _meters(rows)
    timed = [row for row in rows if "data_wait_s" in row and row.get("step_s")]
    waited, spent = (sum(row[name] for row in timed) for name in ("data_wait_s", "step_s"))
    names = ("fill", "imbalance_by_stream", "mfu", "mfu_half_causal")
    return {
        "steps": len(rows),
        "data_wait_share": waited / spent if spent else None,
        **{name: meters[name] for name in names},
    }


def _meters(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the steps that have a meter, but for the most memory and the programs compiled. None where none has.

    Rates are weighted by seconds, as throughput is: one step of the first may take as long as hundreds behind it.
    Imbalance is weighted by cells: a step with a single item says little.
    """

    def mean_of(name: str, *by: str) -> float | None:
        found = [(row[name], math.prod(row.get(one, 1.0) for one in by)) for row in rows if name in row]
        whole = sum(weight for _, weight in found)
        return sum(value * weight for value, weight in found) / whole if whole else None

    uneven: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    for row in rows:
        for stream, ratio in row.get("imbalance_by_stream", {}).items():
            uneven[stream] += ratio * row["cells_by_stream"][stream]
            cells[stream] += row["cells_by_stream"][stream]
    compiled = [(row["step"], row["compilations"]) for row in rows if "compilations" in row]
    return {
        "fill": mean_of("fill"),
        "imbalance_by_stream": {stream: uneven[stream] / cells[stream] for stream in cells},
        "samples_per_s": mean_of("samples_per_s", "step_s"),
        # What was computed over what the processes of each step could: with others the peak is another.
        **{name: mean_of(name, "step_s", "peak_flops") for name in ("mfu", "mfu_half_causal")},
        "peak_memory_bytes": max(
            (row["peak_memory_bytes"] for row in rows if "peak_memory_bytes" in row), default=None
        ),
        "compilations": compiled[-1][1] if compiled else None,
        "last_compilation": _last_change(compiled),
    }


def _last_change(counts: list[tuple[int, int]]) -> int | None:
    """The step at which a count was last another than before; a run that goes on counts from 0."""
    changed = [step for (step, now), before in zip(counts, [0, *(n for _, n in counts)], strict=False) if now != before]
    return changed[-1] if changed else None


def _best(rows: list[dict[str, Any]], run: RunFolder) -> dict[str, Any] | None:
    """The best scoring by ``evaluate.best`` and its step, of so many documents as were scored last."""
    from kosmos.train.best import best_step, measure_of, values

    measure = measure_of(run)
    if (step := best_step(rows, measure=measure)) is None:
        return None
    source = {} if measure.source is None else {"source": measure.source}
    lower = {LOWER: measure.lower} if measure.is_of_written else {}
    return {"step": step, **source, **lower, measure.name: values(rows, measure)[step]}


def _losses(row: Mapping[str, Any]) -> dict[str, Any]:
    parts = {part: row.get(f"loss_by_{part}", {}) for part in ("modality", "source")}
    by = {f"by_{part}": {name: _finite(loss) for name, loss in losses.items()} for part, losses in parts.items()}
    told = {kind: row[kind] for kind in ("objective", "module_losses") if kind in row}
    return {"step": row["step"], "all": _finite(row["loss"]), **by, **told}


def _finite(loss: float | None) -> float | None:
    """None for what JSON has no number for, which ledgers of today say with null and older ones with NaN."""
    return loss if loss is not None and math.isfinite(loss) else None


def _goodput(file: Path) -> dict[str, Any] | None:
    from kosmos.train.goodput_report import read_rows, summary

    rows = read_rows(file) if file.exists() else []
    if not rows:
        return None
    found = summary(rows)
    return {
        "goodput": found.goodput,
        "wall_s": found.wall_s,
        "launches": found.launches,
        "steps": found.steps,
        "lost_steps": found.lost_steps,
        "seconds": found.seconds,
    }


def _saves(file: Path, checkpoints: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The newest checkpoint that is there, and how many saves in a row have failed up to now, with the last cause."""
    from kosmos.train.goodput_report import failed_saves, read_rows

    failed, problem = failed_saves(read_rows(file) if file.exists() else [])
    there = (one["step"] for one in checkpoints if one["manifest"] and one["step"] is not None)
    return {"newest": max(there, default=None), "failed": failed, "problem": problem}


def _guards(file: Path) -> list[dict[str, Any]]:
    """Steps that went wrong, by what was wrong with them and what was done."""
    found = Counter((row.get("kind", ""), row.get("action", "")) for row in rows_of(file))
    return [{"kind": kind, "action": action, "steps": count} for (kind, action), count in found.most_common()]


def _checkpoint(folder: Path) -> dict[str, Any]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    step = folder.name.removeprefix("step-")
    return {
        "name": folder.name,
        "step": int(step) if step.isdigit() else None,
        "bytes": sum(file.stat().st_size for file in files),
        "manifest": (folder / "manifest.json").is_file(),
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """The figures as plain lines."""
    from kosmos.train.changes import told

    lines = [f"run        {result['output']}", *lineage_lines(result["lineage"])]
    lines += _end_lines(result["ended"], result["parameters"])
    lines += [] if result["ended"]["how"] in UNTRAINED else _step_lines(result["steps"])
    lines += [f"changed    from step {row['step']:,} on: {told(row['changed'])}" for row in result["changes"]]
    if result["last_losses"]:
        lines += ["", *_loss_lines(result["last_losses"], result["held_out"])]
    if (best := result["held_out_best"]) and best["step"] != result["held_out"]["step"]:
        measure = Measure.told(best)
        lines.append(f"{measure.best} {measure.shown(best[measure.name])}, at step {best['step']:,}")
    lines += written_lines(result["answers"])
    lines += ["", *_goodput_lines(result["goodput"]), "", *bad_lines(result["bad_samples"])]
    lines += [f"guard      {g['steps']:,} steps: {g['kind']}, {g['action']}" for g in result["guards"]] + [""]
    return [*lines, *_checkpoint_lines(result["checkpoints"]), *_saves_lines(result["saves"], result["steps"])]


def _end_lines(ended: Mapping[str, Any], parameters: Mapping[str, Any] | None) -> Iterator[str]:
    yield f"ended      {ended['how']}" + (f": {ended['problem']}" if ended["problem"] else "")
    if parameters:
        yield f"parameters {parameters['parameters']:,} ({parameters['trained']:,} trained)"


def _step_lines(steps: Mapping[str, Any] | None) -> list[str]:
    if steps is None:
        return ["steps      none yet"]
    whole, recent = steps["tokens_per_s"], steps["tokens_per_s_recent"]
    speed = f"{whole:,.0f} a second of its steps" if whole else "not timed"
    late = f"; the median of the last {min(RECENT_STEPS, steps['last'])} is {recent:,.0f}" if recent else ""
    return [
        f"steps      {steps['last']:,}",
        *([] if steps["epoch"] is None else [f"epoch      {steps['epoch']:,.2f}"]),
        f"documents  {steps['documents']:,}",
        f"tokens     {steps['tokens']:,} ({steps['text_tokens']:,} text, {steps['media_tokens']:,} media)",
        *drawn_lines(steps),
        f"throughput {speed}{late}",
        *_process_lines(steps["processes"]),
        *_meter_lines(steps["meters"], steps["data_wait_s"] / steps["step_s"] if steps["step_s"] else None),
    ]


def _process_lines(processes: Sequence[int]) -> Iterator[str]:
    """Where there were several: one after another, of a run that went on with others."""
    if any(number > 1 for number in processes):
        yield f"processes  {', then '.join(map(str, processes))}"


def _meter_lines(meters: Mapping[str, Any], waiting: float | None) -> Iterator[str]:
    if meters["fill"] is not None:
        yield f"fill       {_percent(meters['fill'])} of the rows' tokens"
    if uneven := meters["imbalance_by_stream"]:
        of = ", ".join(f"{stream} {ratio:.2f}" for stream, ratio in uneven.items())
        yield f"imbalance  {of} (cells of the fullest row over the mean of a step's rows)"
    if meters["mfu"] is not None:
        yield f"MFU        {_percent(meters['mfu'])}, causal attention halved {_percent(meters['mfu_half_causal'])}"
    if waiting is not None:
        yield f"data wait  {_percent(waiting)} of the steps"
    if meters["peak_memory_bytes"] is not None:
        yield f"memory     {meters['peak_memory_bytes'] / 2**30:,.2f} GiB at most"
    if meters["compilations"] is not None:
        last = meters["last_compilation"]
        yield f"compiled   {meters['compilations']:,} programs" + (
            "" if last is None else f", the last at step {last:,}"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _loss_lines(last: Mapping[str, Any], held_out: Mapping[str, Any] | None) -> list[str]:
    scored = f"held out, step {held_out['step']}" if held_out else "held out"
    lines = [f"{'loss':<20} {'training, step ' + str(last['step']):>22} {scored:>22}"]
    lines.append(_loss_line("all", last["all"], held_out and held_out.get("overall")))
    for part in ("modality", "source"):
        scores = (held_out or {}).get(part, {})
        for name in sorted({*last[f"by_{part}"], *scores}):
            lines.append(_loss_line(f"  {part} {name}", last[f"by_{part}"].get(name), scores.get(name)))
    for name, value in last.get("objective", {}).items():
        right = {"loss": (held_out or {}).get("overall", {}).get("exact_match")} if name == "right" else None
        lines.append(_loss_line(f"  objective {name}", value, right))
    for name, value in last.get("module_losses", {}).items():
        lines.append(_loss_line(f"  {name}", _finite(value), None))
    return lines


def _loss_line(name: str, loss: float | None, score: Mapping[str, Any] | None) -> str:
    cells = [None if value is None else f"{value:.4f}" for value in (loss, score["loss"] if score else None)]
    return f"{name:<20} {cells[0] or '-':>22} {cells[1] or '-':>22}"


def _goodput_lines(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return ["goodput    not recorded: the run has no goodput.jsonl"]
    lost = f", {found['lost_steps']:,} steps taken again or lost" if found["lost_steps"] else ""
    lines = [
        f"goodput    {100 * found['goodput']:.1f} % of {found['wall_s']:,.1f} s, "
        f"{found['steps']:,} {'step' if found['steps'] == 1 else 'steps'} kept in "
        f"{found['launches']} {'launch' if found['launches'] == 1 else 'launches'}{lost}"
    ]
    spent = sorted(found["seconds"].items(), key=lambda item: -item[1])
    return lines + [f"  {name:<16} {s:>12,.1f} s {100 * s / found['wall_s']:>6.2f} %" for name, s in spent if s > 0]


def _checkpoint_lines(checkpoints: list[Mapping[str, Any]]) -> list[str]:
    if not checkpoints:
        return ["checkpoints none"]
    lines = [f"checkpoints {len(checkpoints)}"]
    for found in checkpoints:
        problem = "" if found["manifest"] else "  no manifest: damaged"
        lines.append(f"  {found['name']}  {found['bytes'] / 2**20:,.1f} MiB{problem}")
    return lines


def _saves_lines(saves: Mapping[str, Any], steps: Mapping[str, Any] | None) -> Iterator[str]:
    """Where the last one failed."""
    if not saves["failed"]:
        return
    last, newest = steps["last"] if steps else 0, saves["newest"]
    there = "no checkpoint is there" if newest is None else f"the newest checkpoint is of step {newest:,}"
    yield f"saves      the last {saves['failed']:,} failed ({saves['problem']}); {there}, the last step is {last:,}"
