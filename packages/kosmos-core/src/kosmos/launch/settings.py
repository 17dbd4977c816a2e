"""The values of launch files, checked before anything is written."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic import StringConstraints as Text

from kosmos.config import RunConfig
from kosmos.errors import ConfigError
from kosmos.run_file import COMMAND_LINE, lay_over, parse_overrides, read_run_file

SHAPES = {
    "word": (r"^[A-Za-z0-9][A-Za-z0-9._:/@+=,-]*$", "a name without spaces"),
    "label": (r"^[a-z]([a-z0-9-]*[a-z0-9])?$", "small letters, digits and -, a letter first"),
    "line": (r"^[^\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]*$", "one line without control characters"),
    "path": (r"^/[A-Za-z0-9._/-]+$", "an absolute path"),
    "time": (
        r"^[0-9]{1,9}(:[0-9]{1,9}){0,2}$|^[0-9]{1,9}-[0-9]{1,9}(:[0-9]{1,9}){0,2}$",
        "MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]]",
    ),
    "region": (r"^[a-z]{2}(-[a-z]+)+-\d$", "a region such as us-east-1"),
    "subnet": (r"^subnet-[0-9a-f]{8,17}$", "subnet- and hexadecimal digits"),
    "reservation": (r"^cr-[0-9a-f]{8,17}$", "cr- and hexadecimal digits"),
}
"""Texts that are written into files unquoted: the pattern of each kind, and what to say of it."""
Word = Annotated[str, Text(pattern=SHAPES["word"][0])]
"""A name that a scheduler knows: no spaces, nothing that a shell or YAML reads as more than a word."""
DnsLabel = Annotated[str, Text(pattern=SHAPES["label"][0], max_length=50)]
"""A name that Kubernetes and ParallelCluster take."""
Line = Annotated[str, Text(pattern=SHAPES["line"][0])]
"""One line of shell, and of YAML: lines end there by U+0085, U+2028 and U+2029 too, in comments and elsewhere."""


class Launch(BaseModel):
    """What all launch files need."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
    run_file: Line
    """Path of the run file, as it is on the cluster."""
    output: Line
    """Folder of the run, on a file system that all nodes see."""
    overrides: tuple[Line, ...] = ()
    """Fields of the run file that are set on the command line."""
    name: DnsLabel
    """Name of the job."""
    nodes: int = Field(ge=1, le=4096)
    """Machines."""
    gpus_per_node: int = Field(ge=0, le=16)
    """GPUs of each; 0 trains on CPUs."""
    procs_per_node: int = Field(ge=1, le=256)
    """Ranks of each; as many as GPUs, where there are any."""
    restarts: int = Field(default=3, ge=0, le=1000)
    """Times that a crashed run is started again."""
    setup: Line = ""
    """Shell that makes ``kosmos`` available on a node."""

    @model_validator(mode="after")
    def _one_rank_a_gpu(self) -> Launch:
        if self.gpus_per_node and self.procs_per_node != self.gpus_per_node:
            raise ValueError(
                f"procs_per_node: {self.procs_per_node} ranks for {self.gpus_per_node} GPUs; one a GPU is what runs"
            )
        return self

    @property
    def train(self) -> str:
        """What a rank runs: go on with the run where there is one, else start it.

        Every rank decides for itself, and all alike: the folder is made when all of them have met.
        """
        fields = "".join(f" {shlex.quote(pair)}" for pair in self.overrides)
        return (
            'if [ -f "$OUTPUT/run.yaml" ]; then exec python -P -m kosmos train --resume "$OUTPUT"; '
            f'else exec python -P -m kosmos train "$RUN_FILE" --output "$OUTPUT"{fields}; fi'
        )


_UNITS_S = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def _limit_s(time: str) -> int:
    """Seconds of a limit as ``sbatch --time`` reads it: what a number counts is told by how many stand beside it.

    Raises:
        ValueError: more than 59 minutes or seconds behind a larger unit.

    Source: man sbatch, ``--time``.
    """
    days, has_days, clock = time.rpartition("-")
    parts = ([days] if has_days else []) + clock.split(":")
    first = "days" if has_days else "hours" if len(parts) == 3 else "minutes"
    units = list(_UNITS_S)[list(_UNITS_S).index(first) :]
    numbers = dict(zip(units, map(int, parts), strict=False))
    for unit in ("minutes", "seconds"):
        if unit != first and numbers.get(unit, 0) > 59:
            raise ValueError(
                f"--time {time}: has {numbers[unit]} {unit} behind {units[units.index(unit) - 1]}; give 59 at most"
            )
    return sum(_UNITS_S[unit] * number for unit, number in numbers.items())


