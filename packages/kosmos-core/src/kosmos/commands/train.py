"""``kosmos train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kosmos.commands.arguments import short_options, split_extra
from kosmos.errors import ConfigError
from kosmos.run_file import make_run, parse_overrides, read_run_file
from kosmos.runtime.launch import is_launched, launch
from kosmos.selection import asked_plugins
from kosmos.train.output import RunFolder

OPTIONS = (
    "--modalities",
    "--data",
    "--steps",
    "--output",
    "--resume",
    "--auto-resume",
    "--nproc",
    "--accept-plugins",
    "--help",
)

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    modalities: Annotated[
        str | None, typer.Option(help="Comma-separated, such as image,audio; text is always there.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Registered name, folder, file or hub id; may be repeated.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    output: Annotated[str | None, typer.Option(help="Folder of the run; a new one under runs/ by default.")] = None,
    resume: Annotated[str | None, typer.Option(help="Go on with the run in this folder.")] = None,
    auto_resume: Annotated[
        bool, typer.Option("--auto-resume", help="With --output: go on with the run that is there, if one is.")
    ] = False,
    nproc: Annotated[int | None, typer.Option(help="Processes on this machine that share the run.")] = None,
    accept_plugins: Annotated[
        bool, typer.Option("--accept-plugins", help="With --resume: go on though files of plugins have changed.")
    ] = False,
) -> None:
    """Train: kosmos train [RUN.yaml] [--modalities image,audio] [--data PATH]... [FIELD.PATH=VALUE]...

    Any field of the run file can be set by its dotted path, such as train.learning_rate=3e-4 or
    streams.image.encoder.model=vit_tiny_patch16_224. Without a run file and data it trains on the sample
    sets that the plugins generate.
    """
    if nproc is not None and not is_launched():
        named = {"--modalities": modalities, "--steps": steps, "--output": output, "--resume": resume}
        given = [str(part) for name, value in named.items() if value is not None for part in (name, value)]
        sources = [part for path in data or () for part in ("--data", path)]
        given += ["--accept-plugins"] if accept_plugins else []
        given += ["--auto-resume"] if auto_resume else []
        given += ["--plugins", ",".join(plugins)] if (plugins := asked_plugins()) is not None else []
        raise typer.Exit(launch(nproc, ["train", *given, *sources, *context.args]))
    overrides, files = split_extra(context.args, OPTIONS)
    if len(files) > 1:
        raise ConfigError(f"expected one run file, got {', '.join(files)}; fields are set as FIELD.PATH=VALUE")
    layers = [short_options(modalities=modalities, data=data, steps=steps, output=output), parse_overrides(overrides)]
    if resume is not None:
        if files or modalities or data or output:
            raise ConfigError("--resume takes the run file of its folder; only --steps and FIELD.PATH=VALUE go with it")
        _resume(Path(resume), layers, accept_plugins=accept_plugins)
        return
    base = read_run_file(Path(files[0])) if files else {}
    config = make_run(base, *layers, where=files[0] if files else "command line")
    if auto_resume and config.output is None:
        raise ConfigError("--auto-resume: name the run's folder with --output, so that it is found again")
    if auto_resume and config.output is not None and RunFolder(config.output).run_file.exists():
        _resume(config.output, [{}, parse_overrides(overrides)], accept_plugins=accept_plugins)
        return
    from kosmos.train.progress import ConsoleReporter
    from kosmos.train.run import train_model

    train_model(config, reporter=ConsoleReporter())


def _resume(output: Path, layers: list[dict[str, object]], *, accept_plugins: bool) -> None:
    from kosmos.run_file import merge
    from kosmos.train.progress import ConsoleReporter
    from kosmos.train.run import resume_run

    resume_run(output, merge(*layers), reporter=ConsoleReporter(), accept_plugins=accept_plugins)
