"""A Slurm of its own: a controller and three nodes on one machine, each with a network and a name of its own.

Needs root, iproute2, and Debian's ``slurm-wlm`` and ``munge``. Nothing outside of ``FOLDER`` is written, but for the
network: names are known by a file of hosts that lies over the machine's where the daemons run. There can be one, since
the controller has Slurm's port, so what a killed session has left behind is found and ended by the next.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(tempfile.gettempdir()) / "kosmos-slurm"
BRIDGE, NETWORK = "kosmos-slurm", "10.77.32"
NODES = ("kosmos-n1", "kosmos-n2", "kosmos-n3")
PROGRAMS = ("ip", "unshare", "nsenter", "munged", "mungekey", "slurmctld", "slurmd", "sbatch", "scontrol")
CONFIGURATION = """
ClusterName=kosmos
SlurmctldHost=kosmos-head({network}.100)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=20
KillWait=60
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName=kosmos-n[1-3] CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """What keeps such a cluster from being started here, if anything."""
    if os.geteuid() != 0:
        return "a cluster of network namespaces needs root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


class Cluster:
    """Started by ``up``; ``down`` ends it."""

    def __init__(self) -> None:
        self.folder = FOLDER
        self.environment = os.environ | {"SLURM_CONF": str(FOLDER / "slurm.conf"), "OMP_NUM_THREADS": "1"}

    def up(self) -> None:
        """Returns when all nodes are idle."""
        down()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "state").mkdir(parents=True)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder, network=NETWORK))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        addresses = {"127.0.0.1": "localhost", f"{NETWORK}.100": "kosmos-head"}
        addresses |= {f"{NETWORK}.{number}": name for number, name in enumerate(NODES, 1)}
        (self.folder / "hosts").write_text("".join(f"{where} {name}\n" for where, name in addresses.items()))
        self._munge()
        self._network()
        self._daemon("kosmos-head", "slurmctld", "-c")
        for node in NODES:
            (self.folder / f"spool-{node}").mkdir()
            self._daemon(node, "slurmd", "-N", node, network=node)
        self.wait_for(lambda: self.run("sinfo", "-h", "-o", "%T %D").split() == ["idle", "3"], at_most_s=60)

    def _munge(self) -> None:
        key = self.folder / "munge.key"
        run("mungekey", "--create", f"--keyfile={key}")
        files = {"socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{option}={self.folder / name}" for option, name in files.items()]
        run("munged", "--force", f"--key-file={key}", *options)

    def _network(self) -> None:
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.100/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for number, node in enumerate(NODES, 1):
            run("ip", "netns", "add", node)
            run("ip", "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", node)
            run("ip", "link", "set", node, "master", BRIDGE, "up")
            run("ip", "-n", node, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            run("ip", "-n", node, "link", "set", "eth0", "up")
            run("ip", "-n", node, "link", "set", "lo", "up")

    def _daemon(self, host: str, *command: str, network: str | None = None) -> None:
        """As a machine of that name."""
        # "ip netns exec" would hide /sys/fs/cgroup.
        inside = ("nsenter", f"--net=/run/netns/{network}") if network else ()
        script = f'hostname {host}; mount --bind {self.folder}/hosts /etc/hosts; exec "$@"'
        run(*inside, "unshare", "--uts", "--mount", "sh", "-ec", script, "sh", *command, environment=self.environment)

    def run(self, *command: str, folder: Path | None = None) -> str:
        """A command of Slurm's."""
        return run(*command, environment=self.environment, folder=folder)

    def cable(self, node: str, *, plugged: bool) -> None:
        """Pull the cable of a node, or plug it in."""
        run("ip", "link", "set", node, "up" if plugged else "down")

    def state(self, job: str) -> str:
        """``PENDING``, ``RUNNING``, ``COMPLETED``, ``FAILED``, ``CANCELLED``, .."""
        shown = dict(field.partition("=")[::2] for field in self.run("scontrol", "show", "job", job).split())
        return shown["JobState"]

    def wait_for(self, condition: Callable[[], bool], *, at_most_s: float) -> None:
        """Until it holds."""
        end = time.monotonic() + at_most_s
        while not condition():
            assert time.monotonic() < end, self.run("sinfo", "-N") + self.run("squeue")
            time.sleep(0.2)


def down() -> None:
    """All daemons, every process on one of the nodes, and the network."""
    for file in FOLDER.glob("*.pid"):
        process = file.read_text().strip()
        name = Path(f"/proc/{process}/comm")
        if process and name.exists() and name.read_text().startswith(("slurm", "munge")):
            os.kill(int(process), signal.SIGKILL)
    for node in NODES:
        there = subprocess.run(["ip", "netns", "pids", node], capture_output=True, text=True, check=False)
        for process in there.stdout.split():
            subprocess.run(["kill", "-KILL", process], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", node], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", node], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def run(*command: str, environment: dict[str, str] | None = None, folder: Path | None = None) -> str:
    done = subprocess.run(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout
