"""Ranks on this machine, over loopback: the same command started N times, with the environment that torchrun gives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from tempfile import TemporaryFile
from typing import IO

from syncline.errors import BenchError
from syncline.host.launcher import torchrun_environment
from syncline.host.ports import meeting_port

MAX_LOCAL = 64
_GRACE_S = 5.0


@dataclass(frozen=True)
class RankFailure:
    """A rank that did not end well, with the end of its stderr where that was not this process's own."""

    rank: int
    exit_code: int
    stderr: str


def run_here(arguments: Sequence[str], num_ranks: int, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run `syncline ARGUMENTS` as so many ranks; rank 0 speaks for all.

    Returns the exit status, and what another rank complained of where rank 0 did not fail itself.
    """
    if not 2 <= num_ranks <= MAX_LOCAL:
        raise BenchError(
            f"{num_ranks} ranks on this machine: from 2 to {MAX_LOCAL} can be started.",
            hint="Use torchrun, srun or mpirun for more.",
        )
    failed = run_ranks([sys.executable, "-m", "syncline", *arguments], num_ranks, environ=environ, speaker=0)
    return (failed.exit_code, failed.stderr) if failed else (0, "")


def run_ranks(
    command: Sequence[str],
    num_ranks: int,
    *,
    environ: Mapping[str, str] | None = None,
    speaker: int | None = None,
    timeout_s: float = inf,
) -> RankFailure | None:
    """Run a command once a rank and wait; returns the rank that explains why the run failed, None where it did not.

    The output of `speaker` is this process's own. When one rank fails the others are given a moment to say why, then
    ended; so they are when this process is stopped, and when it takes too long (TimeoutError).
    """
    base = dict(os.environ if environ is None else environ)
    base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(meeting_port())}
    base.setdefault("OMP_NUM_THREADS", "1")
    base.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    started: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(num_ranks)]
        try:
            for rank in range(num_ranks):
                variables = torchrun_environment(rank, num_ranks, rank, num_ranks, 0, 1)
                own = base | {name: str(value) for name, value in variables.items()}
                output: list[int | IO[bytes] | None] = [None, None] if rank == speaker else [
                    subprocess.DEVNULL, files[rank]
                ]  # fmt: skip
                started.append(
                    subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, stdout=output[0], stderr=output[1])  # noqa: S603
                )
            failed = _first_failure(started, time.monotonic() + timeout_s)
            if failed is None:
                return None
            files[failed].seek(0)
            stderr = files[failed].read().decode(errors="replace")[-4000:].strip()
            return RankFailure(failed, started[failed].returncode, stderr)
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


def _first_failure(started: list[subprocess.Popen[bytes]], until_s: float) -> int | None:
    """Wait until all have ended, or one has failed for a while: its number, None where all ended well."""
    failed, failed_s = None, inf
    while True:
        states = [process.poll() for process in started]
        if failed is None and any(states):
            failed, failed_s = next(rank for rank, state in enumerate(states) if state), time.monotonic()
        if None not in states or time.monotonic() - failed_s > _GRACE_S:
            # Rank 0's own status says most: the others may only have lost their connection to it.
            return 0 if states[0] else failed
        if time.monotonic() > until_s:
            raise TimeoutError("ranks on this machine still run")
        time.sleep(0.02)
