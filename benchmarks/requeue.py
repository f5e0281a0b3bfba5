"""A crew over torchrun and over Slurm: one rank is killed, and comes back by what started it while the others go on.

    python benchmarks/run.py requeue --keep            torchrun; Slurm too where slurmctld is installed (root)

torchrun: each rank is a torchrun of its own with --max-restarts, and its process is killed with -9. Slurm: ranks are
the tasks of an array job with --requeue on a Slurm of this machine alone, and one is requeued (`scontrol requeue`), as
when its host is lost; Slurm waits two minutes before it starts such a task again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

HERE = Path(__file__).resolve().parent
NUM_RANKS, STRUCK = 3, 1
WAIT_S = 900.0
CONFIG = """ClusterName=requeue
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def rows(folder: Path, rank: int) -> list[dict[str, Any]]:
    """Return what a rank has written."""
    path = folder / f"{rank}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def until(what: str, true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {WAIT_S:.0f} s")
        time.sleep(0.1)


def words(folder: Path, steps: int, pause_s: float) -> list[str]:
    """Return the end of the command line of a rank."""
    return ["-m", "rig.survive_rank", str(folder), str(steps), str(pause_s)]


def surroundings(port: int) -> dict[str, str]:
    """Return the environment of a rank."""
    return {**os.environ, "SYNCLINE_CREW": f"127.0.0.1:{port}", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(HERE)}


def figures(folder: Path, struck_s: float) -> dict[str, Any]:
    """Return what the strike cost, and whether all ended with the same weights."""
    all_rows = [rows(folder, rank) for rank in range(NUM_RANKS)]
    others = [row for rank, found in enumerate(all_rows) if rank != STRUCK for row in found if "step" in row]
    fewer = sorted(row["at_s"] for row in others if row["at_s"] > struck_s and row["members"] < NUM_RANKS)
    back = [row for row in all_rows[STRUCK] if "step" in row and row["at_s"] > struck_s]
    steps = [[row["step"] for row in found if "step" in row] for found in all_rows]
    ends = [row["end"] for found in all_rows for row in found if "end" in row]
    return {
        "others_went_on_after_s": round(fewer[0] - struck_s, 2),
        "back_after_s": round(back[0]["at_s"] - struck_s, 2),
        "back_at_step": back[0]["step"],
        "steps": max(steps[0]) + 1,
        "every_step_made_once_by_those_who_stayed": all(
            made == list(range(len(made))) for rank, made in enumerate(steps) if rank != STRUCK
        ),
        "weights_equal_at_the_end": len(ends) == NUM_RANKS and len(set(ends)) == 1,
        "formations": next(row["history"] for row in all_rows[0] if "history" in row),
    }


def strike(folder: Path, hit: Callable[[], object]) -> dict[str, Any]:
    """Hit a rank once all have made ten steps, wait until all have ended; return the figures."""
    until("ten steps", lambda: all(len(rows(folder, rank)) >= 10 for rank in range(NUM_RANKS)))
    struck_s = time.monotonic()
    hit()
    until("the end", lambda: all("end" in (rows(folder, r) or [{}])[-1] for r in range(NUM_RANKS)))
    return figures(folder, struck_s)


def over_torchrun(folder: Path, port: int) -> dict[str, Any]:
    """Each rank is a torchrun of its own; the process that one of them started is killed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1",
               "--max-restarts", "3", *words(folder, 150, 0.2)]  # fmt: skip
    given = {**surroundings(port), "SYNCLINE_CREW_RANKS": str(NUM_RANKS)}
    started = [
        subprocess.Popen(command, env={**given, "SYNCLINE_CREW_RANK": str(rank)}, stderr=subprocess.DEVNULL)
        for rank in range(NUM_RANKS)
    ]
    try:
        return strike(folder, lambda: os.kill(_child(started[STRUCK].pid), signal.SIGKILL))
    finally:
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def over_slurm(folder: Path, port: int) -> dict[str, Any]:
    """Each rank is a task of an array job; one is requeued."""
    script = folder / "job.sh"
    script.write_text(f"#!/bin/bash\nexec {sys.executable} {' '.join(words(folder, 450, 0.4))}\n")
    with slurm(folder) as environment:
        given = {**surroundings(port), **environment}
        array = [f"--array=0-{NUM_RANKS - 1}", "--requeue", "--parsable", "-c1", "--output", f"{folder}/%a.out"]
        job = _said(["sbatch", *array, str(script)], given).split(";")[0]
        return strike(folder, lambda: _said(["scontrol", "requeue", f"{job}_{STRUCK}"], given))


def _said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Run a Slurm of this machine alone; give the environment its commands need."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        ports = {"controller": one.getsockname()[1], "daemon": other.getsockname()[1]}
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(folder=folder, host=socket.gethostname(), **ports))
    environment = {"SLURM_CONF": str(config)}
    daemons = [
        subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
        for command in (["slurmctld", "-D", "-f", str(config)], ["slurmd", "-D", "-f", str(config)])
    ]
    try:
        yield environment
    finally:
        subprocess.run(["scancel", "--user", "root"], env={**os.environ, **environment}, check=False)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(60)


def run() -> dict[str, Any]:
    """Return what each way of starting ranks gave."""
    ways = {"torchrun": over_torchrun, "slurm": over_slurm}
    results: dict[str, Any] = {"ranks": NUM_RANKS}
    for name in os.environ.get("WAYS", "torchrun slurm").split():
        if name == "slurm" and not shutil.which("slurmctld"):
            results[name] = "not installed"
            continue
        store: Any = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        folder = Path(tempfile.mkdtemp(prefix=f"requeue-{name}-"))
        results[name] = ways[name](folder, store.port)
        shutil.rmtree(folder, ignore_errors=True)
    return results
