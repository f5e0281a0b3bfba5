"""A rank killed under torchrun: the group forms again and the losses are those of a run that nobody disturbed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from faults import losses, ranks_of, torchrun
from tests.distributed.ranks import run_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "elastic.py"
STEPS, NUM_RANKS = 20, 2


@pytest.mark.slow
def test_a_killed_rank_leaves_the_losses_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "calm").mkdir()
    calm = run_script(EXAMPLE, NUM_RANKS, tmp_path, str(tmp_path / "calm"), settings={"STEPS": str(STEPS)})
    due, _ = losses(calm.splitlines())
    assert sorted(due) == list(range(STEPS))
    struck = torchrun(tmp_path / "struck", STEPS, 2, 0.1, NUM_RANKS)
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
