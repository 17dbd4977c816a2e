"""``kosmos eval``."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
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
from kosmos.commands.scoring import (
    compile_kernels,
    refuse_nothing,
    score_documents,
    score_questions,
    sources_of,
    warn,
    warnings_of,
)
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

    from kosmos.config import ChoicesConfig
    from kosmos.data.document import Source
    from kosmos.errors import KosmosError
    from kosmos.evaluate.choices import Chosen
    from kosmos.runtime.parallel import Parallel
    from kosmos.train.saved import SavedRun

Data = Annotated[
    list[str] | None,
    typer.Option(
        help="Score these instead of the run's held-out part; may be repeated. Of data that the run was trained "
        "on, the part that it held out; of other data, the part that they state as held out, or all of them. A "
        f"path, or fields as of evaluate.sources such as {SUCH_AS}."
    ),
]
Root = Annotated[
    str | None,
    typer.Option(help="Folder of the media that rows of --data and --choices name; by default that of each file."),
]
Workers = Annotated[
    int | None,
    typer.Option(min=0, help="Processes that decode; 0 decodes in this one; by default by the number of cores."),
]
Answers = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="New file of JSON lines: what --generate writes and --choices chooses, and what was expected.",
    ),
]
OPTIONS = (
    "--data", "--choices", "--root", "--step", "--against", "--max-documents", "--workers", "--generate",
    "--max-new-tokens", "--stop", "--metric", "--by", "--answers", "--resume", "--nproc", "--json", "--help",
)  # fmt: skip
MAX_NEW_TOKENS = 256
"""Of each answer, where nothing else is said."""

MaxNewTokens = Annotated[
    int | None,
    typer.Option(min=1, help=f"Most tokens of an answer that --generate writes; by default {MAX_NEW_TOKENS}."),
]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def evaluate(
    context: typer.Context,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Folder of a run.")],
    data: Data = None,
    choices: Choices = None,
    root: Root = None,
    step: Step = None,
    against: Against = None,
    max_documents: Annotated[int, typer.Option(min=1, help="Most documents of each source to score.")] = 1_000_000,
    workers: Workers = None,
    generate: Annotated[
        int, typer.Option(min=0, help="Also generate the answers of so many documents of each source, and score them.")
    ] = 0,
    max_new_tokens: MaxNewTokens = None,
    stop: Stop = None,
    metric: Metric = None,
    by: By = None,
    answers: Answers = None,
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
        asked = Asked(named_data(data or ()), named, root, max_documents, workers, fields)
        check_stop(stop)
        writing = _Writing(generate, max_new_tokens, stop, metric, answers, resume, ByValue(by, warn))
        of_answers = {"--generate": generate or None, "--answers": answers, "--resume": resume or None, "--by": by}
        check_against(against, {**of_answers, **writing.of_generate})
        if generate and choices and not data:
            raise ConfigError("--generate: continues documents, and --choices has none; name some with --data")
    if nproc is not None and not is_launched():
        raise typer.Exit(in_several("eval", context, nproc))
    if against:
        compare(output, against, step, asked, as_json=as_json)
        return
    with shared() as parallel, aside():
        result, sources, unwritten = _scored(output, step, asked, writing, parallel)
    if parallel.is_main:
        _tell(result, as_json=as_json)
    if unwritten is not None:
        raise unwritten
    if parallel.is_main:
        refuse_nothing(result, sources, [*map(path_of, asked.data)], [one.path for one in named], root)


@dataclass(frozen=True)
class _Writing:
    """What is written of answers, and by what they are scored, as the options say it."""

    generate: int
    max_new_tokens: int | None
    stop: Sequence[str] | None
    metric: Sequence[str] | None
    answers: str | None
    resume: bool
    by: ByValue

    @property
    def of_generate(self) -> dict[str, object]:
        """Options that say how answers are generated, None where they are not given."""
        return {
            "--max-new-tokens": self.max_new_tokens,
            "--stop": self.stop or None,
            "--metric": self.metric or None,
        }

    def check(self) -> None:
        """Raises ConfigError where an option goes without that which it is for, or the answers cannot be written."""
        check_options(self.answers, self.generate, resume=self.resume, of_generate=self.of_generate)

    def wanted(self, run: SavedRun, max_documents: int) -> Wanted:
        """What is to be generated."""
        most = self.max_new_tokens or MAX_NEW_TOKENS
        metrics = named_metrics(run, metrics_of(self.metric or ())) if self.generate else {}
        hint_at_escapes(self.stop)
        return Wanted(min(self.generate, max_documents), most, metrics, self.by, tuple(self.stop or ()))

    def warn_of_none(self, lines: AnswerLines) -> None:
        """Where there was nothing to be written."""
        if self.answers is not None and not lines.count:
            none = "no document has an answer that is there to be generated"
            why = none if self.generate else "no question was scored"
            warn(f"--answers {self.answers}: not written: {why}")


def _scored(
    output: str, step: str | None, asked: Asked, writing: _Writing, parallel: Parallel
) -> tuple[dict[str, Any], Sequence[Source], KosmosError | None]:
    """The scores, of which sources, and why answers could not be written."""
    from kosmos.runtime.cores import helpers_of_rank

    parallel.main_only(writing.check)
    helpers = helpers_of_rank(parallel.local_world_size) if asked.workers is None else asked.workers
    run = loaded_by_all(parallel, output, as_step(step), asked.fields)
    is_own = not (asked.data or asked.choices)
    for line in warnings_of(run, asked.data, asked.choices):
        warn(line)
    compile_kernels(run)
    wanted = writing.wanted(run, asked.max_documents)
    result: dict[str, Any] = {"output": output, "step": run.step, "incidents": []}
    own = run.composition.config.evaluate.choices if is_own else []
    has_documents = asked.data or not asked.choices
    sources = sources_of(run, output, asked.data, asked.root, alone=not own) if has_documents else []
    entries = [*asked.choices, *own]
    check_written(writing.answers, writing.generate, entries)
    questions = opened_choices(run, asked.choices, asked.root, asked.max_documents) if entries else []
    writing.by.check([*sources, *(one.source for one in questions)], even=run.composition.config.evaluate.is_even)
    lines = AnswerLines(writing.answers, resume=writing.resume)
    parallel.main_only(lambda: _begin(lines, run, sources, asked, entries, wanted))
    chosen: list[Chosen] = []
    if entries:
        chosen = score_questions(run, questions, helpers, result, parallel)
        writing.by.add_questions(chosen)
    if sources:
        score_documents(run, sources, asked.max_documents, helpers, result, parallel, writing.by)
    unwritten = write_answers(run, sources, chosen, wanted, lines, result, parallel, warn)
    result |= writing.by.as_row()
    if unwritten is None:
        writing.warn_of_none(lines)
    return result, sources, unwritten


def _begin(
    lines: AnswerLines,
    run: SavedRun,
    sources: Sequence[Source],
    asked: Asked,
    entries: Sequence[ChoicesConfig],
    wanted: Wanted,
) -> None:
    """Say what the answers are made by. Raises ConfigError as ``AnswerLines.begin``."""
    from kosmos.run_choices import name_of

    names, most = [name_of(one) for one in entries], asked.max_documents
    settings = {"command": "eval", "choices": names, "max_documents": most} | wanted.settings()
    settings |= columns_of(entries) | settings_of(asked.data)
    of_data = [*map(path_of, asked.data)]
    paths = [*of_data, *(one.path for one in asked.choices)]
    lines.begin(made_by(run, sources, [*of_data, *(one.path for one in entries)], settings), paths)


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
        **{f"source {n}": s for n, s in result["by_source"].items()},
    }
    for name, s in groups.items():
        loss, perplexity = ("-" if math.isnan(s[key]) else f"{s[key]:.4f}" for key in ("loss", "perplexity"))
        bits = "-" if s["bits_per_byte"] is None else f"{s['bits_per_byte']:.4f}"
        lines.append(
            f"{name:<20} {s['documents']:>9} {loss:>9} {perplexity:>11} {bits:>10} {s['answers']:>9} "
            f"{share(s, 'exact_match'):>16}"
        )
    return lines
