"""Ranks on this machine, for a quick try: the same command started N times, with the environment torchrun gives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO, Any

from syncline.errors import BenchError
from syncline.host.ports import meeting_port

MAX_LOCAL = 64
_GRACE_S = 5.0


def run_here(arguments: Sequence[str], num_ranks: int, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run `syncline ARGUMENTS` as so many ranks; rank 0 speaks for all. Returns the first exit status that is not 0.

    Returned with it is what another rank complained of, where rank 0 did not complain itself.

    When one rank fails the others are given a moment to say why, then ended; so they are when this process is stopped.
    """
    if not 2 <= num_ranks <= MAX_LOCAL:
        raise BenchError(f"{num_ranks} ranks on this machine: from 2 to {MAX_LOCAL} can be started.",
                         hint="Use torchrun, srun or mpirun for more.")  # fmt: skip
    base = dict(os.environ if environ is None else environ)
    base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting_port()), "WORLD_SIZE": str(num_ranks)}
    base |= {"LOCAL_WORLD_SIZE": str(num_ranks), "OMP_NUM_THREADS": base.get("OMP_NUM_THREADS", "1")}
    base.setdefault("GLOO_SOCKET_IFNAME", "lo")
    started: list[subprocess.Popen[bytes]] = []
    with TemporaryFile() as complaints:
        try:
            for rank in range(num_ranks):
                own = base | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                quiet: dict[str, Any] = {} if rank == 0 else {"stdout": subprocess.DEVNULL, "stderr": complaints}
                command = [sys.executable, "-m", "syncline", *arguments]
                started.append(subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, **quiet))  # noqa: S603
            status = _wait(started)
            return status, _tail(complaints) if status and not started[0].returncode else ""
        finally:
            _end(started)


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """End what still runs: asked first, then made to."""
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(started: list[subprocess.Popen[bytes]]) -> int:
    failed_s = 0.0
    while True:
        states = [process.poll() for process in started]
        bad = [state for state in states if state]
        if all(state is not None for state in states):
            # Rank 0's own status says most: the others may only have lost their connection to it.
            return states[0] or (bad[0] if bad else 0)
        if bad:
            failed_s = failed_s or time.monotonic()
            if time.monotonic() - failed_s > _GRACE_S:
                return states[0] or bad[0]
        time.sleep(0.02)


def _tail(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")[-4000:].strip()
