"""Launch files: what the command needs, and the fields of what it writes, as far as ours use them.

A shape is a mapping of field to the shape below it; ``None`` below is any value, a list holds the shape of each item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Launch = Callable[..., str]
"""``kosmos launch`` with arguments; gives its standard output."""
P4D = ("--head-subnet", "subnet-0123456789abcdef0", "--compute-subnet", "subnet-0123456789abcdef1", "--key", "mine")
"""What ``kosmos launch aws-p4d`` cannot do without."""
KUBERNETES = ("--container", "registry.example/kosmos:26.11", "--claim", "work")
"""What ``kosmos launch kubernetes`` cannot do without."""

SBATCH = frozenset(
    "job-name nodes ntasks-per-node gpus-per-node cpus-per-task exclusive time signal requeue open-mode output "
    "partition account qos constraint".split()
)
"""Options of ``sbatch(1)``, Slurm 22.05 and newer."""

_METADATA = {"name": None, "namespace": None}
KUBERNETES_SERVICE: Any = {
    "apiVersion": None, "kind": None, "metadata": _METADATA,
    "spec": {"clusterIP": None, "publishNotReadyAddresses": None, "selector": None},
}  # fmt: skip
"""``v1`` Service."""
KUBERNETES_JOB: Any = {
    "apiVersion": None, "kind": None, "metadata": _METADATA,
    "spec": {
        "completionMode": None, "completions": None, "parallelism": None, "backoffLimit": None,
        "podFailurePolicy": {
            "rules": [{
                "action": None,
                "onExitCodes": {"containerName": None, "operator": None, "values": None},
                "onPodConditions": [{"type": None, "status": None}],
            }],
        },
        "template": {"spec": {
            "restartPolicy": None, "subdomain": None, "terminationGracePeriodSeconds": None,
            "enableServiceLinks": None,
            "containers": [{
                "name": None, "image": None, "workingDir": None, "command": None, "args": None,
                "env": [{"name": None, "value": None}],
                "resources": {"limits": {"nvidia.com/gpu": None, "cpu": None, "memory": None}},
                "volumeMounts": [{"name": None, "mountPath": None, "readOnly": None}],
            }],
            "volumes": [{
                "name": None,
                "persistentVolumeClaim": {"claimName": None},
                "configMap": {"name": None},
                "emptyDir": {"medium": None, "sizeLimit": None},
            }],
        }},
    },
}  # fmt: skip
"""``batch/v1`` Job, Kubernetes 1.31 and newer (pod failure policies)."""
SKYPILOT: Any = {
    "name": None, "workdir": None, "num_nodes": None,
    "resources": {
        "infra": None, "accelerators": None, "use_spot": None,
        "job_recovery": {"max_restarts_on_errors": None, "recover_on_exit_codes": None},
    },
    "envs": None, "volumes": None, "file_mounts": None, "setup": None, "run": None,
}  # fmt: skip
"""Task file of SkyPilot 0.14."""
PARALLEL_CLUSTER: Any = {
    "Region": None,
    "Image": {"Os": None},
    "HeadNode": {
        "InstanceType": None, "Networking": {"SubnetId": None}, "Ssh": {"KeyName": None},
        "LocalStorage": {"RootVolume": {"Size": None}},
    },
    "Scheduling": {
        "Scheduler": None,
        "SlurmSettings": {"ScaledownIdletime": None},
        "SlurmQueues": [{
            "Name": None, "CapacityType": None, "JobExclusiveAllocation": None,
            "CapacityReservationTarget": {"CapacityReservationId": None},
            "Networking": {"SubnetIds": None, "PlacementGroup": {"Enabled": None}},
            "ComputeSettings": {
                "LocalStorage": {"RootVolume": {"Size": None}, "EphemeralVolume": {"MountDir": None}},
            },
            "HealthChecks": {"Gpu": {"Enabled": None}},
            "ComputeResources": [{
                "Name": None, "InstanceType": None, "MinCount": None, "MaxCount": None,
                "Efa": {"Enabled": None, "GdrSupport": None},
            }],
        }],
    },
    "SharedStorage": [{
        "Name": None, "MountDir": None, "StorageType": None,
        "FsxLustreSettings": {
            "StorageCapacity": None, "DeploymentType": None, "PerUnitStorageThroughput": None,
            "DeletionPolicy": None,
        },
    }],
    "Monitoring": {"Logs": {"CloudWatch": {"Enabled": None}}},
}  # fmt: skip
"""Configuration of AWS ParallelCluster 3.16."""


def unknown_fields(value: Any, shape: Any, path: str = "") -> Iterator[str]:
    """Paths in ``value`` that ``shape`` does not have."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{path}: no mapping"
            return
        for name, below in value.items():
            if name in shape:
                yield from unknown_fields(below, shape[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(shape, list):
        for index, below in enumerate(value):
            yield from unknown_fields(below, shape[0], f"{path}[{index}]")
