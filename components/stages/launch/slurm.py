"""The processes of a training that `srun` starts."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from torch.distributed import TCPStore

from components.core.errors import SesameError
from components.core.processes import LAUNCHED, rank_zero
from components.params import Running
from components.stages.launch.agent import environment, network_interface, processes_per_node
from components.stages.launch.store import HEAD, PATIENCE, announced_end

GRACE = 10
"""Seconds in which the tasks may end by themselves when the stage is stopped; Slurm's own patience (`KillWait`) is 30 or more."""


def run_srun(run: Running, command: list[str]) -> NoReturn:
    """Have `srun` start the processes, one for each device of each node of the job, wait for them, and exit as the first that failed."""
    if "SLURM_JOB_ID" not in os.environ:
        raise SesameError(
            "run.launcher slurm: not inside a Slurm job; start `sesame run` in one (sbatch, salloc), or take torchrun"
        )
    if (have := int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))) < run.num_nodes:
        raise SesameError(f"run.num_nodes {run.num_nodes}: the Slurm job has {have}; ask for more (--nodes)")
    if (srun := shutil.which("srun")) is None:
        raise SesameError("run.launcher slurm: srun is not in the PATH of this node; add it, or take torchrun")
    each, stopped = processes_per_node(run), []
    # without a number of tasks it takes the job's, and leaves that of a node out of account
    options = [f"--nodes={run.num_nodes}", f"--ntasks={run.num_nodes * each}", f"--ntasks-per-node={each}", "--kill-on-bad-exit=1"]
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    with environment({LAUNCHED: "slurm", HEAD: f"{socket.gethostname()}:{store.port}"}):
        child = subprocess.Popen([srun, *options, *command], start_new_session=True)  # it would ask for a second Ctrl-C

    def stop(number: int, _: object) -> None:
        stopped.append(number)
        child.terminate()
        # The first task does not hear of it while it waits for a lost node, and `srun` waits for the task.
        end = threading.Timer(GRACE, child.kill)  # all tasks end with this process, see `prepare_task`
        end.daemon = True
        end.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    status = child.wait()
    if stopped:
        if stopped[0] == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + stopped[0])
    over = announced_end(store)  # `srun` itself exits with the highest status, and it is higher of those that it had to kill
    sys.exit(over["status"] if over and over["status"] else status if status >= 0 else 128 - status)


def prepare_task() -> None:
    """Prepare a process that `srun` has started: where it meets the others, and that it ends when it is to end."""
    from lightning.pytorch.plugins.environments import SLURMEnvironment
    from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector

    host, port = os.environ["SLURM_SRUN_COMM_HOST"], os.environ[HEAD].rpartition(":")[2]
    os.environ[HEAD] = f"{host}:{port}"  # an address, which needs no name
    os.environ |= network_interface(os.environ[HEAD])
    # Lightning's own are the first of the job's nodes, which need not be one of this step, and a port for all steps of the job
    job, step, nodes = (os.environ[f"SLURM_{key}"] for key in ("JOB_ID", "STEP_ID", "STEP_NODELIST"))
    os.environ.setdefault("MASTER_ADDR", SLURMEnvironment.resolve_root_node_address(nodes))
    os.environ.setdefault("MASTER_PORT", str(15000 + (int(job) + 1000 * int(step)) % 10000))
    # its handler of SIGTERM would have all tasks agree, in the middle of whatever they send each other, and hang
    _SignalConnector.register_signal_handlers = lambda _: None
    if not rank_zero():  # it writes nothing that is to be tidied up, and Python would hear of the signal when torch has done waiting
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        try:
            connected = socket.create_connection((host, int(port)), PATIENCE)
        except OSError:  # between these nodes the port is closed: what says nothing can't be missed
            return
        with suppress(OSError), connected:
            connected.settimeout(None)
            connected.recv(1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()  # Slurm lets a task go on when `srun` and who started it are killed
