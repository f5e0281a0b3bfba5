"""Under mpirun and torchrun as users start them: one report a host, one table a job, and no rank ends the others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SYNCLINE = (sys.executable, "-m", "syncline")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
AS_ROOT = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
MPIRUN = ("mpirun", *AS_ROOT, "--oversubscribe", "-n", "2")

needs_mpirun = pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)"
)


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, env=own)


@needs_mpirun
def test_an_all_reduce_under_mpirun_prints_one_table() -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    done = launched(*MPIRUN, *SYNCLINE, "bench", "allreduce", "--size", "64KiB", "-n", "2", "-w", "1", "--json")
    assert done.returncode == 0, done.stderr
    payload = json.loads(done.stdout)
    assert (payload["ranks"], payload["library"]) == (2, "gloo")
    (row,) = payload["results"]
    assert row["size"] == 65536 and row["in_place"]["nwrong"] == 0 and row["busbw_Bps"] > 0


@needs_mpirun
def test_two_ranks_of_a_host_under_mpirun_make_one_report(tmp_path: Path) -> None:
    done = launched(*MPIRUN, *SYNCLINE, "audit", "--json", "--write", str(tmp_path))
    assert done.returncode == 0, done.stderr  # whatever was found: mpirun would end the audits of the other hosts
    report = json.loads(done.stdout)
    assert [path.stem for path in tmp_path.glob("*.json")] == [report["hosts"][0]["host"]]
    assert "local rank 1: rank 0 of this host audits it" in done.stderr


def test_two_ranks_of_a_host_under_torchrun_make_one_report() -> None:
    pytest.importorskip("torch", reason="torchrun comes with torch")
    done = launched(*TORCHRUN, "--no-python", *SYNCLINE, "audit", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["hosts"]) == 1
