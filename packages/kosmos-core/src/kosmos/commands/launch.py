"""``kosmos launch``: ready files for Slurm, Kubernetes, SkyPilot and two p4d.24xlarge on AWS."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kosmos.commands.arguments import refuse_empty, refuse_taken, split_extra
from kosmos.errors import ConfigError, KosmosError, PluginError, unwritable
from kosmos.own_output import aside
from kosmos.visible import say

if TYPE_CHECKING:
    from kosmos.config import RunConfig
    from kosmos.plugins import Registry

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)

EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}

RunFile = Annotated[str, typer.Argument(metavar="RUN.yaml", help="Run file; FIELD.PATH=VALUE may follow.")]
Nodes = Annotated[int, typer.Option(help="Number of machines.")]
Gpus = Annotated[int, typer.Option(help="GPUs of each machine; 0 trains on CPUs.")]
Procs = Annotated[int | None, typer.Option(help="Ranks of each machine without GPUs; 1 by default.")]
Output = Annotated[str | None, typer.Option(help="New file to write; standard output by default.")]
RunOutput = Annotated[str | None, typer.Option(help="Folder of the run; by default the run file's, or runs/NAME.")]
Name = Annotated[str | None, typer.Option(help="Name of the job; by default that of the run file.")]
Restarts = Annotated[int, typer.Option(help="Times that a crash without progress is tried again.")]
Setup = Annotated[
    str, typer.Option(help="Shell that makes kosmos available on a node, such as '. .venv/bin/activate'.")
]
Cpus = Annotated[int | None, typer.Option(help="CPUs of each machine; all by default.")]
Time = Annotated[
    str, typer.Option(help="Time limit as sbatch takes it: MINUTES, HOURS:MINUTES:SECONDS, DAYS-HOURS ...")
]
Notice = Annotated[int, typer.Option(help="Seconds before the time limit at which the run stops and saves.")]

ON_A_CLONE = "python -m pip install -q -c constraints.txt $(printf -- '-e %s ' packages/*)"
"""Default setup of SkyPilot, whose working folder is a clone of the repository."""


@app.callback()
def launch() -> None:
    """Write launch files for clusters. The run file is checked; nothing is sent anywhere."""


@app.command(context_settings=EXTRA)
def slurm(
    context: typer.Context,
    run_file: RunFile,
    nodes: Nodes = 1,
    gpus_per_node: Gpus = 8,
    procs_per_node: Procs = None,
    output: Output = None,
    run_output: RunOutput = None,
    name: Name = None,
    restarts: Restarts = 3,
    setup: Setup = "",
    cpus_per_node: Cpus = None,
    time: Time = "24:00:00",
    notice_s: Notice = 300,
    partition: Annotated[str | None, typer.Option(help="Partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Account.")] = None,
    qos: Annotated[str | None, typer.Option(help="Quality of service.")] = None,
    constraint: Annotated[str | None, typer.Option(help="Feature of the nodes.")] = None,
) -> None:
    """An sbatch file: stops with a checkpoint before the time limit, queues itself again, goes on."""
    from kosmos.launch.files import slurm as fill
    from kosmos.launch.settings import Slurm, check

    values = _common(context, run_file, nodes, gpus_per_node, procs_per_node, run_output, name, restarts, setup)
    more = {"time": time, "notice_s": notice_s, "cpus_per_node": cpus_per_node}
    where = {"partition": partition, "account": account, "qos": qos, "constraint": constraint}
    _write(fill(check(Slurm, {**values, **more, **where})), output)


@app.command(context_settings=EXTRA)
def kubernetes(
    context: typer.Context,
    run_file: RunFile,
    container: Annotated[str, typer.Option(help="Container in which 'python -m kosmos' works.")],
    claim: Annotated[str, typer.Option(help="PersistentVolumeClaim, ReadWriteMany, for data and output.")],
    nodes: Nodes = 1,
    gpus_per_node: Gpus = 8,
    procs_per_node: Procs = None,
    output: Output = None,
    run_output: RunOutput = None,
    name: Name = None,
    restarts: Restarts = 3,
    setup: Setup = "",
    cpus_per_node: Cpus = None,
    memory_gib: Annotated[int | None, typer.Option(help="Memory limit of a pod.")] = None,
    mount: Annotated[str, typer.Option(help="Where the claim is mounted; relative paths start here.")] = "/work",
    namespace: Annotated[str, typer.Option(help="Namespace.")] = "default",
    shared_memory_gib: Annotated[int, typer.Option(help="Size of /dev/shm.")] = 32,
    grace_s: Annotated[int, typer.Option(help="Seconds that a pod has to save.")] = 600,
) -> None:
    """A manifest: an indexed Job with a headless Service, and the run file in a ConfigMap."""
    from kosmos.launch.files import kubernetes as fill
    from kosmos.launch.settings import Kubernetes, check

    values = _common(context, run_file, nodes, gpus_per_node, procs_per_node, run_output, name, restarts, setup)
    pod = {"container": container, "cpus_per_node": cpus_per_node, "memory_gib": memory_gib, "grace_s": grace_s}
    where = {"claim": claim, "mount": mount, "namespace": namespace, "shared_memory_gib": shared_memory_gib}
    text = Path(run_file).read_text(encoding="utf-8")
    _write(fill(check(Kubernetes, {**values, **pod, **where, "run_text": text})), output)


@app.command(context_settings=EXTRA)
def skypilot(
    context: typer.Context,
    run_file: RunFile,
    nodes: Nodes = 1,
    gpus_per_node: Gpus = 8,
    procs_per_node: Procs = None,
    output: Output = None,
    run_output: RunOutput = None,
    name: Name = None,
    restarts: Restarts = 3,
    setup: Setup = ON_A_CLONE,
    gpu: Annotated[str, typer.Option(help="SkyPilot's name of the GPU ('sky show-gpus').")] = "A100",
    infra: Annotated[
        str | None, typer.Option(help="Such as aws, gcp/us-central1 or k8s; by default the cheapest.")
    ] = None,
    spot: Annotated[bool, typer.Option(help="Use spot instances.")] = False,
    volume: Annotated[str | None, typer.Option(help="SkyPilot volume for the output, for all nodes.")] = None,
    bucket: Annotated[str | None, typer.Option(help="Bucket for the output, for one node.")] = None,
) -> None:
    """A task file for 'sky jobs launch', which starts it again after preemptions and crashes."""
    from kosmos.launch.files import skypilot as fill
    from kosmos.launch.settings import SkyPilot, check

    values = _common(context, run_file, nodes, gpus_per_node, procs_per_node, run_output, name, restarts, setup)
    more = {"gpu": gpu, "infra": infra, "spot": spot, "volume": volume, "bucket": bucket}
    _write(fill(check(SkyPilot, {**values, **more, "run_file": _in_working_folder(run_file)})), output)


@app.command("aws-p4d", context_settings=EXTRA)
def aws_p4d(
    context: typer.Context,
    run_file: RunFile,
    head_subnet: Annotated[str, typer.Option(help="Public subnet of the head node.")],
    compute_subnet: Annotated[str, typer.Option(help="Private subnet of the p4d, in a zone that has them.")],
    key: Annotated[str, typer.Option(help="EC2 key pair for ssh.")],
    nodes: Nodes = 2,
    output: Annotated[
        str | None, typer.Option(help="Folder for cluster.yaml and job.sh; by default both are printed.")
    ] = None,
    run_output: RunOutput = None,
    name: Name = None,
    restarts: Restarts = 3,
    setup: Setup = ". /fsx/venv/bin/activate",
    time: Time = "7-00:00:00",
    notice_s: Notice = 300,
    region: Annotated[str, typer.Option(help="Region.")] = "us-east-1",
    reservation: Annotated[str | None, typer.Option(help="Capacity reservation, cr-...")] = None,
    storage_gib: Annotated[int, typer.Option(help="FSx for Lustre: 1200 or a multiple of 2400.")] = 2400,
    budget_usd: Annotated[float, typer.Option(help="Budget in US dollars; what it buys is printed.")] = 300_000,
) -> None:
    """A ParallelCluster of p4d.24xlarge with EFA, the job that belongs to it, and what the budget buys."""
    from kosmos.launch import prices
    from kosmos.launch.files import aws_p4d as fill
    from kosmos.launch.settings import P4d, check

    values = _common(context, run_file, nodes, 8, None, run_output, name, restarts, setup)
    where = {"region": region, "head_subnet": head_subnet, "compute_subnet": compute_subnet, "key": key}
    more = {"time": time, "notice_s": notice_s, "reservation": reservation}
    settings = check(P4d, {**values, **where, **more, "storage_gib": storage_gib, "budget_usd": budget_usd})
    filled = fill(settings)
    if output is None:
        print("".join(f"# ==> {file} <==\n{text}" for file, text in filled.items()), end="")
    else:
        _write_new({Path(output) / file: text for file, text in filled.items()})
    say("\n".join(prices.lines(settings.budget_usd, settings.nodes)), file=sys.stderr)


def _common(
    context: typer.Context,
    run_file: str,
    nodes: int,
    gpus_per_node: int,
    procs_per_node: int | None,
    run_output: str | None,
    name: str | None,
    restarts: int,
    setup: str,
) -> dict[str, Any]:
    """The values of every kind of file, the run file read and its settings checked for the number of ranks."""
    options = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
    overrides, files = split_extra(context.args, options)
    if files:
        raise ConfigError(f"expected one run file, got {run_file}, {', '.join(files)}; fields are FIELD.PATH=VALUE")
    procs = procs_per_node if procs_per_node is not None else max(1, gpus_per_node)
    for option, value in (("--output", context.params["output"]), ("--run-output", run_output), ("--name", name)):
        refuse_empty(option, value)
    config = _read_run(Path(run_file), overrides, max(1, nodes), max(1, procs))
    _warn_of_device(config, gpus_per_node, "gpus_per_node" in context.params)
    fields = tuple(pair for pair in overrides if not pair.startswith("output="))  # the file says --output
    if run_output and len(fields) < len(overrides):
        raise ConfigError("--run-output and output=...: both are given, and only one of them can count; leave one out")
    name = name or _label(Path(run_file).stem)
    return {
        "run_file": run_file,
        "output": run_output or _folder(config, name),
        "overrides": fields,
        "name": name,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "procs_per_node": procs,
        "restarts": restarts,
        "setup": setup,
    }


def _in_working_folder(run_file: str) -> str:
    """Its path from the working folder, of which SkyPilot gives the nodes a copy, links as links.

    Raises:
        ConfigError: it lies elsewhere.
    """
    here = Path.cwd().resolve()
    found = Path(run_file).resolve()
    if not found.is_relative_to(here):
        raise ConfigError(
            f"{run_file}: lies outside {here}, and SkyPilot copies the working folder alone to the nodes; call kosmos "
            "launch in the folder that is to be copied, with the run file within"
        )
    return str(found.relative_to(here))


def _read_run(run_file: Path, overrides: list[str], nodes: int, procs: int) -> RunConfig:
    """The run file with its overrides. What is not installed here is not checked, and a warning says so.

    Raises:
        ConfigError: it is wrong, or so many ranks cannot train by it.
    """
    from kosmos.launch.settings import read_run

    config = read_run(run_file, overrides)

    from kosmos.runtime.parallel import Parallel  # torch, which a run file with mistakes need not wait for
    from kosmos.train.settings import check_settings

    absent: list[KosmosError] = []
    with aside():
        ranks = Parallel(world_size=nodes * procs, local_world_size=procs)
        check_settings(config, _plugins(config, absent), ranks, absent=absent.append)
    for line in dict.fromkeys(map(str, absent)):
        _warn(f"{line}; not checked here: the job needs it on the cluster")
    return config


def _plugins(config: RunConfig, absent: list[KosmosError]) -> Registry:
    """Those of the run file, or all that are here where it names some that are not."""
    from kosmos.plugins import load_plugins

    try:
        return load_plugins(config.plugins)
    except PluginError as error:
        absent.append(error)
        return load_plugins()


def _warn_of_device(config: RunConfig, gpus_per_node: int, has_option: bool) -> None:
    if config.train.device == "cpu" and gpus_per_node:
        other = ", or ask for none with --gpus-per-node 0" if has_option else ""
        gpus = "1 GPU" if gpus_per_node == 1 else f"{gpus_per_node} GPUs"
        _warn(f"train.device=cpu: the job asks for {gpus} a node and the run uses none; set train.device=auto{other}")
    if config.train.device == "cuda" and not gpus_per_node:
        _warn("train.device=cuda: the job asks for no GPUs (--gpus-per-node 0), and the run cannot start without")


def _warn(line: str) -> None:
    say(f"warning: {line}", file=sys.stderr)


def _folder(config: RunConfig, name: str) -> str:
    return str(config.output) if config.output else f"runs/{name}"


def _label(stem: str) -> str:
    """A name that every scheduler takes."""
    plain = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:50].strip("-")
    return plain if plain[:1].isalpha() else f"run-{plain}".strip("-")


def _write(text: str, output: str | None) -> None:
    if output is None:
        print(text, end="")
    else:
        _write_new({Path(output): text})


def _write_new(files: Mapping[Path, str]) -> None:
    """Raises ConfigError, and has written none of them, where one is there already."""
    for file in files:
        refuse_taken(file)
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as new:
                new.write(text)
        except OSError as error:
            raise unwritable(file, error, "name another --output") from error
        say(f"{file}: written", file=sys.stderr)
