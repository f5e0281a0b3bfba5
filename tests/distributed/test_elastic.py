"""A rank killed under torchrun: the group forms again and the losses are those of a run that nobody disturbed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

from tests.distributed.ranks import run_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "elastic.py"
STEPS, NUM_RANKS = 20, 2


def torchrun(folder: Path, restarts: int, pause_s: float) -> subprocess.Popen[str]:
    """Start the example."""
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "STEPS": str(STEPS), "PAUSE_S": str(pause_s)}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(NUM_RANKS)]
    command = [*launcher, "--max-restarts", str(restarts), "--monitor-interval", "0.2", str(EXAMPLE), str(folder)]
    return subprocess.Popen(
        command, env={**os.environ, **settings}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def losses(lines: list[str]) -> tuple[dict[int, str], int]:
    """Return the loss printed for each step, and how many steps were printed twice with different losses."""
    seen: dict[int, set[str]] = {}
    for match in re.finditer(r"step (\d+) loss (\S+)", "\n".join(lines)):
        seen.setdefault(int(match[1]), set()).add(match[2])
    return {step: min(texts) for step, texts in seen.items()}, sum(len(texts) > 1 for texts in seen.values())


def ranks_of(agent: int) -> list[int]:
    """Return the processes that torchrun has started."""
    path = Path(f"/proc/{agent}/task/{agent}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


@pytest.mark.slow
def test_a_killed_rank_leaves_the_losses_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "calm").mkdir()
    calm = run_script(EXAMPLE, NUM_RANKS, tmp_path, str(tmp_path / "calm"), settings={"STEPS": str(STEPS)})
    due, _ = losses(calm.splitlines())
    assert sorted(due) == list(range(STEPS))
    struck = torchrun(tmp_path / "struck", 2, 0.1)
    assert struck.stdout is not None
    lines = [next(struck.stdout) for _ in range(8)]
    ranks = ranks_of(struck.pid)
    assert len(ranks) == NUM_RANKS
    os.kill(ranks[1], signal.SIGKILL)
    lines += struck.communicate(timeout=240)[0].splitlines()
    got, differing = losses(lines)
    assert struck.returncode == 0
    assert len(lines) > STEPS, "some steps are done again"
    assert (got, differing) == (due, 0)