class Slurm(Launch):
    """A Slurm batch job."""

    time: Annotated[str, Text(pattern=SHAPES["time"][0])] = "24:00:00"
    """Time limit as sbatch takes it: ``MINUTES``, ``HOURS:MINUTES:SECONDS``, ``DAYS-HOURS`` and the like."""
    notice_s: int = Field(default=300, ge=60, le=65535)
    """Seconds before the limit at which the run stops with a checkpoint."""
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    cpus_per_node: int | None = Field(default=None, ge=1)
    """CPUs to ask for; None takes whole nodes."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Further variables of the ranks."""

    @model_validator(mode="after")
    def _trains_before_it_stops(self) -> Slurm:
        limit_s = _limit_s(self.time)
        if not limit_s:
            raise ValueError(
                f"--time {self.time}: is no limit to Slurm, and the run would not know when to stop; state one"
            )
        if self.notice_s >= limit_s:
            raise ValueError(
                f"--notice-s {self.notice_s}: the run would stop as it begins, and be queued again without end; "
                f"give fewer seconds than the {limit_s} of --time {self.time}"
            )
        return self


class Kubernetes(Launch):
    """An indexed Job with a headless Service."""

    container: Word
    """The container image; ``python -m kosmos`` works in it."""
    claim: DnsLabel
    """PersistentVolumeClaim that all pods mount, ReadWriteMany."""
    mount: Annotated[str, Text(pattern=SHAPES["path"][0])] = "/work"
    """Where it is mounted; relative paths of the run file start here."""
    namespace: DnsLabel = "default"
    run_text: str
    """The run file, which travels in the manifest."""
    shared_memory_gib: int = Field(default=32, ge=1)
    """Size of /dev/shm, through which data workers and NCCL pass data; 64 MiB otherwise."""
    grace_s: int = Field(default=600, ge=30)
    """Seconds that a pod has to save when it is asked to go."""
    cpus_per_node: int | None = Field(default=None, ge=1)
    memory_gib: int | None = Field(default=None, ge=1)


class SkyPilot(Launch):
    """A SkyPilot managed job."""

    gpu: Word = "A100"
    """SkyPilot's name of the GPU."""
    infra: Word | None = None
    """Where: ``aws``, ``gcp/us-central1``, ``k8s``; None is wherever it is cheapest."""
    spot: bool = False
    """Use spot instances."""
    volume: DnsLabel | None = None
    """A SkyPilot volume that all nodes mount."""
    bucket: DnsLabel | None = None
    """A bucket for the output; one node only."""

    @model_validator(mode="after")
    def _somewhere_to_save(self) -> SkyPilot:
        if self.volume and self.bucket:
            raise ValueError("bucket: give volume or bucket, not both")
        if self.bucket and self.nodes > 1:
            raise ValueError(
                f"bucket: each of the {self.nodes} nodes would see a copy of its own; name a volume that all mount"
            )
        return self


class P4d(Slurm):
    """Two (or more) p4d.24xlarge under AWS ParallelCluster."""

    region: Annotated[str, Text(pattern=SHAPES["region"][0])] = "us-east-1"
    head_subnet: Annotated[str, Text(pattern=SHAPES["subnet"][0])]
    """Public subnet of the head node."""
    compute_subnet: Annotated[str, Text(pattern=SHAPES["subnet"][0])]
    """Private subnet of the p4d, in an availability zone that has them."""
    key: Word
    """EC2 key pair for ssh to the head node."""
    reservation: Annotated[str, Text(pattern=SHAPES["reservation"][0])] | None = None
    """Capacity reservation."""
    storage_gib: int = Field(default=2400, ge=1200)
    """FSx for Lustre."""
    budget_usd: float = Field(default=300_000, gt=0)

    @model_validator(mode="after")
    def _lustre_comes_in_steps(self) -> P4d:
        if self.storage_gib != 1200 and self.storage_gib % 2400:
            raise ValueError(f"storage_gib: {self.storage_gib} is neither 1200 nor a multiple of 2400")
        return self


def check(kind: type[Launch], values: dict[str, Any]) -> Any:
    """The checked values.

    Raises:
        ConfigError: names the option, what was expected and found.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + "-".join(str(part) for part in first["loc"]).replace("_", "-") if first["loc"] else ""
        expected = dict(SHAPES.values()).get(first.get("ctx", {}).get("pattern", ""))
        reason = f"expected {expected}" if expected else first["msg"].removeprefix("Value error, ")
        got = f", got {first['input']!r}" if first["loc"] else ""
        raise ConfigError(f"kosmos launch: {option + ': ' if option else ''}{reason}{got}") from error


def read_run(run_file: Path, overrides: list[str]) -> RunConfig:
    """The run file with its overrides. Raises ConfigError where it is wrong."""
    return lay_over([read_run_file(run_file)], [parse_overrides(overrides)], where=str(run_file), over=COMMAND_LINE)
