"""Generated launch files: shell that parses, fields that exist, the run file and the way back into a run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kosmos.errors import Interrupted
from support.launch_shapes import (
    KUBERNETES,
    KUBERNETES_JOB,
    KUBERNETES_SERVICE,
    P4D,
    PARALLEL_CLUSTER,
    SBATCH,
    SKYPILOT,
    Launch,
    unknown_fields,
)

VARIANTS: dict[str, tuple[str, ...]] = {
    "slurm": ("--nodes", "2"),
    "slurm on CPUs": ("--nodes", "2", "--gpus-per-node", "0", "--procs-per-node", "4", "--cpus-per-node", "16"),
    "slurm, all": (
        "--nodes", "2", "--partition", "gpu", "--account", "lab", "--qos", "high", "--constraint", "a100",
        "--time", "2-00:00:00", "--setup", ". venv/bin/activate", "--run-output", "runs/it's here",
        "train.schedule={name: cosine}", "tokenizer=$(touch here)",
    ),
    "kubernetes": ("--nodes", "2", *KUBERNETES),
    "kubernetes, all": (
        *KUBERNETES, "--nodes", "2", "--setup", "cd /work && . venv/bin/activate", "--cpus-per-node", "90",
        "--memory-gib", "900", "--namespace", "lab", "train.schedule={name: cosine}",
    ),
    "kubernetes on CPUs": (*KUBERNETES, "--gpus-per-node", "0", "--procs-per-node", "2"),
    "skypilot": ("--nodes", "2"),
    "skypilot, all": ("--nodes", "2", "--infra", "k8s", "--volume", "lab", "--spot", "tokenizer=$(touch here)"),
    "skypilot with a bucket": ("--bucket", "kosmos-runs", "--gpus-per-node", "4", "--gpu", "H100"),
    "aws-p4d": P4D,
    "aws-p4d, all": (*P4D, "--reservation", "cr-0123456789abcdef0", "--storage-gib", "4800"),
}  # fmt: skip


def files_of(launch: Launch, run_file: str, variant: str) -> dict[str, str]:
    """Name to text of the files of a variant."""
    text = launch(variant.split(",")[0].split()[0], run_file, *VARIANTS[variant])
    parts = re.split(r"^# ==> (.+) <==\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)) if parts[1:] else {"file": text}


def scripts_of(text: str) -> list[str]:
    """The shell in a launch file."""
    if text.startswith("#!/bin/bash"):
        return [text]
    documents = [d for d in yaml.safe_load_all(text) if d]
    found = [d[part] for d in documents for part in ("run", "setup") if part in d]
    jobs = [d for d in documents if d.get("kind") == "Job"]
    return found + [a for d in jobs for c in d["spec"]["template"]["spec"]["containers"] for a in c["args"]]


def rank_script_of(text: str) -> str:
    """What each rank runs."""
    if text.startswith("#!/bin/bash"):
        line = next(line for line in text.splitlines() if line.startswith("train="))
        done = subprocess.run(["bash", "-c", f'{line}; printf %s "$train"'], capture_output=True, text=True, check=True)
        return done.stdout
    documents = [d for d in yaml.safe_load_all(text) if d]
    if "envs" in documents[0]:
        return str(documents[0]["envs"]["TRAIN"])
    env = documents[-1]["spec"]["template"]["spec"]["containers"][0]["env"]
    return next(str(v["value"]) for v in env if v["name"] == "TRAIN")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_file_names_the_run_file_and_its_shell_parses(launch: Launch, run_file: str, variant: str) -> None:
    scripts = []
    for text in files_of(launch, run_file, variant).values():
        assert run_file in text
        assert not text.endswith("\n\n")
        scripts += scripts_of(text)
    assert scripts
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("variant", VARIANTS)
def test_shellcheck_finds_nothing(launch: Launch, run_file: str, variant: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    for text in files_of(launch, run_file, variant).values():
        for script in [*scripts_of(text), *([] if "SlurmQueues" in text else [rank_script_of(text)])]:
            # SC1091: what setup activates is on the cluster. SC2046: words of the setup line are meant to split.
            # SC2016: a value in single quotes is meant as it stands.
            command = ["shellcheck", "--shell=bash", "--exclude=SC1091,SC2016,SC2046", "-"]
            done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("started", [False, True], ids=["new", "started"])
def test_a_rank_starts_the_run_or_goes_on_with_it(
    launch: Launch, run_file: str, variant: str, started: bool, tmp_path: Path
) -> None:
    """By running what ranks run, with a ``python`` that tells its arguments."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    (bin_folder / "python").chmod(0o755)
    output = tmp_path / "it's here"
    if started:
        output.mkdir()
        (output / "run.yaml").touch()
    variables = {"PATH": f"{bin_folder}:{os.environ['PATH']}", "OUTPUT": str(output), "RUN_FILE": "a file.yaml"}
    for text in files_of(launch, run_file, variant).values():
        if "SlurmQueues" in text:
            continue
        command = ["bash", "-c", rank_script_of(text)]
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True)
        overrides = [value for value in VARIANTS[variant] if re.match(r"[\w.]+=", value)]
        begin = ["-P", "-m", "kosmos", "train"]
        resumed, new = [*begin, "--resume", str(output)], [*begin, "a file.yaml", "--output", str(output), *overrides]
        assert done.stdout.splitlines() == (resumed if started else new)
        assert not (tmp_path / "here").exists()  # a field's value is no shell


