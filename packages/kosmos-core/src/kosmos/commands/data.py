"""``kosmos data``: what documents become before a model sees them, and whether all of them can be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import Data, Modalities, one_file, refuse_said_twice, short_options, split_extra
from kosmos.commands.causes import incident_lines
from kosmos.commands.checked import Check, check_all
from kosmos.commands.exact import ExactFigures, exact_figures, sample_lines
from kosmos.commands.figures import of_answers
from kosmos.commands.spelled import rendered, with_placeless
from kosmos.commands.taken import refuse_beside, show_taken
from kosmos.errors import ConfigError, DataError
from kosmos.names import listed
from kosmos.own_output import aside
from kosmos.run_file import COMMAND_LINE, lay_over, parse_overrides, read_run_file
from kosmos.visible import in_a_line, say, visible

if TYPE_CHECKING:
    from kosmos.compose import Composition
    from kosmos.config import RunConfig
    from kosmos.data.document import Source
    from kosmos.data.figures import Figures
    from kosmos.data.plan import Planner
    from kosmos.data.quarantine import Incident
    from kosmos.data.shown import Stretch

OPTIONS = ("--modalities", "--data", "--documents", "--check", "--of-steps", "--workers", "--json", "--help")
NO_COMMANDS = {
    "check": "kosmos data --check decodes every document and names those that cannot be used",
    "stats": "kosmos data prints the figures of each source; with --documents 0 no more than these",
    "preview": "kosmos data prints the first documents of each source; with --documents N so many",
    "prepare": "data are read where they are and need no preparing",
}
"""Words that may be expected behind ``kosmos data``, to what does it."""
MAX_SHOWN = 2_000
"""Characters of one stretch of text that are printed."""
STYLES = {"mark": "dim", "media": "cyan", "text": ""}
"""Of what is not learned."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Shown:
    """One document as the model gets it."""

    source: str
    origin: str
    tokens: int
    weight: float
    stretches: list[Stretch]
    rejected: list[Stretch]
    """Of the worse one, where it is a pair."""


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def data_(
    context: typer.Context,
    modalities: Modalities = None,
    data: Data = None,
    documents: Annotated[
        int | None, typer.Option(min=0, help="How many of each source to print; 3 by default, none with --check.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Decode every document, held-out ones too, and name what cannot be used.")
    ] = False,
    of_steps: Annotated[
        str | None,
        typer.Option("--of-steps", metavar="FIRST-LAST", help="Name the documents that steps of a run took."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Processes that decode; by default by the number of cores.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Look at what a run would train on: kosmos data [RUN.yaml] [--data PATH]... [FIELD.PATH=VALUE]...

    Documents are those that training would draw first, as the model gets them: marks, text and media in tokens, with
    what is learned between « and ». Nothing is trained or written. The exit status is 3 where none of a source's
    first documents can be used, with --check where any cannot. kosmos data RUN --of-steps 7-9, RUN being the folder of
    a run, names the documents that these steps took.
    """
    overrides, files = split_extra(context.args, OPTIONS)
    _check_no_command(files)
    if of_steps is not None:
        given = {"--modalities": modalities, "--data": data, "--documents": documents, "--check": check or None}
        refuse_beside({**given, "--workers": workers})
        show_taken(one_file(files), of_steps, parse_overrides(overrides), as_json=as_json)
        return
    config = _config(one_file(files), short_options(modalities=modalities, data=data), parse_overrides(overrides))

    from kosmos.compose import compose
    from kosmos.data.shown import scored_only, source_lines
    from kosmos.plugins import load_plugins
    from kosmos.run_sources import open_both
    from kosmos.train.json_lines import printed_json as one_line

    with aside():
        registry = load_plugins(config.plugins)
        composition = compose(config, registry, draw=False)
        sources, held_out = open_both(config, registry)
        wanted = (0 if check else 3) if documents is None else documents
        figures, shown, incidents = look(composition, sources, wanted)
        warnings = _warnings(composition, sources, held_out, figures)
        lines = [] if as_json or check else sample_lines(composition, sources, figures)
    told = [_source(s, held_out, figures[s.name]) for s in sources]
    scored = [{"name": s.name, "documents": len(s)} for s in scored_only(sources, held_out)]
    result: dict[str, Any] = {"sources": told, "scored": scored, "warnings": warnings, "shown": shown}
    if not as_json:
        warned = [f"warning   {in_a_line(line)}" for line in warnings]
        say("\n".join([*source_lines(sources, held_out), *lines, *warned]), flush=True)
        _print(shown)
    found, lines = None, []
    if check:
        found, exact = _checked(composition, sources, held_out, result, workers)
        incidents, lines = found.incidents, [*exact.lines(figures), *found.lines()]
    result["incidents"] = incidents
    if as_json:
        print(one_line(_plain(result)), flush=True)
    else:
        for line in [*lines, *incident_lines(incidents, "cannot be used")]:
            say(line)
    if found is not None:
        said = found.conclude(config.data.quarantine)
        if not as_json:
            say(said)
    _refuse_useless([name for name, of in figures.items() if of is None])


def _config(file: str | None, short: dict[str, Any], given: dict[str, Any]) -> RunConfig:
    """The run file, if there is one, with what the command line says. Raises ConfigError where something is wrong."""
    base = read_run_file(Path(file)) if file else {}
    refuse_said_twice(short, given)
    return lay_over([base], [short, given], where=file or COMMAND_LINE, over=COMMAND_LINE)


def _checked(
    composition: Composition,
    sources: Sequence[Source],
    held_out: Sequence[Source],
    result: dict[str, Any],
    workers: int | None,
) -> tuple[Check, ExactFigures]:
    """What a look at all documents has found, which is put into ``result``, too."""
    from kosmos.runtime.cores import helpers_of_rank

    number = helpers_of_rank(1) if workers is None else workers
    with aside():
        found = check_all(composition, sources, held_out, workers=number)
        exact = exact_figures(composition, sources, found)
    result |= found.as_row()
    for one in result["sources"]:
        one["exact"] = exact.by_source.get(one["name"])
    return found, exact


def _warnings(
    composition: Composition,
    sources: Sequence[Source],
    held_out: Sequence[Source],
    figures: Mapping[str, Figures | None],
) -> list[str]:
    """What hardly anybody wants of these data, by their first documents."""
    planner, found = composition.planner, with_placeless(_doubtful(composition, sources, held_out), figures)
    found += [*rendered(figures, found, planner), *_named(figures)]
    return [*found, *_cut(figures, planner), *_disordered(figures), *_lost(figures), *of_answers(figures)]


def _doubtful(composition: Composition, sources: Sequence[Source], held_out: Sequence[Source]) -> Iterator[str]:
    """What training would warn of."""
    from kosmos.train.doubts import doubts

    model = composition.model
    return doubts(
        composition.config, sources, resumed=False,
        backbone=model.backbone, streams=model.streams.items(), routes=composition.planner.routes,
        tokenizer=composition.tokenizer, scored=held_out,
    )  # fmt: skip


def _check_no_command(files: Sequence[str]) -> None:
    """Raises ConfigError where one of them is a word, and no file, that says what to do with data."""
    for word in files:
        if word in NO_COMMANDS and not Path(word).exists():
            raise ConfigError(f"{word}: is no run file and no command; {NO_COMMANDS[word]}")


def look(
    composition: Composition, sources: Sequence[Source], wanted: int
) -> tuple[dict[str, Figures | None], list[Shown], list[Incident]]:
    """Figures of each source, its first ``wanted`` documents, and what of those looked at cannot be used."""
    from kosmos.compose import make_feed
    from kosmos.data.figures import look_at_all
    from kosmos.data.shown import stretches, told_apart

    found = look_at_all(make_feed(composition, sources), kept=wanted)
    shown = [
        Shown(name, plan.origin, len(plan), plan.weight, *told_apart(stretches(plan, composition.planner), plan))
        for name, documents in found.documents.items()
        for plan in (pieces[0] for pieces in documents)
    ]
    return found.figures, shown, found.incidents


def _cut(figures: Mapping[str, Figures | None], planner: Planner) -> Iterator[str]:
    """Warnings of answers that may stand in another piece than what was asked."""
    from kosmos.train.doubts import torn

    for name, of in figures.items():
        if of is not None and of.cut:
            yield torn(f"{name}: {of.cut} of {of.looked_at} documents looked at", planner)


def _disordered(figures: Mapping[str, Figures | None]) -> Iterator[str]:
    """Warnings of chats whose turns follow each other as hardly anybody means."""
    for name, of in figures.items():
        if of is not None and of.disordered:
            ways = "; ".join(f"{way}: {count:,}" for way, count in of.oddities.items())
            yield (
                f"{name}: {of.disordered} of {of.looked_at} documents looked at have turns out of order ({ways}), such "
                f"as {of.first_disordered}; training takes them as they are"
            )


def _lost(figures: Mapping[str, Figures | None]) -> Iterator[str]:
    """Warnings of documents that are learned without some of their media."""
    for name, of in figures.items():
        if of is not None and of.lost:
            media = "1 medium that cannot be used is" if of.lost == 1 else f"{of.lost:,} media that cannot be used are"
            yield (
                f"{name}: {media} left out of the {of.looked_at} documents looked at (missing_media), such as "
                f"{of.first_lost}"
            )


def _named(figures: Mapping[str, Figures | None]) -> Iterator[str]:
    """Warnings of texts that name files of media, which are read from columns alone."""
    for name, of in figures.items():
        if of is not None and of.named_file:
            yield (
                f"{name}: texts name files of media, such as {of.named_file!r:.80}, which are learned as letters; name "
                "the files in a column of their own, and write the modality's <name> into the text where each belongs"
            )


def _source(source: Source, held_out: Sequence[Source], figures: Figures | None) -> dict[str, Any]:
    held = next((len(other) for other in held_out if other.name == source.name), 0)
    counts = {"documents": len(source), "held_out": held, "left_out": dict(getattr(source, "left_out", {}))}
    return {"name": source.name, **counts, "figures": figures}


def _print(shown: Sequence[Shown]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for document in shown:
        weighs = "" if document.weight == 1 else f", weight {document.weight:g}"
        text = Text(f"\n{in_a_line(document.origin)} ({document.tokens:,} tokens{weighs})\n", style="bold")
        halves = [("", document.stretches)]
        if document.rejected:
            halves = [("chosen    ", document.stretches), ("\nrejected  ", document.rejected)]
        for name, stretches in halves:
            text.append(name, style="bold")
            for said, style in _styled(stretches):
                text.append(said, style=style)
        console.print(text)


def _styled(stretches: Sequence[Stretch]) -> Iterator[tuple[str, str]]:
    """What is printed, and its style."""
    for learned, run in groupby(stretches, lambda stretch: stretch.learned):
        yield "«" * learned, ""
        for stretch in run:
            is_medium = stretch.kind == "media"
            said = f"[{in_a_line(stretch.shown)}]" if is_medium else visible(_shortened(stretch.shown))
            yield said, "green" if learned else STYLES[stretch.kind]
        yield "»" * learned, ""


def _shortened(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} more characters ...] {text[-half:]}"


def _refuse_useless(sources: Sequence[str]) -> None:
    """Raises DataError where there are sources of which no document that was looked at can be used."""
    if sources:
        raise DataError(
            f"{listed(sources)}: none of the first documents can be used; the lines above say why, or the incidents of "
            "--json; mend them, or leave the source out"
        )


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """Dataclasses as objects."""
    sources = [{**s, "figures": s["figures"] and asdict(s["figures"])} for s in result["sources"]]
    shown = [
        {name: getattr(d, name) for name in ("source", "origin", "tokens", "weight")}
        | {"stretches": [s._asdict() for s in d.stretches]}
        for d in result["shown"]
    ]
    return {**result, "sources": sources, "shown": shown, "incidents": [i.told() for i in result["incidents"]]}
