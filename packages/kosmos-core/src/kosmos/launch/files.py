"""Launch files as text: the templates, filled."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape

from kosmos.errors import ConfigError, DataError, Interrupted
from kosmos.launch import prices
from kosmos.launch.settings import Kubernetes, Launch, P4d, SkyPilot, Slurm

SKYPILOT_FOLDER = "/kosmos"
"""Where a volume or bucket is mounted."""
IDLE_MINUTES = 10
EFA = {
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_DEVICE_RDMA": "1",
    "FI_EFA_USE_HUGE_PAGE": "0",
    "NCCL_SOCKET_IFNAME": "^lo,docker",
    "HF_HOME": "/scratch/huggingface",
}
"""Variables of ranks on p4d. The first two are what newer software does anyway (libfabric 1.18, aws-ofi-nccl 1.7); huge
pages fail when data workers fork. Source: aws-samples/awsome-distributed-training, efa-cheatsheet.md."""


def slurm(settings: Slurm) -> str:
    """An sbatch file."""
    return _fill("slurm.sh.j2", settings)


def kubernetes(settings: Kubernetes) -> str:
    """A manifest: ConfigMap, Service and Job."""
    return _fill("kubernetes.yaml.j2", settings)


def skypilot(settings: SkyPilot) -> str:
    """A task file."""
    output = settings.output
    if (settings.volume or settings.bucket) and not output.startswith("/"):
        output = f"{SKYPILOT_FOLDER}/{output}"
    return _fill("skypilot.yaml.j2", settings, output=output, folder=SKYPILOT_FOLDER)


def aws_p4d(settings: P4d) -> dict[str, str]:
    """``cluster.yaml`` of ParallelCluster and the ``job.sh`` that belongs to it."""
    budget = prices.lines(settings.budget_usd, settings.nodes)
    cluster = _fill("parallelcluster.yaml.j2", settings, budget=budget, idle_minutes=IDLE_MINUTES)
    job = settings.model_copy(update={"environment": {**EFA, **settings.environment}, "partition": "p4d"})
    return {"cluster.yaml": cluster, "job.sh": slurm(job)}


def _fill(template: str, settings: Launch, **more: Any) -> str:
    values: Mapping[str, Any] = {**settings.model_dump(), "train": settings.train, **more}
    statuses = {
        "stopped": Interrupted.exit_status,
        "final": sorted({ConfigError.exit_status, DataError.exit_status}),
    }
    return _environment().get_template(template).render(**values, **statuses)


def _environment() -> Environment:
    folder = files("kosmos.launch") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=select_autoescape(()),  # no HTML: values are quoted for the shell and YAML by the filters below
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sh"] = shlex.quote
    environment.filters["yaml"] = lambda value: json.dumps(value, ensure_ascii=False)  # JSON is YAML, on one line
    return environment