def test_modules_beside_the_run_file_are_not_taken_for_pythons_own(launch: Launch, run_file: str) -> None:
    Path("contextlib.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    Path("bin").mkdir()
    Path("bin/python").write_text(f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    Path("bin/python").chmod(0o755)
    variables = {**os.environ, "PATH": f"{Path('bin').absolute()}:{os.environ['PATH']}"}
    nodes, ranks = set(), set()
    for variant in ("slurm", "kubernetes", "skypilot"):
        (text,) = files_of(launch, run_file, variant).values()
        nodes |= set(re.findall(r"python .*-m kosmos\.launch\.node", "".join(scripts_of(text))))
        ranks |= {f"RUN_FILE=absent.yaml OUTPUT=out; {rank_script_of(text)}"}
    assert nodes == {"python -P -m kosmos.launch.node"}
    (rank,) = ranks  # the same in all
    done = subprocess.run(["bash", "-c", rank], env=variables, capture_output=True, text=True, check=False)
    assert "absent.yaml" in done.stderr
    assert not Path("imported").exists()


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith(("slurm", "aws"))])
def test_an_sbatch_file_has_options_that_exist_and_stops_before_its_limit(
    launch: Launch, run_file: str, variant: str
) -> None:
    text = list(files_of(launch, run_file, variant).values())[-1]
    head = text.partition("set -euo")[0]
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", head, re.MULTILINE))
    assert set(options) <= SBATCH
    assert options["signal"] == "B:USR1@300"
    assert {"requeue", "time", "open-mode"} <= set(options)
    assert ("gpus-per-node" in options) == ("CPUs" not in variant)
    assert f'"$status" -eq {Interrupted.exit_status} ' in text


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith("kubernetes")])
def test_a_manifest_has_fields_that_exist_and_carries_the_run_file(launch: Launch, run_file: str, variant: str) -> None:
    config_map, service, job = yaml.safe_load_all(files_of(launch, run_file, variant)["file"])
    assert config_map["data"]["run.yaml"] == Path(run_file).read_text()
    assert list(unknown_fields(service, KUBERNETES_SERVICE)) == []
    assert list(unknown_fields(job, KUBERNETES_JOB)) == []
    spec = job["spec"]
    pod = spec["template"]["spec"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", spec["parallelism"])
    assert pod["subdomain"] == service["metadata"]["name"] == service["spec"]["selector"]["job-name"]
    assert pod["restartPolicy"] == "Never"  # what a pod failure policy asks for
    (container,) = pod["containers"]
    names = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == names
    assert [r["onExitCodes"]["values"] for r in spec["podFailurePolicy"]["rules"] if "onExitCodes" in r] == [
        [2, 3],
        [Interrupted.exit_status],
    ]


def test_a_manifest_carries_a_run_file_that_begins_with_spaces(launch: Launch, run_file: str) -> None:
    text = "      # indented\n\n" + Path(run_file).read_text()
    Path(run_file).write_text(text)
    config_map, *_ = yaml.safe_load_all(files_of(launch, run_file, "kubernetes")["file"])
    assert config_map["data"]["run.yaml"] == text


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith("skypilot")])
def test_a_task_has_fields_that_exist_and_keeps_its_output(launch: Launch, run_file: str, variant: str) -> None:
    task = yaml.safe_load(files_of(launch, run_file, variant)["file"])
    assert list(unknown_fields(task, SKYPILOT)) == []
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [Interrupted.exit_status]
    kept = {**task.get("volumes", {}), **task.get("file_mounts", {})}
    assert task["envs"]["OUTPUT"].startswith(tuple(kept) if kept else "runs/")


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith("aws")])
def test_a_cluster_has_fields_that_exist_and_efa_in_one_placement_group(
    launch: Launch, run_file: str, variant: str
) -> None:
    files = files_of(launch, run_file, variant)
    cluster = yaml.safe_load(files["cluster.yaml"])
    assert list(unknown_fields(cluster, PARALLEL_CLUSTER)) == []
    (queue,) = cluster["Scheduling"]["SlurmQueues"]
    (nodes,) = queue["ComputeResources"]
    assert nodes["Efa"] == {"Enabled": True, "GdrSupport": True}
    assert (nodes["InstanceType"], nodes["MaxCount"]) == ("p4d.24xlarge", 2)
    assert queue["Networking"]["PlacementGroup"] == {"Enabled": True}
    assert f"#SBATCH --partition={queue['Name']}\n" in files["job.sh"]
    assert "export FI_PROVIDER=efa\n" in files["job.sh"]
    (storage,) = cluster["SharedStorage"]
    assert storage["FsxLustreSettings"]["DeletionPolicy"] == "Retain"


def need(module: str) -> Any:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: the fields were held against the tables of this test alone")
    return importlib.import_module(module)


@pytest.mark.filterwarnings("ignore")  # those of another package
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith("kubernetes")])
def test_kubernetes_own_schema_takes_the_manifest(launch: Launch, run_file: str, variant: str) -> None:
    validator = need("kubernetes_validate")
    for document in yaml.safe_load_all(files_of(launch, run_file, variant)["file"]):
        validator.validate(document, validator.latest_version(), strict=True)


@pytest.mark.filterwarnings("ignore")  # those of another package
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith("skypilot")])
def test_skypilots_own_schema_takes_the_task(launch: Launch, run_file: str, variant: str) -> None:
    need("sky")
    schemas, validate = need("sky.utils.schemas"), need("jsonschema").validate
    task = yaml.safe_load(files_of(launch, run_file, variant)["file"])
    validate(task, schemas.get_task_schema())
    validate(task["resources"], schemas.get_resources_schema())


@pytest.mark.filterwarnings("ignore")  # those of another package
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.startswith("aws")])
def test_parallelclusters_own_schema_takes_the_cluster(
    launch: Launch, run_file: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("pcluster")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    schema = need("pcluster.schemas.cluster_schema").ClusterSchema(cluster_name="kosmos")
    schema.load(yaml.safe_load(files_of(launch, run_file, variant)["cluster.yaml"]))
