"""``kosmos train``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import (
    Data,
    Epochs,
    Modalities,
    one_file,
    refuse_empty,
    refuse_said_twice,
    short_options,
    split_extra,
)
from kosmos.commands.several import as_given
from kosmos.config import RunConfig
from kosmos.errors import ConfigError
from kosmos.own_output import aside, written
from kosmos.run_file import COMMAND_LINE, lay_over, merge, parse_overrides, read_run_file
from kosmos.runtime.dealing import check_dealing
from kosmos.runtime.launch import check_nproc, is_launched, launch, said_once
from kosmos.train.output import RunFolder
from kosmos.train.stopping import interrupted_in_words

if TYPE_CHECKING:
    from kosmos.train.progress import Reporter

OPTIONS = (
    "--modalities",
    "--data",
    "--steps",
    "--epochs",
    "--output",
    "--resume",
    "--auto-resume",
    "--nproc",
    "--accept-plugins",
    "--help",
)

Planned = tuple[RunConfig, Callable[[], None]]
"""The run as it will be, and what trains it."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    modalities: Modalities = None,
    data: Data = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    epochs: Epochs = None,
    output: Annotated[str | None, typer.Option(help="Folder of the run; a new one under runs/ by default.")] = None,
    resume: Annotated[str | None, typer.Option(help="Resume the run in this folder.")] = None,
    auto_resume: Annotated[
        bool, typer.Option("--auto-resume", help="With --output: resume the run that is there, if there is one.")
    ] = False,
    nproc: Annotated[int | None, typer.Option(help="Processes on this machine that share the run.")] = None,
    accept_plugins: Annotated[
        bool, typer.Option("--accept-plugins", help="With --resume: go on although files of plugins have changed.")
    ] = False,
) -> None:
    """Train: kosmos train [RUN.yaml] [--modalities image,audio] [--data PATH]... [FIELD.PATH=VALUE]...

    Any field of the run file can be set by its dotted path, such as train.learning_rate=3e-4 or
    streams.image.encoder.model=vit_tiny_patch16_224. Without a run file and data it trains on the sample
    sets that the plugins generate.
    """
    with said_once():
        refuse_empty("--resume", resume)
        short = short_options(modalities=modalities, data=data, steps=steps, epochs=epochs, output=output)
        overrides, files = split_extra(context.args, OPTIONS)
        file = one_file(files)
        given = parse_overrides(overrides)
        refuse_said_twice(short, given)
        if resume is not None:
            if file or modalities or data or output:
                elsewhere = "; into another folder a run goes on by kosmos checkpoint branch" if output else ""
                raise ConfigError(
                    "--resume takes the run file of its folder; only --steps, --epochs, --nproc, --accept-plugins and "
                    f"FIELD.PATH=VALUE go with it{elsewhere}"
                )
            config, run = _old(Path(resume), merge(short, given), accept_plugins=accept_plugins)
        else:
            base = _run_file(Path(file)) if file else {}
            config = lay_over([base], [short, given], where=file or COMMAND_LINE, over=COMMAND_LINE)
            stated = merge(merge(base, short), given)
            config, run = _found(config, stated, accept_plugins=accept_plugins) if auto_resume else _new(config)
    if nproc is None or is_launched():
        with interrupted_in_words():
            run()
        return
    check_nproc(nproc)
    check_dealing(config.data.lanes, nproc, config.parallel.sharing, kept=resume is not None)
    with interrupted_in_words():  # before the first of the processes has started; from then on each says so itself
        status = launch(nproc, ["train", *as_given(context)])
    raise typer.Exit(status)


def _run_file(path: Path) -> dict[str, Any]:
    """Its content. Raises ConfigError, which of a run's folder says what this command alone can do with it."""
    try:
        return read_run_file(path)
    except ConfigError as error:
        if not RunFolder(path).run_file.is_file():
            raise
        raise ConfigError(f"{error}, or go on with the run that is there by --resume {path}") from error


def _new(config: RunConfig) -> Planned:
    def train() -> None:
        from kosmos.train.run import train_model

        with _reporter() as reporter:
            train_model(config, reporter=reporter)

    return config, train


def _old(output: Path, overrides: Mapping[str, Any], *, accept_plugins: bool) -> Planned:
    """Raises ConfigError where there is no run, or it cannot go on with these."""
    config = RunFolder.open(output).goes_on_with(overrides)

    def go_on() -> None:
        from kosmos.train.run import resume_run

        with _reporter() as reporter:
            resume_run(output, overrides, reporter=reporter, accept_plugins=accept_plugins)

    return config, go_on


@contextmanager
def _reporter() -> Iterator[Reporter]:
    """Shows the run; its closing table goes to standard output. That nobody reads it, or a full disk, ends no run."""
    from kosmos.train.progress import ConsoleReporter, Steady

    with aside() as table:
        reporter = ConsoleReporter()
        reporter.table = table
        yield Steady(reporter)
        with suppress(OSError):
            written(table)


def _found(config: RunConfig, overrides: Mapping[str, Any], *, accept_plugins: bool) -> Planned:
    """What ``--auto-resume`` comes to. Raises ConfigError where it was not said where to look."""
    if config.output is None:
        raise ConfigError("--auto-resume: name the run's folder with --output, so that it is found again")
    if RunFolder(config.output).run_file.exists():
        return _old(config.output, overrides, accept_plugins=accept_plugins)
    return _new(config)
