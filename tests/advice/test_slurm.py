"""What is written for Slurm is run by Slurm: a controller and a daemon on this machine, without accounts or keys."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncline.advice import bundle
from syncline.fabric import load
from syncline.host.ports import meeting_port

NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol")
WAIT_S = 300.0
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd starts as root only"),
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in NEEDED),
        reason="no Slurm here (Debian: slurmctld slurmd slurm-client)",
    ),
]


def _configuration(folder: Path, name: str) -> str:
    for part in ("state", "spool"):
        (folder / part).mkdir()
    return f"""
ClusterName=one
SlurmctldHost={name}(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={meeting_port()}
SlurmdPort={meeting_port()}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
GresTypes=gpu
NodeName={name} NodeAddr=127.0.0.1 CPUs=1 Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A cluster of one machine."""

    def __init__(self, folder: Path) -> None:
        name = socket.gethostname().split(".")[0]
        self.folder = folder
        conf = folder / "slurm.conf"
        conf.write_text(_configuration(folder, name))
        for index in range(8):  # files that stand for devices: Slurm wants one for each GPU
            (folder / f"gpu{index}").touch()
        (folder / "gres.conf").write_text(f"NodeName={name} Name=gpu File={folder}/gpu[0-7]\n")
        self.environment = {**os.environ, "SLURM_CONF": str(conf)}
        self.daemons = [
            self._start(["slurmctld", "-D", "-f", str(conf), "-L", str(folder / "ctld.log")]),
            self._start(["slurmd", "-D", "-f", str(conf), "-N", name, "-L", str(folder / "d.log")]),
        ]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def call(self, *command: str, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env={**self.environment, **more}, cwd=cwd, capture_output=True, text=True,
                              check=False, timeout=WAIT_S)  # fmt: skip

    def wait_until_idle(self) -> None:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            if "idle" in self.call("sinfo", "-h", "-o", "%T").stdout:
                return
            time.sleep(0.5)
        pytest.fail(f"Slurm did not come up: {(self.folder / 'd.log').read_text()[-800:]}")

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(timeout=WAIT_S)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.wait_until_idle()
        yield cluster
    finally:
        cluster.stop()


def _stub(folder: Path) -> Path:
    """Put a torchrun into a folder that notes what it was started with."""
    folder.mkdir()
    path = folder / "torchrun"
    path.write_text('#!/bin/bash\necho "arguments: $*"\nenv | grep -E "^(NCCL|TORCH_NCCL)_" | sort\n')
    path.chmod(0o755)
    return folder


def test_the_batch_script_finds_its_settings_and_starts_torchrun(slurm: Slurm, tmp_path: Path) -> None:
    made = bundle(load("h100-64-rail"), ranks=8)
    made.write(tmp_path / "files")
    path = f"{_stub(tmp_path / 'bin')}:{os.environ['PATH']}"
    ran = slurm.call("sbatch", "--wait", "--output=out.txt", "job.sbatch", "train.py", "--steps", "3",
                     cwd=tmp_path / "files", PATH=path)  # fmt: skip
    out = (tmp_path / "files" / "out.txt").read_text()
    assert ran.returncode == 0, (ran.stderr, out)
    assert "arguments: --nnodes=1 --nproc-per-node=8" in out
    assert "train.py --steps 3" in out
    wanted = {f"{setting.name}={setting.value}" for setting in made.settings if not setting.optional}
    assert wanted <= set(out.splitlines())


def test_without_its_settings_the_batch_script_says_so(slurm: Slurm, tmp_path: Path) -> None:
    bundle(load("h100-64-rail"), ranks=8).write(tmp_path / "files")
    (tmp_path / "elsewhere").mkdir()
    ran = slurm.call("sbatch", "--wait", "--output=out.txt", str(tmp_path / "files" / "job.sbatch"), "train.py",
                     cwd=tmp_path / "elsewhere")  # fmt: skip
    assert ran.returncode != 0
    assert "call sbatch in the folder of nccl.env" in (tmp_path / "elsewhere" / "out.txt").read_text()


def test_the_switches_that_are_written_are_those_slurm_sees(tmp_path: Path) -> None:
    fabric = load("h100-64-rail")
    (tmp_path / "topology.conf").write_text(bundle(fabric, ranks=64).files["topology.conf"])
    name = socket.gethostname().split(".")[0]
    conf = "".join(
        f"{line}\n"
        for line in _configuration(tmp_path, name).splitlines()
        if not line.startswith(("NodeName", "GresTypes"))
    )
    nodes = f"TopologyPlugin=topology/tree\nNodeName={','.join(fabric.host_names)} NodeAddr=127.0.0.1 CPUs=1\n"
    (tmp_path / "slurm.conf").write_text(f"{nodes}{conf}")
    environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    controller = subprocess.Popen(["slurmctld", "-D", "-f", environment["SLURM_CONF"], "-L", str(tmp_path / "log")],
                                  env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        seen, until = "", time.monotonic() + WAIT_S
        while "SwitchName" not in seen and time.monotonic() < until:
            time.sleep(0.5)
            asked = subprocess.run(["scontrol", "show", "topology"], env=environment, capture_output=True, text=True,
                                   check=False, timeout=WAIT_S)  # fmt: skip
            seen = asked.stdout
    finally:
        controller.terminate()
        controller.wait(timeout=WAIT_S)
    levels = [(line.split()[0], line.split()[1]) for line in seen.splitlines()]
    assert [level for _, level in levels] == ["Level=0", "Level=0", "Level=1"], seen
    assert "Nodes=host-[00-63]" in seen.splitlines()[-1]
