"""``kosmos eval``."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.against import Against, Asked, check_against, compare
from kosmos.commands.answers import AnswerLines, Resume
from kosmos.commands.arguments import (
    Step,
    as_step,
    check_given_once,
    refuse_empty,
    split_extra,
    split_fields,
)
from kosmos.commands.by_value import By, ByValue, class_lines, value_lines
from kosmos.commands.causes import incident_lines
from kosmos.commands.choices import (
    Choices,
    choice_lines,
    columns_of,
    named_choices,
    opened_choices,
    share,
)
from kosmos.commands.elsewhere import EVAL
from kosmos.commands.fields import SUCH_AS
from kosmos.commands.metrics import Metric, metrics_of
from kosmos.commands.named_data import named_data, path_of, settings_of
from kosmos.commands.scored_answers import (
    Wanted,
    check_options,
    check_written,
    generated_lines,
    named_metrics,
    several_lines,
    write_answers,
)
from kosmos.commands.scoring import compile_kernels, refuse_nothing, score_documents, score_questions, sources_of, warn
from kosmos.commands.several import Nproc, in_several, loaded_by_all, shared
from kosmos.commands.unfinished import made_by
from kosmos.commands.writing import Stop, check_stop, hint_at_escapes
from kosmos.errors import ConfigError
from kosmos.own_output import aside
from kosmos.run_file import parse_overrides
from kosmos.runtime.launch import is_launched, said_once
from kosmos.visible import in_a_line, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kosmos.evaluate.choices import Chosen

Root = Annotated[
    str | None,
    typer.Option(help="Folder of the media that rows of --data and --choices name; by default that of each file."),
]
OPTIONS = (
    "--data", "--choices", "--root", "--step", "--against", "--max-documents", "--workers", "--generate",
    "--max-new-tokens", "--stop", "--metric", "--by", "--answers", "--resume", "--nproc", "--json", "--help",
)  # fmt: skip
MAX_NEW_TOKENS = 256
"""Of each answer, where nothing else is said."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def evaluate(
    context: typer.Context,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder of a run.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Score these instead of the run's held-out part; may be repeated. Of data that the run was trained "
            "on, the part that it held out; of other data, the part that they state as held out, or all of them. A "
            f"path, or fields as of evaluate.sources such as {SUCH_AS}."
        ),
    ] = None,
    choices: Choices = None,
    root: Root = None,
    step: Step = None,
    against: Against = None,
    max_documents: Annotated[int, typer.Option(min=1, help="Most documents of each source to score.")] = 1_000_000,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that decode; 0 decodes in this one; by default by the number of cores."),
    ] = None,
    generate: Annotated[
        int, typer.Option(min=0, help="Also generate the answers of so many documents of each source, and score them.")
    ] = 0,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=1, help=f"Most tokens of an answer that --generate writes; by default {MAX_NEW_TOKENS}."),
    ] = None,
    stop: Stop = None,
    metric: Metric = None,
    by: By = None,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="New file of JSON lines: what --generate writes and --choices chooses, and what was expected.",
        ),
    ] = None,
    resume: Resume = False,
    nproc: Nproc = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Score a trained run: kosmos eval OUTPUT [--data PATH]... [FIELD.PATH=VALUE]...

    Loss, perplexity, bits per byte and exact match of the answers, by modality and source. FIELD.PATH=VALUE says where
    what the run file names is now, how media are shown, or where to compute, such as data.sources.0.path=data/moved or
    train.device=cpu.
    """
    with said_once():
        fields = _fields(output, context.args)
        named = named_choices(choices or ())
        _check_data(data or (), root, is_asked=bool(named))
        given = named_data(data or ())
        check_stop(stop)
        apart = ByValue(by, warn)
        of_generate = {"--max-new-tokens": max_new_tokens, "--stop": stop or None, "--metric": metric or None}
        of_answers = {"--generate": generate or None, "--answers": answers, "--resume": resume or None, "--by": by}
        check_against(against, {**of_answers, **of_generate})
        if generate and choices and not data:
            raise ConfigError("--generate: continues documents, and --choices has none; name some with --data")
    if nproc is not None and not is_launched():
        raise typer.Exit(in_several("eval", context, nproc))
    from kosmos.run_choices import name_of
    from kosmos.runtime.cores import helpers_of_rank
    from kosmos.train.trained_before import scored_before

    if against:
        compare(output, against, step, Asked(given, named, root, max_documents, workers, fields), as_json=as_json)
        return
    with shared() as parallel, aside():
        parallel.main_only(lambda: check_options(answers, generate, resume=resume, of_generate=of_generate))
        helpers = helpers_of_rank(parallel.local_world_size) if workers is None else workers
        run = loaded_by_all(parallel, output, as_step(step), fields)
        for line in (*run.warnings(), *(() if data or choices else scored_before(run.composition.config))):
            warn(line)
        compile_kernels(run)
        most = max_new_tokens or MAX_NEW_TOKENS
        metrics = named_metrics(run, metrics_of(metric or ())) if generate else {}
        hint_at_escapes(stop)
        wanted = Wanted(min(generate, max_documents), most, metrics, apart, tuple(stop or ()))
        result: dict[str, Any] = {"output": output, "step": run.step, "incidents": []}
        own = [] if data or choices else run.composition.config.evaluate.choices
        sources = sources_of(run, output, given, root, alone=not own) if given or not choices else []
        of_data = [path_of(one) for one in given]
        lines, paths = AnswerLines(answers, resume=resume), [*of_data, *(one.path for one in named)]
        asked = [name_of(one) for one in (*named, *own)]
        settings = {"command": "eval", "choices": asked, "max_documents": max_documents} | wanted.settings()
        settings |= columns_of([*named, *own]) | settings_of(given)
        check_written(answers, generate, asked)
        questions = opened_choices(run, named, root, max_documents) if asked else []
        even = run.composition.config.evaluate.is_even
        apart.check([*sources, *(one.source for one in questions)], even=even)
        files = [*paths, *(one.path for one in own)]
        parallel.main_only(lambda: lines.begin(made_by(run, sources, files, settings), paths))
        chosen: list[Chosen] = []
        if asked:
            chosen = score_questions(run, questions, helpers, result, parallel)
            apart.add_questions(chosen)
        if sources:
            score_documents(run, sources, max_documents, helpers, result, parallel, apart)
        unwritten = write_answers(run, sources, chosen, wanted, lines, result, parallel, warn)
        result |= apart.as_row()
        if answers is not None and not lines.count and unwritten is None:
            why = "no document has an answer that is there to be generated" if generate else "no question was scored"
            warn(f"--answers {answers}: not written: {why}")
    if parallel.is_main:
        _tell(result, as_json=as_json)
    if unwritten is not None:
        raise unwritten
    if parallel.is_main:
        refuse_nothing(result, sources, of_data, [one.path for one in named], root)


def _tell(result: dict[str, Any], *, as_json: bool) -> None:
    from kosmos.train.json_lines import printed_json

    if as_json:
        print(printed_json({**result, "incidents": list(map(asdict, result["incidents"]))}))
    else:
        say("\n".join([*table(result), *incident_lines(result["incidents"], "left out")]))


def _fields(output: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What is laid over the run file. Raises ConfigError where an argument is neither a field nor an option."""
    if output.startswith("-"):
        split_extra([output], OPTIONS, EVAL)  # an option that is unknown
    if split_fields([output])[0] and not Path(output).is_dir():
        raise ConfigError(f"{output}: the run's folder comes first: kosmos eval OUTPUT {output}")
    overrides, rest = split_extra(arguments, OPTIONS, EVAL)
    if rest:
        raise ConfigError(
            f"{rest[0]}: belongs to no option; one run is scored, data are named as --data PATH, and fields are set as "
            "FIELD.PATH=VALUE"
        )
    return parse_overrides(overrides)


