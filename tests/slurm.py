"""A real SLURM on this machine alone, beside whatever other may run here."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.waiting import LIMIT, free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
NODE = "sweepkit"
PARTITION = "debug"

CONF = """\
ClusterName=sweepkit
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,default_queue_depth=50
SchedulerTimeSlice=5
MpiDefault=none
ReturnToService=2
KillWait=1
CompleteWait=0
EnforcePartLimits=NO
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName={partition} Nodes={node} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A queue of one node with two cores, whose daemons are children of this process."""

    folder: Path
    """Of its files; jobs write what they print into ``logs`` in it."""

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        """What a command of SLURM prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=LIMIT
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """States of the jobs that wait or run."""
        return self.ask("squeue", "--noheader", "--format=%T").split()

    def drain(self) -> None:
        """Let no further job begin on the node."""
        self.ask("scontrol", "update", f"NodeName={NODE}", "State=DRAIN", "Reason=maintenance")

    def undrain(self) -> None:
        """Let jobs begin again."""
        self.ask("scontrol", "update", f"NodeName={NODE}", "State=RESUME")

    def refuse(self) -> None:
        """Refuse jobs that are handed in."""
        self.ask("scontrol", "update", f"PartitionName={PARTITION}", "State=INACTIVE")

    def accept(self) -> None:
        """Take jobs again."""
        self.ask("scontrol", "update", f"PartitionName={PARTITION}", "State=UP")


def slurm_or_skip() -> None:
    """Skip the test where no SLURM can be had; where all must run, fail it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    lacking = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if lacking:
        told = f"a queue needs {', '.join(lacking)}: apt-get install slurm-wlm munge, on Linux"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)


@contextmanager
def slurm() -> Iterator[Slurm]:
    """A queue of its own, on free ports and with its own keys; nothing of it is left."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="sweepkit-slurm-"))  # short, for the socket's path
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        queue = Slurm(folder)
        stack.callback(_end_jobs, queue)
        for name in ("state", "spool", "logs"):
            (folder / name).mkdir()
        (folder / "plugstack.conf").touch()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        controller_port = free_port()
        node_port = free_port(but=controller_port)
        (folder / "slurm.conf").write_text(
            CONF.format(
                folder=folder,
                host=socket.gethostname().partition(".")[0],
                user=getpass.getuser(),
                node=NODE,
                partition=PARTITION,
                controller_port=controller_port,
                node_port=node_port,
            )
        )
        munge = (
            f"--socket={folder}/munge.sock",
            f"--key-file={folder}/munge.key",
            f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/munged.seed",
            f"--log-file={folder}/munged.log",
        )
        munged = _daemon(stack, queue, "munged", "--foreground", "--force", *munge)
        _wait(lambda: (folder / "munge.sock").exists(), munged, queue)
        controller = _daemon(stack, queue, "slurmctld", "-D", "-i")
        node = _daemon(stack, queue, "slurmd", "-D", "-N", NODE)
        _wait(lambda: "idle" in _asked(queue, "sinfo", "-h", "-o", "%T"), controller, queue)
        assert node.poll() is None
        yield queue


def _daemon(stack: ExitStack, queue: Slurm, name: str, *options: str) -> subprocess.Popen[bytes]:
    """A daemon that stays a child of this process, and is ended with it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    program = shutil.which(name, path=path)
    assert program is not None
    with (queue.folder / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(
            [program, *options],
            env=queue.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=queue.folder,
            start_new_session=True,
        )
    stack.callback(_end, process)
    return process


def _asked(queue: Slurm, *command: str) -> str:
    """What a command prints; nothing while the controller does not answer yet."""
    with suppress(RuntimeError, subprocess.TimeoutExpired):
        return queue.ask(*command)
    return ""


def _wait(event: Callable[[], bool], process: subprocess.Popen[bytes], queue: Slurm) -> None:
    end = time.monotonic() + LIMIT
    while not event():
        if process.poll() is not None or time.monotonic() > end:
            logs = [*queue.folder.glob("*.out"), *queue.folder.glob("*.log")]
            said = "\n".join(f"{one.name}: {one.read_text()[-2000:]}" for one in logs)
            pytest.fail(f"SLURM did not start\n{said}")
        time.sleep(0.05)


def _end_jobs(queue: Slurm) -> None:
    """Kill what jobs have left: all that has this queue in its environment."""
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.environ().get("SLURM_CONF") == queue.environment["SLURM_CONF"]:
                one.kill()
    psutil.wait_procs(psutil.Process().children(), timeout=0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=LIMIT / 4)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
