"""A real Slurm of two nodes: slurmctld and two slurmd, on hosts that are namespaces of this machine (`tests.hosts`)."""

import re
import shutil
from pathlib import Path

import pytest

from tests.hosts import HEAD, Hosts
from tests.waiting import until

NODES = ("one", "two")
SETTINGS = """
ClusterName=lab
SlurmctldHost=head({address})
SlurmUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=3000
SlurmdTimeout=5
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
{nodes}
PartitionName=normal Nodes=ALL Default=YES MaxTime=1-00:00:00 State=UP
"""


class Slurm:
    """A context; `SLURM_CONF` of all that is started on its hosts is its own."""

    def __init__(self, folder: Path):
        self.folder, self.hosts = folder, Hosts(folder, *NODES)

    def __enter__(self) -> "Slurm":
        if not all(shutil.which(command) for command in ("slurmctld", "slurmd", "sbatch")):
            pytest.skip("no Slurm on this machine: apt-get install slurmctld slurmd slurm-client")
        self.hosts.__enter__()
        try:
            nodes = (f"NodeName={name} NodeAddr={self.hosts.address(name)} CPUs=4 RealMemory=16000" for name in NODES)
            settings = SETTINGS.format(address=self.hosts.address(HEAD), folder=self.folder, nodes="\n".join(nodes))
            (self.folder / "slurm.conf").write_text(settings)
            (self.folder / "state").mkdir()
            self.control()
            for name in NODES:
                self.node(name)
            until(lambda: self.do("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.hosts.__exit__()

    def control(self):
        """Start the controller."""
        return self.start(HEAD, "slurmctld", "-D", log=self.folder / "slurmctld.log")

    def node(self, name: str):
        """Start a node's daemon."""
        return self.start(name, "slurmd", "-D", log=self.folder / f"{name}.log")

    def start(self, host: str, *command: object, **options):
        return self.hosts.start(host, *command, SLURM_CONF=f"{self.folder}/slurm.conf", **options)

    def do(self, *command: object, **options) -> str:
        """What a command says that is given on the head, as a login node."""
        return self.hosts.do(HEAD, *command, SLURM_CONF=f"{self.folder}/slurm.conf", **options)

    def submit(self, *options: str, command: str, **env: str) -> str:
        """The number of a new job."""
        return self.do("sbatch", "--parsable", "--output=job-%j.txt", *options, "--wrap", command, **env).strip()

    def state(self, job: str) -> str:
        """RUNNING, COMPLETED, FAILED ..."""
        return re.search(r"JobState=(\w+)", self.do("scontrol", "show", "job", job))[1]

    def ended(self, job: str) -> tuple[str, str]:
        """How a job ends, and what it says."""
        until(lambda: self.state(job) not in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING"))
        return self.state(job), Path(f"job-{job}.txt").read_text()