def _check_data(paths: Sequence[str], root: str | None, *, is_asked: bool) -> None:
    refuse_empty("--root", root)
    if root is not None and not paths and not is_asked:
        raise ConfigError("--root: says where the media of --data are; the run file says it of the run's own data")
    check_given_once(paths)


def table(result: dict[str, Any]) -> list[str]:
    """The scores as plain lines."""
    by_value = result.get("by_value", {})
    lines = [f"{in_a_line(result['output'])}, step {result['step']:,}"]
    lines += [*_losses(result), *value_lines(by_value, "scored")] if "overall" in result else []
    if "choices" in result:
        lines += choice_lines(result["choices"], chat=result["asked_as_chats"])
        lines += value_lines(by_value, "choices")
    lines += generated_lines(result.get("generated", {}))
    lines += several_lines(result.get("several_right_answers", ()))
    lines += class_lines(result.get("by_class", {}))
    return [*lines, *value_lines(by_value, "generated")]


def _losses(result: Mapping[str, Any]) -> list[str]:
    head = (
        f"{'':<20} {'documents':>9} {'loss':>9} {'perplexity':>11} {'bits/byte':>10} {'answers':>9} {'exact match':>16}"
    )
    lines = [head]
    groups = {
        "all": result["overall"],
        **result["by_modality"],
        **{f"  {n}": s for n, s in result["by_source"].items()},
    }
    for name, s in groups.items():
        loss, perplexity = ("-" if math.isnan(s[key]) else f"{s[key]:.4f}" for key in ("loss", "perplexity"))
        bits = "-" if s["bits_per_byte"] is None else f"{s['bits_per_byte']:.4f}"
        lines.append(
            f"{name:<20} {s['documents']:>9} {loss:>9} {perplexity:>11} {bits:>10} {s['answers']:>9} "
            f"{share(s, 'exact_match'):>16}"
        )
    return lines
